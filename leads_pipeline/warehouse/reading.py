"""Reading the published file while publications go on.

Belongs here: holding one version of it, and whoever reads without saying which. Doesn't: replacing it (publication.py).
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from leads_pipeline.duck import (
    WAREHOUSE_FILE,
    connection,
    link_or_copy,
    scratch_folder,
    sweep_readers,
    telling_errors,
)
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake


class Reader(Protocol):
    """What answers a query on the published file: one version of it, or whichever is there at each query."""

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a query, as an analyst would see them. Raises StorageError, and BugError."""


class Version:
    """The version that was published when the first query came, however many publications replace it meanwhile."""

    def __init__(self, lake: Lake, path: Path, stack: ExitStack) -> None:
        self._lake = lake
        self._path = path
        self._stack = stack
        self._db: duckdb.DuckDBPyConnection | None = None

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """As Reader says. Raises StorageError where nothing is published yet; a later query tries again."""
        if self._db is None:
            self._db = self._opened()
        with telling_errors(self._lake):
            result = self._db.execute(statement, dict(parameters or {}))
            return [column[0] for column in result.description], result.fetchall()

    def batches(self, statement: str, rows: int) -> pa.RecordBatchReader:
        """The rows of a query as Arrow, so many at once; other queries may go on meanwhile. Raises as `query` does."""
        if self._db is None:
            self._db = self._opened()
        with telling_errors(self._lake):
            cursor = self._db.cursor()
            cursor.execute("set TimeZone = 'UTC'")  # else moments bear the machine's zone
            reader: pa.RecordBatchReader = cursor.sql(statement).to_arrow_reader(rows)
            return reader

    def _opened(self) -> duckdb.DuckDBPyConnection:
        with ExitStack() as opening:
            link = opening.enter_context(holding_version(self._lake, self._path))
            db = opening.enter_context(connection(self._lake, f"{link.name}/query", link.path, read_only=True))
            self._stack.push(opening.pop_all())
        return db


@dataclass(frozen=True, slots=True)
class HeldVersion:
    """A second name of a published version, in a scratch folder of that name."""

    name: str
    path: Path


@contextmanager
def holding_version(lake: Lake, path: Path) -> Iterator[HeldVersion]:
    """Hold the version that is published now, whatever replaces it meanwhile. Raises StorageError where there is none.

    Readers wait for nobody, so each has its own folder. The second name is for the moment in which the file is built
    anew: the headers and the blocks that DuckDB opens one after the other are then of one version.
    """
    if not path.exists():
        raise StorageError(f"{path} is not there yet. Publish the warehouse first: `leads-pipeline backfill`.")
    sweep_readers(lake)
    name = f"query-{secrets.token_hex(8)}"
    with lake.reading(name), scratch_folder(lake, name) as folder:
        link_or_copy(path, folder / WAREHOUSE_FILE)
        yield HeldVersion(name, folder / WAREHOUSE_FILE)


@contextmanager
def reading(lake: Lake, path: Path) -> Iterator[Version]:
    """Read one version of the published file, or another DuckDB file as it is, for as long as this takes."""
    with ExitStack() as stack:
        yield Version(lake, path, stack)
