-- One row per month, scope, kind and market: how many leads came, from how many people?
-- month date: First day of the month
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant or appraisal
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- leads bigint: Leads. There is no row if there is none
-- people bigint: Different people of this row; leads without e-mail address and telephone number don't count. On days that retention has made anonymous, a person counts once a day. Not additive, as one person can be in several rows: use `count(distinct person)` of mart_people_daily
-- viewings bigint: Leads that ask for a viewing
-- is_whole boolean: Whether all days of the month have landed; NULL for a scope without windows

with months as (
    select
        kind,
        scope,
        date_trunc('month', day)::date as month,
        count(*) filter (state in ('landed', 'empty')) = day(last_day(any_value(day))) as is_whole
    from mart_coverage
    group by kind, scope, date_trunc('month', day)
),

counted as (
    select
        date_trunc('month', lead_day)::date as month,
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
    counted.month,
    counted.scope,
    branch_of(counted.scope) as branch,
    counted.kind,
    counted.market,
    counted.leads,
    counted.people,
    counted.viewings,
    months.is_whole
from counted
left join months on months.month = counted.month and months.scope = counted.scope and months.kind = counted.kind
