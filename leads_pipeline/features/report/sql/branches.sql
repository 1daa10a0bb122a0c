-- Leads, people and viewings of the last seven closed days and of the seven before, by branch; NULL is all branches.
, weeks as (
    select scope, kind, person, leads, lead_day > full_day - 7 as is_last
    from mart_people_daily, days
    where lead_day between full_day - 13 and full_day
),
counted as (
    select
        scope,
        coalesce(sum(leads) filter (is_last), 0)::bigint as leads,
        coalesce(sum(leads) filter (not is_last), 0)::bigint as leads_before,
        coalesce(sum(leads) filter (is_last and kind = 'appraisal'), 0)::bigint as appraisals,
        count(distinct person) filter (is_last) as people,
        count(distinct person) filter (not is_last) as people_before
    from weeks
    group by grouping sets ((scope), ())
),
asked as (
    select
        scope,
        coalesce(sum(viewings) filter (lead_day > full_day - 7), 0)::bigint as viewings,
        coalesce(sum(viewings) filter (lead_day <= full_day - 7), 0)::bigint as viewings_before
    from mart_enquiry_mix, days
    where lead_day between full_day - 13 and full_day
    group by grouping sets ((scope), ())
),
windows as (
    select
        scope,
        count(*) filter (day between full_day - 6 and full_day and not is_there) as not_landed,
        -- A change is told where both weeks are whole: else it would be the pipeline's, and not the branch's.
        count(*) filter (day between full_day - 13 and full_day and is_there) = 14 * count(distinct (kind, scope))
            as is_comparable
    from (select *, state in ('landed', 'empty') as is_there from mart_coverage where is_configured), days
    group by grouping sets ((scope), ())
)
select
    scopes.scope,
    branch_of(scopes.scope) as name,
    coalesce(leads, 0) as leads,
    coalesce(leads_before, 0) as leads_before,
    coalesce(appraisals, 0) as appraisals,
    coalesce(people, 0) as people,
    coalesce(people_before, 0) as people_before,
    coalesce(viewings, 0) as viewings,
    coalesce(viewings_before, 0) as viewings_before,
    coalesce(not_landed, 0) as not_landed,
    coalesce(is_comparable, false) as is_comparable
from (select scope from counted union select scope from windows) as scopes
left join counted on counted.scope is not distinct from scopes.scope
left join asked on asked.scope is not distinct from scopes.scope
left join windows on windows.scope is not distinct from scopes.scope
order by scopes.scope is not null, leads desc, name
