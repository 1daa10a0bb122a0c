-- Whom should we call next? People with a property who asked for no valuation, of the last 30 days, the newest first.
select
    lead_day,
    branch,
    situation,
    enquiries as leads,
    lead_id
from mart_hidden_valuations
where lead_day between current_date - 30 and current_date - 1
order by lead_day desc, lead_id
