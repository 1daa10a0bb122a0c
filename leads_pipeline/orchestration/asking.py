"""Asks for windows that are due: the schedules, and the sensor that retries.

Belongs here: which windows a run is for, and when one is asked for. Doesn't: when a window is due
(domain/due.py), the pull (pull.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final

from dagster import (
    AssetKey,
    Config,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultScheduleStatus,
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
from leads_pipeline.domain.due import windows_to_ask_for
from leads_pipeline.domain.window import Window, today
from leads_pipeline.orchestration.checks import raw_check_specs
from leads_pipeline.orchestration.dagster_compat import daemon_id
from leads_pipeline.orchestration.dead_runs import end_dead_runs
from leads_pipeline.orchestration.names import PLAIN, PULL_JOB, Names
from leads_pipeline.orchestration.service import note_home, note_service, note_start, started_at
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.windows import WindowRow, windows_at_portal
from leads_pipeline.settings import NO_PORTAL, Settings

# 75 minutes after the end of the day, as domain/due.py says.
DAILY_CRON: Final = "15 1 * * *"
HOURLY_CRON: Final = "5 * * * *"
RETRY_SECONDS: Final = 300

FINISHED: Final = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]

# Dagster's queue takes the highest integer first. A run without this tag has 0, as most runs of
# other people.
_PRIORITY_TAG: Final = "dagster/priority"
_PRIORITIES: Final = {"daily": "1", "hourly": "1", "retry": "0"}
DAILY_TAGS: Final = {_PRIORITY_TAG: _PRIORITIES["daily"]}
# For backfills, in the UI and of the command line.
LAST_IN_QUEUE: Final = {_PRIORITY_TAG: "-1"}


class PullConfig(Config):
    """The windows to pull, if tags don't name them.

    `requested_at` is when a schedule or a sensor asked, as ISO 8601. Without it, a person asks for
    exactly these keys.
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
    windows = [(row.window, row.fetched_at, row.failure) for row in rows]
    return windows_to_ask_for(windows, started_at, now)


# --- what is asked for ----------------------------------------------------------------------------


def pull_request(
    keys: Mapping[LeadKind, Sequence[str]], why: str, now: datetime, names: Names = PLAIN
) -> RunRequest:
    """Return the request of one run for these keys.

    The same reason in the same minute is launched once.
    """
    return RunRequest(
        run_key=f"{why}-{now:%Y-%m-%dT%H:%MZ}",
        asset_selection=[raw_key(kind, names) for kind in keys],
        # Dagster runs no checks of selected assets unless they are named, and our assets always
        # yield theirs.
        asset_check_keys=[
            spec.key for kind in keys for spec in raw_check_specs(raw_key(kind, names))
        ],
        run_config=pull_config(keys, names, requested_at=now.isoformat()),
        tags=window_tags(keys, why),
    )


def pull_config(
    keys: Mapping[LeadKind, Sequence[str]], names: Names = PLAIN, **config: str
) -> dict[str, Any]:
    """Return the run's configuration: a PullConfig for each asset."""
    ops = {
        raw_key(kind, names): {"partition_keys": list(of_kind), **config}
        for kind, of_kind in keys.items()
    }
    return {
        "ops": {key.to_python_identifier(): {"config": of_asset} for key, of_asset in ops.items()}
    }


def window_tags(keys: Mapping[LeadKind, Sequence[str]], why: str) -> dict[str, str]:
    """Return the run's tags: how many windows it is for, who asked, and its place in the queue."""
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
        daily = self._schedule(
            "pull_daily",
            "daily",
            DAILY_CRON,
            "Pulls the windows that are due, one run for all: the day that has closed, and others "
            "again.",
            default_status=self.names.schedule_status,
        )
        hourly = self._schedule(
            "pull_hourly",
            "hourly",
            HOURLY_CRON,
            "Pulls the day under way. Off until you switch it on: daily is enough for most "
            "agencies.",
        )
        return [daily, hourly]

    def _schedule(
        self,
        name: str,
        why: str,
        cron: str,
        description: str,
        default_status: DefaultScheduleStatus = DefaultScheduleStatus.STOPPED,
    ) -> ScheduleDefinition:
        @schedule(
            name=self.names.name(name),
            job_name=self.names.name(PULL_JOB),
            cron_schedule=cron,
            execution_timezone=self.settings.zone.key,
            default_status=default_status,
            required_resource_keys={self.names.name("data")},
            description=description,
        )
        def pull(context: ScheduleEvaluationContext) -> RunRequest | SkipReason:
            data: DataFolder = self.names.resource(context.resources, "data")
            return self._ask(context.instance, data, why)

        return pull

    def sensor(self) -> SensorDefinition:
        """Return `retry_failed_partitions`."""

        @sensor(
            name=self.names.name("retry_failed_partitions"),
            job_name=self.names.name(PULL_JOB),
            minimum_interval_seconds=RETRY_SECONDS,
            default_status=self.names.sensor_status,
            required_resource_keys={self.names.name("data")},
            description=(
                "Pulls the windows that are due, one run for all: missing ones, failed ones after "
                "a wait of 10 minutes to 12 hours, refused ones once a day and after a start of "
                "the service. Soonest deleted first."
            ),
        )
        def retry_failed_partitions(context: SensorEvaluationContext) -> RunRequest | SkipReason:
            data: DataFolder = self.names.resource(context.resources, "data")
            # First of all: whatever fails below, the daemon works.
            note_service(context.instance, self.settings, data.state, self.clock(), self.names)
            end_dead_runs(context.instance, data, self.clock(), is_own=self._is_own)

            # After correcting a setting, a person starts the service anew. The age of this process
            # says nothing about that: a daemon that loads the code itself replaces it every minute.
            if daemon := daemon_id(context.instance):
                note_start(data.state.path, daemon, self.clock())

            note_home(context.instance, data.state, self.names)
            return self._ask(context.instance, data, "retry")

        return retry_failed_partitions

    def _is_own(self, run: DagsterRun) -> bool:
        return self.names.is_own(run, self.assets)

    def _ask(
        self, instance: DagsterInstance, data: DataFolder, why: str
    ) -> RunRequest | SkipReason:
        if self.settings.base_url is None:
            return SkipReason(NO_PORTAL)
        if not self.settings.scopes:
            return SkipReason("LEADS_BRANCH_IDS names no branch, so there is nothing to pull.")
        if data.state.is_pulling() or is_under_way(instance, PULL_JOB, self.names):
            return SkipReason(
                "A pull is under way. Windows that are due then are asked for within 5 minutes of "
                "its end."
            )

        now = self.clock()
        zone = self.settings.zone
        scopes = self.settings.scopes
        keys: dict[LeadKind, list[str]] = {}

        for kind in LEAD_KINDS:
            if why == "hourly":
                windows = [Window.of(today(zone, now), scope, zone) for scope in scopes]
            else:
                rows = windows_at_portal(data.store, kind, scopes, zone, self.first_day, now)
                windows = due_windows(rows, started_at(data.state.path, now), now)
            if windows:
                keys[kind] = [window.partition_key for window in windows]

        return pull_request(keys, why, now, self.names) if keys else SkipReason("No window is due.")
