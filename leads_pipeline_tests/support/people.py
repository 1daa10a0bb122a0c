"""A made-up person, leads that show them, entries of the suppression list that mean them, and what
it left.
"""

import gzip
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.features.privacy.contact_keys import keys_in, name_key
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import (
    IDENTITY,
    Action,
    Entry,
    Suppressed,
    SuppressionList,
)
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import list_places
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.analyst import query

UNTIL = datetime(2026, 11, 21, 12, tzinfo=UTC)

EMAIL = "jane.roe@people.example"
PHONE = "07700 900123"


def lead(
    lead_id: str, *, email: str = "", phone: str = "", name: str = "", **more: Any
) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    contact = {"firstName": first, "lastName": last, "phoneNumber": phone, "email": email}
    return {"id": lead_id, "contact": contact, **more}


def listed(
    list_: SuppressionList,
    action: Action = Action.ERASE,
    *,
    emails: Iterable[str] = (EMAIL,),
    phones: Iterable[str] = (),
    names: Iterable[str] = (),
    leads: Iterable[tuple[str, str]] = (),
    until: datetime | None = UNTIL,
    **more: Any,
) -> Entry:
    """Add an entry for a person."""
    given = [keys_in(text) for text in (*emails, *phones)]
    mailboxes = {email for keys in given for email in keys.emails}
    numbers = {phone for keys in given for phone in keys.phones}

    def entry(suppressed: Suppressed, number: int) -> Entry:
        return Entry(
            number=number,
            at=UNTIL,
            action=action,
            until=until,
            identity=IDENTITY,
            emails=suppressed.hashes("mailbox", mailboxes),
            phones=suppressed.hashes("phone", numbers),
            names=suppressed.hashes("name", {name_key(name) or "" for name in names}),
            leads=tuple(suppressed.hashed_lead(*one) for one in leads),
            **more,
        )

    return list_.append(entry)


def with_list(folder: Path, list_: Path) -> DataFolder:
    """A data folder whose suppression list is in another folder."""
    return DataFolder.at(
        folder, settings=Settings.from_variables({"LEADS_PRIVACY_DIR": str(list_)})
    )


def left_by_list(data: DataFolder) -> list[str]:
    """The raw windows and the published leads that the suppression list keeps out, and that are
    there all the same.
    """
    left = []
    for place in list_places(data.store):
        rows = data.raw.read(place).rows
        if data.gate.admit(place, rows) != rows:
            left.append(place.key)
    out = list_of(data).read().out
    for kind in LEAD_KINDS:
        ids = query(data.folder / "leads.duckdb", f"select lead_id from {kind.table}")  # noqa: S608 - our own names
        left += [lead_id for (lead_id,) in ids if out.is_known(kind.name, lead_id)]
    return left


def everything_in(folder: Path) -> str:
    """What is in a folder's files, in lower case."""
    contents = [
        content for path in folder.rglob("*") if path.is_file() for _, content in decoded(path)
    ]
    return b"\n".join(contents).decode("latin-1").lower()


def decoded(path: Path) -> Iterator[tuple[str, bytes]]:
    """What is in a file, with the table that it is in: its bytes, and what they decode to."""
    content = path.read_bytes()
    yield "", content
    if content[:2] == b"\x1f\x8b":
        yield "", gzip.decompress(content)
    elif content[:4] == b"PAR1":
        yield "", repr(pq.ParquetFile(path).read().to_pylist()).encode()
        yield "", repr(pq.ParquetFile(path).metadata.to_dict()).encode()
    elif content[8:12] == b"DUCK":
        yield from of_duckdb(path)
    elif content[:16] == b"SQLite format 3\0":
        yield from of_sqlite(path)


def of_duckdb(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every table and view, and what the file says of them."""
    with duckdb.connect(str(path), read_only=True) as db:
        for schema, table in db.execute(
            "select table_schema, table_name from information_schema.tables"
        ).fetchall():
            yield table, repr(db.execute(f'from "{schema}"."{table}"').fetchall()).encode()
        for catalog in ("tables", "columns", "views", "functions"):
            yield (
                catalog,
                repr(db.execute(f"from duckdb_{catalog}() where not internal").fetchall()).encode(),
            )


def of_sqlite(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every row, and every cell that is packed."""
    with closing(sqlite3.connect(path)) as lite:
        for (table,) in lite.execute(
            "select name from sqlite_master where type = 'table'"
        ).fetchall():
            for row in lite.execute(f'select * from "{table}"').fetchall():  # noqa: S608 - its own names
                yield table, repr(row).encode()
                for cell in row:
                    with suppress(TypeError, zlib.error):
                        yield table, zlib.decompress(cell)
