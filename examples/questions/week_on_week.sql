-- How does each branch do, week on week, from Monday to Sunday? Changes are between two weeks that are landed as a whole.
with weeks as (
    select
        date_trunc('week', day)::date as week,
        scope,
        branch,
        count(distinct day) = 7 and bool_and(state in ('landed', 'empty')) as is_whole
    from mart_coverage
    where is_configured and day < date_trunc('week', current_date)
    group by all
),

counted as (
    select date_trunc('week', lead_day)::date as week, scope, sum(leads) as leads, count(distinct person) as people
    from mart_people_daily
    group by week, scope
),

figures as (
    select branch, scope, week, is_whole, coalesce(leads, 0) as leads, coalesce(people, 0) as people
    from weeks
    left join counted using (week, scope)
)

select
    branch,
    week,
    is_whole,
    leads,
    if(is_whole and lag(is_whole) over branches, leads - lag(leads) over branches, null) as more_leads,
    people,
    if(is_whole and lag(is_whole) over branches, people - lag(people) over branches, null) as more_people
from figures
window branches as (partition by scope order by week)
order by branch, week
