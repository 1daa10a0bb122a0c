-- Figures of mart_hidden_valuations: one row, a column a figure.
with days as (
    select
        max(day) filter (state in ('landed', 'empty', 'partial')) as full_day,
        max(day) as today,
        max(day) - $days::integer as before
    from mart_coverage
    where is_configured
)
select count(*) as people, count(*) filter (lead_day > before) as hidden_valuations
from mart_hidden_valuations, days
