-- The days of the period, and how new the data is.
select
    last_day - 6 as first_day,
    last_day,
    is_week,
    today,
    landed_day,
    local_time(as_of) as as_of
from period
