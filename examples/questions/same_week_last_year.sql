-- How was last week, against the week before and the same week of last year? A week has Monday to Sunday. If the last two aren't whole, days are missing.
select
    branch,
    sum(leads) filter (week = last_week) as leads,
    sum(leads) filter (week = last_week - 7) as week_before,
    sum(leads) filter (week = last_week - 364) as last_year,
    bool_and(is_whole) filter (week >= last_week - 7 and week <= last_week) as are_whole
from mart_weekly, (select date_trunc('week', current_date)::date - 7 as last_week)
group by branch
order by branch
