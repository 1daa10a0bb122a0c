-- One row per row of outcomes.csv or outcomes.parquet, and per lead of which Alto tells the outcome: what came of it, and what is wrong with rows that don't count?
-- number bigint: Row of the file, 1 is the first below its header; NULL if Alto tells it, or the whole file is at fault
-- lead_id varchar: The lead
-- outcome varchar: What came of it, in small letters: accepted, rejected, appointment or instruction
-- happened_at timestamptz: When, UTC; NULL if the file doesn't say
-- problem varchar: Why the row doesn't count: no lead id, unknown outcome, no such lead, before the lead, or what is wrong with the file; NULL if it counts

select
    written.number,
    written.lead_id,
    lower(written.outcome) as outcome,
    written.happened_at,
    case
        when written.problem is not null then written.problem
        when written.lead_id is null then 'no lead id'
        when coalesce(lower(written.outcome), '') not in ('accepted', 'rejected', 'appointment', 'instruction')
            then 'unknown outcome'
        when leads.lead_id is null then 'no such lead'
        when local_time(written.happened_at)::date < leads.lead_day then 'before the lead'
    end as problem
from pipeline.outcomes as written
left join (select lead_id, max(lead_day) as lead_day from lead_facts group by lead_id) as leads
    on leads.lead_id = written.lead_id
