"""Reading the published file while publications go on.

Belongs here: opening the newest edition, and checking that one can be read. Doesn't: replacing it
(publication.py).
"""

# ruff: noqa: S608 - only our own names are in the statements

import errno
import fcntl
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import duckdb
import pyarrow as pa

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import reading
from leads_pipeline.raw.room import says_too_many_files
from leads_pipeline.raw.starting import how_to_publish
from leads_pipeline.raw.state import State
from leads_pipeline.warehouse.duck import (
    MEMORY_LIMIT,
    WAREHOUSE_FILE,
    connection,
    literal,
    quoted,
    telling_errors,
)

_SMALL: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": MEMORY_LIMIT,
    "threads": "2",
}


class Reader(Protocol):
    """A reader of the published file: of one edition of it, or whichever is there at each query."""

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Return column names and rows as analysts see them. Raises StorageError and BugError."""


class Edition:
    """One edition of the published file, however many publications replace it meanwhile."""

    def __init__(self, folder: Path, db: duckdb.DuckDBPyConnection) -> None:
        self._folder = folder
        self._db = db

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """As Reader says."""
        with telling_errors(self._folder):
            result = self._db.execute(statement, dict(parameters or {}))
            return [column[0] for column in result.description], result.fetchall()


@contextmanager
def attached(folder: Path, file: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open an edition of leads.duckdb, or the link to it. It stays, whatever replaces it meanwhile.

    It is attached as `published`, because a process can open a file in one way only. `folder` is
    the data folder.
    """
    with connection(folder) as db:
        _open_file(
            file, lambda edition: db.execute(f"attach {literal(edition)} as published (read_only)")
        )
        db.execute("use published")
        yield db


def attached_version(data: DataFolder) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """Open the edition that is published now. Raises StorageError if nothing is published yet."""
    return attached(data.folder, _want_published(data.folder / WAREHOUSE_FILE))


def check_follows_list(db: duckdb.DuckDBPyConnection, data: DataFolder) -> None:
    """Raise StorageError if somebody on the suppression list may be in the attached edition.

    No erasure reaches a copy, so none is made of it.
    """
    remembered = db.execute("select value from pipeline.facts where name = 'forgets_if'").fetchall()
    if data.is_behind_list or remembered != [(data.forgets_if(data.gate.newest_entry),)]:
        raise StorageError(
            f"{WAREHOUSE_FILE} isn't known to follow the suppression list, so it may hold people "
            "who are to be erased. Run `leads-pipeline privacy apply`, then run this again."
        )


def is_readable(folder: Path, file: Path, tables: Collection[str] | None = None) -> bool:
    """Whether DuckDB can decode each value of these tables of the file, or of all.

    `folder` is the data folder. A file that has none of these tables isn't one of ours.

    Raises StorageError if the disk can't be read, for want of space, or if another program writes
    to the file.
    """
    if is_open_for_writing(file):
        raise StorageError(
            f"Another program has opened {file} for writing, so nobody else can read it. Close it "
            f"there, or have that program open it read-only. `fuser {file}` names it."
        )

    with reading(file), file.open("rb") as content:  # DuckDB would take a failing disk for damage
        while content.read(1 << 20):
            pass

    found = "select schema_name, table_name from duckdb_tables() where database_name = 'published'"
    with connection(folder) as db:
        try:
            db.execute(f"attach {literal(str(file))} as published (read_only)")
            there = db.execute(found).fetchall()
            if tables is not None:
                there = [(schema, table) for schema, table in there if table in tables]
            for schema, table in there:
                rows = f"published.{quoted(schema)}.{quoted(table)}"
                db.execute(f"select bit_xor(hash(rows)) from {rows} as rows").fetchall()
        except duckdb.OutOfMemoryException:
            raise
        except duckdb.Error as error:
            if says_too_many_files(str(error)):
                raise
            return False

    return tables is None or bool(there)


def is_open_for_writing(file: Path) -> bool:
    """Whether another program has locked the file, as DuckDB does to write."""
    with file.open("rb") as content:
        try:
            fcntl.lockf(content, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:  # a file system without locks has none to look for
            return error.errno in (errno.EAGAIN, errno.EACCES)
    return False


class LeadsFile:
    """The published leads.duckdb of a data folder. Readers open it at any time.

    `path` is there once something was published.
    """

    def __init__(self, data: DataFolder) -> None:
        self.path = data.folder / WAREHOUSE_FILE
        self._data = data

    @contextmanager
    def reading(self) -> Iterator[Edition]:
        """Read one edition of the file, however many queries that takes.

        Raises StorageError if there is none.
        """
        with attached_version(self._data) as db:
            yield Edition(self._data.folder, db)

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Keep the file open, if it is there.

        Then a query takes DuckDB 1 ms to begin, and not 20 (measured).
        """
        with ExitStack() as opened:
            with suppress(LeadsPipelineError):
                opened.enter_context(self._connection())
            yield

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Answer a single query. Raises StorageError if nothing is published yet, and BugError.

        An edition never changes, so this takes no lock and makes no folder.
        """
        with self._connection() as db:
            return Edition(self._data.folder, db).query(statement, parameters)

    @contextmanager
    def _connection(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with telling_errors(self._data.folder), open_published(self._data.folder) as db:
            yield db

    def forgets_if(self) -> str | None:
        """Return what decided who is shown.

        None if the file is missing, damaged or of another release.
        """
        with suppress(LeadsPipelineError):
            _, rows = self.query("select value from pipeline.facts where name = 'forgets_if'")
            return str(rows[0][0]) if rows else None
        return None

    def lead_counts(self) -> dict[str, int]:
        """Return how many leads of each kind are published. Raises StorageError."""
        counts = (
            f"select {literal(kind.name)}, count(*) from {quoted(kind.table)}"
            for kind in LEAD_KINDS
        )
        return dict(self.query(" union all ".join(counts))[1])


def open_published(folder: Path) -> duckdb.DuckDBPyConnection:
    """Open the published edition of leads.duckdb read-only. Raises StorageError without one."""
    db = _open_file(
        _want_published(folder / WAREHOUSE_FILE),
        partial(duckdb.connect, read_only=True, config=_SMALL),
    )
    db.execute("set TimeZone = 'UTC'")
    return db


def table_of(
    db: duckdb.DuckDBPyConnection, statement: str, parameters: Mapping[str, object] | None = None
) -> pa.Table:
    """Return the answer to a query as an Arrow table. Raises DuckDB's own errors."""
    table: pa.Table = db.sql(statement, params=dict(parameters or {})).to_arrow_table()
    return table


def _open_file(
    link: Path, open_edition: Callable[[str], duckdb.DuckDBPyConnection]
) -> duckdb.DuckDBPyConnection:
    """Open the edition that is published now.

    A publication may remove it after the link was resolved.
    """
    while True:
        edition = link.resolve()
        try:
            return open_edition(str(edition))
        except duckdb.IOException:
            if link.resolve() == edition:
                raise


def _want_published(path: Path) -> Path:
    if not path.exists():
        raise StorageError(
            f"{path} is missing. {how_to_publish(State(path.parent))}: it publishes."
        )
    return path
