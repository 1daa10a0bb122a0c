-- How many leads does each branch get in a month? The last twelve months; is_whole says whether all days have landed.
select
    branch,
    month,
    sum(leads) as leads,
    sum(viewings) as viewings,
    bool_and(is_whole) as is_whole
from mart_monthly
where month >= date_trunc('month', current_date) - interval 12 months
group by branch, month
order by branch, month
