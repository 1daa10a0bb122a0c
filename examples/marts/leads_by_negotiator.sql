-- One row per week and negotiator: how many leads came for whom?
-- week date: Monday of the week
-- branch varchar: Name of the branch, or its scope
-- negotiator varchar: Who answers for this branch and market, from negotiators.csv; nobody if no line names them
-- leads bigint: Leads
-- people bigint: Different people; not additive over weeks

select
    date_trunc('week', leads.lead_day)::date as week,
    branch_of(leads.scope) as branch,
    coalesce(negotiators.negotiator, 'nobody') as negotiator,
    count(*) as leads,
    count(distinct leads.person) as people
from lead_facts as leads
left join negotiators on negotiators.scope = leads.scope and negotiators.market = leads.market
group by week, branch, negotiator
