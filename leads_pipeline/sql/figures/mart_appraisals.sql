-- Figures of mart_appraisals: one row, a column a figure.
select
    coalesce(sum(leads) filter (lead_day = full_day), 0) as leads_of_last_full_day,
    round(sum(total_estimate) filter (lead_day > before) / sum(estimates) filter (lead_day > before))
        as mean_estimate
from mart_appraisals, days
