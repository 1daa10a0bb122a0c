-- One row per window that isn't landed and that the portal will soon delete, the most urgent first. One that it deletes
-- at this moment, which takes it a day, is the most urgent of all.

select
    kind,
    day,
    scope,
    branch,
    deleted_from_at,
    concat(state, ', ', failed_attempts, ' attempts') as what,
    last_error
from mart_coverage
where
    is_configured
    and state in ('missing', 'failed')
    and deleted_from_at > $now - interval 1 day
    and deleted_from_at <= $soon
order by deleted_from_at, kind, scope
