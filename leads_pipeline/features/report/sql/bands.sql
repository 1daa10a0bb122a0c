-- Applicant leads of each market and price band, the dearest first.
select market, price_band, sum(leads)::bigint as leads
from mart_listing_demand
where price_band_from is not null and market <> 'unknown'
group by market, price_band, price_band_from
order by market, price_band_from desc
