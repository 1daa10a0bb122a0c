"""The statements that the contract's declarations become: two for a kind's leads, two for each of their lists.

The full one reads whatever comes. The short one gives the same rows for plain leads in a sixth of the time: plain.py
has read what is new in them.
"""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

import duckdb

from leads_pipeline.contract import NOT_AN_OBJECT, NOT_JSON, UNKNOWN_MOMENT, ChildTable, Field, FieldType, LeadKind
from leads_pipeline.duck import literal, quoted
from leads_pipeline.flatten.columns import BODY, TEXT_IS_READ, elements_column, extras_column, list_column
from leads_pipeline.flatten.trees import Tree, objects_in, pointer, put, tree_of, tree_of_lead
from leads_pipeline.window import Clocks


def make_tables(db: duckdb.DuckDBPyConnection, kind: LeadKind, *, odd_leads: int) -> None:
    """Make a table of typed rows for each of the kind's tables. Only the contract's own names are in the statements."""
    statements = statements_of(kind)
    for table, (plain, full) in statements.items():
        db.execute(f"create table {quoted(table)} as {plain}")
        if odd_leads:
            db.execute(f"set disabled_optimizers = '{_DEAR_OPTIMIZERS if odd_leads < _MANY_LEADS else ''}'")
            db.execute(f"insert into {quoted(table)} by name {full}")
            db.execute("reset disabled_optimizers")
        if table == kind.table:
            db.unregister("plain_leads")
            db.unregister("odd_leads")


# What takes half of the time in which the full statement is planned. Of few odd leads, as there are each day, planning
# is most of what they take.
_DEAR_OPTIMIZERS: Final = "common_subexpressions,statistics_propagation,expression_rewriter,in_clause,regex_range"
_MANY_LEADS: Final = 3_000


@cache
def statements_of(kind: LeadKind) -> dict[str, tuple[str, str]]:
    """What selects the rows of each of the kind's tables, of plain leads and of others, in the order they are made."""
    return {kind.table: (_plain_lead_statement(kind), _lead_statement(kind))} | {
        child.name: (_plain_child_statement(kind, child), _child_statement(kind, child)) for child in kind.children
    }


def define_local_time(db: duckdb.DuckDBPyConnection, clocks: Clocks) -> None:
    """Make the macro local_time: what a zone's clocks show at a moment, as a timestamp without a zone.

    By questions that halve the offsets around now: joining them asof takes a quarter of a plain lead's time, and
    questions for all, which are looked up in a list, 10 ms of each statement (both measured).
    """
    begin, end = (sum(since <= datetime.now(UTC) + by for since, _ in clocks) for by in (-_NEAR, _NEAR))
    around_now = clocks[begin - 1 : end]  # the first is from ever
    near = [f"moment >= {_moment(around_now[0][0])}", *(f"moment < {_moment(one[0])}" for one in clocks[end : end + 1])]
    changed, ahead = map(list, zip(*clocks, strict=True))
    db.execute("set variable clocks_changed = $changed::timestamptz[]", {"changed": changed})
    db.execute("set variable ahead_of_utc = $ahead::interval[]", {"ahead": ahead})
    db.execute(
        f"""
        create or replace temp macro local_time(moment) as
        timezone('UTC', moment) + case
            when {" and ".join(near)} then {_ahead_of_utc(around_now)}
            when moment is not null then getvariable('ahead_of_utc')[
                greatest(len(list_filter(getvariable('clocks_changed'), lambda since: since <= moment)), 1)
            ]
        end
        """
    )


_NEAR: Final = timedelta(days=400)  # nearly all leads were submitted in the weeks before


def _ahead_of_utc(since: Clocks) -> str:
    if len(since) == 1:
        return f"to_seconds({int(since[0][1].total_seconds())})"
    middle = len(since) // 2
    earlier, later = _ahead_of_utc(since[:middle]), _ahead_of_utc(since[middle:])
    return f"if(moment < {_moment(since[middle][0])}, {earlier}, {later})"


def _moment(moment: datetime) -> str:
    return f"timestamptz '{moment.isoformat()}'"


def _lead_statement(kind: LeadKind) -> str:
    """The columns of the staged table; beside them what children and counts need: the text, and each list as JSON."""
    ctes = typed(
        source="select *, body as doc from odd_leads",
        tree=tree_of_lead(kind),
        fields=kind.fields,
        lists=kind.children,
        extra="extra_of_lead(body)",
        first_problem=f"coalesce(oddity, case when item is null then '{NOT_JSON}' end)",
    )
    lists = "".join(f",\n    item{_member(child.path)}::varchar as {list_column(child)}" for child in kind.children)
    return _lead_columns(kind, ctes, f"body as {BODY}{lists}")


def _plain_lead_statement(kind: LeadKind) -> str:
    """The same columns; each list as one of structs and as no JSON, the text where somebody looks into it."""
    shape = _plain_shape(kind.fields)
    for child in kind.children:
        put(shape, child.path, [_plain_shape(child.fields)])
    source = f"""
    select *, try(json_transform(coalesce(declared, body), {literal(json.dumps(shape))})) as item
    from plain_leads"""  # noqa: S608 - put together from the contract's constants alone
    ctes = _typed_plainly(source, kind.fields, first_problem=f"case when item is null then '{NOT_JSON}' end")
    lists = "".join(
        f",\n    null::varchar as {list_column(child)},\n    item{_member(child.path)} as {elements_column(child)}"
        f",\n    {quoted(extras_column(child))}"
        for child in kind.children
    )
    return _lead_columns(kind, ctes, f"case when {TEXT_IS_READ} then body end as {BODY}{lists}")


def _plain_shape(fields: Sequence[Field]) -> Tree:
    shape: Tree = {}
    for field in fields:
        put(shape, field.path, _READ_AS.get(field.type, "VARCHAR"))
    return shape


def _lead_columns(kind: LeadKind, ctes: str, more: str) -> str:
    created_at = value_of(next(field for field in kind.fields if field.column == "created_at"))
    return f"""
{ctes}
select
    lead_id,
    coalesce(local_time({created_at})::date, day) as lead_day,
    scope,
    fetched_at,
    sequence,
    source,
    day as window_day,
    {columns_of(kind.fields)},
    problems as _problems,
    extra_json as _extra,
    {more}
from typed
"""  # noqa: S608 - put together from the contract's constants alone


def _child_statement(kind: LeadKind, child: ChildTable) -> str:
    all_null = f"coalesce({', '.join(_text(field) for field in child.fields)}) is null"
    tree = tree_of(child.fields)
    steps = child.path.split(".")
    ways_there = ", ".join(literal(".".join(steps[:number])) for number in range(1, len(steps) + 1))
    # Of a list whose key, or whose owner's, stands twice DuckDB reads the first, and msgspec would the last.
    ctes = typed(
        source=f"""
    select
        window_day, lead_id, unnest(range(len(docs)))::integer as position,
        unnest(docs) as doc, unnest(bodies) as body, unnest(extras) as extra_of_element
    from (
        select *,
            case
                when not regexp_matches({list_column(child)}, {literal(_number_in(child))}) then docs
                when is_first then elements_of_{child.name}({BODY}, len(docs))
            end as bodies,
            case
                when regexp_full_match({list_column(child)}, {literal(_plain_list(tree))}) then null
                when is_first then extras_of_{child.name}({BODY}, len(docs))
            end as extras
        from (
            select *,
                try(json_transform({list_column(child)}, '["JSON"]'))::varchar[] as docs,
                not list_has_any(_problems, [{ways_there}]) as is_first
            from {quoted(kind.table)}
        )
        where len(docs) > 0
    )""",  # noqa: S608 - put together from the contract's constants alone
        tree=tree,
        fields=child.fields,
        lists=(),
        extra="extra_of_element",
        first_problem=f"case when {all_null} and json_type(doc) is distinct from 'OBJECT' then '{NOT_AN_OBJECT}' end",
    )
    return _child_columns(child, ctes)


def _plain_child_statement(kind: LeadKind, child: ChildTable) -> str:
    elements = elements_column(child)
    source = f"""
    select
        window_day, lead_id, unnest(range(len({elements})))::integer as position, unnest({elements}) as item,
        unnest({quoted(extras_column(child))}) as extra, null::varchar as body
    from {quoted(kind.table)}
    where len({elements}) > 0"""  # noqa: S608 - put together from the contract's constants alone
    return _child_columns(child, _typed_plainly(source, child.fields))


def _child_columns(child: ChildTable, ctes: str) -> str:
    return f"""
{ctes}
select
    lead_id,
    position,
    {columns_of(child.fields)},
    problems as _problems,
    extra_json as _extra,
    window_day
from typed
"""  # noqa: S608 - put together from the contract's constants alone


# What a plain lead holds of these types json_transform reads as they are; the others are cast from their texts.
_READ_AS: Final = {FieldType.TEXT: "VARCHAR", FieldType.BOOLEAN: "BOOLEAN", FieldType.INTEGER: "BIGINT"}


# What is new but can't be cut out is in raw alone, and a problem tells so.
_EXTRA: Final = "try_cast(extra as json) as extra_json"
_NO_EXTRA: Final = "extra is not null and extra_json is null"
_EXTRA_IS_IN_RAW_ALONE: Final = f"case when {_NO_EXTRA} then '_extra' end"


def _typed_plainly(source: str, fields: Sequence[Field], first_problem: str = "null") -> str:
    """What typed() does, for what is plain. `source` gives `item`, and `body`, the text that it was read from."""
    cast = [field for field in fields if field.type not in _READ_AS]
    read = [f"item{_member(field.path)} as {value_of(field)}" for field in fields if field.type in _READ_AS]
    problems = [first_problem, *map(_untyped, cast), _EXTRA_IS_IN_RAW_ALONE]
    is_odd = [f"({_text(field)} is null) <> ({value_of(field)} is null)" for field in cast]
    return f"""
with source as ({source}),
texts as (
    select *,
        {stacked([*read, *(f"{_read(field)} as {_text(field)}" for field in cast)])}
    from source
),
cast_strictly as (
    select *,
        {stacked([*(f"{_cast(field)} as {value_of(field)}" for field in cast), _EXTRA])}
    from texts
),
typed as (
    select *,
        case when {" or ".join([f"({first_problem}) is not null", _NO_EXTRA, *is_odd])}
            then list_filter([{stacked(problems)}], lambda problem: problem is not null)
            else []::varchar[] end as problems
    from cast_strictly
)"""  # noqa: S608 - put together from the contract's constants alone


def typed(
    *,
    source: str,
    tree: Tree,
    fields: Sequence[Field],
    lists: Sequence[ChildTable],
    extra: str,
    first_problem: str,
) -> str:
    """The steps that leads and list elements share, up to the columns, `problems` and `extra`.

    `source` gives `doc`, the JSON text of one object as DuckDB has it, and `body`, the same as it was received, or NULL
    where that can't be had.
    """
    objects = objects_in(tree)
    shape = _shape(tree, lists)
    levels = [(f"keys[{number}]", path, declared) for number, (path, declared) in enumerate(objects.items(), start=1)]
    problems = [
        first_problem,
        *(_untyped(field) for field in fields),
        *(_no_object(path, fields, lists) for path in objects if path),
        *(_no_list(child) for child in lists),
        _EXTRA_IS_IN_RAW_ALONE,
    ]
    # Few leads have a problem, and only for those is each looked for.
    is_odd = [
        f"({first_problem}) is not null",
        _NO_EXTRA,
        *(f"({_text(field)} is null) <> ({value_of(field)} is null)" for field in fields),
        *(_seems_no_object(path, fields, lists) for path in objects if path),
        *(_is_no_list(child) for child in lists),
    ]
    return f"""
with source as ({source}),
parsed as (
    select *,
        try(json_transform(doc, {literal(json.dumps(shape))})) as item,
        try(json_keys(doc, [{", ".join(literal(pointer(path)) for path in objects)}])) as keys
    from source
),
texts as (
    select *,
        {stacked(f"{_read(field)} as {_text(field)}" for field in fields)},
        {" or ".join(_has_more(keys, path, declared) for keys, path, declared in levels)} as has_more
    from parsed
),
cast_strictly as (
    select *,
        {stacked(f"{_cast(field)} as {value_of(field)}" for field in fields)},
        case when has_more and ({" or ".join(_has_new(keys, declared) for keys, _, declared in levels)})
            then coalesce({extra}, '') end as extra
    from texts
),
checked as (
    select *, {_EXTRA}
    from cast_strictly
),
typed as (
    select *,
        list_concat(
            case when {" or ".join(is_odd)}
                then list_filter([{stacked(problems)}], lambda problem: problem is not null) else [] end,
            case when has_more then flatten([{stacked(_repeated(keys, path) for keys, path, _ in levels)}]) end
        ) as problems
    from checked
)"""  # noqa: S608 - put together from the contract's constants alone


def _read(field: Field) -> str:
    """The field's text; a number's as it was written, where json_transform's rendering may differ."""
    read = f"item{_member(field.path)}"
    may_differ = field.type in (FieldType.AMOUNT, FieldType.INTEGER)
    return f"{field.type.value}_text({read}, {_written_at(field)})" if may_differ else read


def _cast(field: Field) -> str:
    if field.type is FieldType.TEXT:
        kind = f"json_type(doc, {literal(pointer(field.path))})"
        return f"as_text({_text(field)}, {kind}, {_written_at(field)})"
    return f"as_{field.type.value}({_text(field)})"


def _written_at(field: Field) -> str:
    return f"written(body, {literal(pointer(field.path))})"


def _untyped(field: Field) -> str:
    unknown = f" and not starts_with({_text(field)}, '{UNKNOWN_MOMENT}')" if field.type is FieldType.MOMENT else ""
    return f"case when {_text(field)} is not null and {value_of(field)} is null{unknown} then {literal(field.path)} end"


def _no_object(path: str, fields: Sequence[Field], lists: Sequence[ChildTable]) -> str:
    return (
        f"case when {_seems_no_object(path, fields, lists)}"
        f" and json_type(doc, {literal(pointer(path))}) <> 'OBJECT' then {literal(path)} end"
    )


def _seems_no_object(path: str, fields: Sequence[Field], lists: Sequence[ChildTable]) -> str:
    """json_transform reads a scalar or a list as an object whose fields are all NULL, so only then is it looked up."""
    inside = [_text(field) for field in fields if field.path.startswith(f"{path}.")]
    inside += [f"item{_member(child.path)}::varchar" for child in lists if child.path.startswith(f"{path}.")]
    return f"item{_member(path)} is not null and coalesce({', '.join(inside)}) is null"


def _no_list(child: ChildTable) -> str:
    return f"case when {_is_no_list(child)} then {literal(child.path)} end"


def _is_no_list(child: ChildTable) -> str:
    return f"not starts_with(item{_member(child.path)}::varchar, '[')"


def _has_more(keys: str, path: str, declared: Tree) -> str:
    """Whether an object has more members than those read: new ones, repeated ones, or just declared ones that are null.

    Cheap, and true of few leads; only those are looked at closely.
    """
    read = " + ".join(f"(item{_member(f'{path}.{name}' if path else name)} is not null)::integer" for name in declared)
    return f"coalesce(len({keys}) > {read}, false)"


def _has_new(keys: str, declared: Tree) -> str:
    """New members mostly come last, and one look is cheaper than all: it takes 2 ns a key in place of 40 (measured)."""
    names = ", ".join(map(literal, declared))
    return f"case when {keys}[-1] in ({names}) then not list_has_all([{names}], {keys}) else len({keys}) > 0 end"


def _repeated(keys: str, path: str) -> str:
    """A key that stands twice is a problem, as one of its values is in no column: the first counts, as in DuckDB."""
    prefix = literal(f"{path}." if path else "")
    return (
        f"case when may_repeat({keys}) then list_transform(repeated({keys}), lambda key: {prefix} || key) else [] end"
    )


# What DuckDB writes of a text without escapes, of a boolean and of a null.
_PLAIN_VALUE: Final = r'(?:"[^"\\]*"|true|false|null)'


def _plain_list(tree: Tree) -> str:
    """The form of a list, as DuckDB writes it, of which its text as received would say nothing more.

    No element has an unknown member or a number, which DuckDB may have rewritten. That is true of most lists, and much
    cheaper to know than to cut the elements out of what was received.
    """
    return rf"\[(?:(?:{_plain_object(tree)}|{_PLAIN_VALUE})(?:, ?)?)*\]"


def _number_in(child: ChildTable) -> str:
    """What a list has in it, as DuckDB writes it, where a declared field of an element is a number."""
    names = "|".join(re.escape(field.path.rpartition(".")[2]) for field in child.fields)
    return rf'"(?:{names})":[^"{{\[tfn]'


def _plain_object(tree: Tree) -> str:
    members = "|".join(
        f'"{re.escape(name)}":' + (_PLAIN_VALUE if inner is None else f"(?:{_plain_object(inner)}|{_PLAIN_VALUE})")
        for name, inner in tree.items()
    )
    return rf"\{{(?:(?:{members}),?)*\}}"


def _shape(tree: Tree, lists: Sequence[ChildTable]) -> Tree:
    """What json_transform makes of an object: all text, casts come after."""
    shape = {name: "VARCHAR" if inner is None else _shape(inner, ()) for name, inner in tree.items()}
    for child in lists:
        put(shape, child.path, "JSON")
    return shape


def _member(path: str) -> str:
    return "".join(f".{quoted(step)}" for step in path.split("."))


def _text(field: Field) -> str:
    return quoted(f"text of {field.column}")


def value_of(field: Field) -> str:
    """The field's typed value among the columns of `typed`, whose own names a field of the portal's may have too."""
    return quoted(f"value of {field.column}")


def columns_of(fields: Iterable[Field]) -> str:
    """The fields' values under the names of their columns, a line each."""
    return stacked(f"{value_of(field)} as {quoted(field.column)}" for field in fields)


def stacked(parts: Iterable[str]) -> str:
    """The parts of a statement's list, a line each."""
    return ",\n        ".join(parts)
