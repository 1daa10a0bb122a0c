-- One row per week from Monday to Sunday, scope, kind and market: how many leads came, from how many people?
-- week date: Monday of the week
-- iso_week varchar: The week by ISO 8601, e.g. 2026-W47
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant or appraisal
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- leads bigint: Leads. There is no row if there is none
-- people bigint: Different people of this row; leads without e-mail address and telephone number don't count. On days that retention has made anonymous, a person counts once a day. Not additive, as one person can be in several rows: use `count(distinct person)` of mart_people_daily
-- viewings bigint: Leads that ask for a viewing
-- is_whole boolean: Whether all seven days have landed; NULL for a scope without windows

with weeks as (
    select
        kind,
        scope,
        date_trunc('week', day)::date as week,
        count(*) filter (state in ('landed', 'empty')) = 7 as is_whole
    from mart_coverage
    group by all
),

counted as (
    select
        date_trunc('week', lead_day)::date as week,
        scope,
        kind,
        market,
        count(*) as leads,
        count(distinct person) as people,
        count(*) filter (wants_viewing) as viewings
    from lead_facts
    group by all
)

select
    counted.week,
    strftime(counted.week, '%G-W%V') as iso_week,
    counted.scope,
    branch_of(counted.scope) as branch,
    counted.kind,
    counted.market,
    counted.leads,
    counted.people,
    counted.viewings,
    weeks.is_whole
from counted
left join weeks on weeks.week = counted.week and weeks.scope = counted.scope and weeks.kind = counted.kind
