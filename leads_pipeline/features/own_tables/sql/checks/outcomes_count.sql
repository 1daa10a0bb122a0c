-- Every row of your own outcomes is of a lead, and has an outcome that is known
-- table: outcomes
-- do: Mend these rows in your outcomes file. The next publication reads it.

select format('{} rows: {}', count(*), problem) as problem
from outcomes
where outcomes.problem is not null
group by outcomes.problem
order by count(*) desc, outcomes.problem
