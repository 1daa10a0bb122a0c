-- Staged leads that the table has neither in that version nor in a newer one.
select staged.lead_id
from (
    select null::bigint as sequence where false  -- for files that were staged before there was one
    union all by name
    select * from read_parquet($patterns, hive_partitioning = false, union_by_name = true)
) as staged
where not exists (
    select 1 from {table} as loaded
    where loaded.lead_id = staged.lead_id
        and (loaded.sequence, loaded.window_day)
            >= (coalesce(staged.sequence, epoch_us(staged.fetched_at)), staged.window_day)
)
