"""The sensors: take up what failed or was never pulled, before the portal deletes it.

Belongs here: asking status.py and retry.py what is due, and requesting runs. Doesn't: the rules of when and how often
(retry.py). Nothing else retries: two mechanisms that don't share a verdict would repeat what is refused for ever.
"""

import base64
import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Self

from dagster import (
    AssetKey,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    TimeWindowPartitionsDefinition,
    sensor,
)
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.flatten.columns import windows_table
from leads_pipeline.flatten.windows import days_without_staged, unstaged_days
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG, Partitions, rectangles
from leads_pipeline.retry import LOOKS_AFTER_DAYS, FailedWindow, RetryPlan, plan_retries
from leads_pipeline.settings import NO_PORTAL, Settings
from leads_pipeline.spool import Spool
from leads_pipeline.status import (
    KEYS_IN_CONFIG_TAG,
    LIVE,
    missing_windows,
    raw_key,
    staged_days,
    verdicts,
    window_status,
    windows_to_look_at,
)
from leads_pipeline.window import Window, today

# Windows that fell due since the last look go out as one run, so that their days are staged once and not ten times.
RETRY_INTERVAL_SECONDS = 300

CATCH_UP_INTERVAL_SECONDS = 60

_LONG_AGO = datetime.fromtimestamp(0, UTC)


@dataclass(slots=True)
class RetryMemory:
    """What the retry sensor remembers of one kind's failed windows between ticks; pruned to what is still failed.

    `settings` is the fingerprint of those that it saw last.
    """

    seen_id: int = 0
    windows: dict[str, FailedWindow] = field(default_factory=dict)
    settings: str = ""

    def note(self, key: str, failed_at: datetime, *, is_permanent: bool) -> None:
        """A run's verdict on a window. The attempt was counted when it was requested."""
        attempts = self.windows[key].attempts if key in self.windows else 1
        self.windows[key] = FailedWindow(attempts, failed_at, is_permanent)

    def note_settings(self, settings: str) -> None:
        """Have what was refused with other settings asked for at once."""
        if settings == self.settings:
            return
        self.settings = settings
        for key, window in self.windows.items():
            if window.is_permanent:
                self.windows[key] = FailedWindow(0, _LONG_AGO)

    def request(self, key: str, now: datetime) -> None:
        """One more attempt is on its way."""
        self.windows[key] = FailedWindow(self.windows[key].attempts + 1, now)

    def prune(self, failed: Set[str], under_way: Set[str]) -> None:
        """Forget what is no longer failed; have what a killed run left without a verdict asked for at once."""
        self.windows = {key: window for key, window in self.windows.items() if key in failed or key in under_way}
        for key in failed - self.windows.keys():
            self.windows[key] = FailedWindow(0, _LONG_AGO)

    def pack(self) -> list[Any]:
        """As small as it goes: 15,000 windows must fit into a cursor."""
        return [
            self.seen_id,
            {
                key: [window.attempts, int(window.failed_at.timestamp()), int(window.is_permanent)]
                for key, window in self.windows.items()
            },
            self.settings,
        ]

    @classmethod
    def unpack(cls, packed: Sequence[Any]) -> Self:
        """The reverse of `pack`."""
        seen_id, windows, settings = packed
        return cls(
            seen_id,
            {
                key: FailedWindow(attempts, datetime.fromtimestamp(failed_at, UTC), bool(is_permanent))
                for key, (attempts, failed_at, is_permanent) in windows.items()
            },
            settings,
        )


def read_cursor(cursor: str | None) -> dict[str, RetryMemory]:
    """The sensor's memory by kind. One that can't be read counts as empty: attempts are then counted anew."""
    try:
        packed = json.loads(zlib.decompress(base64.b64decode(cursor or "")))
        return {kind.name: RetryMemory.unpack(packed[kind.name]) for kind in LEAD_KINDS}
    except (ValueError, KeyError, TypeError, zlib.error):
        return {kind.name: RetryMemory() for kind in LEAD_KINDS}


def write_cursor(memory: Mapping[str, RetryMemory]) -> str:
    """Compressed, since each key repeats most of the one before."""
    packed = json.dumps({name: entry.pack() for name, entry in memory.items()}, separators=(",", ":"))
    return base64.b64encode(zlib.compress(packed.encode())).decode()


def _utc_now() -> datetime:
    return datetime.now(UTC)


def retry_sensor(
    settings: Settings, partitions: Partitions, job_name: str, *, clock: Callable[[], datetime] = _utc_now
) -> SensorDefinition:
    """Asks again for failed windows: all that are due as one run, with an explicit list of keys."""

    @sensor(
        name="retry_failed_windows",
        job_name=job_name,
        minimum_interval_seconds=RETRY_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            "Takes up failed windows again, soonest deleted first: with growing delays of up to half a day; what was "
            "refused about daily, and at once after a change of settings or secret; never what the portal has deleted."
        ),
        required_resource_keys={"leads"},
    )
    def retry_failed_windows(context: SensorEvaluationContext) -> SensorResult:
        now = clock()
        # Before the verdicts are read: a run that ends meanwhile has given its own by then.
        statuses = {kind: window_status(context.instance, kind, partitions.windows) for kind in LEAD_KINDS}

        def failed(kind: LeadKind, retries: RetryMemory) -> dict[str, Window]:
            status = statuses[kind]
            retries.prune(status.failed, status.under_way)
            return {key: Window.from_partition_key(key, settings.zone) for key in status.failed}

        return _ask_again("retry", context, failed, now)

    return retry_failed_windows


def _ask_again(
    why: str,
    context: SensorEvaluationContext,
    choose: Callable[[LeadKind, RetryMemory], Mapping[str, Window]],
    now: datetime,
    most: int | None = None,
) -> SensorResult:
    """Request those of the chosen windows that are due, at most so many of a kind, or tell what they wait for.

    `choose` leaves in the memory what it chooses and no more.
    """
    memory = _recollect(context)
    plans: dict[LeadKind, RetryPlan] = {}
    for kind in LEAD_KINDS:
        retries = memory[kind.name]
        windows = choose(kind, retries)
        plans[kind] = plan_retries({key: (window, retries.windows[key]) for key, window in windows.items()}, now)
        for key in plans[kind].due[:most]:
            retries.request(key, now)
    due = {kind: plan.due[:most] for kind, plan in plans.items() if plan.due}
    cursor = write_cursor(memory)
    if not due:
        words = "; ".join(f"{kind.name} leads: {plan}" for kind, plan in plans.items())
        return SensorResult(skip_reason=f"Nothing is due. {words[0].upper()}{words[1:]}.", cursor=cursor)
    return SensorResult(run_requests=[_pull(why, due, now)], cursor=cursor)


def _recollect(context: SensorEvaluationContext) -> dict[str, RetryMemory]:
    """The sensor's memory, with the verdicts of runs since and whether the settings are others."""
    memory = read_cursor(context.cursor)
    asked_with = context.resources.leads.fingerprint()
    for kind in LEAD_KINDS:
        retries = memory[kind.name]
        for event_id, verdict in verdicts(context.instance, kind, after_id=retries.seen_id or None):
            retries.seen_id = event_id
            # A run that was refused with other settings, in a shell of its own for example, says nothing of these.
            is_refused = verdict.is_permanent and (asked_with is None or verdict.settings in (asked_with, None))
            retries.note(verdict.key, verdict.observed_at, is_permanent=is_refused)
        if asked_with is not None:
            retries.note_settings(asked_with)
    return memory


def _pull(why: str, due: Mapping[LeadKind, Sequence[str]], now: datetime) -> RunRequest:
    return RunRequest(
        # Should the daemon die between launching and saving the cursor, the same minute's request isn't launched twice.
        run_key=f"{why}-{now:%Y-%m-%dT%H:%MZ}",
        asset_selection=[raw_key(kind) for kind in due],
        run_config={
            "ops": {
                raw_key(kind).to_python_identifier(): {"config": {"partition_keys": list(keys)}}
                for kind, keys in due.items()
            }
        },
        tags={KEYS_IN_CONFIG_TAG: "true"},
    )


FAILURE_INTERVAL_SECONDS = 60


def failure_sensor(
    stage: UnresolvedAssetJobDefinition,
    publish: UnresolvedAssetJobDefinition,
    days_of: TimeWindowPartitionsDefinition,
    *,
    clock: Callable[[], datetime] = _utc_now,
) -> SensorDefinition:
    """Publish what pulls were refused, so that the check fails, and stage what they landed of failed windows.

    Both follow by themselves if a window lands. None lands if all are refused. Days whose staged files were damaged are
    staged anew, too.
    """

    @sensor(
        name="tell_of_failures",
        jobs=[stage, publish],
        minimum_interval_seconds=FAILURE_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            "Publishes soon after windows were refused, so that their check fails. Stages the leads that other windows "
            "brought, and days whose staged files were damaged."
        ),
        required_resource_keys={"data"},
    )
    def tell_of_failures(context: SensorEvaluationContext) -> SensorResult:
        places = _read_places(context.cursor)
        unstaged: list[date] = []
        is_refused = False
        for kind in LEAD_KINDS:
            failed_on: set[date] = set()
            for event_id, verdict in verdicts(context.instance, kind, after_id=places.get(kind.name)):
                places[kind.name] = event_id
                failed_on.add(date.fromisoformat(verdict.key.partition("|")[0]))
                is_refused = is_refused or verdict.is_permanent
            if failed_on:
                unstaged += failed_on & set(unstaged_days(context.resources.data.lake, kind, min(failed_on)))
        cursor = json.dumps(places)
        run_key = f"failures up to {max(places.values(), default=0)}"
        if not unstaged:
            unstaged = [day for kind in LEAD_KINDS for day in _no_longer_staged(context, kind, days_of)]
            if unstaged:
                run_key = f"no longer staged: {min(unstaged)} to {max(unstaged)}, {clock():%Y-%m-%dT%HZ}"
        if unstaged:  # the publication follows
            tags = {RANGE_START_TAG: min(unstaged).isoformat(), RANGE_END_TAG: max(unstaged).isoformat()}
            return SensorResult(run_requests=[RunRequest(run_key, job_name=stage.name, tags=tags)], cursor=cursor)
        if is_refused:
            return SensorResult(run_requests=[RunRequest(run_key, job_name=publish.name)], cursor=cursor)
        return SensorResult(skip_reason="No window was refused since the last time.", cursor=cursor)

    return tell_of_failures


def _no_longer_staged(
    context: SensorEvaluationContext, kind: LeadKind, days_of: TimeWindowPartitionsDefinition
) -> Set[date]:
    """Days that Dagster counts as staged and whose staged files are gone, as a publication found them damaged."""
    days = set(days_without_staged(context.resources.data.lake, kind))
    return days and days & staged_days(context.instance, AssetKey(f"stg_{windows_table(kind)}"), days_of)


def _read_places(cursor: str | None) -> dict[str, int]:
    """Up to which place in the event log each kind's verdicts were seen. A cursor that can't be read counts as none."""
    try:
        return {kind.name: int(json.loads(cursor or "")[kind.name]) for kind in LEAD_KINDS}
    except (ValueError, KeyError, TypeError):
        return {}


# A day's windows fall due together, once a day; and a tick goes through the files of 23 days.
LOOK_INTERVAL_SECONDS = 1800

# After an upgrade, an outage or a restored backup every landed window may be due at once; the soonest deleted go first.
MOST_LOOKS_IN_A_RUN = 5000


def look_sensor(
    settings: Settings, partitions: Partitions, job_name: str, *, clock: Callable[[], datetime] = _utc_now
) -> SensorDefinition:
    """Asks once more for landed windows, for leads that came late, moved or were corrected.

    A look that fails leaves its window landed, and due: it is repeated with the delays of a failed window.
    """

    @sensor(
        name="look_again",
        job_name=job_name,
        minimum_interval_seconds=LOOK_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            f"Pulls landed windows again {', '.join(map(str, LOOKS_AFTER_DAYS))} days after their end, all that are "
            "due as one run: leads can be listed late, moved or corrected."
        ),
        required_resource_keys={"data", "leads"},
    )
    def look_again(context: SensorEvaluationContext) -> SensorResult | SkipReason:
        if settings.base_url is None:
            return SkipReason(NO_PORTAL)
        now, lake = clock(), context.resources.data.lake

        def to_look_at(kind: LeadKind, retries: RetryMemory) -> dict[str, Window]:
            status = window_status(context.instance, kind, partitions.windows)
            windows = windows_to_look_at(kind, settings, partitions, lake, status.landed, now)
            retries.windows = {
                key: retries.windows.get(key, FailedWindow(0, _LONG_AGO))
                for key in windows.keys() | (retries.windows.keys() & status.under_way)
            }
            return windows

        return _ask_again("look", context, to_look_at, now, MOST_LOOKS_IN_A_RUN)

    return look_again


# A day that closed is the daily schedule's for this long; whatever it didn't pull by then is missing.
CATCH_UP_AFTER = timedelta(hours=6)

_CATCH_UP_TAG = "leads_pipeline/catch_up"


def catch_up_sensor(
    settings: Settings, partitions: Partitions, job_name: str, *, clock: Callable[[], datetime] = _utc_now
) -> SensorDefinition:
    """Asks for windows that nobody has ever asked for: after an outage, a new branch, a lost data folder."""

    @sensor(
        name="catch_up_missing_windows",
        job_name=job_name,
        minimum_interval_seconds=CATCH_UP_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Pulls closed windows that were never pulled and that the portal still has, oldest first.",
        required_resource_keys={"data"},
    )
    def catch_up_missing_windows(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        if settings.base_url is None:
            return SkipReason(NO_PORTAL)
        if context.instance.get_runs(RunsFilter(statuses=LIVE, tags={_CATCH_UP_TAG: "true"}), limit=1):
            return SkipReason("A run that catches up is under way; the next stretch follows it.")
        now = clock()
        lake = context.resources.data.lake
        missing: dict[LeadKind, list[Window]] = {}
        for kind in LEAD_KINDS:
            windows = missing_windows(kind, settings, partitions, lake, context.instance, now, CATCH_UP_AFTER)
            if windows:
                missing[kind] = windows
        if not missing:
            return SkipReason("Every closed window that the portal still has was pulled, or has failed and is retried.")
        area = next(rectangles(next(iter(missing.values())), settings.scopes))
        kinds = [kind for kind, windows in missing.items() if next(rectangles(windows, settings.scopes)) == area]
        return RunRequest(
            # Duplicate ticks and a second daemon ask for the same stretch once an hour at the most.
            run_key=f"catch up {area} {'+'.join(kind.name for kind in kinds)} {now:%Y-%m-%dT%HZ}",
            asset_selection=[raw_key(kind) for kind in kinds],
            tags={**area.tags, _CATCH_UP_TAG: "true"},
        )

    return catch_up_missing_windows


# A run holds its lock within seconds of its start; one that starts slowly is not dead.
DEAD_AFTER = timedelta(minutes=5)

# Between its last step and its end in Dagster's books a run holds no lock for some milliseconds.
_SECOND_LOOK_SECONDS = 2.0


def dead_run_sensor(
    job_names: Set[str], *, clock: Callable[[], datetime] = _utc_now, sleep: Callable[[float], None] = time.sleep
) -> SensorDefinition:
    """Ends runs whose process is gone, so that what they left counts as failed and is taken up again.

    Dagster's default launcher reports no health of its runs: after a power cut, or a killed command line, a run would
    go on for ever in Dagster's eyes, and its windows would be under way for ever.
    """

    @sensor(
        name="end_dead_runs",
        minimum_interval_seconds=CATCH_UP_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Marks runs as failed whose process was killed, by the lock that it no longer holds.",
        required_resource_keys={"data"},
    )
    def end_dead_runs(context: SensorEvaluationContext) -> SkipReason:
        lake = context.resources.data.lake
        started_before = clock() - DEAD_AFTER
        suspects = [
            record.dagster_run
            for record in context.instance.get_run_records(RunsFilter(statuses=[DagsterRunStatus.STARTED]))
            if record.dagster_run.job_name in job_names
            and record.start_time is not None
            and record.start_time < started_before.timestamp()
            and not lake.is_running(record.dagster_run.run_id)
        ]
        if suspects:
            sleep(_SECOND_LOOK_SECONDS)
        ended = 0
        for run in suspects:
            now = context.instance.get_run_by_id(run.run_id)
            if now is not None and now.status is DagsterRunStatus.STARTED and not lake.is_running(run.run_id):
                context.instance.report_run_failed(
                    run, "The run's process is gone: it was killed, or the machine went down. What it landed is kept."
                )
                ended += 1
        return SkipReason(f"{ended} runs without a process were ended." if ended else "Every run has its process.")

    return end_dead_runs


PUSH_INTERVAL_SECONDS = 30


def push_sensor(settings: Settings, job_name: str, *, clock: Callable[[], datetime] = _utc_now) -> SensorDefinition:
    """Has pushed leads taken in when there are any, one run at a time."""

    @sensor(
        name="take_in_pushed_leads",
        job_name=job_name,
        minimum_interval_seconds=PUSH_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Takes the leads that `leads-pipeline receive` has kept into the raw files; staging follows.",
        required_resource_keys={"data"},
    )
    def take_in_pushed_leads(context: SensorEvaluationContext) -> RunRequest | SkipReason:
        waiting = Spool(context.resources.data.lake).waiting()
        if not waiting:
            return SkipReason("Nothing was pushed since the last time.")
        if context.instance.get_runs(RunsFilter(job_name=job_name, statuses=LIVE), limit=1):
            return SkipReason("A run that takes in is under way.")
        now = clock()
        return RunRequest(
            # What a run can't take in, for a full disk say, is tried again once an hour and not twice a minute.
            run_key=f"{waiting[0].name} {now:%Y-%m-%dT%HZ}",
            partition_key=today(settings.zone, now).isoformat(),
        )

    return take_in_pushed_leads
