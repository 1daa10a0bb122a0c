-- Who turns to several branches, and to which? By groups of branches; mart_people has each person's own row.
select
    branches,
    count(*) as people,
    sum(leads) as leads
from mart_people
where scopes > 1
group by branches
order by people desc, branches
