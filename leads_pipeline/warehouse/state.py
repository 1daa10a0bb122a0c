"""What a published file was made from, so that the next publication loads what changed and nothing else.

Belongs here: fingerprints, and remembering them in the file. Doesn't: loading (loading.py).
"""

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.contract import ENUMERATIONS, LEAD_KINDS
from leads_pipeline.duck import quoted
from leads_pipeline.flatten.columns import staged_columns
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse.answers import answers_fingerprint
from leads_pipeline.warehouse.grid import Grid
from leads_pipeline.warehouse.people import PERSON_MACROS
from leads_pipeline.warehouse.schema import BOOKKEEPING, fill, tables
from leads_pipeline.warehouse.sql_marts import MART_MACROS, marts
from leads_pipeline.window import today

# Raised when a file of an older version can't be brought up to date by loading changed days: it is then built anew.
SCHEMA_VERSION: Final = 4

INVENTORY: Final = "inventory"


@dataclass(frozen=True, slots=True)
class State:
    """What a file was made from: fingerprints of schema, marts, comments and grid, and of each file loaded.

    `listed` is the mark of the suppression list.

    `files` is by table and day, the inventory's files under the table `inventory`.
    """

    schema: str
    marts: str
    comments: str
    grid: str
    listed: str
    files: Mapping[tuple[str, date], str]


EMPTY: Final = State("", "", "", "", "", {})


_FACTS: Final = ("schema", "marts", "comments", "grid", "listed")


@dataclass(frozen=True, slots=True)
class WarehouseFile:
    """The published file, or the new one: what it was made from, and its rows by table.

    `leads_gone` counts leads that the one before had and this one has in no version.
    """

    state: State
    rows: Mapping[str, int]
    days_changed: int = 0
    is_rebuilt: bool = False
    leads_gone: int = 0


def wanted_state(lake: Lake, grid: Grid, now: datetime) -> State:
    """What a file that is up to date is made from."""
    staged = (file for kind in LEAD_KINDS for table in staged_columns(kind) for file in lake.staged_files(table))
    files = {(file.table, file.day): file.fingerprint for file in staged}
    for path in lake.inventory_files():
        files[INVENTORY, date.fromisoformat(path.parent.name.removeprefix("day="))] = fingerprint_of(path)
    return State(
        schema=_fingerprint(
            SCHEMA_VERSION,
            [(table.name, [(column.name, column.type) for column in table.columns]) for table in tables()],
            PERSON_MACROS,
            ENUMERATIONS,
            lake.person_key(),
        ),
        marts=_fingerprint([(mart.name, mart.statement, mart.follows) for mart in marts()], MART_MACROS, grid.branches),
        comments=comments_fingerprint(),
        grid=_fingerprint(grid, today(grid.zone, now), answers_fingerprint(lake)),
        listed=lake.suppression.read().mark,
        files=files,
    )


def comments_fingerprint() -> str:
    """Changes with what analysts read of any table, and so with any table."""
    return _fingerprint(tables(), BOOKKEEPING, marts())


def fingerprint_of(path: Path) -> str:
    """Changes whenever the file is replaced."""
    stat = path.stat()
    return f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ino}"


def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def checksum_of(path: Path) -> str:
    """Of all bytes, as quick as reading them."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            value = zlib.crc32(piece, value)
    return f"{value:08x}"


def read_state(db: duckdb.DuckDBPyConnection) -> State:
    """What the file was made from; nothing where it isn't a file of the pipeline's."""
    if not db.execute(
        "select 1 from duckdb_tables() where schema_name = 'pipeline' and table_name = 'facts'"
    ).fetchall():
        return EMPTY
    facts = dict(db.execute("select name, value from pipeline.facts").fetchall())
    files = db.execute("select table_name, day, fingerprint from pipeline.loaded_files").fetchall()
    return State(
        **{name: facts.get(name, "") for name in _FACTS},
        files={(table, day): fingerprint for table, day, fingerprint in files},
    )


def remember(db: duckdb.DuckDBPyConnection, state: State) -> None:
    """Have the file remember what it was made from."""
    db.execute("delete from pipeline.facts")
    facts = {name: getattr(state, name) for name in _FACTS}
    fill(db, "pipeline.facts", {"name varchar": [*facts], "value varchar": [*facts.values()]})
    db.execute("delete from pipeline.loaded_files")
    fill(
        db,
        "pipeline.loaded_files",
        {
            "table_name varchar": [table for table, _ in state.files],
            "day date": [day for _, day in state.files],
            "fingerprint varchar": list(state.files.values()),
        },
    )


def row_counts(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """The rows of each table and mart."""
    names = [*(table.name for table in tables()), *(mart.name for mart in marts())]
    counts = (db.execute(f"select count(*) from {quoted(name)}").fetchall()[0][0] for name in names)  # noqa: S608
    return dict(zip(names, counts, strict=True))
