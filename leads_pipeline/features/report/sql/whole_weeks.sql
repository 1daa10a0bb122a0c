-- Each week with windows, by branch; NULL is all of them. A change is told between two whole weeks alone: otherwise it
-- would be the pipeline's, and not the branch's.
select
    scope,
    weeks_back,
    count(*) filter (is_there) = 7 * count(distinct (kind, scope)) as is_whole,
    count(*) filter (not is_there) as not_landed
from windows
group by grouping sets ((scope, weeks_back), (weeks_back))
