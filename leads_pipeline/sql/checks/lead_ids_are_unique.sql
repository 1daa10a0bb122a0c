-- Each lead is one row of the table.
select count(*), count(distinct lead_id)
from {table}
