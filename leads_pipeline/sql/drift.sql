-- One row per kind and change that the contract doesn't know: what has the portal begun to send, and what takes it in?
-- kind: applicant or appraisal
-- change: new field, new value (of an enumerated field) or changed type (a value that doesn't fit its field)
-- field: Path of the field; what follows [] is in each element of a list. A new name that too few people sent is …, as it may be a person's: the leads' own _extra and _problems have it
-- value: The new value; … likewise, the leads' own column has it
-- first_seen_day: First window day on which it came
-- last_seen_day: Last window day on which it came
-- leads: Leads, or elements of their lists, that have it; one that two days hold counts in each
-- declaration: What to write into contract.py to take it in, where one new line can, among the fields of the lead or of the list before []; the raw files have it all meanwhile

with source as (
    select
        kind,
        change,
        coalesce(names.field, by_day.field) as field,
        coalesce(names.value, by_day.value) as value,
        min(day) as first_seen_day,
        max(day) as last_seen_day,
        sum(leads)::bigint as leads,
        list_sort(list_distinct(list(type) filter (type <> ''))) as types,
        regexp_replace(coalesce(names.field, by_day.field), '^.*\[\]\.', '') as path
    from pipeline.drift_by_day as by_day
    left join pipeline.drift_names as names using (name)
    group by all
)

select
    kind,
    change,
    field,
    value,
    first_seen_day,
    last_seen_day,
    leads,
    case
        when contains(field, '…') or value = '…' then null
        -- A new value goes into its field's entry in ENUMERATIONS; another type wouldn't fit the values that fit; no
        -- column takes an object; a list needs a table.
        when change <> 'new field' or list_has_any(types, ['{}', '[]']) then null
        when len(types) = 0 then format('Field("{}", _T, "…")', path)
        when len(types) = 1 then format('Field("{}", {}, "…")', path, types[1])
        when types = ['_I', '_N'] then format('Field("{}", _N, "…")', path)
        else format('Field("{}", _T, "…")', path)
    end as declaration
from source
order by kind, change, field, value
