-- One row per person and what mart_leads_daily has a row per: from how many different people did any of the leads come?
-- *lead_day: Local day on which the leads were submitted
-- scope: Scope whose window held them, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- kind: applicant or appraisal
-- market: sales or lettings, from the enquiry's type or else the intent; unknown where neither says
-- source: Site that the leads came from, as the portal names it; unknown where it doesn't say, … where it sends what may name a person
-- person: Keyed hash of the e-mail address, or of the telephone number where there is none; NULL where neither is given. `count(distinct person)` is the number of different people of any rows
-- leads: Leads of that person, or of all whose person isn't known; `sum(leads)` is the number of leads of any rows

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
    person,
    count(*) as leads
from cleaned
group by lead_day, scope, kind, market, source, person
order by lead_day, scope, kind, market, source
