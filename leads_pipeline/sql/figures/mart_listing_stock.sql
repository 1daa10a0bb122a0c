-- Figures of mart_listing_stock: one row, a column a figure.
select
    count(*) filter (is_available) as available,
    count(*) filter (is_available and leads = 0) as available_without_a_lead
from mart_listing_stock
