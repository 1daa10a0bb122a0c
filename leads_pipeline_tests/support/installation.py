"""A whole installation for tests: a simulator on a socket, a data folder, a Dagster home of its
own, real settings.

Belongs here: starting it, starting runs in each of Dagster's ways, and what was asked of the
simulator. Doesn't: a clock that the test sets (pulls.py), what should come of it, which is the
tests'.
"""

import atexit
import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

from dagster import (
    AssetKey,
    DagsterInstance,
    Definitions,
    ExecuteInProcessResult,
    RunRequest,
    SkipReason,
    build_schedule_context,
    build_sensor_context,
)

from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import APPLICANT, LeadKind
from leads_pipeline.domain.window import Window
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
from leads_pipeline_tests.support.daemon_loops import RUNS_IN_THIS_PROCESS, Daemon, daemon_of

# One attempt a window and run, and no wait of seconds after a 401 or 403: the client's own retries
# are test_client.py's.
IMPATIENT = RetryPolicy(
    max_attempts=1, base_delay_seconds=0.001, refused_token_waits_seconds=(0.001,)
)

# Dagster's log on the console.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass
class Clock:
    """A clock that tests set. Each look at it takes a millisecond."""

    now: datetime

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


@dataclass
class Installation:
    """A simulator with its pipeline.

    Days are counted back from the clock's today. It shows the moment at which the test began.
    """

    simulator: Simulator
    environment: dict[str, str]
    instance: DagsterInstance
    clock: Clock

    @property
    def settings(self) -> Settings:
        return Settings.from_variables(self.environment)

    @property
    def data(self) -> DataFolder:
        return DataFolder.of(self.settings)

    @property
    def partitions(self) -> Partitions:
        return Partitions.of(self.settings, first_day(self.settings))

    @cached_property
    def definitions(self) -> Definitions:
        """As a code location has them."""
        return build_definitions(self.environment)

    # --- windows and the portal -------------------------------------------------------------------

    def day(self, days_ago: int) -> date:
        """A day of the settings' time zone, counted back from the clock's today."""
        return self.clock.now.astimezone(self.settings.zone).date() - timedelta(days=days_ago)

    def key(self, days_ago: int, branch: int = 101) -> str:
        """The key of a branch's window."""
        return f"{self.day(days_ago)}|branch-{branch}"

    def keys(self, days_ago: Iterable[int], branches: Sequence[int] = (101, 102, 103)) -> set[str]:
        """The keys of all those branches' windows on all those days."""
        return {self.key(ago, branch) for ago in days_ago for branch in branches}

    def window(self, key: str) -> Window:
        return Window.from_partition_key(key, self.settings.zone)

    def asked(self, kind: LeadKind = APPLICANT) -> Counter[str]:
        """How often each window of the kind was asked for at the simulator, by partition key."""
        found: Counter[str] = Counter()
        for (name, scope, from_time), count in self.simulator.counters().windows.items():
            if name == kind.name:
                start = datetime.fromisoformat(str(from_time)).astimezone(self.settings.zone)
                found[f"{start.date()}|{scope}"] += count
        return found

    def truth(self, kind: LeadKind, keys: Iterable[str]) -> set[str]:
        """Ids of all leads that the portal holds of those windows."""
        ids: set[str] = set()
        for window in map(self.window, keys):
            ids.update(self.simulator.truth(kind.name, window.scope.key, window.start, window.end))
        return ids

    def fail(self, windows: Mapping[str, Then]) -> None:
        """Have the portal fail for these windows of applicants, by their keys."""
        rules = []
        for key, then in windows.items():
            window = self.window(key)
            start = f"{window.start:%Y-%m-%dT%H:%M}"
            when = When(path="/applicant-leads", scope=window.scope.key, from_time=start)
            rules.append(Rule(then, when))
        self.simulator.set_faults(rules)

    # --- ticks and runs ---------------------------------------------------------------------------

    def tick(self, name: str = "retry_failed_partitions") -> RunRequest | SkipReason:
        """Evaluate a sensor or a schedule once."""
        resources = {"data": (self.definitions.resources or {})["data"]}
        return tick_of(
            self.definitions, name, self.clock(), instance=self.instance, resources=resources
        )

    def execute(
        self,
        job: str = PULL_JOB,
        *,
        tags: Mapping[str, str] | None = None,
        assets: Sequence[AssetKey] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> ExecuteInProcessResult:
        """Run a job with those tags, as whoever launches a run sets them."""
        return self.definitions.resolve_job_def(job).execute_in_process(
            instance=self.instance,
            tags=tags,
            asset_selection=assets,
            raise_on_error=False,
            run_config={**QUIET, **(config or {})},
        )

    def pull(
        self, keys: Iterable[str], kinds: Sequence[LeadKind] = (APPLICANT,)
    ) -> ExecuteInProcessResult:
        """Pull these windows, as a person asks for them."""
        assets = [raw_key(kind) for kind in kinds]
        of_each = {"config": {"partition_keys": sorted(keys)}}
        ops = {asset.to_python_identifier(): of_each for asset in assets}
        return self.execute(assets=assets, config={"ops": ops})

    def shown(self, kind: LeadKind = APPLICANT) -> dict[str, str]:
        """What Dagster shows of each window that it knows: MATERIALIZED or FAILED."""
        windows = self.partitions.windows
        statuses = self.instance.get_status_by_partition(
            raw_key(kind), windows.get_partition_keys(), windows
        )
        return {key: status.value for key, status in (statuses or {}).items() if status is not None}

    def daemon(self) -> AbstractContextManager[Daemon]:
        """Dagster's daemon, an iteration at a time."""
        return daemon_of(self.instance)


def tick_of(
    definitions: Definitions, name: str, now: datetime, **shared: Any
) -> RunRequest | SkipReason:
    """Evaluate a schedule or a sensor that asks for one run at most.

    `shared` are the instance and resources.
    """
    repository = definitions.get_repository_def()
    shared["repository_def"] = repository
    answer: Any  # Dagster has no public name for its type
    if repository.has_sensor_def(name):
        with build_sensor_context(sensor_name=name, **shared) as context:
            answer = repository.get_sensor_def(name).evaluate_tick(context)
    else:
        at = build_schedule_context(scheduled_execution_time=now, **shared)
        answer = repository.get_schedule_def(name).evaluate_tick(at)

    if not answer.run_requests:
        return SkipReason(answer.skip_message)
    [request] = answer.run_requests
    assert isinstance(request, RunRequest)
    return request


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
    with (
        warnings.catch_warnings(),
        running(config or Config(branches=3, leads_per_day=8)) as simulator,
    ):
        # Dagster may call what it has deprecated itself. What our code calls stays an error.
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"dagster\.")
        of_users = (_empty_home() / "dagster.yaml").read_text()
        environment = {
            **simulator.environment(),
            "LEADS_DATA_DIR": str(folder / "data"),
            "LEADS_START_DATE": str(now.astimezone(zone).date() - timedelta(days=first)),
            "DAGSTER_HOME": str(folder / "home"),
            SERVED: "yes",
            **(variables or {}),
        }
        with (
            patch.dict(os.environ, environment),
            patch(
                "leads_pipeline.orchestration.resources.Service", partial(Service, policy=IMPATIENT)
            ),
            home(folder / "home", of_users + RUNS_IN_THIS_PROCESS) as instance,
        ):
            yield Installation(simulator, environment, instance, Clock(now))


@contextmanager
def home(folder: Path, dagster_yaml: str = "") -> Iterator[DagsterInstance]:
    """A Dagster instance in a home of its own, with the dagster.yaml that users get, or another."""
    if not folder.exists():
        shutil.copytree(_empty_home(), folder)
    if dagster_yaml:
        (folder / "dagster.yaml").write_text(dagster_yaml)

    with (
        patch.dict(os.environ, {"DAGSTER_HOME": str(folder)}),
        DagsterInstance.from_config(str(folder)) as instance,
    ):
        yield instance


@cache
def _empty_home() -> Path:
    """A home with its empty databases, to be copied: making them takes Dagster a second."""
    parent = Path(mkdtemp(prefix="leads-pipeline-home-"))
    atexit.register(shutil.rmtree, parent)
    folder = parent / "home"
    dagster_home(Settings.from_variables({"DAGSTER_HOME": str(folder)}))
    with (
        patch.dict(os.environ, {"DAGSTER_HOME": str(folder)}),
        DagsterInstance.from_config(str(folder)) as instance,
    ):
        assert instance.get_runs_count() == 0
        assert instance.event_log_storage.get_maximum_record_id() is None
        assert not instance.all_instigator_state()
    return folder
