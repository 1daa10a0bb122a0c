-- A staged file's rows are counted in its footer. A day whose file isn't the one that was loaded is left out: it was
-- staged again meanwhile, and the next publication loads it.
with files as (select unnest($days::date[]) as day, unnest($paths::varchar[]) as path),
staged as (
    select files.day, footers.num_rows as rows
    from parquet_file_metadata($patterns) as footers
    join files on files.path = footers.file_name
),
loaded as (select window_day as day, count(*) as rows from {table} group by window_day)
select day, coalesce(staged.rows, 0) as staged_rows, coalesce(loaded.rows, 0) as loaded_rows
from staged full join loaded using (day)
