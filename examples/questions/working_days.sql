-- How many leads come on a working day, on a weekend day, and on a bank holiday? The mean of the last 30 days.
select
    case
        when bank_holiday is not null then 'bank holiday'
        when is_working_day then 'working day'
        else 'weekend'
    end as kind_of_day,
    count(*) as days,
    coalesce(sum(leads), 0) as leads,
    round(coalesce(sum(leads), 0) / count(*), 1) as leads_per_day
from dates
left join (select lead_day, sum(leads) as leads from mart_leads_daily group by lead_day) on lead_day = day
where day between current_date - 30 and current_date - 1
group by kind_of_day
order by kind_of_day
