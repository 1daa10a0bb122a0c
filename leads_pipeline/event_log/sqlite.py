"""Dagster's event log in sqlite, over connections that stay open, and its files made smaller again."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import sqlalchemy
from dagster import DagsterEventType, EventLogEntry, StringSource
from dagster._config.config_schema import UserConfigSchema
from dagster._core.storage.event_log.schema import SqlEventLogStorageMetadata
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sql import MigrationContext  # type: ignore[attr-defined] # alembic's
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DatabaseError

from leads_pipeline.event_log.gathering import GatheringEventLog, migrations, refuse_unknown

# Each run has a database file of its own, and the daemon outlives many runs.
OPEN_SHARDS = 8


def refuse_newer(home: Path) -> None:
    """Raise StorageError where a newer Dagster has changed the form of its own state, which this one ignores."""
    for name in ("runs.db", "runs/index.db"):
        path = home / "history" / name
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            refuse_unknown(
                (revision for (revision,) in db.execute("select version_num from alembic_version")), str(home)
            )


class BatchingSqliteEventLogStorage(GatheringEventLog, SqliteEventLogStorage):
    """As SqliteEventLogStorage, at about a tenth of its cost for each partition of an asset.

    Dagster's makes a new engine and connection for each event, asks sqlite for the columns of a table each time, and
    writes materializations one by one, each in two transactions.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: dict[str, Engine] = {}
        super().__init__(base_dir, inst_data)

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """Dagster's home, as an environment variable so that it can be moved with all that it holds."""
        return {"dagster_home": StringSource}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        """Make one from dagster.yaml (dagster.ConfigurableClass). Raises StorageError for a home of a newer Dagster."""
        refuse_newer(Path(config_value["dagster_home"]))
        return cls(str(Path(config_value["dagster_home"], "history", "runs")), inst_data)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        self._store_gathered()
        with self._db_lock:
            engine = self._engine(shard)
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.connect() as connection, connection.begin():
                yield connection

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        """See that the file has the tables that Dagster makes. Raises what sqlite raises.

        Dagster has Alembic read its hundred migrations again for each file: half of what a run takes to begin.
        """
        with engine.connect() as connection:
            if MigrationContext.configure(connection).get_current_heads():
                return
        if not for_index_shard:
            with suppress(DatabaseError), engine.connect() as connection:  # another process makes them: as Dagster does
                _make_tables(connection)
                return
        super()._initdb(engine, for_index_shard)

    def _engine(self, shard: str) -> Engine:
        """The shard's engine, from now on the last one to be closed. `_db_lock` is held."""
        engine = self._engines.pop(shard, None) or _engine(self.conn_string_for_shard(shard))
        self._engines[shard] = engine
        if len(self._engines) > OPEN_SHARDS:
            self._engines.pop(next(iter(self._engines))).dispose()
        return engine

    def dispose(self) -> None:
        """Store what is gathered and close what is open."""
        super().dispose()
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()

    def _store_events_of_run(self, events: Sequence[EventLogEntry], statements: Sequence[sqlalchemy.Insert]) -> None:
        with self.run_connection(events[0].run_id) as connection:
            for statement in statements:
                connection.execute(statement)
        in_common = [
            both
            for both in zip(events, statements, strict=True)
            if both[0].dagster_event_type is not DagsterEventType.STEP_OUTPUT
        ]
        if in_common:
            super()._store_events_of_run(*zip(*in_common, strict=True))

    def has_log(self, run_id: str) -> bool:
        """Whether the run's own database is there."""
        return Path(self.path_for_shard(run_id)).exists()

    def forget_log(self, run_id: str) -> None:
        """Delete the run's own database, and what of the run is in the common one but isn't of an asset or a check."""
        super().forget_log(run_id)
        with self._db_lock:
            if (engine := self._engines.pop(run_id, None)) is not None:
                engine.dispose()
            self._initialized_dbs.discard(run_id)
            for end in ("", "-wal", "-shm"):
                Path(f"{self.path_for_shard(run_id)}{end}").unlink(missing_ok=True)

    def shrink(self) -> bool:
        """Give the disk back what is free in the common database, where that is more than half of it.

        Nobody can write meanwhile, so not where what stays is large: its free pages are used again.
        """
        with self.index_connection() as connection:
            free, pages, size = (connection.execute(sqlalchemy.text(f"pragma {name}")).scalar_one() for name in _PAGES)
        if 2 * free < pages or (pages - free) * size > _QUICKLY_COPIED_BYTES:
            return False
        # Not through the pool, whose connections begin a transaction of their own.
        with closing(sqlite3.connect(self.path_for_shard(INDEX_SHARD_NAME), timeout=SQLITE_BUSY_TIMEOUT_SECONDS)) as db:
            db.execute("vacuum")
        return True


_PAGES = ("freelist_count", "page_count", "page_size")

# Some ten seconds (100 MB a second were measured); who writes meanwhile waits for up to SQLITE_BUSY_TIMEOUT_SECONDS.
_QUICKLY_COPIED_BYTES = 1_000_000_000


def _make_tables(connection: Connection) -> None:
    """Make all tables at once, or none."""
    connection.exec_driver_sql("pragma journal_mode = wal")
    connection.exec_driver_sql("begin immediate")
    SqlEventLogStorageMetadata.create_all(connection)
    MigrationContext.configure(connection).stamp(migrations(), "head")
    connection.commit()


def _engine(address: str) -> Engine:
    engine = sqlalchemy.create_engine(
        address,
        poolclass=sqlalchemy.QueuePool,
        pool_size=1,
        # One thread at a time has the connection, whichever thread it is.
        connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS, "check_same_thread": False},
    )

    @sqlalchemy.event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _: object) -> None:
        # With a write-ahead log this never damages the file, but a power cut may take the last moments' events. The
        # leads they tell of are on the disk by then, and a window pulled once more costs a request.
        connection.execute("pragma synchronous = normal")

    return engine
