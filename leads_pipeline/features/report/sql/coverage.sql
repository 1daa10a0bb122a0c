-- Windows of each branch, kind and state; those with most to mend first.
select
    branch,
    kind,
    count(*) filter (state = 'landed') as landed,
    count(*) filter (state = 'empty') as empty,
    count(*) filter (state = 'open') as open,
    count(*) filter (state = 'partial') as partial,
    count(*) filter (state = 'failed') as failed,
    count(*) filter (state = 'missing') as missing
from mart_coverage
where is_configured
group by scope, branch, kind
order by failed + missing desc, branch, scope, kind
