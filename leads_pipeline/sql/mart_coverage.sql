-- One row per kind, day and scope of the configured grid, and per window landed outside it: what is there, what isn't?
-- kind: applicant or appraisal
-- day: Day of the window in the pipeline's time zone
-- scope: Scope of the window, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- state: landed, empty (no leads), partial (some deleted unseen), open (not over yet), failed or missing (not pulled since it was over)
-- rows: Leads landed for the window, before it was over too; NULL where nothing was
-- removed: Leads of the window that were erased or set aside, or refused since
-- received: Leads that the portal sent for the window: rows and removed
-- landed_at: When the last answer that changed something was fetched, UTC
-- last_looked_at: When the last answer was fetched, whether it changed anything or not, UTC
-- failed_attempts: Runs that failed to pull it since it last landed
-- last_error: Why the last of them failed
-- is_refused: Whether that won't pass by itself: somebody has to change settings or rights
-- deleted_from_at: When the portal begins to delete the window's leads, UTC
-- is_configured: Whether the window belongs to the configured days and scopes

with source as (
    select grid_kinds.kind, grid_days.day, grid_scopes.scope, grid_days.window_start, grid_days.window_end,
        grid_days.is_over, grid_days.is_deleted
    from grid_kinds
    cross join grid_days
    cross join grid_scopes
),

cleaned as (
    select
        coalesce(source.kind, landed.kind) as kind,
        coalesce(source.day, landed.window_day) as day,
        coalesce(source.scope, landed.scope) as scope,
        coalesce(source.window_start, landed.window_start) as window_start,
        coalesce(source.is_over, true) as is_over,
        source.kind is not null as is_configured,
        landed.rows,
        landed.removed,
        landed.received,
        landed.fetched_at,
        landed.looked_at,
        -- After a change of the time zone the landed window is another one. Where the portal has deleted both, the days
        -- beside it hold the rest, and there is nothing left to do.
        (coalesce(source.is_deleted, true)
            or (landed.window_start, landed.window_end) = (source.window_start, source.window_end)) as is_the_window,
        landed.is_closed and is_the_window as is_closed,
        landed.is_partial and is_the_window as is_partial
    from source
    full join landed_windows as landed
        on landed.kind = source.kind and landed.window_day = source.day and landed.scope = source.scope
)

select
    cleaned.kind,
    cleaned.day,
    cleaned.scope,
    branch_of(cleaned.scope) as branch,
    case
        when cleaned.is_partial then 'partial'
        when cleaned.is_closed and cleaned.received = 0 then 'empty'
        when cleaned.is_closed then 'landed'
        when failures.kind is not null then 'failed'
        when cleaned.is_over then 'missing'
        else 'open'
    end as state,
    cleaned.rows,
    cleaned.removed,
    cleaned.received,
    cleaned.fetched_at as landed_at,
    cleaned.looked_at as last_looked_at,
    coalesce(failures.attempts, 0) as failed_attempts,
    failures.last_error,
    coalesce(failures.is_refused, false) as is_refused,
    cleaned.window_start + getvariable('retention') as deleted_from_at,
    cleaned.is_configured
from cleaned
left join failures
    on failures.kind = cleaned.kind and failures.day = cleaned.day and failures.scope = cleaned.scope
order by cleaned.kind, cleaned.day, cleaned.scope
