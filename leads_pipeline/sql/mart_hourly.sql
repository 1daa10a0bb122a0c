-- One row per scope, kind, weekday and hour of the agency's time zone: when do people ask?
-- scope: Scope whose window held the leads, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- kind: applicant or appraisal
-- weekday: Local day of the week, 1 is Monday and 7 Sunday
-- hour: Local hour, 0 to 23
-- leads: Leads submitted in it, of all weeks; those whose moment the portal doesn't know don't count

with source as (
    select 'applicant' as kind, scope, created_at
    from applicant_leads
    union all
    select 'appraisal' as kind, scope, created_at
    from appraisal_leads
),

-- Quarters of an hour, as no zone's offset is finer: there are few, and each is looked up once.
cleaned as (
    select kind, scope, floor(epoch(created_at) / 900)::integer as quarter
    from source
    where created_at is not null
),

quarters as (
    select quarter, timezone('UTC', to_timestamp(quarter * 900.0)) + zone_offsets.ahead_of_utc as local_at
    from (select distinct quarter from cleaned)
    asof inner join zone_offsets on to_timestamp(quarter * 900.0) >= zone_offsets.since
),

local as (
    select quarter, isodow(local_at)::integer as weekday, hour(local_at)::integer as hour
    from quarters
)

select
    scope,
    branch_of(scope) as branch,
    kind,
    weekday,
    hour,
    count(*) as leads
from cleaned
inner join local using (quarter)
group by scope, kind, weekday, hour
order by scope, kind, weekday, hour
