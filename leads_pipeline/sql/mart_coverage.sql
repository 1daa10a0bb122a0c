-- One row per kind, day and scope of the configured windows, and per landed window of other scopes: which have landed, and which are missing?
-- kind varchar: applicant or appraisal
-- day date: Day of the window in the pipeline's time zone
-- scope varchar: Scope of the window, e.g. branch-101
-- branch varchar: Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it
-- state varchar: landed, empty (no leads), partial (some deleted unseen), open (not over, or for less than 75 minutes), failed or missing (not pulled since then). If only a later look failed, the window is landed
-- rows bigint: Leads landed for the window, also those that came before it was over; NULL if nothing was landed. A lead of midnight is in the windows of both days, so their sum can be above the number of leads
-- last_looked_at timestamptz: When the last whole answer was fetched, UTC
-- failed_attempts integer: Runs that failed to pull it since it last landed
-- last_error varchar: Why the last of them failed
-- is_refused boolean: True if a person must first change a setting or a right
-- deleted_from_at timestamptz: When the portal begins to delete the window's leads, UTC
-- is_configured boolean: Whether the window belongs to the configured days and scopes

select
    kind,
    day,
    scope,
    branch_of(scope) as branch,
    state,
    rows,
    last_looked_at,
    failed_attempts,
    last_error,
    is_refused,
    deleted_from_at,
    is_configured
from pipeline.window_states
