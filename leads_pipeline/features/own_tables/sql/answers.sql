-- One row per row of answers.csv or answers.parquet: which of your own answers count, what is wrong with the others?
-- number bigint: Row of the file, 1 is the first below its header; NULL if the whole file is at fault
-- lead_id varchar: The lead that was answered
-- answered_at timestamptz: Moment of the answer, UTC; NULL if the file has none
-- problem varchar: Why the row doesn't count: no lead id, no moment, no such lead, in a minute before the lead's, or what is wrong with the file; NULL if it counts

select
    written.number,
    written.lead_id,
    written.answered_at,
    case
        when written.problem is not null then written.problem
        when written.lead_id is null then 'no lead id'
        when written.answered_at is null then 'no moment'
        when leads.lead_id is null then 'no such lead'
        -- Many CRMs export whole minutes. An answer in the lead's own minute counts as 0 minutes.
        when written.answered_at < date_trunc('minute', leads.created_at) then 'before the lead'
    end as problem
from pipeline.answers as written
left join (select lead_id, max(created_at) as created_at from lead_facts group by lead_id) as leads
    on leads.lead_id = written.lead_id
