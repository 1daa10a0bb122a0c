-- One row per person who has a property to sell or to let and asked for no appraisal: whom should the agent call next? Without who objected to direct marketing
-- *person: Keyed hash of the e-mail address or telephone number, as in the tables of leads and in mart_people
-- lead_id: The person's newest such lead; applicant_leads has their name and number for whoever may see it
-- lead_day: Local day of that lead
-- scope: Scope of that lead, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- market: sales or lettings: what the person is looking for
-- situation: property to sell or property to let: what the person has
-- enquiries: Leads in which the person said so
-- first_lead_day: Local day of the first of them

with source as (
    select
        person,
        lead_id,
        lead_day,
        scope,
        market_of(enquiry_type, intent) as market,
        readable(consumer_situation) as situation,
        row_number() over (partition by person order by lead_day desc, created_at desc, lead_id) as number,
        count(*) over (partition by person) as enquiries,
        min(lead_day) over (partition by person) as first_lead_day
    from applicant_leads
    where consumer_situation in ('CONSUMER_SITUATION_PROPERTY_TO_SELL', 'CONSUMER_SITUATION_PROPERTY_TO_LET')
        and person is not null
        and person not in (select person from pipeline.objected)
)

select
    person,
    lead_id,
    lead_day,
    scope,
    branch_of(scope) as branch,
    market,
    situation,
    enquiries,
    first_lead_day
from source
where number = 1 and person not in (select person from appraisal_leads where person is not null)
order by lead_day desc, scope, lead_id
