-- One row per local day, scope, kind and market, of branches with opening hours: how many leads come while the branch is closed?
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant or appraisal
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- leads bigint: Leads submitted in it; those whose moment the portal doesn't know don't count
-- leads_while_closed bigint: Those of them outside of the column opening_hours of LEADS_BRANCHES_FILE, or on a bank holiday

with leads as (
    select
        lead_day,
        scope,
        kind,
        market,
        isodow(local_time(created_at)) as weekday,
        60 * hour(local_time(created_at)) + minute(local_time(created_at)) as minute
    from lead_facts
    where created_at is not null
),

marked as (
    select
        leads.*,
        lead_day in (select day from pipeline.bank_holidays) or not exists (
            select 1
            from pipeline.opening_hours as hours
            where
                hours.scope = leads.scope
                and hours.weekday = leads.weekday
                and leads.minute >= hours.opens
                and leads.minute < hours.closes
        ) as is_closed
    from leads
    where scope in (select scope from pipeline.opening_hours)
)

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    count(*) as leads,
    count(*) filter (is_closed) as leads_while_closed
from marked
group by lead_day, scope, kind, market
