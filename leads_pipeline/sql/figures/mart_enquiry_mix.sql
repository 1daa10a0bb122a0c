-- Figures of mart_enquiry_mix: one row, a column a figure.
select
    round(100 * sum(leads) filter (situation = 'first time buyer') / sum(leads), 1)
        as first_time_buyers_percent,
    round(100 * sum(leads) filter (situation in ('property to sell', 'property to let')) / sum(leads), 1)
        as owners_percent
from mart_enquiry_mix, days
where lead_day > before
