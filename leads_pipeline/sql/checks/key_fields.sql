-- How many leads there are, and in how many each key field is empty: of the last days, and of those before.
with last as (
    -- of those that have begun: a lead may say that it is of next year
    select max(lead_day) as day
    from {table}
    where lead_day <= (select max(day) from mart_coverage where is_configured)
)
select lead_day > last.day - $recent::integer as is_recent, count(*), {empty}
from {table}, last
where lead_day > last.day - ($recent + $habit)::integer
group by is_recent
