-- One row per window that was landed; an empty one has a row too
-- kind: applicant or appraisal
-- scope: Scope of the window, e.g. branch-101
-- window_day: Day of the window in the pipeline's time zone
-- window_start: First moment of the window, UTC
-- window_end: First moment after the window, UTC
-- rows: Leads landed for the window
-- looked_at: When the last whole answer was fetched, UTC
-- state: As in mart_coverage
-- is_closed: Whether an answer from after the window's end was landed
-- is_partial: Whether the portal had begun to delete the window before it was pulled whole

select
    kind,
    scope,
    day as window_day,
    window_start,
    window_end,
    rows,
    last_looked_at as looked_at,
    state,
    is_closed,
    state = 'partial' as is_partial
from pipeline.window_states
where last_looked_at is not null
