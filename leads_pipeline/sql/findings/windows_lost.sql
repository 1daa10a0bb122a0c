-- One row per window from before $day that the portal deleted before it was landed. A window that nobody asked for
-- counts from the first landed day of its scope on.

select kind, day, scope
from mart_coverage as windows
where
    is_configured
    and day < $day
    and (
        state = 'partial'
        or state = 'failed' and failed_attempts > 0
        or state = 'missing'
    )
    and (
        failed_attempts > 0
        or exists (
            select 1
            from mart_coverage as earlier
            where
                earlier.kind = windows.kind
                and earlier.scope = windows.scope
                and earlier.day < windows.day
                and earlier.state in ('landed', 'empty')
        )
    )
order by day, kind, scope
