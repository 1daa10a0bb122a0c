-- Figures of branches: one row, a column a figure.
select count(*) as scopes, count(*) filter (name <> scope) as scopes_with_a_name from branches
