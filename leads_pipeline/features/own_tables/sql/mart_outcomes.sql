-- One row per local day, scope, kind, market, source and portal source, once there are outcomes of your own: how many leads became appointments and instructions, and what did they cost? Empty without outcomes.csv, and without outcomes of Alto
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant or appraisal
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- source varchar: Site that the leads came from, readable, as in lead_facts
-- portal_source varchar: Product or campaign of the portal that brought them, readable, e.g. prospectplus
-- leads bigint: Leads
-- rejected bigint: Leads that were rejected
-- appointments bigint: Leads with an appointment, or with an instruction
-- instructions bigint: Leads with an instruction
-- price decimal(18,2): What they cost, by lead_prices.csv, in its currency; NULL if it has no price for the portal source

with outcome_of as (
    select
        lead_id,
        bool_or(outcome = 'rejected') as is_rejected,
        bool_or(outcome in ('appointment', 'instruction')) as has_appointment,
        bool_or(outcome = 'instruction') as has_instruction
    from outcomes
    where problem is null
    group by lead_id
),

price_of as (
    select
        lower(portal_source) as portal_source,
        max(price) as price
    from pipeline.lead_prices
    where price is not null
    group by lower(portal_source)
)

select
    leads.lead_day,
    leads.scope,
    branch_of(leads.scope) as branch,
    leads.kind,
    leads.market,
    leads.source,
    leads.portal_source,
    count(*) as leads,
    count(*) filter (where outcome_of.is_rejected) as rejected,
    count(*) filter (where outcome_of.has_appointment) as appointments,
    count(*) filter (where outcome_of.has_instruction) as instructions,
    try_cast(sum(price_of.price) as decimal(18, 2)) as price
from lead_facts as leads
left join outcome_of on outcome_of.lead_id = leads.lead_id
left join price_of on price_of.portal_source = leads.portal_source
where exists (select 1 from outcome_of)
group by leads.lead_day, leads.scope, leads.kind, leads.market, leads.source, leads.portal_source
