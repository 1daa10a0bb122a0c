-- One row per local day, scope, kind, market and source: how many leads came, from how many people?
-- *lead_day: Local day on which the leads were submitted
-- scope: Scope whose window held them, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- kind: applicant or appraisal
-- market: sales or lettings, from the enquiry's type or else the intent; unknown where neither says
-- source: Site that the leads came from, as the portal names it; unknown where it doesn't say, … where it sends what may name a person
-- leads: Leads
-- people: Different people of this row, by e-mail address, or telephone number where there is none; leads with neither don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of mart_people_daily

with source as (
    select 'applicant' as kind, lead_day, scope, enquiry_type, intent, lead_source, person
    from applicant_leads
    union all
    select 'appraisal' as kind, lead_day, scope, enquiry_type, intent, lead_source, person
    from appraisal_leads
),

cleaned as (
    select
        lead_day,
        scope,
        kind,
        market_of(enquiry_type, intent) as market,
        coalesce(as_member(trim(lead_source)), 'unknown') as source,
        person
    from source
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    source,
    count(*) as leads,
    count(distinct person) as people
from cleaned
group by lead_day, scope, kind, market, source
order by lead_day, scope, kind, market, source
