-- One row per local day, scope, kind, market, source and portal_source: how many leads came, from how many people?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant or appraisal
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- source varchar: Site that the leads came from, one name over both kinds, readable, e.g. zoopla website; unknown if the portal doesn't say, … if it sends a value that may name a person
-- portal_source varchar: Product or campaign of the portal that brought them, readable, e.g. listing, prospectplus; unknown or … as in source
-- leads bigint: Leads
-- people bigint: Different people of this row, by e-mail address, or telephone number if there is none; leads with neither don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of mart_people_daily

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    source,
    portal_source,
    count(*) as leads,
    count(distinct person) as people
from lead_facts
group by lead_day, scope, kind, market, source, portal_source
