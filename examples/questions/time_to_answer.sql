-- How long do people wait for our answer? Leads of the last 30 days; answers.csv says when you answered.
select
    branch,
    kind,
    count(*) as leads,
    count(answered_at) as answered,
    median(minutes) as median_minutes,
    quantile_cont(minutes, 0.9) as nine_of_ten_within_minutes
from mart_answers
where lead_day between current_date - 30 and current_date - 1
group by branch, kind
order by branch, kind
