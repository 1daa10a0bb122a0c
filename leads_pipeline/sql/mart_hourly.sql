-- One row per local day, hour, scope, kind and market: when do people ask?
-- *lead_day: Local day on which the leads were submitted
-- weekday: Day of the week of that day, 1 is Monday and 7 Sunday
-- hour: Local hour, 0 to 23
-- scope: Scope whose window held the leads, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- kind: applicant or appraisal
-- market: sales or lettings, from the enquiry's type or else the intent; unknown where neither says
-- leads: Leads submitted in it; those whose moment the portal doesn't know don't count

with source as (
    select 'applicant' as kind, lead_day, scope, created_at, enquiry_type, intent
    from applicant_leads
    union all
    select 'appraisal' as kind, lead_day, scope, created_at, enquiry_type, intent
    from appraisal_leads
),

cleaned as (
    select
        kind,
        lead_day,
        scope,
        market_of(enquiry_type, intent) as market,
        hour(local_time(created_at))::integer as hour
    from source
    where created_at is not null
)

select
    lead_day,
    isodow(lead_day)::integer as weekday,
    hour,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    count(*) as leads
from cleaned
group by lead_day, hour, scope, kind, market
order by lead_day, hour, scope, kind, market
