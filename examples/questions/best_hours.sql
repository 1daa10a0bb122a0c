-- When should somebody be at the telephone? The five busiest hours of each market in the last four weeks.
select
    market,
    weekday,
    hour,
    sum(leads) as leads
from mart_hourly
where lead_day between current_date - 28 and current_date - 1
group by market, weekday, hour
qualify row_number() over (partition by market order by sum(leads) desc, weekday, hour) <= 5
order by market, leads desc, weekday, hour
