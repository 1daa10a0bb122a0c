-- One row per local day, scope and listing that people asked about: which listings were asked for in a week or a month?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- listing_id varchar: Id of the listing; mart_listing_demand describes it. Leads without a listing don't count
-- leads bigint: Leads about it
-- viewings bigint: Leads that ask for a viewing

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    listing_id,
    count(*) as leads,
    count(*) filter (wants_viewing) as viewings
from lead_facts
where listing_id is not null
group by lead_day, scope, listing_id
