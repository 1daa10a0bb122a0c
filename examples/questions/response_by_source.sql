-- What do sites and campaigns bring? Leads and different people of the last 30 days, today not counted.
select
    source,
    portal_source,
    kind,
    sum(leads) as leads,
    count(distinct person) as people
from mart_people_daily
where lead_day between current_date - 30 and current_date - 1
group by source, portal_source, kind
order by leads desc, kind, portal_source, source
