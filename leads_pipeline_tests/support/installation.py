"""A whole installation for tests: a simulator on a socket, a data folder, a Dagster home of its
own, real settings.

Belongs here: starting it, starting runs in each of Dagster's ways, and what was asked of the
simulator. Doesn't: what should come of it, which is the tests'.
"""

import atexit
import logging
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRun,
    Definitions,
    ExecuteInProcessResult,
    SensorDefinition,
    build_sensor_context,
)
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import Window
from leads_pipeline.features.quick_event_log.settings import POSTGRES_VARIABLE
from leads_pipeline.orchestration.asking import raw_key
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.orchestration.names import PULL_JOB, SERVED
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.portal import RetryPolicy, Service
from leads_pipeline.raw.data_folder import DataFolder, first_day
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.simulator.server import running

# Runs start in the test's process instead of one each, which would cost seconds. The rest is as
# users have it.
_IN_THIS_PROCESS = """
run_launcher:
  module: dagster._core.launcher.sync_in_memory_run_launcher
  class: SyncInMemoryRunLauncher
"""

# One attempt a window and run, and no wait of seconds after a 401 or 403: the client's own retries
# are test_client.py's.
IMPATIENT = RetryPolicy(
    max_attempts=1, base_delay_seconds=0.001, refused_token_waits_seconds=(0.001,)
)

_LOCATION = "leads_pipeline"

_UNDER_WAY = (BulkActionStatus.REQUESTED, BulkActionStatus.FAILING, BulkActionStatus.CANCELING)


@dataclass(frozen=True, slots=True)
class Installation:
    """A simulator with its pipeline.

    Days are counted back from `now`, the moment at which the test began.
    """

    simulator: Simulator
    environment: dict[str, str]
    instance: DagsterInstance
    now: datetime
    _built: dict[frozenset[tuple[str, str]], Definitions] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return Settings.from_variables(self.environment)

    @property
    def partitions(self) -> Partitions:
        return Partitions.of(self.settings, first_day(self.settings))

    @property
    def data(self) -> DataFolder:
        return DataFolder.of(self.settings)

    @property
    def definitions(self) -> Definitions:
        """As a code location has them: built once, and anew where the environment has changed."""
        variables = frozenset(self.environment.items())
        if variables not in self._built:
            self._built[variables] = build_definitions(self.environment)
        return self._built[variables]

    def day(self, days_ago: int) -> date:
        """A day of the settings' time zone, counted back from the test's today."""
        return self.now.astimezone(self.settings.zone).date() - timedelta(days=days_ago)

    def key(self, days_ago: int, branch: int = 101) -> str:
        """The key of a branch's window."""
        return f"{self.day(days_ago)}|branch-{branch}"

    def keys(self, days_ago: Sequence[int], branches: Sequence[int] = (101, 102, 103)) -> set[str]:
        """The keys of all those branches' windows on all those days."""
        return {self.key(ago, branch) for ago in days_ago for branch in branches}

    def asked(self, kind: LeadKind = APPLICANT) -> Counter[str]:
        """How often each window of the kind was asked for at the simulator, by partition key."""
        found: Counter[str] = Counter()
        for (name, scope, from_time), count in self.simulator.counters().windows.items():
            if name == kind.name:
                start = datetime.fromisoformat(str(from_time)).astimezone(self.settings.zone)
                found[f"{start.date()}|{scope}"] += count
        return found

    def truth(self, kind: LeadKind, days_ago: Iterable[int]) -> set[str]:
        """Ids of all leads that the portal holds for those days."""
        ids: set[str] = set()
        for ago in days_ago:
            for scope in self.settings.scopes:
                window = Window.of(self.day(ago), scope, self.settings.zone)
                ids.update(self.simulator.truth(kind.name, scope.key, window.start, window.end))
        return ids

    def rules(self, keys: Iterable[str], then: Then) -> list[Rule]:
        """Fault rules for those windows of both kinds."""
        windows = [Window.from_partition_key(key, self.settings.zone) for key in sorted(keys)]
        return [
            Rule(then, When(scope=window.scope.key, from_time=f"{window.start:%Y-%m-%dT%H:%M}"))
            for window in windows
        ]

    def shown(self, kind: LeadKind = APPLICANT) -> dict[str, str]:
        """What Dagster shows of each window that it knows: MATERIALIZED or FAILED."""
        windows = self.partitions.windows
        statuses = self.instance.get_status_by_partition(
            raw_key(kind), windows.get_partition_keys(), windows
        )
        return {key: status.value for key, status in (statuses or {}).items() if status is not None}

    def runs(self) -> list[DagsterRun]:
        """All runs, oldest first."""
        return list(reversed(self.instance.get_runs()))

    def execute(
        self,
        job: str = PULL_JOB,
        *,
        tags: Mapping[str, str],
        kinds: Sequence[LeadKind] | None = LEAD_KINDS,
        run_config: Mapping[str, Any] | None = None,
    ) -> ExecuteInProcessResult:
        """Run a job with those tags, as whoever launches a run sets them."""
        selection = (
            [raw_key(kind) for kind in kinds] if kinds is not None and job == PULL_JOB else None
        )
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            tags=tags,
            asset_selection=selection,
            raise_on_error=False,
            run_config=run_config,
        )

    def pull(
        self, keys: Iterable[str], kinds: Sequence[LeadKind] = (APPLICANT,)
    ) -> ExecuteInProcessResult:
        """Pull these windows, as a person asks for them."""
        config = {"config": {"partition_keys": sorted(keys)}}
        ops = {raw_key(kind).to_python_identifier(): config for kind in kinds}
        return self.execute(tags={}, kinds=kinds, run_config={"ops": ops})

    def tick(self, sensor: SensorDefinition, cursor: str | None = None) -> SensorExecutionData:
        """Evaluate a sensor once."""
        definitions = self.definitions
        with build_sensor_context(
            instance=self.instance,
            cursor=cursor,
            repository_def=definitions.get_repository_def(),
            resources={
                name: (definitions.resources or {})[name] for name in sensor.required_resource_keys
            },
            sensor_name=sensor.name,
        ) as context:
            return sensor.evaluate_tick(context)

    @contextmanager
    def daemon(self) -> Iterator["Daemon"]:
        """Dagster's daemon, an iteration at a time, on the code location as `workspace.yaml` loads
        it.
        """
        # Dagster keeps the last job of a process, which an earlier test in it may have loaded with
        # other settings.
        ReconstructableJob.get_repository_definition.cache_clear()
        ReconstructableJob.get_definition.cache_clear()
        location = InProcessCodeLocationOrigin(
            LoadableTargetOrigin(module_name="leads_pipeline.definitions"), location_name=_LOCATION
        )
        with WorkspaceProcessContext(
            self.instance, InProcessWorkspaceLoadTarget([location])
        ) as workspace:
            yield Daemon(self.instance, workspace)


@dataclass(frozen=True, slots=True)
class Daemon:
    """One iteration of each of the daemon's loops, when it is told to."""

    instance: DagsterInstance
    workspace: WorkspaceProcessContext

    def backfill_assets(self, assets: Sequence[AssetKey], keys: Sequence[str]) -> None:
        """What the UI's button does for a selection of partitions of assets, to the end."""
        asset_graph = self.workspace.create_request_context().asset_graph
        self.instance.add_backfill(
            PartitionBackfill.from_asset_partitions(
                backfill_id="backfill",
                asset_graph=asset_graph,
                partition_names=keys,
                asset_selection=assets,
                backfill_timestamp=datetime.now(UTC).timestamp(),
                tags={},
                dynamic_partitions_store=self.instance,
                all_partitions=False,
                title=None,
                description=None,
                run_config=None,
            )
        )
        self.finish_backfill("backfill")

    def finish_backfill(self, name: str) -> None:
        """Run a backfill that was added to its end."""
        for _ in range(10):
            self._check(execute_backfill_iteration(self.workspace, logging.getLogger("backfill")))
            self.launch_queued()
            now = self.instance.get_backfill(name)
            if now is not None and now.status not in _UNDER_WAY:
                return
        raise AssertionError("The backfill doesn't end.")

    def tick_sensors(self, now: datetime) -> None:
        """One tick of every sensor that is due at that moment, by Dagster's clock, and the runs
        that come of it.
        """
        with freeze_time(now):
            self._check(
                execute_sensor_iteration(self.workspace, logging.getLogger("sensors"), None, None)
            )
        self.launch_queued()

    def tick_schedules(self, now: datetime) -> None:
        """The ticks of every schedule that are due at that moment. Their runs stay queued."""
        with freeze_time(now):
            for _ in launch_scheduled_runs(self.workspace, logging.getLogger("schedules"), now, {}):
                pass

    def launch_queued(self) -> None:
        """Launch the runs that are queued; they run at once and to the end."""
        queue = QueuedRunCoordinatorDaemon(interval_seconds=0)
        while True:
            before = self.instance.get_runs_count()
            self._check(queue.run_iteration(self.workspace))
            if self.instance.get_runs_count() == before:
                return

    @staticmethod
    def _check(errors: Any) -> None:
        for error in errors:
            assert error is None, error


@contextmanager
def installation(
    folder: Path,
    config: Config | None = None,
    *,
    variables: Mapping[str, str] | None = None,
    first: int = 25,
) -> Iterator[Installation]:
    """Start one in `folder`, with the first partition `first` days ago.

    Leads are few, so that tests are quick, and so many that every day of the calendar has some.
    """
    now = datetime.now(UTC)
    zone = ZoneInfo((variables or {}).get("LEADS_TIMEZONE", "UTC"))
    with running(config or Config(branches=3, leads_per_day=8)) as simulator:
        environment = {
            **simulator.environment(),
            "LEADS_DATA_DIR": str(folder / "data"),
            "LEADS_START_DATE": str(now.astimezone(zone).date() - timedelta(days=first)),
            "DAGSTER_HOME": str(folder / "home"),
            SERVED: "yes",
            **(variables or {}),
        }
        with (
            _dagsters_own_warnings(),
            patch.dict(os.environ, environment),
            patch(
                "leads_pipeline.orchestration.resources.Service", partial(Service, policy=IMPATIENT)
            ),
            home(folder / "home", environment) as instance,
        ):
            yield Installation(simulator, environment, instance, now)


@contextmanager
def _dagsters_own_warnings() -> Iterator[None]:
    """Let Dagster call what it has deprecated itself; what our code calls stays an error."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"dagster\.")
        yield


@contextmanager
def home(folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[DagsterInstance]:
    """A Dagster instance in a home of its own, with the dagster.yaml that users get; in Postgres
    where that is set.
    """
    with patch.dict(os.environ, {"DAGSTER_HOME": str(folder)}):
        if POSTGRES_VARIABLE in (environment or {}):
            _make_home(folder)
        else:
            shutil.copytree(empty_home(), folder)
        with DagsterInstance.from_config(str(folder)) as instance:
            yield instance


@cache
def empty_home() -> Path:
    """A home with its empty databases, to be copied: making them takes Dagster a second."""
    parent = Path(mkdtemp(prefix="leads-pipeline-home-"))
    atexit.register(shutil.rmtree, parent)
    folder = parent / "home"
    with patch.dict(os.environ, {"DAGSTER_HOME": str(folder)}):
        _make_home(folder)
        with DagsterInstance.from_config(str(folder)) as instance:
            assert instance.get_runs_count() == 0
            assert instance.event_log_storage.get_maximum_record_id() is None
            assert not instance.all_instigator_state()
    return folder


def _make_home(folder: Path) -> None:
    dagster_home(Settings.from_variables({**os.environ, "DAGSTER_HOME": str(folder)}))
    with (folder / "dagster.yaml").open("a") as file:
        file.write(_IN_THIS_PROCESS)
