-- Leads of the period by weekday and hour.
select isodow(lead_day) as weekday, hour, count(*) as leads
from leads
where weeks_back = 0 and hour is not null
group by all
