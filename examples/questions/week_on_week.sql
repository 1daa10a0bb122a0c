-- How does each branch do, week on week? Whole weeks from Monday on, a week without a lead too.
with weeks as (
    select distinct date_trunc('week', day)::date as week, scope, branch
    from mart_coverage
    where is_configured and day < date_trunc('week', current_date)
),

counted as (
    select date_trunc('week', lead_day)::date as week, scope, sum(leads) as leads, count(distinct person) as people
    from mart_people_daily
    group by week, scope
)

select
    branch,
    week,
    coalesce(leads, 0) as leads,
    coalesce(leads, 0) - lag(coalesce(leads, 0)) over branches as more_leads,
    coalesce(people, 0) as people,
    coalesce(people, 0) - lag(coalesce(people, 0)) over branches as more_people
from weeks
left join counted using (week, scope)
window branches as (partition by scope order by week)
order by branch, week
