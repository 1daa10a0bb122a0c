"""Dagster's event log in SQLite, over connections that stay open.

It writes the events of many windows at once. Dagster opens and closes a connection for each event.
`dagster.yaml` names the class. Dagster's own class reads the same files.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy
from dagster import DagsterEventType, EventLogEntry, StringSource

# Dagster documents neither these classes nor what is changed of them below.
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage
from sqlalchemy.engine import Connection, Engine

if TYPE_CHECKING:
    # dagster.yaml makes objects by these: their signatures name the types.
    from dagster._config.config_schema import UserConfigSchema
    from dagster._serdes import ConfigurableClassData

# What this class changes or calls of Dagster's own. If a release moves one of them, Dagster's own
# class does the work.
_NEEDED: Final = (
    "_connect",
    "_initdb",
    "conn_string_for_shard",
    "path_for_shard",
    "prepare_insert_event",
    "run_connection",
    "index_connection",
    "store_asset_event_tags",
    "store_asset_event",
    "store_event_batch",
)
# How long to wait for a file that another process has locked, as Dagster does.
_BUSY_SECONDS: Final = 30

# Each run has a file of its own, and the daemon outlives many runs.
_OPEN_FILES: Final = 8

# How long the event of a window waits for others. If the process is killed, those that wait are
# lost. Their leads are landed, and the next automatic run shows them.
_WAIT_SECONDS: Final = 1.0
_OF_WINDOWS: Final = {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_OBSERVATION}


class EventLog(SqlEventLogStorage):
    """Stores the events of many windows together. The order stays."""

    def __init__(self, *arguments: Any) -> None:
        self._waiting: list[EventLogEntry] = []
        self._error: Exception | None = None
        self._one_at_a_time = threading.RLock()
        super().__init__(*arguments)  # type: ignore[no-untyped-call]

    def store_event(self, event: EventLogEntry) -> None:
        """Store the event after those that wait. That of a run's window waits too."""
        with self._one_at_a_time:
            if (
                event.run_id
                and event.dagster_event
                and event.dagster_event.event_type in _OF_WINDOWS
            ):
                if not self._waiting:
                    timer = threading.Timer(_WAIT_SECONDS, self._store_waiting)
                    timer.daemon = True
                    timer.start()
                self._waiting.append(event)
            else:
                self._store_waiting()
                # An error in a timer, or at the event of a log line, ends no run.
                if event.dagster_event and self._error is not None:
                    error = self._error
                    self._error = None
                    raise error
                super().store_event(event)
                self.refresh_pages(event.run_id)

    def dispose(self) -> None:
        """Store the events that wait."""
        self._store_waiting()
        super().dispose()

    def _store_waiting(self) -> None:
        """Store the events that wait, those of one run, type and asset together.

        If that fails for a group, the others are stored, and the next event of any run raises the
        error.
        """
        with self._one_at_a_time:
            waiting = self._waiting
            self._waiting = []
            for _, alike in groupby(waiting, _run_type_and_asset):
                try:
                    events = list(alike)
                    self.store_alike(events)
                    self.refresh_pages(events[0].run_id)
                except Exception as error:  # noqa: BLE001 - the next event raises it
                    self._error = error

    def store_alike(self, events: Sequence[EventLogEntry]) -> None:
        """Store events of one run, type and asset."""
        self.store_event_batch(events)

    def refresh_pages(self, run_id: str) -> None:
        """Have open pages of the run show what was stored."""


def is_quick(storage: type) -> bool:
    """Whether Dagster's own storage has what the kept connections need."""
    return all(hasattr(storage, name) for name in _NEEDED)


def _run_type_and_asset(event: EventLogEntry) -> tuple[object, ...]:
    of_dagster = event.get_dagster_event()
    return event.run_id, of_dagster.event_type, of_dagster.asset_key


class SqliteEventLog(EventLog, SqliteEventLogStorage):
    """As SqliteEventLogStorage, with a connection for each file that stays open."""

    def __init__(self, base_dir: str, inst_data: "ConfigurableClassData | None" = None) -> None:
        self._engines: dict[str, Engine] = {}
        super().__init__(base_dir, inst_data)

    @classmethod
    def config_type(cls) -> "UserConfigSchema":
        """Dagster's home, as an environment variable, so that the folder can be moved."""
        return {"dagster_home": StringSource}

    @classmethod
    def from_config_value(  # type: ignore[override]  # Dagster takes any event log
        cls, inst_data: "ConfigurableClassData | None", config_value: Any
    ) -> SqliteEventLogStorage:
        """Make one from dagster.yaml: Dagster's own if that lacks what a quick one needs."""
        made = cls if is_quick(SqliteEventLogStorage) else SqliteEventLogStorage
        return made(str(Path(config_value["dagster_home"], "history", "runs")), inst_data)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._db_lock:
            engine = self._engines.pop(shard, None)
            if engine is None:
                engine = _engine(self.conn_string_for_shard(shard))
            self._engines[shard] = engine  # now the last one to be closed
            if len(self._engines) > _OPEN_FILES:
                self._engines.pop(next(iter(self._engines))).dispose()
            if shard not in self._initialized_dbs:
                self._initdb(engine)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                yield connection

    def store_alike(self, events: Sequence[EventLogEntry]) -> None:
        """Store them with three transactions. Dagster's own batch takes two for each event."""
        inserts = [self.prepare_insert_event(event) for event in events]
        with self.run_connection(events[0].run_id) as connection:
            for insert in inserts:
                connection.execute(insert)
        with self.index_connection() as connection:
            numbers = [connection.execute(insert).lastrowid for insert in inserts]
        self.store_asset_event_tags(events, numbers)
        self.store_asset_event(events[-1], numbers[-1])

    def refresh_pages(self, run_id: str) -> None:
        """Have open pages of the run show what was stored.

        They watch the file's time, which a write-ahead log leaves alone.
        """
        with suppress(FileNotFoundError):  # an event of no run has none
            os.utime(self.path_for_shard(run_id))

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
        connect_args={"timeout": _BUSY_SECONDS, "check_same_thread": False},
    )

    @sqlalchemy.event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _: object) -> None:
        # Dagster sets it once a run's tables are made, and making them without it takes 60 syncs
        # more (measured).
        connection.execute("pragma journal_mode = wal")
        # With a write-ahead log this never damages the file. A power cut may take the last events;
        # their leads are landed, and the next automatic run shows them again.
        connection.execute("pragma synchronous = normal")

    return engine
