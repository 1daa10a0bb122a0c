"""What both event logs share: events of assets and checks are stored together, and forgotten once none are needed."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from itertools import groupby
from typing import Any

import sqlalchemy
from dagster import DagsterEventType, EventLogEntry
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.sql import ScriptDirectory, get_alembic_config  # type: ignore[attr-defined] # alembic's
from sqlalchemy.engine import Connection, CursorResult

from leads_pipeline.errors import StorageError

# What comes in rows: what became of assets and checks, and what a step says of each of its outputs. The rest is about a
# run as a whole or its step, and whoever waits for it sees all of this before it.
_GATHERED = frozenset({*ASSET_EVENTS, *ASSET_CHECK_EVENTS, DagsterEventType.STEP_OUTPUT})

# How many of them share a transaction, and how long the first waits for the others.
GATHERED_EVENTS = 50
GATHERING_SECONDS = 0.25

logger = logging.getLogger(__name__)


def refuse_unknown(revisions: Iterable[str], where: str) -> None:
    """Raise StorageError where Dagster's own state there has a form that this Dagster doesn't know.

    It would read and write tables that it doesn't know, until the first statement that one of them doesn't take.
    """
    if unknown := {*revisions} - _revisions():
        raise StorageError(
            f"Dagster's own state in {where} was written by a newer Dagster than {version('dagster')}, in a "
            f"form that this one doesn't know ({', '.join(sorted(unknown))}): this is a downgrade. Install "
            "the newer version of leads-pipeline again. Nothing was changed. docs/operations.md says how to "
            "go back all the same.",
            reason="downgrade",
        )


@cache
def _revisions() -> frozenset[str]:
    """Every form that Dagster's databases have had so far, in sqlite and in Postgres alike."""
    return frozenset(script.revision for script in migrations().walk_revisions())


@cache
def migrations() -> ScriptDirectory:
    """The steps by which Dagster's databases got their form."""
    return ScriptDirectory.from_config(get_alembic_config(sqlite_event_log.__file__))


class GatheringEventLog(SqlEventLogStorage, ABC):
    """Stores events of assets and checks that come within GATHERING_SECONDS in one transaction for each database.

    Dagster's takes one to four for each event.
    Whoever reads through this storage reads them too. A process that is killed takes those of the last moment along:
    their windows are on the disk, and pulling one once more costs a request.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._gathered: list[EventLogEntry] = []
        self._gathering = threading.RLock()
        self._timer: threading.Timer | None = None
        self._is_storing = False
        self._known_columns: dict[str, bool] = {}
        # The connection of the transaction that a thread has begun, for what Dagster stores over one of its own.
        self._own = threading.local()
        super().__init__(*arguments, **options)  # type: ignore[no-untyped-call] # Dagster's

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        if column_name not in self._known_columns:
            self._known_columns[column_name] = super()._has_asset_key_col_on_connection(conn, column_name)
        return self._known_columns[column_name]

    @contextmanager
    def index_connection(self) -> Iterator[Connection]:
        """One to the common database: that of the transaction that this thread has begun, where it has."""
        if (connection := getattr(self._own, "connection", None)) is not None:
            yield connection
            return
        with super().index_connection() as connection:  # type: ignore[safe-super] # Dagster's storages have one
            yield connection

    def dispose(self) -> None:
        """Store what is gathered."""
        self._store_gathered()
        super().dispose()

    def store_event(self, event: EventLogEntry) -> None:
        """Store the event, one of an asset or a check together with those that follow it at once."""
        if not _is_gathered(event):
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
                self._store_together(self._gathered)
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
                logger.warning("Events of assets and checks can't be stored now (%s) and wait.", type(error).__name__)
                self._start_timer()

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store each stretch of assets' and checks' events in one transaction for each database that is concerned.

        Dagster sends the planned materializations and checks of a run as a batch where DAGSTER_EVENT_BATCH_SIZE is set.
        """
        for is_gathered, stretch in groupby(events, key=_is_gathered):
            if is_gathered:
                self._store_together(stretch)
            else:
                super().store_event_batch(list(stretch))

    def _store_together(self, events: Iterable[EventLogEntry]) -> None:
        for _, group in groupby(events, key=lambda event: event.run_id):
            of_run = list(group)
            self._store_events_of_run(of_run, [self.prepare_insert_event(event) for event in of_run])

    def _store_events_of_run(self, events: Sequence[EventLogEntry], statements: Sequence[sqlalchemy.Insert]) -> None:
        with self.index_transaction() as connection:
            ids = [_id(connection.execute(statement)) for statement in statements]
            self._store_asset_event_tags(connection, events, ids)
            # The row of an asset holds its newest events alone.
            newest = {
                (event.get_dagster_event().asset_key, event.dagster_event_type): (event, id_)
                for event, id_ in zip(events, ids, strict=True)
                if event.dagster_event_type in ASSET_EVENTS
            }
            # In one order: two processes would otherwise wait for each other's rows, and one of them be refused.
            for _, (event, id_) in sorted(newest.items(), key=lambda one: str(one[0])):
                self._store_asset_event(connection, event, id_)
            self._own.connection = connection
            try:
                for event, id_ in zip(events, ids, strict=True):
                    if event.dagster_event_type in ASSET_CHECK_EVENTS:
                        self.store_asset_check_event(event, id_)
            finally:
                del self._own.connection

    # --- what is forgotten --------------------------------------------------------------------------------------------

    def forget_events(self, before: datetime, is_over: Callable[[], bool]) -> int:
        """Delete what assets and checks did before that moment and nothing is decided by any more; how much.

        What stays is what states and sensors are read from, for ever: of each partition of an asset the newest
        materialization, and the newest plan and observation if nothing was materialized since; of each check the newest
        result. Stops between two short transactions once `is_over`; what is left goes the next time.
        """
        of_checks, of_events = self._doomed(self._last_id(before), before)
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
            return frozenset(run_id for (run_id,) in connection.execute(self._text(_RUNS_THAT_COUNT)))

    @abstractmethod
    def has_log(self, run_id: str) -> bool:
        """Whether the run still has events that belong to no asset or check."""

    def forget_log(self, run_id: str) -> None:
        """Delete what of the run isn't of an asset or a check."""
        with self.index_connection() as connection:
            connection.execute(_EVENTS.delete().where(_EVENTS.c.run_id == run_id, _EVENTS.c.asset_key.is_(None)))

    @abstractmethod
    def shrink(self) -> bool:
        """Give the disk back what is free, where that is worth it; whether it was."""

    def _doomed(self, last_id: int, before: datetime) -> tuple[sqlalchemy.TextClause, sqlalchemy.TextClause]:
        """What selects the ids of checks' results and of events that are to go."""
        at = before.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
        return (
            sqlalchemy.text(_DOOMED_CHECKS).bindparams(before=at),
            self._text(_DOOMED).bindparams(last_id=last_id),
        )

    def _text(self, statement: str) -> sqlalchemy.TextClause:
        """The statement in this database's own words."""
        return sqlalchemy.text(statement)

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


_EVENTS = SqlEventLogStorageTable
_CHECKS = AssetCheckExecutionsTable

# How many rows share a transaction: nobody waits longer for one than for a batch of events.
_PORTION = 500


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


def _portions(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[at : at + _PORTION] for at in range(0, len(ids), _PORTION))


def _is_gathered(event: EventLogEntry) -> bool:
    return event.dagster_event_type in _GATHERED


def _id(result: CursorResult[Any]) -> int:
    (id_,) = result.inserted_primary_key or (None,)
    if id_ is None:
        raise RuntimeError("the database gave an event no id")
    return int(id_)
