-- Figures of drift: one row, a column a figure.
select count(*) as contract_changes, coalesce(sum(leads), 0) as leads_with_changes from drift
