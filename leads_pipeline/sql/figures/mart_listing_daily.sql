-- Figures of mart_listing_daily: one row, a column a figure.
select coalesce(sum(viewings) filter (lead_day between full_day - 6 and full_day), 0) as viewings_of_last_7_full_days
from mart_listing_daily, days
