-- One row per person, over all branches and days: who comes back, how often, and to how many branches?
-- *person: Keyed hash of the e-mail address, or of the telephone number where there is none
-- leads: Leads of the person
-- applicant_leads: Those that ask about a listing
-- appraisal_leads: Those that ask for a valuation
-- scopes: Different scopes that the person turned to
-- branches: Names of these branches, in the order of the alphabet
-- days: Different local days on which the person asked
-- first_lead_day: Local day of the first lead
-- last_lead_day: Local day of the last lead

with source as (
    select 'applicant' as kind, person, scope, lead_day
    from applicant_leads
    where person is not null
    union all
    select 'appraisal' as kind, person, scope, lead_day
    from appraisal_leads
    where person is not null
),

people as (
    select
        person,
        count(*) as leads,
        count(*) filter (kind = 'applicant') as applicant_leads,
        count(*) filter (kind = 'appraisal') as appraisal_leads,
        min(lead_day) as first_lead_day,
        max(lead_day) as last_lead_day,
        min(scope) as scope,
        min(scope) <> max(scope) or first_lead_day <> last_lead_day as is_returning
    from source
    group by person
),

-- Counting what is different costs most by far, and few people have more than one of anything.
several as (
    select
        person,
        count(distinct scope) as scopes,
        list_sort(list(distinct branch_of(scope))) as branches,
        count(distinct lead_day) as days
    from source
    where person in (select person from people where is_returning)
    group by person
)

select
    people.person,
    people.leads,
    people.applicant_leads,
    people.appraisal_leads,
    coalesce(several.scopes, 1) as scopes,
    coalesce(several.branches, [branch_of(people.scope)]) as branches,
    coalesce(several.days, 1) as days,
    people.first_lead_day,
    people.last_lead_day
from people
left join several using (person)
order by people.person
