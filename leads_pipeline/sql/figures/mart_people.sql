-- Figures of mart_people: one row, a column a figure.
select
    count(*) filter (last_lead_day > before) as people,
    count(*) filter (last_lead_day > before and leads > 1) as returning_people,
    count(*) filter (last_lead_day > before and scopes > 1) as people_of_several_branches
from mart_people, days
