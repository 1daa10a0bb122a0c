"""Asks for windows that are due: the schedules, and the sensor that retries.

Belongs here: which windows a run is for, and when one is asked for. Doesn't: when a window is due (domain/due.py), the
pull (pull.py).
"""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from dagster import (
    AssetKey,
    Config,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultRunLauncher,
    RunRecord,
    RunRequest,
    RunsFilter,
    ScheduleDefinition,
    ScheduleEvaluationContext,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    schedule,
    sensor,
)

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.due import due
from leads_pipeline.domain.window import Window, today
from leads_pipeline.extensions import NEEDED_BY_FEATURES, loaded
from leads_pipeline.orchestration.checks import raw_check_specs
from leads_pipeline.orchestration.dagster_compat import daemon_id
from leads_pipeline.orchestration.names import NEEDED, PLAIN, PUBLISH_JOB, PULL_JOB, Names
from leads_pipeline.settings import NO_PORTAL, Settings
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.durable import replace_file
from leads_pipeline.storage.state import State
from leads_pipeline.storage.windows import WindowRow, known_windows

# 75 minutes after the end of the day, as domain/due.py says.
DAILY_CRON: Final = "15 1 * * *"
HOURLY_CRON: Final = "5 * * * *"
RETRY_SECONDS: Final = 300

_OF_A_PROCESS: Final = [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED]
FINISHED: Final = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]

# Names the machine of a run that a command started.
MACHINE_TAG: Final = "leads_pipeline/machine"

# Dagster's queue takes the highest integer first. A run without this tag has 0, as most runs of other people.
_PRIORITY_TAG: Final = "dagster/priority"
_PRIORITIES: Final = {"daily": "1", "hourly": "1", "retry": "0"}
# For backfills, in the UI and of the command line.
DAILY_TAGS: Final = {_PRIORITY_TAG: _PRIORITIES["daily"]}
LAST_IN_QUEUE: Final = {_PRIORITY_TAG: "-1"}

# A run takes its lock within seconds of its start, and lives on for a while after it has released it.
_DEAD_AFTER: Final = timedelta(minutes=10)
_SECOND_LOOK_SECONDS: Final = 2.0

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class PullConfig(Config):
    """The windows to pull, if tags don't name them.

    `requested_at` is when a schedule or a sensor asked, as ISO 8601. Without it, a person asks for exactly these keys.
    """

    partition_keys: list[str] = []  # noqa: RUF012 - a field of a pydantic model, copied for each
    requested_at: str | None = None


def utc_now() -> datetime:
    """Return the moment."""
    return datetime.now(UTC)


def raw_key(kind: LeadKind, names: Names = PLAIN) -> AssetKey:
    """Return the asset whose partitions are the windows of that kind."""
    return names.key(f"raw_{kind.table}")


def due_windows(rows: Sequence[WindowRow], started_at: datetime, now: datetime) -> list[Window]:
    """Return those of the windows that are due, soonest deleted first."""
    return due(((row.window, row.looked_at, row.failure) for row in rows), started_at, now)


# --- runs whose process is gone ---------------------------------------------------------------------------------------


def end_dead_runs(
    instance: DagsterInstance,
    data: DataFolder,
    now: datetime,
    sleep: Callable[[float], None] = time.sleep,
    *,
    dead_after: timedelta = _DEAD_AFTER,
    is_own: Callable[[DagsterRun], bool] = lambda _: True,
) -> int:
    """Have runs count as failed whose process was killed: Dagster would wait for them for hours. Return how many.

    `is_own` tells our runs from those of others in the same Dagster, which are left alone.

    A pull and a publication hold a lock while they work. A run that began less than `dead_after` ago may not have it
    yet. Locks of other machines aren't seen, so their runs are left to Dagster's run monitoring: those of another
    launcher, and commands on another machine with the same bucket.
    """
    if not isinstance(instance.run_launcher, DefaultRunLauncher):
        return 0

    unfinished = instance.get_run_records(RunsFilter(statuses=[*_OF_A_PROCESS, DagsterRunStatus.QUEUED]))
    suspects = [one.dagster_run for one in unfinished if _may_be_dead(one, now, dead_after)]
    suspects = [run for run in suspects if is_own(run)]
    if data.bucket is not None:
        here = platform.node()
        suspects = [run for run in suspects if run.tags.get(MACHINE_TAG, here) == here]
    for wait in (_SECOND_LOOK_SECONDS, 0):  # between two steps nobody holds it
        suspects = [run for run in suspects if not _is_at_work(run.job_name, data)]
        if suspects and wait:
            sleep(wait)
    if not suspects:
        return 0

    # One may have ended meanwhile.
    ids = [run.run_id for run in suspects]
    dead = instance.get_runs(RunsFilter(run_ids=ids, statuses=[*_OF_A_PROCESS, DagsterRunStatus.QUEUED]))
    for run in dead:
        instance.report_run_failed(run, "The run's process is gone. What it landed stays.")
    return len(dead)


def _may_be_dead(record: RunRecord, now: datetime, dead_after: timedelta) -> bool:
    """Whether the run began so long ago that it must have its lock, or in the future, by a clock that ran ahead.

    A queued run has no process, so it may wait for as long as it likes.
    """
    began_at = datetime.fromtimestamp(record.start_time, UTC) if record.start_time else record.update_timestamp
    if record.dagster_run.status is DagsterRunStatus.QUEUED:
        return began_at > now + dead_after
    return abs(began_at - now) > dead_after


def _is_at_work(job: str, data: DataFolder) -> bool:
    """Whether the lock is held that a run of the job works under. A run of single assets may work under either."""
    is_pulling = not job.endswith(PUBLISH_JOB) and data.state.is_pulling()
    return is_pulling or (not job.endswith(PULL_JOB) and data.state.is_publishing())


# --- when the service was started -------------------------------------------------------------------------------------


def note_start(state: Path, daemon: str, now: datetime) -> None:
    """Remember when the daemon with this id was first seen."""
    if _started(state)[1] != daemon:
        replace_file(state / "started", f"{now.isoformat()} {daemon}".encode())


def note_home(instance: DagsterInstance, state: State, names: Names) -> None:
    """Remember which Dagster home the service works with. One without a dagster.yaml lasts as long as its process."""
    home = Path(instance.root_directory)
    if (home / "dagster.yaml").is_file():
        state.note_dagster_home(home, "/".join(names.prefix))


def note_service(instance: DagsterInstance, settings: Settings, state: State, now: datetime, names: Names) -> None:
    """Note that the daemon works, and which of the schedules and sensors that the pipeline needs are off.

    More than one sensor does it, so that each is noted if it is off. `status` reads it in the data folder and needs no
    Dagster. Raises StorageError.
    """
    is_running = {one.instigator_name: one.is_running for one in instance.all_instigator_state()}
    state.note_service(
        now, sorted(name for name in _needed(settings, names) if not is_running.get(name, names.is_served))
    )


def _needed(settings: Settings, names: Names) -> list[str]:
    """The names of the schedules and sensors without which something would be late."""
    needed = [*NEEDED]
    for of_feature in loaded(NEEDED_BY_FEATURES):
        needed += of_feature(settings)
    return [names.name(name) for name in needed]


def started_at(state: Path, now: datetime) -> datetime:
    """Return when the service was last started. Long ago if nobody knows, or if the clock ran ahead then."""
    moment, _ = _started(state)
    return moment if moment <= now else _LONG_AGO


def _started(state: Path) -> tuple[datetime, str]:
    try:
        moment, _, daemon = (state / "started").read_text().partition(" ")
        return datetime.fromisoformat(moment), daemon
    except (OSError, ValueError):
        return _LONG_AGO, ""


# --- what is asked for ------------------------------------------------------------------------------------------------


def pull_request(keys: Mapping[LeadKind, Sequence[str]], why: str, now: datetime, names: Names = PLAIN) -> RunRequest:
    """Return the request of one run for these keys. The same reason in the same minute is launched once."""
    return RunRequest(
        run_key=f"{why}-{now:%Y-%m-%dT%H:%MZ}",
        asset_selection=[raw_key(kind, names) for kind in keys],
        # Dagster runs no checks of selected assets unless they are named, and our assets always yield theirs.
        asset_check_keys=[spec.key for kind in keys for spec in raw_check_specs(raw_key(kind, names))],
        run_config=pull_config(keys, names, requested_at=now.isoformat()),
        tags=window_tags(keys, why),
    )


def pull_config(keys: Mapping[LeadKind, Sequence[str]], names: Names = PLAIN, **config: str) -> dict[str, Any]:
    """Return the run's configuration: a PullConfig for each asset."""
    ops = {raw_key(kind, names): {"partition_keys": list(of_kind), **config} for kind, of_kind in keys.items()}
    return {"ops": {key.to_python_identifier(): {"config": of_asset} for key, of_asset in ops.items()}}


def window_tags(keys: Mapping[LeadKind, Sequence[str]], why: str) -> dict[str, str]:
    """Return the run's tags that say how many windows it is for, who asked, and its place in Dagster's queue."""
    count = sum(map(len, keys.values()))
    priority = {_PRIORITY_TAG: _PRIORITIES[why]} if why in _PRIORITIES else LAST_IN_QUEUE
    return {"leads_pipeline/windows": str(count), "leads_pipeline/reason": why, **priority}


def is_under_way(instance: DagsterInstance, job: str, names: Names = PLAIN) -> bool:
    """Whether a run of the job is queued or started."""
    live = [status for status in DagsterRunStatus if status not in FINISHED]
    of_job = RunsFilter(job_name=names.name(job), tags=names.run_tags, statuses=live)
    return bool(instance.get_runs(of_job, limit=1))


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks for windows of these settings, from `first_day` on, by schedules and a sensor.

    `assets` are the keys of all assets of the installation.
    """

    settings: Settings
    first_day: date
    clock: Callable[[], datetime] = utc_now
    names: Names = PLAIN
    assets: frozenset[AssetKey] = frozenset()

    def schedules(self) -> list[ScheduleDefinition]:
        """Return `pull_daily` and `pull_hourly`."""

        @schedule(
            name=self.names.name("pull_daily"),
            job_name=self.names.name(PULL_JOB),
            cron_schedule=DAILY_CRON,
            execution_timezone=self.settings.zone.key,
            default_status=self.names.schedule_status,
            required_resource_keys={self.names.name("data")},
            description="Pulls the windows that are due, one run for all: the day that has closed, and further looks.",
        )
        def pull_daily(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
            data: DataFolder = self.names.resource(context.resources, "data")
            return self._ask(context.instance, data, "daily")

        @schedule(
            name=self.names.name("pull_hourly"),
            job_name=self.names.name(PULL_JOB),
            cron_schedule=HOURLY_CRON,
            execution_timezone=self.settings.zone.key,
            required_resource_keys={self.names.name("data")},
            description="Pulls the day under way. Off until you switch it on: daily is enough for most agencies.",
        )
        def pull_hourly(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
            data: DataFolder = self.names.resource(context.resources, "data")
            return self._ask(context.instance, data, "hourly")

        return [pull_daily, pull_hourly]

    def sensor(self) -> SensorDefinition:
        """Return `retry_failed_partitions`."""

        @sensor(
            name=self.names.name("retry_failed_partitions"),
            job_name=self.names.name(PULL_JOB),
            minimum_interval_seconds=RETRY_SECONDS,
            default_status=self.names.sensor_status,
            required_resource_keys={self.names.name("data")},
            description=(
                "Pulls the windows that are due, one run for all: missing ones, failed ones after a wait of 10 minutes "
                "to 12 hours, refused ones once a day and after a start of the service. Soonest deleted first."
            ),
        )
        def retry_failed_partitions(context: SensorEvaluationContext) -> RunRequest | SkipReason:
            data: DataFolder = self.names.resource(context.resources, "data")
            # First of all: whatever fails below, the daemon works.
            note_service(context.instance, self.settings, data.state, self.clock(), self.names)
            end_dead_runs(context.instance, data, self.clock(), is_own=self._is_own)
            # After correcting a setting, a person starts the service anew. The age of this process says nothing about
            # that: a daemon that loads the code itself replaces it every minute.
            if daemon := daemon_id(context.instance):
                note_start(data.state.path, daemon, self.clock())
            note_home(context.instance, data.state, self.names)
            return self._ask(context.instance, data, "retry")

        return retry_failed_partitions

    def _is_own(self, run: DagsterRun) -> bool:
        return self.names.is_own(run, self.assets)

    def _ask(self, instance: DagsterInstance, data: DataFolder, why: str) -> RunRequest | SkipReason:
        if self.settings.base_url is None:
            return SkipReason(NO_PORTAL)
        if not self.settings.scopes:
            return SkipReason("LEADS_BRANCH_IDS names no branch, so there is nothing to pull.")
        if data.state.is_pulling() or is_under_way(instance, PULL_JOB, self.names):
            return SkipReason(
                "A pull is under way. Windows that are due then are asked for within 5 minutes of its end."
            )
        now = self.clock()
        zone, scopes = self.settings.zone, self.settings.scopes
        keys: dict[LeadKind, list[str]] = {}
        for kind in LEAD_KINDS:
            if why == "hourly":
                windows = [Window.of(today(zone, now), scope, zone) for scope in scopes]
            else:
                rows = known_windows(data.store, kind, scopes, zone, self.first_day, now)
                windows = due_windows(rows, started_at(data.state.path, now), now)
            if windows:
                keys[kind] = [window.partition_key for window in windows]
        return pull_request(keys, why, now, self.names) if keys else SkipReason("No window is due.")
