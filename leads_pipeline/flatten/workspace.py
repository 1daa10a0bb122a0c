"""DuckDB for the batches of a process, one after the other.

Belongs here: the instance, what every batch finds in it, what a batch leaves. Doesn't: what a batch does (batches.py).
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, Self

import duckdb

from leads_pipeline.contract import LeadKind
from leads_pipeline.duck import literal, sweep_readers, telling_errors
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.repair import define_functions, extra_functions
from leads_pipeline.flatten.statement import define_local_time
from leads_pipeline.flatten.windows import querying
from leads_pipeline.lake import Lake
from leads_pipeline.window import Clocks

# A day of 147,000 leads takes 8 s with it and 11 in duck.py's limit, as what spills is read again (measured).
_MEMORY_LIMIT: Final = "400MB"


class Workspace:
    """One instance of DuckDB for a kind's batches. Beginning one takes as long as flattening 700 leads.

    Whoever enters it leaves nothing open. For one thread.
    """

    def __init__(self, lake: Lake, kind: LeadKind, clocks: Clocks) -> None:
        self.lake, self.kind, self._clocks = lake, kind, clocks
        self._instance = ExitStack()
        self._db: duckdb.DuckDBPyConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @contextmanager
    def batch(self, *, threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection with functions and macros, to an empty database in memory that goes afterwards.

        DuckDB's errors leave it as ours. What a batch that failed has left goes with the instance.
        """
        try:
            with telling_errors(self.lake):
                db = self._db = self._db or self._begun()
                let_go(db)
                db.execute(f"set threads = {threads}; attach ':memory:' as batch; use batch")
                yield db
                db.execute("use memory; detach batch")
        except BaseException:
            self._end()
            raise

    def _begun(self) -> duckdb.DuckDBPyConnection:
        with suppress(
            OSError, StorageError
        ):  # what a killed run of this has left is a reader's; the next one sweeps again
            sweep_readers(self.lake)
        db = self._instance.enter_context(querying(self.lake))
        define_functions(db, extra_functions(self.kind))
        define_local_time(db, self._clocks)
        return db

    def _end(self) -> None:
        self._db = None
        self._instance.close()


def let_go(db: duckdb.DuckDBPyConnection) -> None:
    """Have DuckDB give the memory back that it holds for nothing, as it does whenever its limit is set.

    Before each batch and before it is written, that is 70 MB of a process, for 5 % more time (measured).
    """
    db.execute(f"set memory_limit = {literal(_MEMORY_LIMIT)}")
