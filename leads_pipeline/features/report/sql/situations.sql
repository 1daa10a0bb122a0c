-- Applicant leads of the period by situation and market, the most frequent situation first.
select
    situation,
    count(*) as leads,
    count(*) filter (market = 'sales') as sales,
    count(*) filter (market = 'lettings') as lettings
from leads
where weeks_back = 0 and kind = 'applicant'
group by situation
order by leads desc, situation
