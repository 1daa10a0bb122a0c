"""Dagster's event log in sqlite, written in batches over connections that stay open, and made smaller again.

Belongs here: the three places where Dagster's own sqlite storage spends most of a pull's time; which old events no
state is read from. Doesn't: what is recorded, which is Dagster's business; how old is old (housekeeping.py).
`dagster.yaml` names the class; Dagster's own reads the same files, so that taking it out again needs nothing but taking
it out of dagster.yaml.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import sqlalchemy
from dagster import EventLogEntry, StringSource
from dagster._config.config_schema import UserConfigSchema
from dagster._core.events import ASSET_EVENTS
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.sql import ScriptDirectory, get_alembic_config  # type: ignore[attr-defined] # alembic's
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS
from dagster._serdes import ConfigurableClassData
from sqlalchemy.engine import Connection, CursorResult, Engine

from leads_pipeline.errors import StorageError

# Each run has a database file of its own, and the daemon outlives many runs.
OPEN_SHARDS = 8

# How many events of assets share a transaction, and how long the first waits for the others.
GATHERED_EVENTS = 50
GATHERING_SECONDS = 0.25

logger = logging.getLogger(__name__)


def refuse_newer(home: Path) -> None:
    """Raise StorageError where a newer Dagster has changed the form of its own state, of which this one says nothing.

    It would read and write tables that it doesn't know, until the first statement that one of them doesn't take.
    """
    for name in ("runs.db", "runs/index.db"):
        path = home / "history" / name
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            unknown = {revision for (revision,) in db.execute("select version_num from alembic_version")} - _revisions()
            if unknown:
                raise StorageError(
                    f"Dagster's own state in {home} was written by a newer Dagster than {version('dagster')}, in a "
                    f"form that this one doesn't know ({', '.join(sorted(unknown))}): this is a downgrade. Install "
                    "the newer version of leads-pipeline again. Nothing was changed. docs/operations.md says how to "
                    "go back all the same.",
                    reason="downgrade",
                )


@cache
def _revisions() -> frozenset[str]:
    """Every form that Dagster's databases have had so far."""
    scripts = ScriptDirectory.from_config(get_alembic_config(sqlite_event_log.__file__))
    return frozenset(script.revision for script in scripts.walk_revisions())


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

    # --- what is forgotten --------------------------------------------------------------------------------------------

    def forget_events(self, before: datetime, is_over: Callable[[], bool]) -> int:
        """Delete what assets and checks did before that moment and nothing is decided by any more; how much.

        What stays is what states and sensors are read from, for ever: of each partition of an asset the newest
        materialization, and the newest plan and observation if nothing was materialized since; of each check the newest
        result. Stops between two short transactions once `is_over`; what is left goes the next time.
        """
        of_checks, of_events = _doomed(self._last_id(before), before)
        forgotten = 0
        for doomed, columns in (
            (of_checks, [_CHECKS.c.id]),
            (of_events, [AssetEventTagsTable.c.event_id, _EVENTS.c.id]),
        ):
            with self.index_connection() as connection:
                ids = [id_ for (id_,) in connection.execute(doomed)]
            for some in _portions(ids):
                if is_over():
                    return forgotten
                with self.index_connection() as connection:
                    for column in columns:
                        connection.execute(column.table.delete().where(column.in_(some)))
                forgotten += len(some)
        return forgotten

    def runs_that_count(self) -> frozenset[str]:
        """Runs that a state is read from: whose failure or end says what became of a partition, an asset or a check."""
        with self.index_connection() as connection:
            return frozenset(run_id for (run_id,) in connection.execute(sqlalchemy.text(_RUNS_THAT_COUNT)))

    def has_log(self, run_id: str) -> bool:
        """Whether the run's own database is there."""
        return Path(self.path_for_shard(run_id)).exists()

    def forget_log(self, run_id: str) -> None:
        """Delete the run's own database, and what of the run is in the common one but isn't of an asset or a check."""
        with self.index_connection() as connection:
            connection.execute(_EVENTS.delete().where(_EVENTS.c.run_id == run_id, _EVENTS.c.asset_key.is_(None)))
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

    def _last_id(self, before: datetime) -> int:
        """The place in the log where that moment is: places follow time, and no index leads from a time to a place."""
        at = before.astimezone(UTC).replace(tzinfo=None)
        with self.index_connection() as connection:
            low, high = 0, int(connection.execute(sqlalchemy.select(sqlalchemy.func.max(_EVENTS.c.id))).scalar() or 0)
            while low < high:
                middle = (low + high + 1) // 2
                query = sqlalchemy.select(_EVENTS.c.timestamp).where(_EVENTS.c.id >= middle).order_by(_EVENTS.c.id)
                if connection.execute(query.limit(1)).scalar_one() < at:
                    low = middle
                else:
                    high = middle - 1
        return low

    # --- how events are stored ----------------------------------------------------------------------------------------

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


_EVENTS = SqlEventLogStorageTable
_CHECKS = AssetCheckExecutionsTable

# How many rows share a transaction: nobody waits longer for one than for a batch of events.
_PORTION = 500

_PAGES = ("freelist_count", "page_count", "page_size")

# Some ten seconds (100 MB a second were measured); who writes meanwhile waits for up to SQLITE_BUSY_TIMEOUT_SECONDS.
_QUICKLY_COPIED_BYTES = 1_000_000_000

# By asset, type and partition, from the index alone.
_NEWEST = """
newest as (
    select asset_key, dagster_event_type as type, partition, max(id) as id
    from event_logs
    where asset_key is not null
    group by asset_key, dagster_event_type, partition
),
last_of_asset as (select max(id) as id from newest group by asset_key, type),
materialized as (select asset_key, partition, id from newest where type = 'ASSET_MATERIALIZATION')
"""

_DOOMED = f"""
with {_NEWEST}
select logged.id
from event_logs as logged
join newest on newest.asset_key = logged.asset_key and newest.type = logged.dagster_event_type
    and newest.partition is logged.partition
left join materialized on materialized.asset_key = logged.asset_key and materialized.partition is logged.partition
where logged.id <= :last_id
    and (
        logged.id < newest.id
        or (
            logged.dagster_event_type in ('ASSET_MATERIALIZATION_PLANNED', 'ASSET_OBSERVATION')
            and logged.id < materialized.id
        )
    )
    and logged.id not in (select id from last_of_asset)
    and logged.id not in (
        select evaluation_event_storage_id from asset_check_executions where evaluation_event_storage_id is not null
    )
order by logged.id
"""  # noqa: S608 - our own text alone

_DOOMED_CHECKS = """
select id
from asset_check_executions
where create_timestamp < :before
    and id not in (
        select max(id) from asset_check_executions group by asset_key, check_name, partition, execution_status
    )
order by id
"""

_RUNS_THAT_COUNT = f"""
with {_NEWEST}
select logged.run_id
from newest
join event_logs as logged on logged.id = newest.id
left join materialized on materialized.asset_key = newest.asset_key and materialized.partition is newest.partition
where newest.type <> 'ASSET_MATERIALIZATION' and newest.id > coalesce(materialized.id, 0)
union
select last_run_id from asset_keys where last_run_id is not null
union
select run_id from asset_check_executions where run_id is not null
"""  # noqa: S608 - our own text alone


def _doomed(last_id: int, before: datetime) -> tuple[sqlalchemy.TextClause, sqlalchemy.TextClause]:
    """What selects the ids of checks' results and of events that are to go."""
    at = before.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return (
        sqlalchemy.text(_DOOMED_CHECKS).bindparams(before=at),
        sqlalchemy.text(_DOOMED).bindparams(last_id=last_id),
    )


def _portions(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[at : at + _PORTION] for at in range(0, len(ids), _PORTION))


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
