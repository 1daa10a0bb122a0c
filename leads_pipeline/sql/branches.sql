-- One row per scope that is configured, has a landed window, or that LEADS_BRANCHES_FILE names: what is the branch called?
-- scope: Scope as in every other table, e.g. branch-101
-- branch_id: The portal's id in it, e.g. 101
-- name: Name of the branch, from LEADS_BRANCHES_FILE; the scope where that names none. The file's further columns follow

with scopes as (
    select scope from grid_scopes
    union
    select scope from branch_names
    union
    select scope from landed_windows
)

select
    scope,
    regexp_replace(scope, '^[a-z]+-', '') as branch_id,
    coalesce(name, scope) as name,
    branch_names.* exclude (scope, name)
from scopes
left join branch_names using (scope)
order by scope
