-- One row per person who has a property to sell or to let and asked for no appraisal: whom should the agent call next? People who objected to direct marketing are left out
-- person uuid: Keyed hash of the e-mail address or telephone number, as in the tables of leads and in mart_people
-- lead_id varchar: The person's newest such lead; applicant_leads has their name and number for people who may see it
-- lead_day date: Local day of that lead
-- scope varchar: Scope of that lead, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- market varchar: sales or lettings: what the person is looking for
-- situation varchar: property to sell or property to let: what the person has
-- enquiries bigint: Leads in which the person said so
-- first_lead_day date: Local day of the first of them

with source as (
    select
        *,
        row_number() over (partition by person order by lead_day desc, created_at desc, lead_id) as number,
        count(*) over (partition by person) as enquiries,
        min(lead_day) over (partition by person) as first_lead_day
    from lead_facts
    where situation in ('property to sell', 'property to let')
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
where number = 1
    and person not in (select person from lead_facts where kind = 'appraisal' and person is not null)
