-- Figures of mart_hourly: one row, a column a figure.
select arg_max(hour, leads) as busiest_hour, max(leads) as leads_of_busiest_hour
from (select hour, sum(leads) as leads from mart_hourly group by hour order by hour)
