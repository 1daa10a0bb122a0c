-- Figures of mart_lead_properties: one row, a column a figure.
select round(100 * count(*) filter (match = 'address') / count(*), 1) as matched_by_address_percent
from mart_lead_properties
