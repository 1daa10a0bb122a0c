-- What a dated figure is of: up to the newest closed day, as a day under way would make every curve fall at its end.
with days as (
    select
        max(day) filter (state in ('landed', 'empty', 'partial')) as full_day,
        max(day) as today,
        max(day) - $days::integer as before
    from mart_coverage
    where is_configured
)
