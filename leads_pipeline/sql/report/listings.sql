-- The $shown most wanted listings.
select listing_id, branch, property_type, bedrooms, town, price, rent_frequency, leads, viewings
from mart_listing_demand
order by leads desc, listing_id
limit $shown
