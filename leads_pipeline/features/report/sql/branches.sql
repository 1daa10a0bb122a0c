-- Each branch with windows in the period or leads, the one with most leads first.
, scopes as (
    select scope from leads where weeks_back = 0
    union
    select scope from windows where weeks_back = 0
),

counted as (
    select
        scope,
        count(*) filter (weeks_back = 0) as leads,
        count(*) filter (weeks_back = 1) as before,
        count(*) filter (weeks_back = 52) as last_year,
        count(distinct person) filter (weeks_back = 0) as people,
        count(*) filter (weeks_back = 0 and wants_viewing) as viewings,
        count(*) filter (weeks_back = 0 and kind = 'appraisal') as valuations
    from leads
    group by scope
)

select
    scope,
    branch_of(scope) as name,
    coalesce(leads, 0) as leads,
    coalesce(before, 0) as before,
    coalesce(last_year, 0) as last_year,
    coalesce(people, 0) as people,
    coalesce(viewings, 0) as viewings,
    coalesce(valuations, 0) as valuations
from scopes
left join counted using (scope)
order by leads desc, name
