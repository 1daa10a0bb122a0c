-- Applicant leads of each situation and market in the last $days days; the most frequent situation first.
select
    situation,
    coalesce(sum(leads) filter (market = 'sales'), 0)::bigint as sales,
    coalesce(sum(leads) filter (market = 'lettings'), 0)::bigint as lettings,
    coalesce(sum(leads) filter (market not in ('sales', 'lettings')), 0)::bigint as neither
from mart_enquiry_mix, days
where lead_day > before
group by situation
order by sum(leads) desc, situation
