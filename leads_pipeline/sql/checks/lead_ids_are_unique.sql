-- Each lead is one row
-- table: {table}
-- is_error: true
-- do: Report it with this message: it is a fault of the program. Delete nothing.

select format('{} rows hold {} leads', count(*), count(distinct lead_id)) as problem
from {table}
having count(*) <> count(distinct lead_id)
