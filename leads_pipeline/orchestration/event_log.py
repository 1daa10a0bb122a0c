"""Dagster's event log in SQLite, over connections that stay open.

Dagster opens and closes one for each event. `dagster.yaml` names the class. Dagster's own class reads the same files.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import sqlalchemy
from dagster import StringSource
from sqlalchemy.engine import Connection, Engine

from leads_pipeline.orchestration.dagster_compat import (
    SQLITE_BUSY_TIMEOUT_SECONDS,
    ConfigurableClassData,
    SqlEventLogStorage,
    SqliteEventLogStorage,
    UserConfigSchema,
)

# Each run has a file of its own, and the daemon outlives many runs.
_OPEN_FILES: Final = 8


class KnownColumns(SqlEventLogStorage):
    """Asks once for the columns of a table. Dagster asks at each event."""

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        known: dict[str, bool] = self.__dict__.setdefault("_known_columns", {})
        if column_name not in known:
            known[column_name] = super()._has_asset_key_col_on_connection(conn, column_name)
        return known[column_name]


class SqliteEventLog(KnownColumns, SqliteEventLogStorage):
    """As SqliteEventLogStorage, with a connection for each file that stays open."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engines: dict[str, Engine] = {}
        super().__init__(base_dir, inst_data)

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """Dagster's home, as an environment variable, so that the folder can be moved."""
        return {"dagster_home": StringSource}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        """Make one from dagster.yaml."""
        return cls(str(Path(config_value["dagster_home"], "history", "runs")), inst_data)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            engine = self._engines.pop(shard, None) or _engine(self.conn_string_for_shard(shard))
            self._engines[shard] = engine  # now the last one to be closed
            if len(self._engines) > _OPEN_FILES:
                self._engines.pop(next(iter(self._engines))).dispose()
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                yield connection

    def delete_events(self, run_id: str) -> None:
        """Delete the run's events and its file, which Dagster leaves behind."""
        super().delete_events(run_id)
        with self._db_lock:
            if (engine := self._engines.pop(run_id, None)) is not None:
                engine.dispose()
            self._initialized_dbs.discard(run_id)
            for end in ("", "-wal", "-shm"):
                Path(f"{self.path_for_shard(run_id)}{end}").unlink(missing_ok=True)

    def dispose(self) -> None:
        """Close all files."""
        super().dispose()
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()


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
        # Dagster sets it once a run's tables are made, and making them without it takes 60 syncs more (measured).
        connection.execute("pragma journal_mode = wal")
        # With a write-ahead log this never damages the file. A power cut may take the last events; their leads are
        # landed, and the next automatic run shows them again.
        connection.execute("pragma synchronous = normal")

    return engine
