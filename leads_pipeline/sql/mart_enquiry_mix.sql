-- One row per local day, scope, market and situation: who asks, first-time buyers, investors, people with a home?
-- *lead_day: Local day on which the leads were submitted
-- scope: Scope whose window held them, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- market: sales or lettings
-- situation: What the person says of their own situation, readable, e.g. first time buyer; unknown where they don't say
-- leads: Applicant leads
-- people: Different people of this row; leads without e-mail address and telephone number don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of applicant_leads
-- viewings: Leads that ask for a viewing

-- A dozen texts are read, and not one a lead.
with situations as (
    select
        consumer_situation,
        readable(consumer_situation) as situation
    from (select distinct consumer_situation from applicant_leads)
),

source as (
    select
        leads.lead_day,
        leads.scope,
        market_of(leads.enquiry_type, leads.intent) as market,
        situations.situation,
        leads.organise_viewing,
        leads.person
    from applicant_leads as leads
    join situations on leads.consumer_situation is not distinct from situations.consumer_situation
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    market,
    situation,
    count(*) as leads,
    count(distinct person) as people,
    count(*) filter (organise_viewing) as viewings
from source
group by lead_day, scope, market, situation
order by lead_day, scope, market, situation
