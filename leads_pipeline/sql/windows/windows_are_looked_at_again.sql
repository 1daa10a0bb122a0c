-- One row per landed window whose last answer is from before a look that was due a day ago or more. A window's end is a
-- day after its start, give or take an hour where clocks change.

with looks as (
    select deleted_from_at, deleted_from_at - $retention + to_days(1 + days) as due_at
    from (select distinct deleted_from_at from mart_coverage), (select unnest($looks::integer[]) as days)
)

select
    kind,
    day,
    scope,
    branch,
    deleted_from_at,
    concat('last looked at ', strftime(last_looked_at, '%Y-%m-%d %H:%M')) as what,
    null as last_error
from mart_coverage as windows
where
    is_configured
    and state in ('landed', 'empty')
    and deleted_from_at > $now - interval 1 day
    and exists (
        select 1
        from looks
        where
            looks.deleted_from_at = windows.deleted_from_at
            and due_at <= $now - interval 1 day
            and last_looked_at < due_at - interval 2 hour
    )
order by deleted_from_at, kind, scope
