-- Figures of mart_hidden_valuations: one row, a column a figure.
select count(*) as people, count(*) filter (lead_day > before) as hidden_valuations
from mart_hidden_valuations, days
