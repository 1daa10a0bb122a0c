-- Leads of each site and product of the portal in the last seven closed days and in the seven before.
select
    source,
    portal_source,
    coalesce(sum(leads) filter (lead_day > full_day - 7), 0)::bigint as leads,
    coalesce(sum(leads) filter (lead_day <= full_day - 7), 0)::bigint as leads_before
from mart_leads_daily, days
where lead_day between full_day - 13 and full_day
group by source, portal_source
order by leads desc, leads_before desc, source, portal_source
