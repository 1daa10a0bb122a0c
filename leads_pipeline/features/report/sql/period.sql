-- The period that each statement of the report is about, and its leads and windows: of all branches, or of $scope.
with days as (
    select
        max(day) as today,
        min(day) as first_day,
        max(day) filter (state in ('landed', 'empty', 'partial')) as landed_day,
        max(last_looked_at) as as_of
    from mart_coverage
    where is_configured
),

period as (
    select
        *,
        first_day <= date_trunc('week', today)::date - 7 as is_week,
        -- A new installation has no whole week yet. It shows the last seven days that are over.
        case when is_week then date_trunc('week', today)::date - 1 else coalesce(landed_day, today - 1) end as last_day
    from days
),

-- 0 weeks back is the period itself, 52 the same one of last year.
leads as (
    select lead_facts.*, (last_day - lead_day) // 7 as weeks_back
    from lead_facts, period
    where lead_day between last_day - 53 * 7 + 1 and last_day and ($scope::varchar is null or scope = $scope)
),

windows as (
    select kind, scope, state in ('landed', 'empty') as is_there, (last_day - day) // 7 as weeks_back
    from mart_coverage, period
    where
        is_configured
        and day between last_day - 53 * 7 + 1 and last_day
        and ($scope::varchar is null or scope = $scope)
)
