-- Every mart could be made. One that fails keeps its last good rows
-- table: lead_facts
-- do: The next publication tries again. If it fails again, report it with this message.

select format('{}: {}', mart, problem) as problem
from pipeline.mart_problems
order by mart
