-- One row per lead, once there are answers of your own: how long did it wait for the first? Empty without answers.csv
-- kind varchar: applicant or appraisal
-- lead_id varchar: The lead's own id
-- lead_day date: Local day on which the lead was submitted
-- scope varchar: Scope of the lead, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- answered_at timestamptz: When it was first answered, UTC; NULL if the table answers has no moment
-- minutes bigint: Whole minutes from the lead to that answer, 0 if it was within the lead's minute. Nights and closed days count. NULL if it wasn't answered, or the portal doesn't know the lead's moment

with answered as (
    select lead_id, min(answered_at) as answered_at
    from answers
    where problem is null
    group by lead_id
)

select
    leads.kind,
    leads.lead_id,
    leads.lead_day,
    leads.scope,
    branch_of(leads.scope) as branch,
    leads.market,
    answered.answered_at,
    date_sub('minute', leads.created_at, answered.answered_at) as minutes
from lead_facts as leads
left join answered on answered.lead_id = leads.lead_id
where exists (select 1 from answered)
