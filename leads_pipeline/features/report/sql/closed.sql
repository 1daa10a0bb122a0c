-- How many leads of the period came while their branch was closed. None of these branches may have opening hours.
select coalesce(sum(leads), 0)::bigint as leads, coalesce(sum(leads_while_closed), 0)::bigint as while_closed
from mart_opening_hours, period
where lead_day between last_day - 6 and last_day and ($scope::varchar is null or scope = $scope)
