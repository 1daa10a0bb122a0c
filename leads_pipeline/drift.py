"""What the portal sends and the contract doesn't know: new fields, new members of enumerations, values that don't fit.

Belongs here: finding it in a day's staged rows. Doesn't: keeping it by day (warehouse.py), putting it into words
(sql/drift.sql).
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Final, NamedTuple

import duckdb
import msgspec

from leads_pipeline.contract import Field, known_members
from leads_pipeline.flatten import literal, quoted

# Field names and members become part of tables, checks and reports that hold no personal data: one that doesn't look
# like a name a programmer gave may be a person's, and stays in the lead's own row.
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
HIDDEN: Final = "…"

_BATCH: Final = 1000

# Objects nested deeper than that are no fields that anybody would declare, and Python's stack has an end.
_MAX_DEPTH: Final = 32

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Drift(NamedTuple):
    """One change on one day. `type` is contract.py's short name for a new field's type; `value` a new member."""

    day: date
    change: str
    field: str
    value: str | None
    type: str | None


def find_drift(
    db: duckdb.DuckDBPyConnection, staged: str, fields: tuple[Field, ...], prefix: str = ""
) -> Counter[Drift]:
    """Count the rows by what is new in them. `staged` selects the rows with their `day`, `prefix` leads to a list."""
    found: Counter[Drift] = Counter()
    for day, path, count in db.execute(
        f"select day, field, count(*) from (select day, unnest(_problems) as field from ({staged})) group by all"  # noqa: S608 - no values
    ).fetchall():
        found[Drift(day, "changed type", f"{prefix}{path}", None, None)] += count
    found += _new_members(db, staged, fields, prefix)
    cursor = db.execute(f"select day, _extra::varchar from ({staged}) where _extra is not null")  # noqa: S608 - likewise
    while rows := cursor.fetchmany(_BATCH):
        for day, extra in rows:
            # A set, as a list within one lead may hold the same field many times.
            leaves = set(_leaves(extra.encode(), prefix))
            found.update(Drift(day, "new field", path, None, kind) for path, kind in leaves)
    return found


def _new_members(db: duckdb.DuckDBPyConnection, staged: str, fields: tuple[Field, ...], prefix: str) -> Counter[Drift]:
    enumerated = {field.column: field for field in fields if known_members(field.path) is not None}
    if not enumerated:
        return Counter()
    columns = ", ".join(map(quoted, enumerated))
    conditions = " or ".join(
        f"name = {literal(column)} and member in ({', '.join(map(literal, sorted(known_members(field.path) or ())))})"
        for column, field in enumerated.items()
    )
    rows = db.execute(
        f"""
        select day, name, member, count(*)
        from (unpivot (select day, {columns} from ({staged})) on {columns} into name name value member)
        where member <> '' and not ({conditions})
        group by all
        """  # noqa: S608 - the contract's own names alone
    ).fetchall()
    found: Counter[Drift] = Counter()
    for day, column, member, count in rows:
        shown = member if NAME.fullmatch(member) else HIDDEN
        found[Drift(day, "new value", f"{prefix}{enumerated[column].path}", shown, None)] += count
    return found


def _leaves(text: bytes, path: str, depth: int = 1) -> Iterator[tuple[str, str]]:
    """Path and type of everything in an object that isn't an object itself.

    No value is decoded: one number that no float holds must not cost everybody the publication.
    """
    for key, raw in _MEMBERS.decode(text).items():
        step, value = f"{path}{key if NAME.fullmatch(key) else HIDDEN}", bytes(raw)
        if value.startswith(b"{") and value[1:].strip() != b"}" and depth < _MAX_DEPTH:
            yield from _leaves(value, f"{step}.", depth + 1)
        else:
            yield step, _type(value)


def _type(value: bytes) -> str:
    match value[:1]:
        case b"t" | b"f":
            return "_B"
        case b'"':
            return "_M" if re.match(rb'"\d{4}-\d\d-\d\dT\d\d:\d\d', value) else "_T"
        case b"[":
            return "ChildTable"
        case b"n" | b"{":
            return ""
        case _:
            return "_I" if re.fullmatch(rb"-?\d+", value) else "_N"
