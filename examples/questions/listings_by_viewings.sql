-- Which listings do people want to see? The twenty with the most viewings asked for in the last seven days.
select
    branch,
    listing_id,
    address,
    url,
    sum(daily.viewings) as viewings,
    sum(daily.leads) as leads
from mart_listing_daily as daily
join mart_listing_demand as listings using (scope, branch, listing_id)
where lead_day between current_date - 7 and current_date - 1
group by branch, listing_id, address, url
order by viewings desc, leads desc, listing_id
limit 20
