-- Figures of mart_leads_daily: one row, a column a figure.
select
    coalesce(sum(leads) filter (lead_day = full_day), 0) as leads_of_last_full_day,
    coalesce(sum(leads) filter (kind = 'applicant' and lead_day > before), 0) as applicant_leads,
    coalesce(sum(leads) filter (kind = 'appraisal' and lead_day > before), 0) as appraisal_leads
from mart_leads_daily, days
