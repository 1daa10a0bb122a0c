-- How many first-time buyers ask each branch about a sale? The last 30 days; no person counts twice at a branch.
select
    branch,
    sum(leads) filter (situation = 'first time buyer') as leads,
    count(distinct person) filter (situation = 'first time buyer') as people,
    round(100 * sum(leads) filter (situation = 'first time buyer') / sum(leads), 1) as percent_of_leads
from mart_people_daily
where kind = 'applicant' and market = 'sales' and lead_day between current_date - 30 and current_date - 1
group by branch
order by branch
