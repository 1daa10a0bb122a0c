-- What the mart counts, what of it is frozen, and leads of removed days that came later, which no figure counts.
select
    (select coalesce(sum(leads), 0) from {mart} where kind = $kind),
    (select coalesce(sum(leads), 0) from pipeline.frozen where mart = '{mart}' and kind = $kind),
    (
        select count(*) from {table}
        where lead_day in (select window_day from pipeline.frozen where mart = 'removed_days')
    )
