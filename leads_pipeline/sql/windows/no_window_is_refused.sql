-- One row per window that the portal refuses and still has. While it deletes it, which takes it a day, what is left can
-- still be had.

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
    and is_refused
    and deleted_from_at > $now - interval 1 day
order by deleted_from_at, kind, scope
