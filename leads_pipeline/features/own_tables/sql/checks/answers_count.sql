-- Every row of your own answers is of a lead and has a moment after it
-- table: answers
-- do: Mend these rows in your answers file. The next publication reads it.

select format('{} rows: {}', count(*), problem) as problem
from answers
where answers.problem is not null
group by answers.problem
order by count(*) desc, answers.problem
