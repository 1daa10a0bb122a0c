-- Leads of each week by kind; NULL is both kinds. A week without any has no row.
select
    weeks_back,
    kind,
    count(*) as leads,
    count(distinct person) as people,
    count(*) filter (wants_viewing) as viewings
from leads
group by grouping sets ((weeks_back, kind), (weeks_back))
