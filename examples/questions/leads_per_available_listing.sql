-- What is on offer, and who asks? Each listing that the newest search found, those that nobody asks about first.
select
    item_id,
    address,
    first_seen_day,
    leads,
    viewings,
    round(avg(leads) over (), 2) as leads_per_listing
from mart_listing_stock
where is_available
order by leads, first_seen_day, item_id
