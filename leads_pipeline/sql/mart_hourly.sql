-- One row per scope, kind, weekday and hour of the agency's time zone: when do people ask?
-- scope: Scope whose window held the leads, e.g. branch-101
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

-- Quarters of an hour, as no zone's offset is finer: few of them need their local time looked up.
cleaned as (
    select kind, scope, time_bucket(interval 15 minutes, created_at) as quarter, count(*) as leads
    from source
    where created_at is not null
    group by kind, scope, quarter
),

local as (
    select kind, scope, timezone(getvariable('zone'), quarter) as local_at, leads
    from cleaned
)

select
    scope,
    kind,
    isodow(local_at)::integer as weekday,
    hour(local_at)::integer as hour,
    sum(leads)::bigint as leads
from local
group by scope, kind, isodow(local_at), hour(local_at)
order by scope, kind, weekday, hour
