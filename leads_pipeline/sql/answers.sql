-- One row per row of answers.csv or answers.parquet in the data folder: which of your own answers count, what is wrong with the others?
-- number: Row of the file, 1 is the first below its header; NULL where the whole file is at fault
-- lead_id: The lead that was answered
-- answered_at: When, UTC; NULL where the file says none
-- problem: Why the row doesn't count: no lead id, no moment, no such lead, before the lead, or what is wrong with the file; NULL where it counts

with leads as (
    select lead_id, max(created_at) as created_at
    from (
        select lead_id, created_at from applicant_leads
        union all
        select lead_id, created_at from appraisal_leads
    )
    where lead_id in (select lead_id from answers_written)
    group by lead_id
)

select
    written.number,
    written.lead_id,
    written.answered_at,
    case
        when written.problem is not null then written.problem
        when written.lead_id is null then 'no lead id'
        when written.answered_at is null then 'no moment'
        when leads.lead_id is null then 'no such lead'
        when written.answered_at < leads.created_at then 'before the lead'
    end as problem
from answers_written as written
left join leads on leads.lead_id = written.lead_id
order by written.number
