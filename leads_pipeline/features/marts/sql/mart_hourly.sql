-- One row per local day, hour, scope, kind and market: when do people ask?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- weekday integer: Day of the week of that day, 1 is Monday and 7 Sunday
-- hour integer: Local hour, 0 to 23
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- kind varchar: applicant or appraisal
-- market varchar: sales or lettings, from the enquiry's type or else the intent; unknown if neither says
-- leads bigint: Leads submitted in it; those whose moment the portal doesn't know don't count

select
    lead_day,
    isodow(lead_day)::integer as weekday,
    hour,
    scope,
    branch_of(scope) as branch,
    kind,
    market,
    count(*) as leads
from lead_facts
where hour is not null
group by lead_day, hour, scope, kind, market
