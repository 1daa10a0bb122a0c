-- Which days of which branches are missing? Without a row, all days before today are complete.
select
    branch,
    kind,
    day,
    state,
    deleted_from_at::date >= current_date as can_still_come
from mart_coverage
where is_configured and day < current_date and state not in ('landed', 'empty')
order by day, branch, kind
