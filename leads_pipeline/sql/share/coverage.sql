-- One row per kind, day and scope: what is there, what isn't?
-- kind: applicant or appraisal
-- day: Day of the window in the pipeline's time zone
-- scope: Scope of the window, e.g. branch-101
-- branch: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none
-- state: landed, empty (no leads), partial (some deleted unseen), open (not over yet), failed or missing (not pulled since it was over)

select kind, day, scope, branch, state
from mart_coverage
