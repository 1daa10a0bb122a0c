-- Applicant leads of the period by market, currency and price band of the listing, the dearest first.
select listings.market, currency, price_band, count(*) as leads
from leads
join mart_listing_demand as listings using (scope, listing_id)
where weeks_back = 0 and price_band_from is not null and listings.market <> 'unknown'
group by listings.market, currency, price_band, price_band_from
order by listings.market desc, currency, price_band_from desc
