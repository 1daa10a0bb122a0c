select branch, min(lead_day) as first_day, max(lead_day) as last_day, sum(leads)::bigint as leads
from {{ source('leads', 'mart_leads_daily') }}
group by branch
