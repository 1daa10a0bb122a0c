-- Leads of each weekday and hour.
select weekday, hour, sum(leads)::bigint as leads from mart_hourly group by all
