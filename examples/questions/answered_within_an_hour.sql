-- What share of its leads does each branch answer within an hour, week by week? answers.csv says when you answered.
select
    branch,
    date_trunc('week', lead_day)::date as week,
    count(*) as leads,
    count(*) filter (minutes <= 60) as within_an_hour,
    round(100 * count(*) filter (minutes <= 60) / count(*), 1) as percent
from mart_answers
where lead_day < date_trunc('week', current_date)
group by branch, week
order by branch, week
