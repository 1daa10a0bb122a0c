-- One row per local day and scope: how long after leads were submitted were they received?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- leads bigint: Leads submitted in it; those whose moment the portal doesn't know don't count
-- minutes_p50 double: Half of them were received within this many minutes. Without pushes, they come with the nightly pull. If the portal changed a lead, its newest version counts
-- minutes_p95 double: 95 of 100 were received within this many minutes

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    count(*) as leads,
    round(quantile_cont(epoch(fetched_at - created_at) / 60, 0.5), 1) as minutes_p50,
    round(quantile_cont(epoch(fetched_at - created_at) / 60, 0.95), 1) as minutes_p95
from every_lead
where created_at is not null
group by lead_day, scope
