-- Newest closed day of each kind and branch whose leads lie too far from the days before.
-- Roots of counts scatter alike whatever the size of the branch: see assets/checks.py.
with days as (
    select
        kind, scope, branch, day, received as rows, 2 * sqrt(received + 0.375) as root,
        row_number() over (partition by kind, scope order by day desc) as age
    from mart_coverage
    where state in ('landed', 'empty') and is_configured
),
habits as (
    select
        kind, scope, count(*) as days, avg(rows) as usual,
        avg(root) as usual_root, greatest(stddev_samp(root), 1) as spread
    from days
    where age between 2 and 1 + $habit_days::integer
    group by kind, scope
)
select kind, scope, branch, day, rows, usual
from days join habits using (kind, scope)
where age = 1 and habits.days >= $fewest_days and usual >= $fewest_leads
    and abs(root - usual_root) > $deviations * spread
order by abs(root - usual_root) / spread desc, kind, scope
