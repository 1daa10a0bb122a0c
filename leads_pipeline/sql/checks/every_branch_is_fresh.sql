-- Each kind and branch whose newest landed day is older than $stale_days days.
with last as (select max(day) as today from mart_coverage where is_configured)
select kind, scope, branch, max(day) filter (state in ('landed', 'empty', 'partial')) as newest
from mart_coverage, last
where is_configured
group by kind, scope, branch, today
having coalesce(newest < today - $stale_days::integer, min(day) < today - $stale_days::integer)
order by newest nulls first, kind, scope
