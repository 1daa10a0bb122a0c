-- Leads of the period and of the week before by site and product of the portal.
select
    source,
    portal_source,
    count(*) filter (weeks_back = 0) as leads,
    count(*) filter (weeks_back = 1) as before
from leads
where weeks_back < 2
group by source, portal_source
order by leads desc, before desc, source, portal_source
