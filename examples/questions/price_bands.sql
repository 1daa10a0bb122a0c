-- Which price bands are in demand? Rents are per month; a listing without a price is in the band unknown.
select
    market,
    price_band,
    count(*) as listings,
    sum(leads) as leads,
    sum(viewings) as viewings
from mart_listing_demand
group by market, price_band, price_band_from
order by market, price_band_from
