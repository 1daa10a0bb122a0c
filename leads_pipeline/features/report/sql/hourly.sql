-- Leads of each weekday and hour, in the four weeks up to the newest closed day.
select weekday, hour, sum(leads)::bigint as leads
from mart_hourly, days
where lead_day between full_day - 27 and full_day
group by all
