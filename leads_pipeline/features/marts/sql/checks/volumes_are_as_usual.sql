-- No branch's newest closed day has far more or fewer leads than the same weekday in the eight weeks before
-- table: mart_leads_daily
-- do: Ask the branch whether that is right. `leads-pipeline coverage` shows whether its windows landed.

-- Twice the roots of counts scatter by about 1 whatever the size of the branch (Anscombe 1948), and busy branches by
-- more, which their own days show. Four such deviations are about one false alarm a quarter with a hundred branches.
with days as (
    select kind, scope, branch, day, rows, 2 * sqrt(rows + 0.375) as root, max(day) over (partition by kind, scope) as newest
    from mart_coverage
    where state in ('landed', 'empty') and is_configured
),

usual as (
    select
        kind, scope, count(*) as weeks, avg(rows) as leads, avg(root) as root,
        -- The mean of a few weeks is uncertain itself.
        greatest(stddev_samp(root), 1) * sqrt(1 + 1 / count(*)) as spread
    from days
    where day between newest - 56 and newest - 7 and isodow(day) = isodow(newest)
    group by kind, scope
)

select
    format(
        '{} {}|{}{}: {} leads, usually {:.0f} on that weekday',
        kind, day, scope, case when branch <> scope then format(' ({})', branch) else '' end, rows, usual.leads
    ) as problem
from days
join usual using (kind, scope)
-- Fewer weeks are no habit. If a branch has few leads, a day without any is nothing unusual.
where day = newest and weeks >= 4 and usual.leads >= 5 and abs(days.root - usual.root) > 4 * spread
order by abs(days.root - usual.root) / spread desc, kind, scope
