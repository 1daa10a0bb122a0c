"""Leads that are kept out of staged files and of the warehouse: of people who were erased or are restricted.

Belongs here: telling them among staged rows, and taking them out of what a day is about to be staged as; taking out
what others wrote of people; telling whose leads serve no direct marketing. Doesn't: whom the list means
(suppression/), raw files (lake/).
"""

import json
from collections.abc import Iterable
from datetime import date
from typing import Any, Final

import duckdb

from leads_pipeline.contract import LeadKind
from leads_pipeline.duck import literal, quoted
from leads_pipeline.flatten.columns import BODY
from leads_pipeline.lake import Lake
from leads_pipeline.person.showing import PathAndText, Shown, contacts_of, is_contact, is_name, texts_of
from leads_pipeline.suppression import Meant, Suppressed

_ROWS_AT_ONCE: Final = 10_000


def withhold(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind) -> None:
    """Take withheld leads out of the kind's tables, and add them to the table `withheld`. The days' locks are held."""
    if not withheld_leads(db, lake, kind, quoted(kind.table), "window_day", f"{BODY} as payload"):
        return
    db.execute(
        f"insert into withheld select lead_id, window_day from {quoted(kind.table)} "  # noqa: S608 - our own names
        "where lead_id in (from withheld_ids)"
    )
    for table in kind.tables:
        db.execute(f"delete from {quoted(table)} where lead_id in (from withheld_ids)")  # noqa: S608 - likewise


def withheld_leads(
    db: duckdb.DuckDBPyConnection,
    lake: Lake,
    kind: LeadKind,
    source: str,
    day: str,
    payload: str = "null as payload",
    *,
    is_copy: bool = False,
) -> bool:
    """Make the table `withheld_ids` of the leads among these staged rows that the list withholds; whether there are.

    The list is read here, under a lock of what the rows are going into. Where a row has no text as received, its
    columns show whose it is. What stands in a copy, which others may have changed, teaches the list no id.
    """
    suppressed = lake.suppression.read()
    lead_ids = _meant(db, lake, suppressed, suppressed.withheld, kind, f"{day}, {payload}", source, is_copy=is_copy)
    return _as_table(db, "withheld_ids", lead_ids)


def redact(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, where: str = "true") -> int:
    """Take what leads of others say of people out of the kind's tables, where somebody decided so; of how many rows.

    Raw may still say it, as a restored backup does until it is gone through. The list is read here, under a lock of
    what the rows are going into.
    """
    suppressed = lake.suppression.read()
    changed = 0
    for table in kind.tables if suppressed.redactions else ():
        texts = db.execute(
            f"select column_name, column_type = 'JSON' or {literal(BODY)} = '\"' || column_name || '\"' "  # noqa: S608
            f"from (describe {quoted(table)}) where column_type in ('VARCHAR', 'JSON') and column_name <> 'lead_id'"
        ).fetchall()
        ids = db.execute(f"select distinct lead_id from {quoted(table)} where {where}").fetchall()  # noqa: S608
        for (lead_id,) in ids:
            if suppressed.hashed_lead(kind.name, lead_id) in suppressed.redactions:
                for name, is_json in texts:
                    changed += _redact_column(db, suppressed, kind, table, lead_id, name, is_json=is_json)
    return changed


def _redact_column(
    db: duckdb.DuckDBPyConnection,
    suppressed: Suppressed,
    kind: LeadKind,
    table: str,
    lead_id: str,
    name: str,
    *,
    is_json: bool,
) -> int:
    column, rows = quoted(name), f"{quoted(table)} where lead_id = $lead_id"
    changed = 0
    for (text,) in db.execute(
        f"select distinct {column}::varchar from {rows} and {column} is not null",  # noqa: S608 - our own names
        {"lead_id": lead_id},
    ).fetchall():
        redacted = suppressed.redacted(kind.name, lead_id, text if is_json else json.dumps(text))
        redacted = redacted if is_json else json.loads(redacted)
        if redacted != text:
            changed += 1
            db.execute(
                f"update {quoted(table)} set {column} = $redacted "  # noqa: S608 - likewise
                f"where lead_id = $lead_id and {column}::varchar = $text",
                {"redacted": redacted, "lead_id": lead_id, "text": text},
            )
    return changed


def known_leads(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, source: str) -> bool:
    """Make the table `withheld_ids` of those that the list withholds by id, in seconds; whether there are."""
    withheld = lake.suppression.read().withheld
    cursor, lead_ids = db.execute(f"select lead_id from {source}"), list[str]()  # noqa: S608 - only our own names
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        lead_ids += [lead_id for (lead_id,) in rows if withheld.is_known(kind.name, lead_id)]
    return _as_table(db, "withheld_ids", lead_ids)


def objected_leads(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, source: str, day: str) -> bool:
    """Make the table `objected_ids` of the leads among these rows whose person has objected; whether there are."""
    suppressed = lake.suppression.read()
    lead_ids = _meant(db, lake, suppressed, suppressed.objections, kind, f"{day}, null as payload", source)
    return _as_table(db, "objected_ids", lead_ids)


def _as_table(db: duckdb.DuckDBPyConnection, name: str, lead_ids: list[str]) -> bool:
    db.execute(
        f"create or replace temp table {name} as select unnest($ids::varchar[]) as lead_id",
        {"ids": lead_ids},
    )
    return bool(lead_ids)


def _meant(
    db: duckdb.DuckDBPyConnection,
    lake: Lake,
    suppressed: Suppressed,
    meant: Meant,
    kind: LeadKind,
    day_and_payload: str,
    source: str,
    *,
    is_copy: bool = False,
) -> list[str]:
    """The leads among the rows that entries of the list mean, which knows their ids from then on."""
    if not meant:
        return []
    # Those that are there: a copy that somebody kept, or what an older version has staged, may lack one.
    columns_present = {name: type_ for name, type_, *_ in db.execute(f"describe from {source}").fetchall()}
    columns = [
        name for name, type_ in columns_present.items() if type_ == "VARCHAR" and (is_contact(name) or is_name(name))
    ]
    are_contacts = list(map(is_contact, columns))
    shown = ", ".join([f"{name}::varchar" if name in columns_present else "null" for name in ("created_at", "_extra")])
    shown = ", ".join([shown, *map(quoted, columns)])
    cursor = db.execute(f"select lead_id, {day_and_payload}, {shown} from {source}")  # noqa: S608 - our own names
    entries: dict[tuple[str, str], int] = {}
    while rows := cursor.fetchmany(_ROWS_AT_ONCE):
        entries |= meant.leads(_shown(kind, columns, are_contacts, row) for row in rows)
    if not is_copy:
        lake.know_leads(suppressed, entries)
    return [lead_id for _, lead_id in entries]


def _shown(kind: LeadKind, columns: list[str], are_contacts: list[bool], row: tuple[Any, ...]) -> Shown:
    lead_id, day, payload, created_at, extra, *values = row
    assert isinstance(day, date)  # noqa: S101 - for mypy: the column is a date

    def texts() -> Iterable[PathAndText]:
        if payload is not None:
            return texts_of(payload)
        named = [("created_at", created_at), *zip(columns, values, strict=True)]
        return [*((name, text) for name, text in named if text), *(texts_of(extra) if extra else ())]

    def contacts() -> list[str] | None:
        if payload is not None:
            return contacts_of(payload)
        of_extra = contacts_of(extra) if extra else []
        own = [text for text, is_one in zip(values, are_contacts, strict=True) if text and is_one]
        return None if of_extra is None else own + of_extra

    return Shown(kind.name, lead_id, day, texts, contacts)
