"""What Dagster writes down of its own deliberations, and how soon that is forgotten.

Belongs here: the books that grow while nothing happens; runs that ended long ago. Doesn't: which of their events a
state is still read from (event_log/); ticks, whose retention is in dagster.yaml (runs.py).
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from leads_pipeline.event_log import GatheringEventLog
from leads_pipeline.status import LIVE

FINISHED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]


# Dagster itself keeps them for 30 days: a gigabyte, of which nobody reads more than the last hours.
EVALUATIONS_KEPT_FOR = timedelta(days=3)


def _utc_now() -> datetime:
    return datetime.now(UTC)


def evaluation_sensor(*, clock: Callable[[], datetime] = _utc_now) -> SensorDefinition:
    """Forgets why assets weren't requested, once nobody asks any more."""

    @sensor(
        name="forget_old_evaluations",
        minimum_interval_seconds=6 * 3600,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            f"Deletes what `follow_sources` noted of its decisions more than {EVALUATIONS_KEPT_FOR.days} days ago: "
            "each hour some 500 kB."
        ),
    )
    def forget_old_evaluations(context: SensorEvaluationContext) -> SkipReason:
        before = clock() - EVALUATIONS_KEPT_FOR
        if (storage := context.instance.schedule_storage) is not None:
            storage.purge_asset_evaluations(before=before.timestamp())
        return SkipReason(f"What was noted before {before:%Y-%m-%d %H:%M} UTC is forgotten.")

    return forget_old_evaluations


# A tick of a sensor may take a minute, and pulls wait for none of it for longer than a short transaction takes.
FORGETTING_SECONDS = 20


# What failed is read from as far back as the portal keeps leads, 30 days.
RUNS_KEPT_FOR = timedelta(days=90)


def history_sensor(
    kept_for: timedelta = RUNS_KEPT_FOR, *, clock: Callable[[], datetime] = _utc_now
) -> SensorDefinition:
    """Forgets runs and events that no state is read from."""

    @sensor(
        name="forget_old_runs",
        minimum_interval_seconds=3600,
        default_status=DefaultSensorStatus.RUNNING,
        description=(
            f"Deletes runs that ended more than {kept_for.days} days ago, their logs and their events. What became of "
            "each partition, with the row of a run that it is read from, and each check's last result stay for ever."
        ),
    )
    def forget_old_runs(context: SensorEvaluationContext) -> SkipReason:
        if context.instance.get_runs(RunsFilter(statuses=LIVE), limit=1):
            return SkipReason("A run is under way: the next look is in an hour.")
        before = clock() - kept_for
        return SkipReason(forget_history(context.instance, before, is_over=_after(FORGETTING_SECONDS)))

    return forget_old_runs


def forget_history(instance: DagsterInstance, before: datetime, *, is_over: Callable[[], bool]) -> str:
    """Delete old events and runs until it `is_over`; what was done, in words. What is left goes the next time."""
    log = instance.event_log_storage
    if not isinstance(log, GatheringEventLog):
        return (
            "Nothing is forgotten: dagster.yaml names no storage of leads_pipeline. Put the section back where it "
            "means Dagster's own sqlite or Postgres; another database of yours is yours to keep small."
        )
    events, runs = log.forget_events(before, is_over), 0
    needed = log.runs_that_count()
    for run_id in instance.get_run_ids(RunsFilter(statuses=FINISHED, created_before=before)):
        if is_over():
            break
        # What failed for good is read from its run's end, which the run's row tells: no state needs the log of a run.
        if run_id not in needed or log.has_log(run_id):
            instance.compute_log_manager.delete_logs(prefix=[run_id])
            log.forget_log(run_id)
        if run_id not in needed:
            # Last, so that whoever is killed in between finds the run again.
            instance.run_storage.delete_run(run_id)
            runs += 1
    else:
        log.shrink()
    return f"Forgot {events} events and {runs} runs from before {before:%Y-%m-%d}."


def _after(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline
