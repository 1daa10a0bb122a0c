"""What Dagster knows of each window: landed, failed and how often and why, or under way.

Belongs here: reading Dagster's event log and partition status. Doesn't: deciding what follows (retry.py), starting
anything (sensors.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetKey,
    AssetRecordsFilter,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    EventLogRecord,
    MetadataValue,
    MultiPartitionsDefinition,
    RunsFilter,
    TimeWindowPartitionsDefinition,
)
from dagster._core.storage.asset_check_execution_record import COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
from dagster._core.storage.partition_status_cache import get_and_update_asset_status_cache_value

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.lake import Lake, LandedWindow
from leads_pipeline.partitions import Partitions
from leads_pipeline.retry import LOOKS_AFTER_DAYS, FailedWindow, last_look_due_at
from leads_pipeline.settings import Settings
from leads_pipeline.window import RETENTION, Window, days, today

# Marks a run whose keys stand in its config, where Dagster's own status doesn't see them.
KEYS_IN_CONFIG_TAG = "leads_pipeline/keys_in_config"

# A publication looks each night even where nothing came; the day that has 25 hours is none to ring on.
OLDEST_PUBLICATION = timedelta(hours=27)

# How many observations are read at a time.
_PAGE = 1000

LIVE = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def raw_key(kind: LeadKind) -> AssetKey:
    """The asset that a kind's windows are partitions of."""
    return AssetKey(f"raw_{kind.table}")


@dataclass(frozen=True, slots=True)
class WindowStatus:
    """Partition keys of one kind by what Dagster last saw of them; no key is in two of the sets."""

    landed: frozenset[str]
    failed: frozenset[str]
    under_way: frozenset[str]


def window_status(instance: DagsterInstance, kind: LeadKind, windows: MultiPartitionsDefinition) -> WindowStatus:
    """Where each window of the kind stands: the one place that calls Dagster's private status cache.

    41 ms for 15,000 keys once it is warm. Failed is what was planned and not materialized by a run that has ended.
    """
    cache = get_and_update_asset_status_cache_value(instance, raw_key(kind), windows)
    under_way = _keys_of_live_runs(instance, kind)
    if cache is None:
        return WindowStatus(frozenset(), frozenset(), under_way)
    under_way |= set(cache.deserialize_in_progress_partition_subsets(windows).get_partition_keys())
    failed = set(cache.deserialize_failed_partition_subsets(windows).get_partition_keys()) - under_way
    landed = set(cache.deserialize_materialized_partition_subsets(windows).get_partition_keys()) - failed - under_way
    return WindowStatus(frozenset(landed), frozenset(failed), under_way)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A run's verdict on a window that it couldn't land. `settings` is the fingerprint of those that it asked with."""

    key: str
    observed_at: datetime
    is_permanent: bool
    reason: str
    error: str
    settings: str | None

    @staticmethod
    def metadata(error: LeadsPipelineError, settings: str | None = None) -> dict[str, MetadataValue]:
        """What says so in Dagster's event log."""
        entries = {
            "verdict": "transient" if error.is_transient else "permanent",
            "reason": error.reason,
            "error": str(error),
            "settings": settings,
        }
        return {name: MetadataValue.text(text) for name, text in entries.items() if text is not None}

    @classmethod
    def of(cls, record: EventLogRecord) -> Self | None:
        """What an entry of the event log says, None where it is no verdict."""
        observation = record.asset_observation
        if observation is None or observation.partition is None or "verdict" not in observation.metadata:
            return None
        entries = {name: str(value.value) for name, value in observation.metadata.items()}
        return cls(
            observation.partition,
            datetime.fromtimestamp(record.timestamp, UTC),
            is_permanent=entries["verdict"] == "permanent",
            reason=entries.get("reason", ""),
            error=entries.get("error", ""),
            settings=entries.get("settings"),
        )


def verdicts(
    instance: DagsterInstance, kind: LeadKind, *, after_id: int | None = None
) -> Iterator[tuple[int, Verdict]]:
    """The verdicts of runs on windows, oldest first, each with its place in the event log.

    Only those after the place `after_id`, and none older than the portal keeps leads. A place beyond the log's end is
    one in a log that was lost since: then all.
    """
    if after_id is not None and after_id > (instance.event_log_storage.get_maximum_record_id() or 0):
        after_id = None
    horizon = (datetime.now(UTC) - RETENTION - timedelta(days=1)).timestamp()
    wanted = AssetRecordsFilter(raw_key(kind), after_storage_id=after_id, after_timestamp=horizon)
    cursor = None
    while True:
        page = instance.fetch_observations(wanted, _PAGE, cursor, ascending=True)
        for record in page.records:
            if (verdict := Verdict.of(record)) is not None:
                yield record.storage_id, verdict
        if not page.has_more:
            return
        cursor = page.cursor


def last_landed(instance: DagsterInstance, kind: LeadKind, keys: Iterable[str]) -> Mapping[str, int]:
    """For each key that ever landed, the place in the event log of the last time."""
    return instance.get_latest_storage_id_by_partition(
        raw_key(kind), DagsterEventType.ASSET_MATERIALIZATION, partitions=set(keys)
    )


def _keys_of_live_runs(instance: DagsterInstance, kind: LeadKind) -> frozenset[str]:
    """Keys of runs under way that stand in run configs: for those, nothing was planned in the event log."""
    op = raw_key(kind).to_python_identifier()
    keys: set[str] = set()
    for run in instance.get_runs(RunsFilter(statuses=LIVE, tags={KEYS_IN_CONFIG_TAG: "true"})):
        config: Mapping[str, Any] = run.run_config
        keys.update(config.get("ops", {}).get(op, {}).get("config", {}).get("partition_keys", []))
    return frozenset(keys)


def missing_windows(
    kind: LeadKind,
    settings: Settings,
    partitions: Partitions,
    lake: Lake,
    instance: DagsterInstance,
    now: datetime,
    over_since: timedelta,
) -> list[Window]:
    """Windows over for that long that nobody has pulled since their end and that the portal has, in order of days.

    Landed means both that Dagster saw it and that the file says so, so that neither's loss goes unnoticed, and a file
    that came out of an older backup counts for what it holds.
    """
    status = window_status(instance, kind, partitions.windows)
    last = today(settings.zone, now - over_since) - timedelta(days=1)
    missing = []
    for day in days(max(today(settings.zone, now - RETENTION), partitions.first_day), last):
        files = {landed.scope: landed for landed in lake.known_windows(kind, day)}
        for scope in settings.scopes:
            window = Window.of(day, scope, settings.zone)
            key = window.partition_key
            file = files.get(scope.key)
            is_landed = key in status.landed and file is not None and file.has_landed(window)
            is_known = is_landed or key in status.failed or key in status.under_way
            if not is_known and not window.is_deleted(now):
                missing.append(window)
    return missing


def windows_to_look_at(
    kind: LeadKind, settings: Settings, partitions: Partitions, lake: Lake, landed: Set[str], now: datetime
) -> dict[str, Window]:
    """Of the landed windows (by partition key) those whose files hold no answer from after the newest look was due.

    By the files, so that neither an outage nor a lost log costs a look. An answer from the future, by a clock that ran
    ahead, is none.
    """
    due = {}
    newest = today(settings.zone, now - timedelta(days=min(LOOKS_AFTER_DAYS))) - timedelta(days=1)
    for day in days(max(today(settings.zone, now - RETENTION), partitions.first_day), newest):
        looked_at = {file.scope: file.looked_at for file in lake.known_windows(kind, day)}
        for scope in settings.scopes:
            window = Window.of(day, scope, settings.zone)
            due_at = last_look_due_at(window, now)
            if window.partition_key not in landed or scope.key not in looked_at or window.is_deleted(now):
                continue
            if due_at is not None and not due_at <= looked_at[scope.key] <= now:
                due[window.partition_key] = window
    return due


def failed_windows(
    instance: DagsterInstance, settings: Settings, partitions: Partitions
) -> dict[tuple[LeadKind, Window], FailedWindow]:
    """Every window that is still failed, with the runs that failed on it since it last landed, and the last reason."""
    windows = {}
    for kind in LEAD_KINDS:
        failed = window_status(instance, kind, partitions.windows).failed
        if not failed:
            continue
        landed = last_landed(instance, kind, failed)
        verdicts_on: dict[str, list[Verdict]] = {key: [] for key in failed}
        for event_id, verdict in verdicts(instance, kind):
            if verdict.key in failed and event_id > landed.get(verdict.key, 0):
                verdicts_on[verdict.key].append(verdict)
        for key, verdicts_since in verdicts_on.items():
            window = Window.from_partition_key(key, settings.zone)
            if verdicts_since:
                last = verdicts_since[-1]
                failed_window = FailedWindow(
                    len(verdicts_since),
                    last.observed_at,
                    last.is_permanent,
                    last.error,
                    last.reason,
                    verdicts_since[0].observed_at,
                )
            else:  # a killed run leaves no verdict on the windows that it didn't come to
                error = "The run ended before it came to this window."
                failed_window = FailedWindow(1, datetime.now(UTC), error=error)
            windows[kind, window] = failed_window
    return windows


def failed_days(instance: DagsterInstance, asset: AssetKey, days_of: TimeWindowPartitionsDefinition) -> frozenset[date]:
    """The days that the last run for them didn't make, of an asset that is partitioned by day."""
    cache = get_and_update_asset_status_cache_value(instance, asset, days_of)
    if cache is None:
        return frozenset()
    return frozenset(
        date.fromisoformat(key) for key in cache.deserialize_failed_partition_subsets(days_of).get_partition_keys()
    )


def staged_days(instance: DagsterInstance, asset: AssetKey, days_of: TimeWindowPartitionsDefinition) -> frozenset[date]:
    """The days that the last run for them made, of an asset that is partitioned by day."""
    cache = get_and_update_asset_status_cache_value(instance, asset, days_of)
    if cache is None:
        return frozenset()
    made = cache.deserialize_materialized_partition_subsets(days_of).get_partition_keys()
    return frozenset(map(date.fromisoformat, made)) - failed_days(instance, asset, days_of)


def last_publication(instance: DagsterInstance) -> datetime | None:
    """When leads.duckdb was last brought up to date, None before the first time. Dagster's own moment, UTC."""
    event = instance.get_latest_materialization_event(AssetKey("applicant_leads"))
    return datetime.fromtimestamp(event.timestamp, UTC) if event is not None else None


def last_evaluation(instance: DagsterInstance, check: AssetCheckKey) -> AssetCheckEvaluation | None:
    """What the check came to the last time that it came to an end."""
    for record in instance.event_log_storage.get_asset_check_execution_history(
        check, limit=1, status=COMPLETED_ASSET_CHECK_EXECUTION_RECORD_STATUSES
    ):
        return record.event.asset_check_evaluation if record.event else None
    return None


class WindowState(StrEnum):
    """What there is of a window: the states of mart_coverage, and UNDER_WAY for what a run is pulling now."""

    LANDED = "landed"
    EMPTY = "empty"
    PARTIAL = "partial"
    UNDER_WAY = "under way"
    OPEN = "open"
    FAILED = "failed"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class WindowCoverage:
    """What there is of a window now.

    `rows` and `looked_at` are None where no file is; `failed` is there where it is still failed.
    """

    kind: LeadKind
    window: Window
    state: WindowState
    rows: int | None
    looked_at: datetime | None
    failed: FailedWindow | None


def coverage(
    instance: DagsterInstance, settings: Settings, partitions: Partitions, lake: Lake, first: date, now: datetime
) -> Iterator[WindowCoverage]:
    """Every window from that day to today, from the files themselves and Dagster's status, published or not."""
    all_failed = failed_windows(instance, settings, partitions)
    shown = list(days(max(first, partitions.first_day), today(settings.zone, now)))
    for kind in LEAD_KINDS:
        under_way = window_status(instance, kind, partitions.windows).under_way
        failed_of_kind = {window: failed for (its_kind, window), failed in all_failed.items() if its_kind == kind}
        for day in shown:
            landed_of = {landed.scope: landed for landed in lake.landed_windows(kind, day)}
            for scope in settings.scopes:
                window = Window.of(day, scope, settings.zone)
                landed, failed = landed_of.get(scope.key), failed_of_kind.get(window)
                yield WindowCoverage(
                    kind,
                    window,
                    _state(window, landed, failed, now, is_under_way=window.partition_key in under_way),
                    landed.leads if landed else None,
                    landed.looked_at if landed else None,
                    failed,
                )


def _state(
    window: Window, landed: LandedWindow | None, failed: FailedWindow | None, now: datetime, *, is_under_way: bool
) -> WindowState:
    """The state, decided in the order in which mart_coverage decides it."""
    # Where a file is of another window and the portal has deleted both, the days beside it hold the rest.
    if landed is not None and (landed.is_of(window) or window.is_deleted(now)):
        if landed.is_partial:
            return WindowState.PARTIAL
        if landed.is_closed:
            return WindowState.LANDED if landed.leads else WindowState.EMPTY
    if is_under_way:
        return WindowState.UNDER_WAY
    if failed is not None:
        return WindowState.FAILED
    return WindowState.MISSING if window.is_closed(now) else WindowState.OPEN
