-- Every branch has data from the last 2 days
-- table: mart_coverage

-- The daily schedule lands yesterday at 01:15. Until then the newest closed day is the one before.
with branches as (
    select
        kind, scope, branch,
        min(day) as first,
        max(day) filter (state in ('landed', 'empty', 'partial')) as newest,
        max(max(day)) over () as today
    from mart_coverage
    where is_configured
    group by kind, scope, branch
)

select
    format(
        '{} {}{}: {}',
        kind, scope, case when branch <> scope then format(' ({})', branch) else '' end,
        coalesce('newest day ' || newest, 'nothing landed yet')
    ) as problem
from branches
where coalesce(newest, first) < today - 2
order by newest nulls first, kind, scope
