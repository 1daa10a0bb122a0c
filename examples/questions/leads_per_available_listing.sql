-- What is on offer, and who asks? Each listing that the newest search found, those that nobody asks about first;
-- the last column is their mean, the same in each row. The inventory has no branch: an agency's listings are one stock.
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
