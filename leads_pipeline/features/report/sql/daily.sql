-- Leads of each of the last $days days by kind, and how many windows of it should be there and are not.
, grid as (
    select day, count(*) filter (state in ('failed', 'missing')) as not_landed
    from mart_coverage, days
    where is_configured and day > before
    group by day
),
leads as (
    select lead_day, map_from_entries(list((kind, leads))) as leads
    from (select lead_day, kind, sum(leads)::bigint as leads from mart_leads_daily group by lead_day, kind)
    group by lead_day
)
select day, leads, not_landed
from grid
left join leads on lead_day = day
order by day
