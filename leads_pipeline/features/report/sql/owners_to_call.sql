-- Owners who asked in the period and want no valuation yet.
select count(*) as people
from mart_hidden_valuations, period
where lead_day between last_day - 6 and last_day and ($scope::varchar is null or scope = $scope)
