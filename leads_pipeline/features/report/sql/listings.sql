-- The most wanted listings of the last seven closed days.
, wanted as (
    select scope, listing_id, sum(leads)::bigint as leads, sum(viewings)::bigint as viewings
    from mart_listing_daily, days
    where lead_day between full_day - 6 and full_day
    group by scope, listing_id
    order by leads desc, viewings desc, listing_id
    limit 10
)
select listing_id, branch, property_type, bedrooms, town, price, rent_frequency, wanted.leads, wanted.viewings
from wanted
join mart_listing_demand using (scope, listing_id)
order by wanted.leads desc, wanted.viewings desc, listing_id
