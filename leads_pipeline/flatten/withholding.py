"""Leads that are kept out of staged files and of the warehouse: of people who were erased or are restricted.

Belongs here: telling them among staged rows, and taking them out of what a day is about to be staged as. Doesn't: whom
the list means (suppression.py), raw files (lake/).
"""

from collections.abc import Iterable
from datetime import date
from typing import Any, Final

import duckdb

from leads_pipeline.contract import FieldType, LeadKind
from leads_pipeline.duck import quoted
from leads_pipeline.flatten.columns import BODY
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import PathAndText, is_contact, is_name, texts_of
from leads_pipeline.suppression import Shown

_ROWS_AT_ONCE: Final = 10_000


def withhold(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind) -> None:
    """Take withheld leads out of the kind's tables, and make the table `withheld` of them. The days' locks are held."""
    db.execute("create table withheld (lead_id varchar, window_day date)")
    if not withheld_leads(db, lake, kind, quoted(kind.table), "window_day", f"{BODY} as payload"):
        return
    db.execute(
        f"insert into withheld select lead_id, window_day from {quoted(kind.table)} "  # noqa: S608 - our own names
        "where lead_id in (from withheld_ids)"
    )
    for table in kind.tables:
        db.execute(f"delete from {quoted(table)} where lead_id in (from withheld_ids)")  # noqa: S608 - likewise


def withheld_leads(
    db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, source: str, day: str, payload: str = "null as payload"
) -> bool:
    """Make the table `withheld_ids` of the leads among these staged rows that the list withholds; whether there are.

    The list is read here, under a lock of what the rows are going into. Where a row has no text as received, its
    columns show whose it is.
    """
    suppressed = lake.suppression.read()
    if not suppressed.withheld:
        return False
    columns = [
        field.column
        for field in kind.fields
        if field.type is FieldType.TEXT and (is_contact(field.column) or is_name(field.column))
    ]
    shown = ", ".join(map(quoted, columns))
    cursor = db.execute(
        f"select lead_id, {day}, {payload}, created_at::varchar, _extra::varchar, {shown} from {source}"  # noqa: S608
    )
    found: dict[tuple[str, str], int] = {}
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        found |= suppressed.withheld.leads(_shown(kind, columns, row) for row in rows)
    lake.know_leads(suppressed, found)
    db.execute(
        "create or replace temp table withheld_ids as select unnest($ids::varchar[]) as lead_id",
        {"ids": [lead_id for _, lead_id in found]},
    )
    return bool(found)


def _shown(kind: LeadKind, columns: list[str], row: tuple[Any, ...]) -> Shown:
    lead_id, day, payload, created_at, extra, *values = row
    assert isinstance(day, date)  # noqa: S101 - for mypy: the column is a date

    def texts() -> Iterable[PathAndText]:
        if payload is not None:
            return texts_of(payload)
        named = [("created_at", created_at), *zip(columns, values, strict=True)]
        return [*((name, text) for name, text in named if text), *(texts_of(extra) if extra else ())]

    return Shown(kind.name, lead_id, day, texts)
