-- Each lead is one row
-- table: {table}
-- is_error: true

select format('{} rows hold {} leads', count(*), count(distinct lead_id)) as problem
from {table}
having count(*) <> count(distinct lead_id)
