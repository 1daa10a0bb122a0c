-- How many leads of the period were answered, and after how many minutes half of them; NULL is all branches.
select
    scope,
    count(*) as leads,
    count(answered_at) as answered,
    median(minutes) as minutes
from mart_answers, period
where lead_day between last_day - 6 and last_day and ($scope::varchar is null or scope = $scope)
group by grouping sets ((scope), ())
having count(*) > 0
