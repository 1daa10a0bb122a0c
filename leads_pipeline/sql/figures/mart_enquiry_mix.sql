-- Figures of mart_enquiry_mix: one row, a column a figure.
with days as (
    select
        max(day) filter (state in ('landed', 'empty', 'partial')) as full_day,
        max(day) as today,
        max(day) - $days::integer as before
    from mart_coverage
    where is_configured
)
select
    round(100 * sum(leads) filter (situation = 'first time buyer') / sum(leads), 1)
        as first_time_buyers_percent,
    round(100 * sum(leads) filter (situation in ('property to sell', 'property to let')) / sum(leads), 1)
        as owners_percent
from mart_enquiry_mix, days
where lead_day > before
