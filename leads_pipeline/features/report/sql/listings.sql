-- The ten listings that most leads of the period ask about.
, wanted as (
    select scope, listing_id, count(*) as leads, count(*) filter (wants_viewing) as viewings
    from leads
    where weeks_back = 0 and listing_id is not null
    group by scope, listing_id
    order by leads desc, viewings desc, listing_id
    limit 10
)

select
    listing_id,
    branch,
    nullif(property_type, 'unknown') as property_type,
    bedrooms,
    nullif(town, 'unknown') as town,
    price,
    currency,
    rent_frequency,
    wanted.leads,
    wanted.viewings
from wanted
join mart_listing_demand using (scope, listing_id)
order by wanted.leads desc, wanted.viewings desc, listing_id
