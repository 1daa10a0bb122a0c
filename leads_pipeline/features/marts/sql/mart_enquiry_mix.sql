-- One row per local day, scope, market and situation: who asks, first-time buyers, investors, people with a home?
-- by lead_day
-- lead_day date: Local day on which the leads were submitted
-- scope varchar: Scope of the leads, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- market varchar: sales or lettings
-- situation varchar: What the person says of their own situation, readable, e.g. first time buyer; unknown if they don't say
-- leads bigint: Applicant leads
-- people bigint: Different people of this row; leads without e-mail address and telephone number don't count. Not additive, as one person can be in several rows: use `count(distinct person)` of applicant_leads
-- viewings bigint: Leads that ask for a viewing

select
    lead_day,
    scope,
    branch_of(scope) as branch,
    market,
    situation,
    count(*) as leads,
    count(distinct person) as people,
    count(*) filter (wants_viewing) as viewings
from lead_facts
where kind = 'applicant'
group by lead_day, scope, market, situation
