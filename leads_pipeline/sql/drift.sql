-- One row per kind and change that the contract doesn't know: what has the portal begun to send, and what takes it in?
-- kind: applicant or appraisal
-- change: new field, new value (of an enumerated field) or changed type (a value that doesn't fit its field)
-- field: Path of the field; what follows [] is in each element of a list. A new name that too few people sent is …, as it may be a person's: the leads' own _extra and _problems have it
-- value: The new value; … likewise, the leads' own column has it
-- first_seen_day: First window day on which it came
-- last_seen_day: Last window day on which it came
-- leads: Leads, or elements of their declared lists, that have it; one that two days hold counts in each
-- declaration: What to write into contract.py to take it in, where one new line can. A Field goes among the fields of the lead or of the list before [], a ChildTable among the children, Members among the others; the raw files have it all meanwhile

with changes as (
    select
        kind,
        change,
        coalesce(names.field, by_day.field) as field,
        coalesce(names.value, by_day.value) as value,
        min(day) as first_seen_day,
        max(day) as last_seen_day,
        sum(leads)::bigint as leads,
        list_sort(list_distinct(list(type) filter (type <> ''))) as types,
        regexp_replace(coalesce(names.field, by_day.field), '^.*\[\]\.', '') as path,
        contains(coalesce(names.field, by_day.field) || coalesce(names.value, by_day.value, ''), '…') as is_hidden
    from pipeline.drift_by_day as by_day
    left join pipeline.drift_names as names using (name)
    group by all
),

-- What is an object in some leads, where their members come.
objects as (
    select distinct kind, array_to_string(steps[:length], '.') as field
    from (
        select kind, steps, unnest(range(1, len(steps))) as length
        from (select kind, string_split(field, '.') as steps from changes where change = 'new field')
    )
),

-- Columns that are there already, of which no second one can be declared.
taken as (
    select distinct split_part(table_name, '_', 1) as kind, column_name
    from duckdb_columns()
    where database_name = current_database()
),

-- Another type wouldn't fit the values that fit; no column takes an object or a list.
fields as (
    select
        changes.*,
        case
            when is_hidden or change <> 'new field' or list_has_any(types, ['{}', '[]']) or objects.field is not null
                or taken.column_name is not null
                then null
            when len(types) = 0 then format('Field("{}", _T, "…")', path)
            when len(types) = 1 then format('Field("{}", {}, "…")', path, types[1])
            when types = ['_I', '_N'] then format('Field("{}", _N, "…")', path)
            else format('Field("{}", _T, "…")', path)
        end as line
    from changes
    left join objects on objects.kind = changes.kind and objects.field = changes.field
    -- Of a list that is no table yet, the columns that each such table has are those of the other kind's.
    left join (from taken select column_name, list(kind) as kinds group by column_name) as taken
        on taken.column_name = column_of(changes.path)
        and (list_contains(taken.kinds, changes.kind) or contains(changes.field, '[]'))
),

-- By what the first elements of a list have.
lists as (
    select
        lists.kind,
        lists.field,
        case when lists.types = ['[]'] then format(
            'ChildTable("{}_{}", "{}", ({},), "…")',
            lists.kind,
            column_of(lists.field),
            lists.field,
            string_agg(elements.line, ', ' order by elements.field)
        ) end as line
    from fields as lists
    inner join fields as elements
        on elements.kind = lists.kind and regexp_extract(elements.field, '^([^\[]*)\[\]', 1) = lists.field
    where lists.change = 'new field' and list_contains(lists.types, '[]') and elements.change = 'new field'
    group by lists.kind, lists.field, lists.types
)

select
    fields.kind,
    change,
    fields.field,
    value,
    first_seen_day,
    last_seen_day,
    leads,
    case
        when change = 'new value' and not is_hidden then format('Members("{}", "", "{}")', path, value)
        when lists.field is null then fields.line
        when lists.field = fields.field then lists.line
    end as declaration
from fields
left join lists
    on lists.kind = fields.kind and lists.field = regexp_extract(fields.field, '^([^\[]*)', 1)
order by fields.kind, change, fields.field, value
