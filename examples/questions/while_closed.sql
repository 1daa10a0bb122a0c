-- How many leads come while the branch is closed? The last 30 days, of branches with opening_hours in the branches file.
select
    branch,
    sum(leads) as leads,
    sum(leads_while_closed) as while_closed,
    round(100 * sum(leads_while_closed) / sum(leads), 1) as percent
from mart_opening_hours
where lead_day between current_date - 30 and current_date - 1
group by branch
order by branch
