"""What the portal sends and the contract doesn't know: new fields, new members of enumerations, values that don't fit.

Belongs here: finding it in a day's staged rows. Doesn't: keeping it by day (warehouse.py), putting it into words
(sql/drift.sql).
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date
from typing import Any, Final, NamedTuple

import duckdb
import msgspec

from leads_pipeline.contract import Field, known_members
from leads_pipeline.flatten import literal, quoted

# Field names and members become part of tables, checks and reports that hold no personal data: one that doesn't look
# like a name a programmer gave may be a person's, and stays in the lead's own row.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_HIDDEN: Final = "…"

_BATCH: Final = 1000


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
            leaves = set(_leaves(msgspec.json.decode(extra), prefix))
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
        shown = member if _NAME.fullmatch(member) else _HIDDEN
        found[Drift(day, "new value", f"{prefix}{enumerated[column].path}", shown, None)] += count
    return found


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path and type of everything in an object that isn't an object itself."""
    for key, member in value.items():
        step = f"{path}{key if _NAME.fullmatch(key) else _HIDDEN}"
        if isinstance(member, dict) and member:
            yield from _leaves(member, f"{step}.")
        else:
            yield step, _type(member)


def _type(value: Any) -> str:
    match value:
        case bool():
            return "_B"
        case int():
            return "_I"
        case float():
            return "_N"
        case str() if re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d", value):
            return "_M"
        case list():
            return "ChildTable"
        case None | {}:
            return ""
        case _:
            return "_T"
