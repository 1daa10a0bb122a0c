"""What the portal sends and the contract doesn't know: new fields, new members of enumerations, values that don't fit.

Belongs here: finding it in a day's staged rows, and by how many different people each name came. Doesn't: keeping it by
day, and deciding which names are shown (warehouse.py), putting it into words (sql/drift.sql).
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final, NamedTuple

import duckdb
import msgspec

from leads_pipeline.contract import Field, known_members
from leads_pipeline.duck import literal, quoted
from leads_pipeline.flatten import HIDDEN, declared_part

# A name that the contract doesn't know may be a person's, whatever it looks like. One that came in the leads of so many
# different people says nothing of any of them, and is shown outside of the tables of leads, where it has the form of
# what a programmer writes.
PEOPLE_MIN: Final = 3
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

_BATCH: Final = 1000

# Objects nested deeper than that are no fields that anybody would declare, and Python's stack has an end.
_MAX_DEPTH: Final = 32

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


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
    cursor = db.execute(
        f"""
        select day, contact, _extra::varchar
        from (select day, lead_id, _extra from ({staged}) where _extra is not null)
        left join ({contacts}) using (day, lead_id)
        """  # noqa: S608
    )
    while rows := cursor.fetchmany(_BATCH):
        for day, contact, extra in rows:
            people = [contact] if contact else []
            # A set, as a list within one lead may hold the same field many times.
            for path, shown, kind in set(_leaves(extra.encode(), tree, prefix, prefix)):
                seen = found[Drift(day, "new field", path, shown, None, kind)]
                seen.rows += 1
                if len(seen.people) < PEOPLE_MIN:
                    seen.people.update(people)
    return found


# No more people than are asked for: those first by the alphabet, so that days together tell as much as each alone.
_COUNTED: Final = (
    f"count(*), coalesce(list_sort(list(distinct contact) filter (contact is not null))[:{PEOPLE_MIN}], [])"
)


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


def _leaves(
    text: bytes, tree: dict[str, Any] | None, path: str, shown: str, depth: int = 1
) -> Iterator[tuple[str, str, str]]:
    """Path, as much of it as the contract knows, and type of everything in an object that isn't an object itself.

    No value is decoded: one number that no float holds must not cost everybody the publication.
    """
    for key, raw in _MEMBERS.decode(text).items():
        name, value = key if NAME.fullmatch(key) else HIDDEN, bytes(raw)
        known = tree.get(key) if tree else None
        if value.startswith(b"{") and value[1:].strip() != b"}" and depth < _MAX_DEPTH:
            inner = shown if shown.endswith(HIDDEN) else f"{shown}{HIDDEN if known is None else f'{key}.'}"
            yield from _leaves(value, known, f"{path}{name}.", inner, depth + 1)
        else:
            yield f"{path}{name}", shown if shown.endswith(HIDDEN) else f"{shown}{HIDDEN}", _type(value)


def _type(value: bytes) -> str:
    match value[:1]:
        case b"t" | b"f":
            return "_B"
        case b'"':
            return "_M" if re.match(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d', value) else "_T"
        case b"[":
            return "[]"
        case b"{":
            return "{}"
        case b"n":
            return ""
        case _:
            return "_I" if re.fullmatch(rb"-?\d+", value) else "_N"
