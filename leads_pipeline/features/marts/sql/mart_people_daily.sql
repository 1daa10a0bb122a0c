-- One row per local day, scope, kind, market, source, portal_source, situation and person: how many different people asked?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant or appraisal
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- source varchar: Site that the leads came from, one name over both kinds, readable, e.g. zoopla website; unknown if the portal doesn't say, … if it sends a value that may name a person
-- portal_source varchar: Product or campaign of the portal that brought them, readable, e.g. listing, prospectplus; unknown or … as in source
-- situation varchar: What the applicants say of their own situation, readable, e.g. first time buyer; unknown if they don't say, and for appraisals
-- person uuid: Keyed hash of the e-mail address, or of the telephone number if there is none; NULL if neither is given. `count(distinct person)` is the number of different people of any rows
-- leads bigint: Leads of that person, or of all whose person isn't known; `sum(leads)` is the number of leads of any rows

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    source,
    portal_source,
    situation,
    person,
    count(*) as leads
from lead_facts
group by lead_day, scope, kind, market, source, portal_source, situation, person
