-- One row per local day, scope and listing that people asked about: which listings were asked for in a week or a month?
-- *lead_day: Local day on which the leads were submitted
-- scope: Scope whose window held them, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- listing_id: Id of the listing; mart_listing_demand says what it is. Leads that name none don't count
-- leads: Leads about it
-- viewings: Leads that ask for a viewing

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    listing_details_id as listing_id,
    count(*) as leads,
    count(*) filter (organise_viewing) as viewings
from applicant_leads
where trim(listing_details_id) <> ''
group by lead_day, scope, listing_details_id
order by lead_day, scope, listing_id
