-- The days that the report's other statements count: up to the newest closed day. The day under way is not complete.
with days as (
    select
        max(day) filter (state in ('landed', 'empty', 'partial')) as full_day,
        max(day) as today,
        max(day) - $days::integer as before
    from mart_coverage
    where is_configured
)
