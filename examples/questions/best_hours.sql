-- When should somebody be at the telephone? The five busiest hours of each market in the last four weeks.
select
    market,
    ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'][weekday] as weekday,
    hour,
    sum(leads) as leads
from mart_hourly
where lead_day between current_date - 28 and current_date - 1
group by market, mart_hourly.weekday, hour
qualify row_number() over (partition by market order by sum(leads) desc, mart_hourly.weekday, hour) <= 5
order by market, leads desc, mart_hourly.weekday, hour
