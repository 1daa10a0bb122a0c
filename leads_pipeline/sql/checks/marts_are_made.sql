-- Every mart could be made. One that fails keeps its last good rows
-- table: lead_facts

select format('{}: {}', mart, problem) as problem
from pipeline.mart_problems
order by mart
