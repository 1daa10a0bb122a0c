-- Leads of the last seven closed days and of the seven before, by kind.
select
    kind,
    coalesce(sum(leads) filter (lead_day > full_day - 7), 0)::bigint as leads,
    coalesce(sum(leads) filter (lead_day <= full_day - 7), 0)::bigint as leads_before
from mart_leads_daily, days
where lead_day between full_day - 13 and full_day
group by kind
