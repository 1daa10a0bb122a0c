-- One row per window that was landed; an empty one has a row too
-- kind varchar: applicant or appraisal
-- scope varchar: Scope of the window, e.g. branch-101
-- window_day date: Day of the window in the pipeline's time zone
-- window_start timestamptz: First moment of the window, UTC
-- window_end timestamptz: First moment after the window, UTC
-- rows bigint: Leads landed for the window
-- looked_at timestamptz: When the last whole answer was fetched, UTC
-- state varchar: As in mart_coverage
-- is_closed boolean: Whether an answer from after the window's end was landed
-- is_partial boolean: Whether the portal had begun to delete the window before it was pulled whole

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
