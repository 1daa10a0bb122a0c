"""What the portal sends and the contract doesn't know: new fields, new members of enumerations, values that don't fit.

Belongs here: finding it in a day's staged rows, and by how many different people each name came. Doesn't: keeping it by
day, and deciding which names are shown (warehouse/), putting it into words (sql/drift.sql).
"""

import re
from collections import defaultdict
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
        """What must have come from several people to be shown; None where nothing of it is new or may be."""
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
    found: defaultdict[Drift, Seen] = defaultdict(Seen)
    for day, path, count, people in db.execute(
        f"""
        select day, problem, {_COUNTED}
        from (select day, lead_id, unnest(_problems) as problem from ({staged}) where len(_problems) > 0)
        left join ({contacts}) using (day, lead_id)
        group by all
        """  # noqa: S608 - the contract's own names alone, here and below
    ).fetchall():
        shown = prefix + declared_part(tree, path)
        found[Drift(day, "changed type", f"{prefix}{path}", shown, None, None)].add(count, people)
    _add_new_members(found, db, staged, contacts, fields, prefix)
    _add_new_fields(found, db, staged, contacts, tree, prefix)
    return found


# No more people than are asked for: those first by the alphabet, so that days together tell as much as each alone.
_PEOPLE: Final = f"coalesce(min(distinct contact, {PEOPLE_MIN}), [])"
_COUNTED: Final = f"count(*), {_PEOPLE}"


def _add_new_members(
    found: defaultdict[Drift, Seen],
    db: duckdb.DuckDBPyConnection,
    staged: str,
    contacts: str,
    fields: tuple[Field, ...],
    prefix: str,
) -> None:
    enumerated = {field.column: field for field in fields if known_members(field.path) is not None}
    if not enumerated:
        return
    columns = ", ".join(map(quoted, enumerated))
    conditions = " or ".join(
        f"name = {literal(column)} and member in ({', '.join(map(literal, sorted(known_members(field.path) or ())))})"
        for column, field in enumerated.items()
    )
    rows = db.execute(
        f"""
        select day, name, member, {_COUNTED}
        from (
            select day, lead_id, name, member
            from (unpivot (select day, lead_id, {columns} from ({staged})) on {columns} into name name value member)
            where member <> '' and not ({conditions})
        )
        left join ({contacts}) using (day, lead_id)
        group by all
        """  # noqa: S608
    ).fetchall()
    for day, column, member, count, people in rows:
        path = f"{prefix}{enumerated[column].path}"
        found[Drift(day, "new value", path, path, member, None)].add(count, people)


# What contract.py calls the type of a value, by its JSON text. No value is decoded: one number that no float holds must
# not cost everybody the publication.
_TYPE: Final = r"""
case value[1]
    when '"' then if(regexp_matches(value, '^"\d{4}-\d\d-\d\dT\d\d:\d\d'), '_M', '_T')
    when '[' then '[]'
    when '{' then '{}'
    when 't' then '_B'
    when 'f' then '_B'
    when 'n' then ''
    else if(regexp_full_match(value, '-?\d+'), '_I', '_N')
end"""


def _add_new_fields(
    found: defaultdict[Drift, Seen],
    db: duckdb.DuckDBPyConnection,
    staged: str,
    contacts: str,
    tree: dict[str, Any],
    prefix: str,
) -> None:
    """Count everything in `_extra` that isn't an object itself, level by level: by DuckDB, as there may be millions.

    Of a new list it is also what its first elements have, `list[].field`.
    """
    declared = {f"{prefix}{path}" for path in objects_in(tree) if path}
    row = "(lead_id, position)" if prefix else "lead_id"
    level = f"""
        select day, {row} as row, contact, {literal(prefix)} as path, {literal(prefix)} as shown, _extra as object
        from (select * from ({staged}) where _extra is not null)
        left join ({contacts}) using (day, lead_id)
    """  # noqa: S608
    for depth in range(1, _MAX_DEPTH + 1):
        members = f"""
            select day, row, contact, path, shown, value, if(regexp_full_match(key, $name), key, '{HIDDEN}') as name
            from (
                select * exclude (object),
                    unnest(json_keys(object)) as key, unnest(json_extract(object, '$.*')::varchar[]) as value
                from ({level})
            )
        """  # noqa: S608
        # Keys of one object differ in the first level, so that only hidden names can come twice in a row.
        rows = f"count(*) filter (name <> '{HIDDEN}') + count(distinct row) filter (name = '{HIDDEN}')"
        # A list in another one can't be declared.
        is_object = f"starts_with(value, '{{') and value <> '{{}}' and {depth < _MAX_DEPTH}"
        is_list = f"starts_with(value, '[{{\"') and {depth < _MAX_DEPTH} and not contains(path, '[]')"
        is_any_deeper = False
        for day, path, shown, name, kind, is_deeper, count, people in db.execute(
            f"""
            select
                day, path, shown, name, if({is_object}, null, {_TYPE}) as type, bool_or({is_object} or {is_list}),
                {rows if depth == 1 else "count(distinct row)"}, {_PEOPLE}
            from ({members})
            group by all
            """,  # noqa: S608
            {"name": NAME.pattern},
        ).fetchall():
            is_any_deeper |= is_deeper
            if kind is not None:
                shown_name = shown if shown.endswith(HIDDEN) else f"{shown}{HIDDEN}"
                found[Drift(day, "new field", f"{path}{name}", shown_name, None, kind)].add(count, people)
        if not is_any_deeper:
            return
        db.execute(
            f"""
            create or replace temp table deeper as
            select * exclude (inside, shown), inside || '.' as path,
                case
                    when ends_with(shown, '{HIDDEN}') then shown
                    when list_contains($declared, inside) then inside || '.'
                    else shown || '{HIDDEN}'
                end as shown
            from (
                select day, row, contact, shown, path || name || if({is_list}, '[]', '') as inside,
                    unnest(case
                        when {is_list} then list_filter(
                            json_extract(value, {[f"/{at}" for at in range(_FIRST_ELEMENTS)]})::varchar[],
                            lambda element: starts_with(element, '{{"')
                        )
                        else [value]
                    end) as object
                from ({members})
                where {is_object} or {is_list}
            )
            """,  # noqa: S608
            {"name": NAME.pattern, "declared": sorted(declared)},
        )
        level = "from deeper"
