-- Windows of each branch, kind and state.
select kind, scope, state, count(*) from mart_coverage where is_configured group by all order by scope, kind
