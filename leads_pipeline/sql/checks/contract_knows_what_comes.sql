-- The contract knows each field, enumerated value and type that the portal sends. Nothing is lost: `_extra` or the column has it. A new member is a hint, and fails no check
-- table: drift

select
    format(
        '{}: {} {}{}, {} leads since {}', kind, change, field, coalesce(' = ' || value, ''), leads, first_seen_day
    ) as problem
from drift
where change <> 'new member'
order by last_seen_day desc, leads desc, kind, field, value
