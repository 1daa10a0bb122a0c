-- Leads of each kind, branch and day; all branches but the $shown busiest ones as $others.
with last as (select max(day) as day from mart_coverage where is_configured),
recent as (select mart_leads_daily.* from mart_leads_daily, last where lead_day > last.day - $days::integer),
ranked as (
    select scope, row_number() over (order by sum(leads) desc, scope) as rank from recent group by scope
)
select kind, if(rank <= $shown, scope, $others) as branch, lead_day, sum(leads)::bigint as leads
from recent join ranked using (scope)
group by all
order by kind, min(rank), lead_day
