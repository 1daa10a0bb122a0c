-- One row per window that was landed; an empty one has a row too
-- kind: applicant or appraisal
-- window_day: Day of the window in the pipeline's time zone
-- scope: Scope of the window, e.g. branch-101
-- state: As in mart_coverage
-- rows: Leads landed for the window
-- looked_at: When the last whole answer was fetched, UTC

select
    kind,
    day as window_day,
    scope,
    state,
    rows,
    last_looked_at as looked_at
from pipeline.window_states
where last_looked_at is not null
