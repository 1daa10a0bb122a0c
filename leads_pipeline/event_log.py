"""Dagster's event log in sqlite, written in batches over connections that stay open.

Belongs here: the three places where Dagster's own sqlite storage spends most of a pull's time. Doesn't: what is
recorded, which is Dagster's business. `dagster.yaml` names the class; Dagster's own reads the same files, so that
taking it out again needs nothing but taking it out of dagster.yaml.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import sqlalchemy
from dagster import EventLogEntry, StringSource
from dagster._config.config_schema import UserConfigSchema
from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection, CursorResult, Engine

# Each run has a database file of its own, and the daemon outlives many runs.
OPEN_SHARDS = 8

# How many events of assets share a transaction, and how long the first waits for the others.
GATHERED_EVENTS = 50
GATHERING_SECONDS = 0.25

logger = logging.getLogger(__name__)


class BatchingSqliteEventLogStorage(SqliteEventLogStorage):
    """As SqliteEventLogStorage, at about a tenth of its cost for each partition of an asset.

    Dagster's makes a new engine and connection for each event, asks sqlite for the columns of a table each time, and
    writes materializations one by one, each in two transactions; here those that come within GATHERING_SECONDS share
    two. Whoever reads through this storage reads them too. A process that is killed takes those of the last moment
    along: their windows are on the disk, and pulling one once more costs a request.
    """

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._gathered: list[EventLogEntry] = []
        self._gathering = threading.RLock()
        self._timer: threading.Timer | None = None
        self._is_storing = False
        self._engines: dict[str, Engine] = {}
        self._known_columns: dict[str, bool] = {}
        super().__init__(base_dir, inst_data)

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        """Dagster's home, as an environment variable so that it can be moved with all that it holds."""
        return {"dagster_home": StringSource}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> Self:
        """Make one from dagster.yaml (dagster.ConfigurableClass)."""
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

    def _engine(self, shard: str) -> Engine:
        """The shard's engine, from now on the last one to be closed. `_db_lock` is held."""
        engine = self._engines.pop(shard, None) or _engine(self.conn_string_for_shard(shard))
        self._engines[shard] = engine
        if len(self._engines) > OPEN_SHARDS:
            self._engines.pop(next(iter(self._engines))).dispose()
        return engine

    def dispose(self) -> None:
        """Store what is gathered and close what is open."""
        self._store_gathered()
        super().dispose()
        with self._db_lock:
            while self._engines:
                self._engines.popitem()[1].dispose()

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        if column_name not in self._known_columns:
            self._known_columns[column_name] = super()._has_asset_key_col_on_connection(conn, column_name)
        return self._known_columns[column_name]

    def store_event(self, event: EventLogEntry) -> None:
        """Store the event, one of an asset together with those that follow it at once."""
        if not _is_of_asset(event):
            super().store_event(event)
            return
        with self._gathering:
            self._gathered.append(event)
            if len(self._gathered) >= GATHERED_EVENTS:
                self._store_gathered()
            elif self._timer is None:
                self._start_timer()

    def _store_gathered(self) -> None:
        """Store what is gathered, before anything else is stored or read. What can't be stored stays gathered."""
        with self._gathering:
            if not self._gathered or self._is_storing:
                return
            self._is_storing = True
            try:
                self._store_events_of_assets(self._gathered)
            finally:
                self._is_storing = False
            self._gathered.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _start_timer(self) -> None:
        self._timer = threading.Timer(GATHERING_SECONDS, self._store_late)
        # Nothing waits for it: what ends a run normally stores the run's end, and before it what is gathered.
        self._timer.daemon = True
        self._timer.start()

    def _store_late(self) -> None:
        with self._gathering:
            try:
                self._store_gathered()
            except Exception as error:  # noqa: BLE001 - there is nobody to tell here; the next call raises what still holds
                logger.warning("Events of assets can't be stored now (%s) and wait.", type(error).__name__)
                self._start_timer()

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store each stretch of assets' events in one transaction for each database that is concerned.

        Dagster sends the planned materializations and checks of a run as a batch where DAGSTER_EVENT_BATCH_SIZE is set.
        """
        for is_of_asset, stretch in groupby(events, key=_is_of_asset):
            if is_of_asset:
                self._store_events_of_assets(stretch)
            else:
                super().store_event_batch(list(stretch))

    def _store_events_of_assets(self, events: Iterable[EventLogEntry]) -> None:
        for run_id, group in groupby(events, key=lambda event: event.run_id):
            of_run = list(group)
            statements = [self.prepare_insert_event(event) for event in of_run]
            with self.run_connection(run_id) as connection:
                for statement in statements:
                    connection.execute(statement)
            with self.index_transaction() as connection:
                ids = [_id(connection.execute(statement)) for statement in statements]
                self._store_asset_event_tags(connection, of_run, ids)
                # The row of an asset holds its newest events alone.
                newest = {
                    (event.get_dagster_event().asset_key, event.dagster_event_type): (event, id_)
                    for event, id_ in zip(of_run, ids, strict=True)
                }
                for event, id_ in newest.values():
                    self._store_asset_event(connection, event, id_)


def _is_of_asset(event: EventLogEntry) -> bool:
    return event.is_dagster_event and event.dagster_event_type in ASSET_EVENTS


def _id(result: CursorResult[Any]) -> int:
    (id_,) = result.inserted_primary_key or (None,)
    if id_ is None:
        raise RuntimeError("sqlite gave an event no id")
    return int(id_)


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
