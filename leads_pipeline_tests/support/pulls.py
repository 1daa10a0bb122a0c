"""A pipeline that pulls: a simulator on a socket, a data folder, a Dagster home, and one clock for
all of them.

Belongs here: starting it, ticks of its schedules and sensors, runs, and what Dagster shows.
Doesn't: what should come of it, which is the tests'.
"""

import os
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4
from zoneinfo import ZoneInfo

from dagster import (
    AssetKey,
    BetaWarning,
    DagsterInstance,
    DagsterRun,
    Definitions,
    ExecuteInProcessResult,
    RunRequest,
    ScheduleDefinition,
    SensorDefinition,
    SkipReason,
    build_schedule_context,
    build_sensor_context,
    define_asset_job,
    in_process_executor,
)
from dagster._daemon.types import DaemonHeartbeat

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import Window
from leads_pipeline.orchestration.asking import Asking, raw_key
from leads_pipeline.orchestration.names import PLAIN, PULL_JOB
from leads_pipeline.orchestration.partitions import Partitions
from leads_pipeline.orchestration.raw_leads import raw_leads_asset
from leads_pipeline.portal import ClientCredentials, LeadsClient, Service, Timing, Tokens
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.windows import WindowRow, window_table
from leads_pipeline.settings import AuthMethod, Settings
from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.simulator.server import running
from leads_pipeline_tests.support.installation import IMPATIENT, empty_home

LONDON = ZoneInfo("Europe/London")
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

_DAGSTER_YAML = """\
telemetry: {enabled: false}
event_log_storage:
  module: leads_pipeline.orchestration.event_log
  class: SqliteEventLog
  config: {dagster_home: {env: DAGSTER_HOME}}
"""


@dataclass
class Clock:
    """A clock that tests set. Each look at it takes a millisecond."""

    now: datetime

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


class Killed(BaseException):
    """A run's process ends here."""


def tick_of(
    trigger: ScheduleDefinition | SensorDefinition,
    definitions: Definitions,
    now: datetime | None = None,
    **shared: Any,
) -> RunRequest | SkipReason:
    """Evaluate a schedule or a sensor that asks for one run at most.

    `shared` are the instance and resources.
    """
    shared["repository_def"] = definitions.get_repository_def()
    answer: Any  # Dagster has no public name for its type
    if isinstance(trigger, ScheduleDefinition):
        context = build_schedule_context(scheduled_execution_time=now, **shared)
        answer = trigger.evaluate_tick(context)
    else:
        answer = trigger.evaluate_tick(build_sensor_context(sensor_name=trigger.name, **shared))

    if not answer.run_requests:
        return SkipReason(answer.skip_message)
    [request] = answer.run_requests
    assert isinstance(request, RunRequest)
    return request


@dataclass
class Pipeline:
    """A simulator with a pipeline that pulls from it. Days are counted back from today."""

    simulator: Simulator
    settings: Settings
    folder: DataFolder
    instance: DagsterInstance
    clock: Clock
    first_day: date
    killed_after: int | None = None
    definitions: Definitions = field(default_factory=Definitions)

    # --- the leads service, as the assets get it --------------------------------------------------

    def connect(self) -> LeadsClient:
        """A client that asks once for each window."""
        settings = self.settings
        assert settings.base_url
        assert settings.client_id
        assert settings.client_secret
        credentials = ClientCredentials(
            token_url=f"{settings.auth_url}/oauth2/token",
            client_id=settings.client_id,
            secret=settings.client_secret,
            method=AuthMethod.BODY,
            audience=settings.base_url,
        )
        tokens = Tokens(
            credentials, self.folder.state.path / "tokens", clock=lambda: self.clock().timestamp()
        )
        return _Client(self, tokens)

    # --- definitions ------------------------------------------------------------------------------

    def start(self, **variables: str) -> None:
        """Start the service anew, with these variables changed."""
        self.settings = Settings.from_variables(
            {**self.simulator.environment(), **VARIABLES, **variables}
        )
        self.instance.add_daemon_heartbeat(
            DaemonHeartbeat(self.clock().timestamp(), "SENSOR", str(uuid4()), [])
        )
        partitions = Partitions.of(self.settings, self.first_day)
        assets = [
            raw_leads_asset(kind, self.settings, partitions, clock=self.clock)
            for kind in LEAD_KINDS
        ]
        asking = Asking(self.settings, self.first_day, self.clock)
        self.definitions = Definitions(
            assets=assets,
            jobs=[define_asset_job(PULL_JOB, assets, tags=PLAIN.run_tags)],
            schedules=asking.schedules(),
            sensors=[asking.sensor()],
            resources={"data": self.folder, "leads": self},
            executor=in_process_executor,
        )

    # --- ticks and runs ---------------------------------------------------------------------------

    def tick(self, name: str = "retry_failed_partitions") -> RunRequest | SkipReason:
        """Evaluate a sensor or a schedule once."""
        triggers = [*(self.definitions.schedules or ()), *(self.definitions.sensors or ())]
        [trigger] = [one for one in triggers if getattr(one, "name", None) == name]
        assert isinstance(trigger, ScheduleDefinition | SensorDefinition)
        resources = {"data": self.folder}
        return tick_of(
            trigger, self.definitions, self.clock(), instance=self.instance, resources=resources
        )

    def asked_for(self) -> dict[str, list[str]]:
        """The partition keys that a tick asks for, by kind."""
        request = self.tick()
        return {} if isinstance(request, SkipReason) else keys_of(request)

    def run(self, request: RunRequest | SkipReason) -> ExecuteInProcessResult:
        """Run what a tick asked for."""
        assert isinstance(request, RunRequest), request
        return self.execute(request.run_config, request.tags, request.asset_selection)

    def execute(
        self,
        config: Mapping[str, Any] | None,
        tags: Mapping[str, str],
        assets: Sequence[AssetKey] | None,
    ) -> ExecuteInProcessResult:
        """Run the pull job."""
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        return self.definitions.resolve_job_def(PULL_JOB).execute_in_process(
            instance=self.instance,
            run_config={**quiet, **(config or {})},
            tags=tags,
            asset_selection=assets,
            raise_on_error=False,
        )

    # --- what there is ----------------------------------------------------------------------------

    def key(self, days_ago: int, branch: int = 101) -> str:
        return self.window(days_ago, branch).partition_key

    def keys(self, *days_ago: int) -> set[str]:
        """The keys of all branches' windows of those days."""
        return {self.key(ago, branch) for ago in days_ago for branch in (101, 102, 103)}

    def window(self, days_ago: int, branch: int = 101) -> Window:
        day = self.clock.now.astimezone(LONDON).date() - timedelta(days=days_ago)
        return Window.from_partition_key(f"{day}|branch-{branch}", LONDON)

    def fail(self, windows: dict[str, Then]) -> None:
        """Have the portal fail for these windows of applicants, by their keys."""
        rules = []
        for key, then in windows.items():
            window = Window.from_partition_key(key, LONDON)
            start = f"{window.start:%Y-%m-%dT%H:%M}"
            rules.append(
                Rule(then, When(path="/applicant-leads", scope=window.scope.key, from_time=start))
            )
        self.simulator.set_faults(rules)

    def requests(self) -> int:
        """How many requests for leads the portal has had since the last question."""
        count = sum(self.simulator.counters().windows.values())
        self.simulator.reset_counters()
        return count

    def row_of(self, key: str) -> WindowRow:
        """What names say of a window of applicants."""
        return self.row(Window.from_partition_key(key, LONDON))

    def row(self, window: Window, kind: LeadKind = APPLICANT) -> WindowRow:
        (row,) = window_table(self.folder.store, kind, [window], self.clock())
        return row

    def shown(self, kind: LeadKind = APPLICANT) -> dict[str, str]:
        """What Dagster shows of each window that it knows: MATERIALIZED or FAILED."""
        partitions = Partitions.of(self.settings, self.first_day).windows
        statuses = self.instance.get_status_by_partition(
            raw_key(kind), partitions.get_partition_keys(), partitions
        )
        return {key: status.value for key, status in (statuses or {}).items() if status is not None}

    def records(
        self, result: ExecuteInProcessResult, kind: LeadKind = APPLICANT
    ) -> list[str | None]:
        """The partitions that a run materialized."""
        events = result.asset_materializations_for_node(raw_key(kind).to_python_identifier())
        return [event.partition for event in events]

    def runs(self) -> list[DagsterRun]:
        return list(self.instance.get_runs())


class _Client(LeadsClient):
    """A client whose run can be killed after so many windows."""

    def __init__(self, pipeline: Pipeline, tokens: Tokens) -> None:
        assert pipeline.settings.base_url
        service = Service(
            base_url=pipeline.settings.base_url,
            tokens=tokens,
            policy=IMPATIENT,
            timing=Timing(now=pipeline.clock),
        )
        super().__init__(service, max_concurrency=8)
        self._left = pipeline.killed_after

    def fetch_windows(self, *arguments: Any) -> Iterator[Any]:
        for outcome in super().fetch_windows(*arguments):
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    raise Killed
            yield outcome


def text_of_failure(result: ExecuteInProcessResult) -> str:
    """What a failed run says of its windows of applicants."""
    failure = result.failure_data_for_node("raw_applicant_leads")
    assert failure is not None
    assert failure.user_failure_data is not None
    return str(failure.user_failure_data.description)


def keys_of(request: RunRequest) -> dict[str, list[str]]:
    """The partition keys that a request names, by kind."""
    return {
        op.removeprefix("raw_").removesuffix("_leads"): config["config"]["partition_keys"]
        for op, config in request.run_config["ops"].items()
    }


VARIABLES = {"LEADS_TIMEZONE": "Europe/London"}


@contextmanager
def pipeline(
    path: Path, now: datetime = datetime(2026, 11, 21, 6, tzinfo=UTC), first: int = 3
) -> Iterator[Pipeline]:
    """Start one at that moment, with the first partition `first` days before."""
    clock = Clock(now)
    simulated = Config(branches=3, leads_per_day=8, clock=lambda: clock.now)
    with (
        running(simulated) as simulator,
        home(path / "home") as own,
        warnings.catch_warnings(),
        patch("leads_pipeline.orchestration.dead_runs._SECOND_LOOK_SECONDS", 0.001),
    ):
        # Dagster's own.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"dagster\.")
        warnings.simplefilter("ignore", BetaWarning)  # as definitions.py has it
        first_day = now.astimezone(LONDON).date() - timedelta(days=first)
        settings = Settings.from_variables({**simulator.environment(), **VARIABLES})
        started = Pipeline(
            simulator, settings, DataFolder.at(path / "data", clock=clock), own, clock, first_day
        )
        started.start()
        yield started


@contextmanager
def home(path: Path, config: str = _DAGSTER_YAML) -> Iterator[DagsterInstance]:
    """A Dagster home of its own.

    Without another dagster.yaml, its event log is the one over kept connections.
    """
    if config == _DAGSTER_YAML and not path.exists():
        shutil.copytree(empty_home(), path)
    path.mkdir(parents=True, exist_ok=True)
    (path / "dagster.yaml").write_text(config)
    with (
        patch.dict(os.environ, {"DAGSTER_HOME": str(path)}),
        DagsterInstance.from_config(str(path)) as instance,
    ):
        yield instance
