-- Applicant leads of each market and situation; the rarest situation first.
with last as (select max(day) as day from mart_coverage where is_configured)
select market, situation, leads
from (
    select market, situation, sum(leads)::bigint as leads
    from mart_enquiry_mix, last
    where lead_day > last.day - $days::integer
    group by all
)
order by sum(leads) over (partition by situation), situation
