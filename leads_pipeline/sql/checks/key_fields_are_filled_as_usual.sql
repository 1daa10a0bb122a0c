-- Each key field is filled as often in the last 7 days as in the 28 days before, or less often by at most 20 percentage points
-- table: {table}
-- do: Look at the leads of the last 7 days. Ask the portal if it sends the field differently now.

with last as (
    -- A lead may say that it is of next year.
    select max(lead_day) as day
    from {table}
    where lead_day <= (select max(day) from mart_coverage where is_configured)
),

fields as (
    select lead_day > last.day - 7 as is_recent, unnest([{key_fields}]) as field
    from {table}, last
    where lead_day > last.day - 35
),

shares as (
    select
        field.name,
        100 * avg(field.is_empty::integer) filter (is_recent) as share,
        100 * avg(field.is_empty::integer) filter (not is_recent) as usual
    from fields
    group by field.name
    -- Fewer leads have no share to speak of.
    having count(*) filter (is_recent) >= 20 and count(*) filter (not is_recent) >= 20
)

select format('{}: empty in {:.0f} % of leads, usually in {:.0f} %', name, share, usual) as problem
from shares
where share > usual + 20
order by share - usual desc, name
