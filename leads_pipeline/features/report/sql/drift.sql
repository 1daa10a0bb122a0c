-- The $shown newest changes at the portal.
select kind, change, field, value, first_seen_day, leads
from drift
order by first_seen_day desc, leads desc, kind, field
limit $shown
