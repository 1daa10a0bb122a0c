"""The machine that the pipeline runs on, with a clock that a test sets: weeks of it pass in seconds.

Belongs here: the code location's own schedules, sensors and asset bodies, driven as Dagster's daemon drives them, on a
real Dagster instance in memory. Of Dagster only the execution of a run is replaced: its planned partitions, the events
of its assets and its end are recorded as Dagster does, without what costs a second each time. Doesn't: what happens
when, and what must hold (test_weeks.py).
"""

import asyncio
import inspect
import logging
import os
import random
import shutil
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Self
from unittest.mock import patch
from zoneinfo import ZoneInfo

import httpx
from dagster import (
    AssetCheckResult,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterEvent,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultScheduleStatus,
    Definitions,
    EventLogEntry,
    Failure,
    MaterializeResult,
    RepositoryDefinition,
    RunRequest,
    SensorDefinition,
    build_resources,
    build_schedule_context,
    build_sensor_context,
)
from dagster._core.definitions.sensor_definition import SensorType
from dagster._core.events import AssetMaterializationPlannedData, AssetObservationData, StepMaterializationData
from dagster._core.storage.event_log.in_memory import InMemoryEventLogStorage
from dagster._core.storage.event_log.schema import SqlEventLogStorageTable
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value
from dagster._core.storage.runs.in_memory import InMemoryRunStorage
from dagster._utils.schedules import schedule_execution_time_iterator
from pyarrow.lib import ArrowInvalid
from pyarrow.parquet import ParquetFile
from sqlalchemy import func, select
from sqlalchemy.engine import Connection

import leads_pipeline
from leads_pipeline.auth import ClientCredentialsAuth
from leads_pipeline.client import LeadsClient, Timing
from leads_pipeline.contract import LEAD_KINDS, LeadKind, PushedLead, read_delivery
from leads_pipeline.definitions import PULL_JOB, PUSH_JOB, build_definitions, first_day
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.windows import days_without_staged
from leads_pipeline.lake import Lake
from leads_pipeline.objects import store_of
from leads_pipeline.partitions import Partitions, PullConfig, rectangles
from leads_pipeline.retry import RetryPolicy
from leads_pipeline.sensors import dead_run_sensor
from leads_pipeline.settings import Settings
from leads_pipeline.spool import Spool
from leads_pipeline.status import failed_windows
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Window, day_interval, days
from leads_pipeline_tests.chaos.ledger import Portal
from leads_pipeline_tests.support.following import assert_touched_days_are_noted

_ONE_ATTEMPT: Final = RetryPolicy(max_attempts=1, base_delay_seconds=0.001)
_BASE_URL: Final = "http://portal.example"

_STARTING_NO_PULL: Final = ("tell_of_failures", "forget_old_evaluations", "forget_old_runs")

# Ticks of a sensor in a row, until it asks for no run any more; each launches at most one stretch of windows.
_TICKS: Final = 40

# Switched on in the UI where a test says so.
HOURLY: Final = "pull_hourly"


class _Clock(datetime):
    """What stands for `datetime` in the pipeline's modules: the same, but for the present."""

    now_there: ClassVar[Callable[[], datetime]]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        return datetime(*arguments, **named)  # type: ignore[return-value]  # noqa: DTZ001 - as the caller has it

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return cls.now_there().astimezone(tz)

    fromisoformat = staticmethod(datetime.fromisoformat)  # type: ignore[assignment]
    fromtimestamp = staticmethod(datetime.fromtimestamp)  # type: ignore[assignment]
    combine = staticmethod(datetime.combine)  # type: ignore[assignment]


@dataclass(slots=True)
class Killed:
    """A run ends after so many of its events, without another word; what was landed by then is landed."""

    after: int


@dataclass(slots=True)
class Machine:
    """A machine with the pipeline on it. It knows the portal by its answers alone."""

    # Mishaps that can't befall it.
    IS_SPARED: ClassVar[Set[str]] = frozenset()

    folder: Path
    portal: Portal
    zone: str
    branches: list[str]
    start: date
    secret: str
    rng: random.Random
    is_hourly: bool = False
    # The object store that has the truth, as LEADS_DATA_DIR has it; None where the folder has it itself.
    store: str | None = None
    # By how much its clock is wrong while runs work.
    offset: timedelta = timedelta()
    kill: Killed | None = None
    instance: DagsterInstance = field(init=False)
    # Partitions of staged assets that the daemon would ask for: new raw since the last request, or that one failed.
    to_stage: set[tuple[LeadKind, date]] = field(default_factory=set)
    # Runs that were killed: what they had in hand may be landed or not.
    killed_runs: set[str] = field(default_factory=set)
    kills: int = 0
    runs: int = 0
    _definitions: Definitions = field(init=False)
    _repository: RepositoryDefinition = field(init=False)
    _settings: Settings = field(init=False)
    _partitions: Partitions = field(init=False)
    _cursors: dict[str, str | None] = field(default_factory=dict)
    _run_keys: set[tuple[str, str]] = field(default_factory=set)
    _scheduled_until: dict[str, datetime] = field(default_factory=dict)
    _in_several_days: frozenset[str] = field(init=False)
    _staged_from: dict[tuple[LeadKind, date], tuple[Any, ...]] = field(default_factory=dict)
    _resources: Any = None
    _slept: float = 0.0
    _recorded: int = 0
    _status: dict[AssetKey, tuple[Any, Any]] = field(default_factory=dict)
    _events: list[EventLogEntry] = field(default_factory=list)
    _stack: ExitStack = field(default_factory=ExitStack)

    # --- switching on and off ----------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        # Both ends of a window belong to it: what was created when a day begins is in two.
        zone = ZoneInfo(self.zone)
        self._in_several_days = frozenset(
            lead.id
            for lead in self.portal.leads
            for created_at in [lead.versions[0].created_at]
            if len({version.created_at for version in lead.versions}) > 1
            or created_at == day_interval(created_at.astimezone(zone).date(), zone)[0]
        )
        enter = self._stack.enter_context
        enter(warnings.catch_warnings())
        # What Dagster has deprecated itself and calls.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"dagster\.")
        context = httpx.create_ssl_context()
        enter(patch.object(httpx, "create_ssl_context", lambda *_, **__: context))
        transport = httpx.MockTransport(self.portal.handle)
        # One window after the other, so that a seed gives the same weeks each time.
        client = partial(
            LeadsClient,
            policy=_ONE_ATTEMPT,
            transport=transport,
            timing=Timing(now=self.now, monotonic=lambda: self._slept, sleep=self._sleep, rng=self.rng),
        )
        enter(patch("leads_pipeline.resources.LeadsClient", client))
        auth = partial(ClientCredentialsAuth, transport=transport, clock=lambda: self.now().timestamp())
        enter(patch("leads_pipeline.resources.ClientCredentialsAuth", auth))
        enter(patch("leads_pipeline.definitions.dead_run_sensor", partial(dead_run_sensor, sleep=lambda _: None)))
        enter(patch.dict(os.environ))
        enter(patch("dagster._time._mockable_get_current_datetime", self.now))
        enter(patch("dagster._time._mockable_get_current_timestamp", lambda: self.now().timestamp()))
        self._set_clocks()
        self._stack.callback(setattr, _Clock, "now_there", None)
        enter(patch.object(os, "fsync", lambda _: None))  # no power cut here: test_storage.py has them
        enter(patch.object(os, "replace", self._replace))
        # Damage changes a file's time here; what keeps it is noticed by being read once a day, which costs a seed most.
        enter(patch("leads_pipeline.lake.raw._DAY_SECONDS", sys.maxsize))
        enter(_one_connection())
        enter(patch("leads_pipeline.status.get_and_update_asset_status_cache_value", self._asset_status))
        self.lose_dagster()
        self.configure(self.branches)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self.instance.dispose()

    def _set_clocks(self) -> None:
        _Clock.now_there = self.now
        seconds = SimpleNamespace(
            time=lambda: self.now().timestamp(),
            time_ns=lambda: int(self.now().timestamp() * 1_000_000) * 1000,
            monotonic=time.monotonic,
            sleep=lambda _: None,
        )
        for module in _modules():
            if getattr(module, "datetime", None) is datetime:
                self._stack.enter_context(patch.object(module, "datetime", _Clock))
            if getattr(module, "time", None) is time:
                self._stack.enter_context(patch.object(module, "time", seconds))

    def _replace(self, source: str | Path, target: str | Path) -> None:
        """os.replace on a file system whose clock is the machine's."""
        seconds = self.now().timestamp()
        os.utime(source, (seconds, seconds))
        Path(source).rename(target)

    async def _sleep(self, seconds: float) -> None:
        self._slept += seconds
        await asyncio.sleep(0)

    def configure(self, branches: Sequence[str]) -> None:
        """Start with these settings; at first, and when they have changed."""
        self.branches = list(branches)
        environment = {
            "LEADS_BASE_URL": _BASE_URL,
            "LEADS_AUTH_URL": _BASE_URL,
            "LEADS_CLIENT_ID": "agency",
            "LEADS_CLIENT_SECRET": self.secret,
            "LEADS_BRANCH_IDS": ",".join(self.branches),
            "LEADS_TIMEZONE": self.zone,
            "LEADS_START_DATE": self.start.isoformat(),
            "LEADS_MAX_CONCURRENCY": "1",
            "LEADS_ALLOW_PLAIN_HTTP": "yes",
            **({"LEADS_WORK_DIR": str(self.folder)} if self.store else {}),
            "LEADS_DATA_DIR": self.store or str(self.folder),
        }
        os.environ.update(environment)
        self._settings = Settings.from_variables(environment)
        self._definitions = build_definitions(environment)
        self._partitions = Partitions.of(self._settings, first_day(self._settings))
        self._repository = self._definitions.get_repository_def()
        self._resources = self._stack.enter_context(
            build_resources(self._definitions.resources or {}, instance=self.instance)
        )

    def lose_dagster(self) -> None:
        """Begin with an empty instance."""
        if hasattr(self, "instance"):
            self.instance.dispose()
        self.instance = DagsterInstance.ephemeral()
        get_runs = self.instance.get_runs
        known: dict[str, tuple[int, Any]] = {}

        def runs_since(filters: Any = None, cursor: Any = None, limit: Any = None, *more: Any, **named: Any) -> Any:
            """The same runs as the last time, while nothing is recorded."""
            key = repr((filters, cursor, limit, more, named))
            if key not in known or known[key][0] != self._recorded:
                known[key] = self._recorded, get_runs(filters, cursor, limit, *more, **named)
            return known[key][1]

        self.instance.get_runs = runs_since  # type: ignore[method-assign]
        self._cursors.clear()
        self._status.clear()
        self._run_keys.clear()

    def _asset_status(self, instance: DagsterInstance, key: AssetKey, partitions: Any) -> Any:
        """Dagster's own status of an asset, which stays the same while nothing of it is recorded."""
        known = self._status.get(key)
        if known is None or known[0] != partitions:
            status = get_and_update_asset_status_cache_value(instance, key, partitions)
            self._status[key] = known = partitions, status
        return known[1]

    def now(self) -> datetime:
        """The time by the machine's clock."""
        return self.portal.now + self.offset

    @property
    def lake(self) -> Lake:
        return Lake(self.folder, store=store_of(self.store, plain_http=True))

    @property
    def warehouse(self) -> Path:
        return Warehouse(self.lake).path

    # --- what the daemon does ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Every schedule's last tick that is due, then each sensor until it has nothing more to ask for."""
        for schedule in self._repository.schedule_defs:
            is_on = schedule.default_status is DefaultScheduleStatus.RUNNING or (
                schedule.name == HOURLY and self.is_hourly
            )
            if is_on and (due := self._due(schedule.name, str(schedule.cron_schedule), schedule.execution_timezone)):
                with build_schedule_context(
                    instance=self.instance, scheduled_execution_time=due, repository_def=self._repository
                ) as context:
                    requests = schedule.evaluate_tick(context).run_requests or []
                self._launch(schedule.name, schedule.job_name, requests)
        sensors = [
            one
            for one in self._repository.sensor_defs
            if one.sensor_type is SensorType.STANDARD and one.name not in _STARTING_NO_PULL
        ]
        sensors.sort(key=lambda one: one.name != "end_dead_runs")  # in truth it has ticked many times since
        for _ in range(_TICKS):
            sensors = [one for one in sensors if self._evaluate(one)]
            if not sensors:
                return
            self.portal.now += timedelta(minutes=1)

    def _due(self, name: str, cron: str, zone: str | None) -> datetime | None:
        """The last tick since the last time; what a machine that was off has missed before isn't made up for."""
        since = self._scheduled_until.setdefault(name, self.portal.now - timedelta(days=1))
        due = None
        for moment in schedule_execution_time_iterator(since.timestamp(), cron, zone, True):
            if moment > self.portal.now:
                break
            if moment > since:
                due = moment
        self._scheduled_until[name] = self.portal.now
        return due

    def _evaluate(self, sensor: SensorDefinition) -> bool:
        context = build_sensor_context(
            instance=self.instance,
            cursor=self._cursors.get(sensor.name),
            repository_def=self._repository,
            sensor_name=sensor.name,
        )
        # Else Dagster makes them anew, which takes it longer than the tick.
        context._resources = self._resources  # noqa: SLF001
        said = sensor.evaluate_tick(context)
        if sensor.name == "end_dead_runs" and self.killed_runs:
            # Dagster records the end of a run by itself.
            self._recorded += 1
            self._status.clear()
        self._cursors[sensor.name] = said.cursor
        job_name = sensor.job_name if sensor.has_jobs or sensor.targets else None
        return self._launch(sensor.name, job_name, said.run_requests or [])

    def _launch(self, by: str, job_name: str | None, requests: Sequence[RunRequest]) -> bool:
        launched = False
        for request in requests:
            if request.run_key is not None and (by, request.run_key) in self._run_keys:
                continue  # as Dagster: a run key is launched once
            self._run_keys.add((by, request.run_key or ""))
            tags = {**request.tags, **({"dagster/partition": request.partition_key} if request.partition_key else {})}
            self.run(request.job_name or job_name or "", tags, request.asset_selection, request.run_config)
            launched = True
        return launched

    # --- a run -------------------------------------------------------------------------------------------------------

    def run(
        self,
        job_name: str,
        tags: Mapping[str, str],
        selection: Collection[AssetKey] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> bool:
        """Run a job of raw assets as Dagster would; True where it succeeded."""
        job = self._definitions.resolve_job_def(job_name)
        keys = sorted(set(selection or job.asset_layer.executable_asset_keys))
        run = DagsterRun(
            job_name,
            run_id=str(uuid.UUID(int=self.rng.getrandbits(128), version=4)),
            run_config=dict(config or {}),
            tags=dict(tags),
            asset_selection=frozenset(keys),
            status=DagsterRunStatus.NOT_STARTED,
        )
        self.runs += 1
        self.portal.run = run.run_id
        self.instance.add_run(run)
        for key in keys:
            self._plan(run, key)
        self._record(run, DagsterEvent(DagsterEventType.RUN_START.value, job_name))
        try:
            for key in keys:
                given = (config or {}).get("ops", {}).get(key.to_python_identifier(), {}).get("config", {})
                context = self._context(run, key, partition_key=tags.get("dagster/partition"))
                for event in self._body(key, context, PullConfig(**given)):
                    self._note(run, event)
        except _Death:
            self._store_gathered()
            self.killed_runs.add(run.run_id)
            return False
        except Failure:
            self._record(run, DagsterEvent(DagsterEventType.RUN_FAILURE.value, job_name))
            return False
        self._record(run, DagsterEvent(DagsterEventType.RUN_SUCCESS.value, job_name))
        return True

    def _plan(self, run: DagsterRun, key: AssetKey) -> None:
        """The planned partitions, one by one, as Dagster reads them from a run's tags."""
        partitions = self._repository.asset_graph.get(key).partitions_def if run.is_partitioned else None
        subset = run.get_resolved_partitions_subset_for_events(partitions)
        for partition in subset.get_partition_keys() if subset is not None else [None]:
            planned = AssetMaterializationPlannedData(key, partition=partition, partitions_subset=None)
            self._record(
                run,
                DagsterEvent.build_asset_materialization_planned_event(run.job_name, key.to_user_string(), planned),
            )

    def _context(self, run: DagsterRun, key: AssetKey, **more: Any) -> Any:
        return SimpleNamespace(asset_key=key, run=run, instance=self.instance, log=logging.getLogger("weeks"), **more)

    def _body(self, key: AssetKey, context: Any, config: PullConfig | None = None) -> Iterator[Any]:
        """The events of an asset's own body, until it ends or is killed."""
        function = self._definitions.get_assets_def(key).op.compute_fn.decorated_fn  # type: ignore[union-attr]
        given = {"context": context, "config": config}
        names = inspect.signature(function).parameters
        body = function(**{name: given[name] if name in given else getattr(self._resources, name) for name in names})
        if isinstance(body, MaterializeResult):  # not told bit by bit
            body = (result for result in [body])
        try:
            for event in body:
                if self.kill is not None:
                    if self.kill.after == 0:
                        self.kill = None
                        self.kills += 1
                        raise _Death
                    self.kill.after -= 1
                yield event
        finally:
            body.close()

    def _note(self, run: DagsterRun, event: Any) -> None:
        data: Any
        if isinstance(event, AssetMaterialization):
            # Without what else it says of the partition, which is for people to read.
            short = AssetMaterialization(event.asset_key, partition=event.partition)
            what, data = DagsterEventType.ASSET_MATERIALIZATION, StepMaterializationData(short)
            self._follow(event)
        elif isinstance(event, AssetObservation):
            what, data = DagsterEventType.ASSET_OBSERVATION, AssetObservationData(event)
        else:
            assert isinstance(event, AssetCheckResult | MaterializeResult)
            return
        step = event.asset_key.to_user_string()
        self._record(run, DagsterEvent(what.value, run.job_name, event_specific_data=data, step_key=step))

    def _record(self, run: DagsterRun, event: DagsterEvent) -> None:
        self._recorded += 1
        for key in [event.asset_key] if event.asset_key else run.asset_selection or ():
            self._status.pop(key, None)
        moment = self.now().timestamp()
        entry = EventLogEntry(  # type: ignore[no-untyped-call]
            error_info=None,
            level=logging.INFO,
            user_message="",
            run_id=run.run_id,
            timestamp=moment,
            step_key=event.step_key,
            job_name=run.job_name,
            dagster_event=event,
        )
        self._events.append(entry)
        if event.is_job_event:
            self._store_gathered()
            self.instance.run_storage.handle_run_event(run.run_id, event, self.now())

    def _store_gathered(self) -> None:
        """Store the events of a run in one transaction, as leads_pipeline.event_log does those of assets."""
        storage: Any = self.instance.event_log_storage
        gathered, self._events = self._events, []
        if not gathered:
            return
        with storage.index_transaction() as connection:
            last = connection.execute(select(func.max(SqlEventLogStorageTable.c.id))).scalar() or 0
            ids = range(last + 1, last + 1 + len(gathered))
            rows = [storage._event_to_row(event) | {"id": id_} for event, id_ in zip(gathered, ids, strict=True)]  # noqa: SLF001
            connection.execute(SqlEventLogStorageTable.insert(), rows)
            of_assets = [pair for pair in zip(gathered, ids, strict=True) if pair[0].get_dagster_event().asset_key]
            if of_assets:
                storage._store_asset_event_tags(connection, *zip(*of_assets, strict=True))  # noqa: SLF001
            newest = {
                (event.get_dagster_event().asset_key, event.dagster_event_type): (event, id_)
                for event, id_ in of_assets
            }
            for event, id_ in newest.values():
                storage._store_asset_event(connection, event, id_)  # noqa: SLF001

    # --- staging and publication -------------------------------------------------------------------------------------

    def _follow(self, event: AssetMaterialization) -> None:
        """What the staged assets' condition sees: a raw partition of the day is new."""
        if event.partition is None:
            return
        day = date.fromisoformat(event.partition.split("|")[0])
        name = event.asset_key.to_user_string()
        self.to_stage |= {(kind, day) for kind in LEAD_KINDS if name in (f"raw_{kind.table}", "raw_push")}

    def stage(self) -> None:
        """Stage what the daemon would ask for. What fails, or is killed before it comes to it, is asked for again."""
        for kind in LEAD_KINDS:
            # As tell_of_failures does it.
            self.to_stage |= {(kind, day) for day in days_without_staged(self.lake, kind)}
            # Only to save time: most answers confirm what is staged.
            wanted = {day: self._read_by_staging(kind, day) for its_kind, day in self.to_stage if its_kind is kind}
            due = sorted(day for day, files in wanted.items() if self._staged_from.get((kind, day)) != files)
            staged = set(wanted) - set(due)
            self.to_stage -= {(kind, day) for day in staged}
            if due:
                self._stage(kind, due)

    def _stage(self, kind: LeadKind, due: Sequence[date]) -> None:
        key = AssetKey(f"stg_{kind.table}")
        run = DagsterRun("stage_leads", run_id=str(uuid.UUID(int=self.rng.getrandbits(128), version=4)))
        context = self._context(run, key)
        try:
            with patch("leads_pipeline.assets.staged.requested_keys", lambda *_: [day.isoformat() for day in due]):
                for event in self._body(key, context):
                    if isinstance(event, AssetMaterialization) and event.asset_key == key:
                        day = date.fromisoformat(event.partition or "")
                        self.to_stage.discard((kind, day))
                        self._staged_from[kind, day] = self._read_by_staging(kind, day)
        except (_Death, Failure):
            return

    def _read_by_staging(self, kind: LeadKind, day: date) -> tuple[Any, ...]:
        """Changes with each lead's newest version in the day's raw files, and with what staging has written.

        Where a lead is in the files of several days, also with the last time that this one held it.
        """
        paths = sorted((self.folder / "raw" / kind.table / f"day={day}").rglob("*.parquet"))
        newest: dict[str, tuple[int, int, str]] = {}
        for path in paths:
            try:
                rows = ParquetFile(path).read(["lead_id", "sequence", "position", "payload"], use_threads=False)
            except ArrowInvalid:
                return (path, path.stat().st_mtime_ns)  # damaged: staging says so
            for id_, *version in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                newest[id_] = max(newest.get(id_, (0, 0, "")), tuple(version))
        staged = [
            (path, stat.st_mtime_ns, stat.st_ino)
            for path in sorted((self.folder / "staged").glob(f"{kind.name}_*/day={day}/*.parquet"))
            if (stat := path.stat())
        ]
        found = sorted(
            (id_, text, sequence if id_ in self._in_several_days else 0) for id_, (sequence, _, text) in newest.items()
        )
        return *paths, *found, *staged

    def publish(self) -> bool:
        """Publish what is staged. False where that failed."""
        failures = failed_windows(self.instance, self._settings, self._partitions)
        grid = Grid(self._settings.scopes, self._partitions.first_day, self._settings.zone, failures)
        try:
            Warehouse(self.lake).publish(grid, self.now())
        except LeadsPipelineError as error:
            logging.getLogger("weeks").warning("not published: %s", error)
            return False
        assert_touched_days_are_noted(self.lake)
        return True

    # --- what users, the portal and fate do --------------------------------------------------------------------------

    def backfill(self, first: date, last: date) -> None:
        """`leads-pipeline backfill` for those days: pull, take in; its staging and publication are to follow."""
        windows = [
            Window.of(day, scope, self._settings.zone)
            for day in days(max(first, self.start), last)
            for scope in self._settings.scopes
        ]
        for area in rectangles(windows, self._settings.scopes):
            self.run(PULL_JOB, area.tags)
        self.run(PUSH_JOB, {"dagster/partition": self.now().astimezone(self._settings.zone).date().isoformat()})

    def receive(self, body: bytes) -> None:
        """Take a delivery, which is answered 200 when this returns."""
        spool = Spool(self.lake)
        sequence = spool.next_sequence()
        spool.add([PushedLead(kind, lead, self.now(), sequence) for kind, lead in read_delivery(body)])

    def stage_all_anew(self) -> None:
        """Ask for every day that is staged, as a new version of the code does."""
        self._staged_from.clear()
        for kind in LEAD_KINDS:
            self.to_stage |= {(kind, file.day) for file in self.lake.staged_files(kind.table)}

    def copy_folder(self) -> None:
        """Move the data folder to another disk: the same files, each of them new."""
        other = self.folder.with_name("copied")
        shutil.copytree(self.folder, other, copy_function=shutil.copy)
        shutil.rmtree(self.folder)
        seconds = self.now().timestamp()
        for path in other.rglob("*"):
            os.utime(path, (seconds, seconds))
        other.rename(self.folder)

    def back_up(self, to: Path) -> None:
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.folder, to, copy_function=shutil.copy)

    def restore(self, backup: Path) -> None:
        """Put the folder back as it was at the backup."""
        shutil.rmtree(self.folder)
        shutil.copytree(backup, self.folder, copy_function=shutil.copy)
        seconds = self.now().timestamp()
        for path in self.folder.rglob("*"):
            os.utime(path, (seconds, seconds))
        self._staged_from.clear()


class _Death(BaseException):
    """The process is killed here."""


def _modules() -> list[Any]:
    name = leads_pipeline.__name__
    return [module for key, module in list(sys.modules.items()) if key == name or key.startswith(f"{name}.")]


@contextmanager
def _one_connection() -> Iterator[None]:
    """Let Dagster's log in memory keep the connection that it has, instead of a new one for each of its steps."""

    @contextmanager
    def connect_to_events(self: Any) -> Iterator[Connection]:
        with self._db_lock, self._held_conn.begin():
            yield self._held_conn

    @contextmanager
    def connect_to_runs(self: Any) -> Iterator[Connection]:
        with self._held_conn.begin_nested() if self._held_conn.in_transaction() else self._held_conn.begin():
            yield self._held_conn

    with (
        patch.object(InMemoryEventLogStorage, "_connect", connect_to_events),
        patch.object(InMemoryRunStorage, "connect", connect_to_runs),
        # Dagster asks sqlite for the columns of its own new tables at each step.
        patch.object(InMemoryEventLogStorage, "_has_asset_key_col_on_connection", lambda *_: True),
    ):
        yield
