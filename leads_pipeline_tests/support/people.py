"""A made-up person, leads that show them, entries of the suppression list that mean them, and what it left."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.person import email_keys, name_key, phone_keys
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.raw import list_places
from leads_pipeline.storage.suppression import Action, Entry, Suppressed, SuppressionList

UNTIL = datetime(2026, 11, 21, 12, tzinfo=UTC)

EMAIL, PHONE = "jane.roe@people.example", "07700 900123"


def lead(lead_id: str, *, email: str = "", phone: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    contact = {"firstName": first, "lastName": last, "phoneNumber": phone, "email": email}
    return {"id": lead_id, "contact": contact, **more}


def entry_of(
    suppressed: Suppressed,
    number: int,
    action: Action = Action.ERASE,
    *,
    emails: Iterable[str] = (EMAIL,),
    phones: Iterable[str] = (),
    names: Iterable[str] = (),
    leads: Iterable[tuple[str, str]] = (),
    until: datetime | None = UNTIL,
    **more: Any,
) -> Entry:
    """An entry for a person."""
    keys = frozenset[str]().union(*map(email_keys, emails))
    return Entry(
        number=number,
        at=UNTIL,
        action=action,
        until=until,
        emails=suppressed.hashes("mailbox", keys),
        phones=suppressed.hashes("phone", frozenset[str]().union(*map(phone_keys, phones))),
        names=suppressed.hashes("name", {key for name in names if (key := name_key(name))}),
        leads=tuple(suppressed.hashed_lead(*one) for one in leads),
        **more,
    )


def listed(list_: SuppressionList, action: Action = Action.ERASE, **more: Any) -> Entry:
    """Add an entry for a person."""
    return list_.append(lambda suppressed, number: entry_of(suppressed, number, action, **more))


def left_by_list(data: DataFolder) -> list[str]:
    """The raw windows and the published leads that the suppression list keeps out, and that are there all the same."""
    left = []
    for place in list_places(data.store):
        rows = data.raw.read(place).rows
        if data.gate.admit(place.kind, place.day, place.scope, rows) != rows:
            left.append(place.key)
    out = data.gate.entries.read().out
    with duckdb.connect(data.folder / "leads.duckdb", read_only=True) as db:
        for kind in LEAD_KINDS:
            ids = db.execute(f"select lead_id from {kind.table}").fetchall()  # noqa: S608 - our own names
            left += [lead_id for (lead_id,) in ids if out.is_known(kind.name, lead_id)]
    return left


def everything_in(folder: Path) -> str:
    """What is in a folder's files, in lower case: as bytes, and decoded if it is Parquet, DuckDB or SQLite."""
    found = []
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        found.append(content.decode("latin-1"))
        if content[:4] == b"PAR1":
            found.append(f"{pq.ParquetFile(path).read().to_pylist()} {pq.read_metadata(path).to_dict()}")
        elif content[8:12] == b"DUCK":
            with duckdb.connect(path, read_only=True) as db:
                tables = db.execute("select table_schema, table_name from information_schema.tables").fetchall()
                found += [str(db.execute(f'from "{schema}"."{table}"').fetchall()) for schema, table in tables]
        elif content[:16] == b"SQLite format 3\0":
            with closing(sqlite3.connect(path)) as lite:
                for (table,) in lite.execute("select name from sqlite_master where type = 'table'").fetchall():
                    found.append(str(lite.execute(f'select * from "{table}"').fetchall()))  # noqa: S608 - its own names
    return "\n".join(found).lower()
