-- One row per person, over all branches and days: who comes back, how often, and to how many branches?
-- person uuid: Keyed hash of the e-mail address, or of the telephone number if there is none
-- leads bigint: Leads of the person
-- applicant_leads bigint: Those that ask about a listing
-- appraisal_leads bigint: Those that ask for a valuation
-- scopes bigint: Different scopes that the person turned to
-- branches varchar[]: Names of these branches, in the order of the alphabet
-- days bigint: Different local days on which the person asked
-- first_lead_day date: Local day of the first lead
-- last_lead_day date: Local day of the last lead

select
    person,
    count(*) as leads,
    count(*) filter (kind = 'applicant') as applicant_leads,
    count(*) filter (kind = 'appraisal') as appraisal_leads,
    count(distinct scope) as scopes,
    list_sort(list(distinct branch_of(scope))) as branches,
    count(distinct lead_day) as days,
    min(lead_day) as first_lead_day,
    max(lead_day) as last_lead_day
from lead_facts
where person is not null
group by person
