-- Leads of each of the last $days days, and how many windows of it should be there and are not.
, grid as (
    select day, count(*) filter (state in ('failed', 'missing')) as not_landed
    from mart_coverage, days
    where is_configured and day > before
    group by day
),
leads as (
    select
        lead_day,
        sum(leads) filter (kind = 'applicant') as applicants,
        sum(leads) filter (kind = 'appraisal') as appraisals
    from mart_leads_daily
    group by lead_day
)
select day, coalesce(applicants, 0)::bigint, coalesce(appraisals, 0)::bigint, not_landed
from grid
left join leads on lead_day = day
order by day
