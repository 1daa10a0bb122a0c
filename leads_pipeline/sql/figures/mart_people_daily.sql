-- Figures of mart_people_daily: one row, a column a figure.
select
    count(distinct person) filter (lead_day = full_day) as people_of_last_full_day,
    count(distinct person) filter (lead_day between full_day - 6 and full_day) as people_of_last_7_full_days
from mart_people_daily, days
