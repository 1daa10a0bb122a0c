-- Figures of mart_coverage: one row, a column a figure.
select
    count(*) filter (state = 'landed') as windows_landed,
    count(*) filter (state = 'empty') as windows_empty,
    count(*) filter (state = 'open') as windows_open,
    count(*) filter (state = 'partial') as windows_partial,
    count(*) filter (state = 'damaged') as windows_damaged,
    count(*) filter (state = 'failed') as windows_failed,
    count(*) filter (state = 'missing') as windows_missing
from mart_coverage
where is_configured
