"""What the portal sends and the contract doesn't know: new fields, new members of enumerations, values that don't fit.

Belongs here: finding it in a day's staged rows, and by how many different people each name came. Doesn't: keeping it by
day, and deciding which names are shown (warehouse/), putting it into words (sql/drift.sql).
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, NamedTuple

import duckdb

from leads_pipeline.contract import Field, known_members
from leads_pipeline.duck import literal, quoted
from leads_pipeline.flatten.trees import HIDDEN, declared_part, objects_in

# A name that the contract doesn't know may be a person's, whatever it looks like. One that came in the leads of so many
# different people says nothing of any of them, and is shown outside of the tables of leads, where it has the form of
# what a programmer writes.
PEOPLE_MIN: Final = 3
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

# Objects nested deeper than that are no fields that anybody would declare.
_MAX_DEPTH: Final = 32

# Of a list that isn't declared, what tells its elements' fields.
_FIRST_ELEMENTS: Final = 8


class Drift(NamedTuple):
    """One change on one day. `type` is contract.py's short name for a new field's type; `value` a new member.

    `field` and `value` are as received; `shown_field` is as much of the field's path as the contract knows.
    """

    day: date
    change: str
    field: str
    shown_field: str
    value: str | None
    type: str | None

    @property
    def name(self) -> tuple[str, str] | None:
        """What several people must have sent before it is shown; None where nothing of it is new, or may be shown."""
        has_form = all(map(NAME.fullmatch, [*re.split(r"(?:\[\])?\.", self.field), self.value or "_"]))
        return (self.field, self.value or "") if has_form and (self.value or self.field != self.shown_field) else None


@dataclass(slots=True)
class Seen:
    """How many rows have a change, and by which people it came: enough of them to tell whether it may be shown.

    People are given as they wrote their address or number, and are not to be kept so.
    """

    rows: int = 0
    people: set[str] = field(default_factory=set)

    def add(self, rows: int, people: list[str]) -> None:
        """Count more rows."""
        self.rows += rows
        self.people.update(people)


def find_drift(
    db: duckdb.DuckDBPyConnection,
    staged: str,
    contacts: str,
    fields: tuple[Field, ...],
    tree: dict[str, Any],
    prefix: str = "",
) -> dict[Drift, Seen]:
    """Count the rows by what is new in them.

    `staged` selects the rows with their `day`, `contacts` the leads' `contact` by `day` and `lead_id`; `tree` is what
    the contract knows of a row's object, and `prefix` leads to a list.
    """
    drifts: defaultdict[Drift, Seen] = defaultdict(Seen)
    enumerated = {field.column: field for field in fields if known_members(field.path) is not None}
    if not _gather(db, staged, contacts, enumerated, prefix):
        return drifts  # as on most days, on which planning what is below would cost more than all else here
    for day, path, count, people in db.execute(
        f"select day, problem, {_COUNTED} from (select *, unnest(_problems) as problem from odd) group by day, problem"  # noqa: S608 - as below
    ).fetchall():
        shown = prefix + declared_part(tree, path)
        drifts[Drift(day, "changed type", f"{prefix}{path}", shown, None, None)].add(count, people)
    _add_new_members(drifts, db, enumerated, prefix)
    _add_new_fields(drifts, db, tree, prefix)
    return drifts


def _gather(
    db: duckdb.DuckDBPyConnection, staged: str, contacts: str, enumerated: Mapping[str, Field], prefix: str
) -> bool:
    """Make the table odd of the rows that have anything new, with their leads' contact; whether there are any.

    Of enumerated columns it has the new members alone.
    """
    new_members = [f"{_new_member(column, field)} as {quoted(column)}" for column, field in enumerated.items()]
    columns = ["day", "lead_id", *(["position"] if prefix else []), "_problems", "_extra", *new_members]
    is_odd = " or ".join(["len(_problems) > 0", *(f"{quoted(name)} is not null" for name in ("_extra", *enumerated))])
    [(rows,)] = db.execute(
        f"""
        create or replace temp table odd as
        with odd as materialized (from (select {", ".join(columns)} from ({staged})) where {is_odd})
        select odd.*, contact
        from odd
        left join (from ({contacts}) where lead_id in (select lead_id from odd)) using (day, lead_id)
        """  # noqa: S608 - the contract's own names alone, here and below
    ).fetchall()
    return bool(rows)


def _new_member(column: str, field: Field) -> str:
    known = ", ".join(map(literal, sorted(known_members(field.path) or ())))
    return f"case when {quoted(column)} <> '' and {quoted(column)} not in ({known}) then {quoted(column)} end"


# No more people than are asked for: those first by the alphabet, so that days together tell as much as each alone.
_PEOPLE: Final = f"coalesce(min(distinct contact, {PEOPLE_MIN}), [])"
_COUNTED: Final = f"count(*), {_PEOPLE}"


def _add_new_members(
    drifts: defaultdict[Drift, Seen], db: duckdb.DuckDBPyConnection, enumerated: Mapping[str, Field], prefix: str
) -> None:
    if not enumerated:
        return
    columns = ", ".join(map(quoted, enumerated))
    rows = db.execute(
        f"""
        select day, name, member, {_COUNTED}
        from (unpivot (select day, contact, {columns} from odd) on {columns} into name name value member)
        group by day, name, member
        """  # noqa: S608
    ).fetchall()
    for day, column, member, count, people in rows:
        path = f"{prefix}{enumerated[column].path}"
        drifts[Drift(day, "new value", path, path, member, None)].add(count, people)


# What contract.py calls the type of a value, by its JSON text; of what is looked into, `{` and `[` are left open. No
# value is decoded: one number that no float holds must not cost everybody the publication. In the order of ASCII, as
# comparing takes a fifth of the time of other ways to tell the first character (measured).
_TYPE: Final = r"""
case
    when value between '-' and ':'
        then if(contains(value, '.') or contains(value, 'e') or contains(value, 'E'), '_N', '_I')
    when value < '-'
        then if(
            value like '"____-__-__T__:__%' and regexp_matches(value, '^"\d{4}-\d\d-\d\dT\d\d:\d\d'), '_M', '_T'
        )
    when value < ']' then if(starts_with(value, '[{"') and not contains(path, '[]') and not $is_deepest, '[', '[]')
    when value < 'n' then '_B'
    when value < 'o' then ''
    when value < 'u' then '_B'
    else if(value = '{}' or $is_deepest, '{}', '{')
end"""
_IS_OPEN: Final = "type in ('[', '{')"
_IS_NAME: Final = f"regexp_full_match(key, '{NAME.pattern}')"
_NAME_OF_KEY: Final = f"if({_IS_NAME}, key, '{HIDDEN}')"


def _add_new_fields(
    drifts: defaultdict[Drift, Seen], db: duckdb.DuckDBPyConnection, tree: dict[str, Any], prefix: str
) -> None:
    """Count everything in `_extra` that isn't an object itself, level by level: by DuckDB, as there may be millions.

    Of a new list it is also what its first elements have, `list[].field`.
    """
    [(longest, total)] = db.execute(
        "select max(strlen(_extra::varchar)), sum(strlen(_extra::varchar))::bigint from odd"
    ).fetchall()
    if longest is None:
        return
    declared = {f"{prefix}{path}" for path in objects_in(tree) if path}
    parts = 1 + min(longest * _VECTOR_ROWS, total) // _VECTOR_BYTES
    for part in range(parts):
        some = f"(from odd where _extra is not null and hash(lead_id) % {parts} = {part})"
        _add_new_fields_of(some, drifts, db, declared, prefix)


# DuckDB takes rows in vectors, and holds what it has parsed of a vector until it is done with it, some ten times its
# bytes: 700 leads with 100 kB of new members each didn't fit into its memory (seen), so they are taken in parts.
_VECTOR_ROWS: Final = 2_048
_VECTOR_BYTES: Final = 16_000_000


def _add_new_fields_of(
    with_extra: str, drifts: defaultdict[Drift, Seen], db: duckdb.DuckDBPyConnection, declared: Set[str], prefix: str
) -> None:
    counts = _outermost(db, with_extra, prefix)
    level = f"""(
        select day, {"(lead_id, position)" if prefix else "lead_id"} as row, contact, {literal(prefix)} as path,
            _extra as object
        from {with_extra}
    )"""  # noqa: S608
    for depth in range(1, _MAX_DEPTH + 1):
        for day, path, name, kind, _, count, people in counts:
            if kind != "{":
                shown = _shown(path, prefix, declared)
                drifts[Drift(day, "new field", f"{path}{name}", shown, None, kind)].add(count, people)
        if not any(is_open for _, _, _, _, is_open, _, _ in counts):
            return
        db.execute(
            f"""
            create or replace temp table deeper as
            select
                day, row, contact, path || {_NAME_OF_KEY} || if(type = '[', '[].', '.') as path,
                unnest(case
                    when type = '[' then list_filter(
                        json_extract(value, {[f"/{at}" for at in range(_FIRST_ELEMENTS)]})::varchar[],
                        lambda element: starts_with(element, '{{"')
                    )
                    else [value]
                end) as object
            from (select *, {_TYPE} as type from ({_members(level)}))
            where {_IS_OPEN}
            """,  # noqa: S608
            {"is_deepest": False},
        )
        level = "deeper"
        counts = _deeper(db, is_deepest=depth + 1 == _MAX_DEPTH)


# Day, path, name, type, whether some have members of their own to look at, rows, people.
_Counts = list[tuple[date, str, str, str, bool, int, list[str]]]

# Most new fields come from enough people among so few.
_FIRST_PEOPLE: Final = 64


def _outermost(db: duckdb.DuckDBPyConnection, with_extra: str, prefix: str) -> _Counts:
    """Count rows by what their one object of the outermost level has, where most is.

    Rows are counted by the shape of their object first, all its keys with their types as two texts: many rows have the
    same. To make a row of each member takes twice as long, and to tell people apart by each four times (measured); so
    that is done by shape, and for names that don't have enough people among those first by the alphabet.
    """
    db.execute(
        f"""
        create or replace temp table shapes as
        with objects as (
            select
                day, contact, to_json(json_keys(_extra))::varchar as keys,
                array_to_string(
                    list_transform(json_extract(_extra, '$.*')::varchar[], lambda value: {_TYPE}), ','
                ) as types
            from (select *, {literal(prefix)} as path from {with_extra})
        ),
        by_contact as (select day, contact, keys, types, count(*) as rows from objects group by all)
        select row_number() over () as shape, *
        from (
            select day, keys, types, sum(rows)::bigint as rows, {_PEOPLE} as people
            from by_contact
            group by day, keys, types
        )
        """,  # noqa: S608
        {"is_deepest": False},
    )
    db.execute(
        f"""
        create or replace temp table outermost as
        with counts as (
            select day, key, type, bool_or(is_open) as is_open, sum(rows)::bigint as rows
            from ({_fields("shapes")})
            group by all
        ),
        people_of_shapes as (select * exclude (people), unnest(people) as person from shapes),
        first_people as (
            select day, unnest(min(distinct person, {_FIRST_PEOPLE})) as person from people_of_shapes group by day
        ),
        by_first_people as (
            select day, key, type, min(distinct person, {PEOPLE_MIN}) as people
            from ({_fields("people_of_shapes semi join first_people using (day, person)")})
            group by all
        )
        select
            counts.*, people,
            type = '{{' or coalesce({_IS_NAME} and len(people) = {PEOPLE_MIN}, false) as is_settled
        from counts
        left join by_first_people using (day, key, type)
        """  # noqa: S608
    )
    # The keys that are hidden as one may stand in the same row.
    return db.execute(
        f"""
        select day, {literal(prefix)}, key, type, is_open, rows, coalesce(people, [])
        from outermost
        where is_settled
        union all
        select
            day, {literal(prefix)}, name, type, bool_or(is_open), sum(rows)::bigint,
            list_sort(list_distinct(flatten(list(people))))[:{PEOPLE_MIN}]
        from (
            select shape, day, {_NAME_OF_KEY} as name, type, bool_or(is_open) as is_open, any_value(rows) as rows,
                any_value(people) as people
            from ({_fields("shapes")})
            semi join (from outermost where not is_settled) using (day, key, type)
            group by all
        )
        group by all
        """  # noqa: S608
    ).fetchall()


def _fields(shapes: str) -> str:
    """A row for each member of each of the shapes."""
    return f"""
        select * replace (if(type = '[', '[]', type) as type), {_IS_OPEN} as is_open
        from (select *, unnest(keys::json::varchar[]) as key, unnest(split(types, ',')) as type from {shapes})
    """  # noqa: S608


def _deeper(db: duckdb.DuckDBPyConnection, *, is_deepest: bool) -> _Counts:
    """Count rows by what their objects of one level have: a row may have several, or keys that are hidden as one."""
    return db.execute(
        f"""
        select
            day, path, {_NAME_OF_KEY} as name, if(type = '[', '[]', type) as type, bool_or({_IS_OPEN}),
            count(distinct row), {_PEOPLE}
        from (select *, {_TYPE} as type from ({_members("deeper")}))
        group by all
        """,  # noqa: S608
        {"is_deepest": is_deepest},
    ).fetchall()


def _members(level: str) -> str:
    return f"""
        select
            * exclude (object),
            unnest(json_keys(object)) as key, unnest(json_extract(object, '$.*')::varchar[]) as value
        from {level}
    """  # noqa: S608


def _shown(path: str, prefix: str, declared: Set[str]) -> str:
    """As much of the path to a new field as the contract knows."""
    shown = prefix
    for step in path.removeprefix(prefix).split(".")[:-1]:
        if f"{shown}{step}" not in declared:
            break
        shown += f"{step}."
    return f"{shown}{HIDDEN}"
