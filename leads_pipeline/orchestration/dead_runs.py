"""Runs whose process is gone. Dagster would wait for them for hours.

Belongs here: which runs are dead, and ending them. Doesn't: what they left undone, which is due
again (domain/due.py).
"""

import platform
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from dagster import (
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultRunLauncher,
    RunRecord,
    RunsFilter,
)

from leads_pipeline.orchestration.names import PUBLISH_JOB, PULL_JOB
from leads_pipeline.raw.data_folder import DataFolder

# Names the machine of a run that a command started.
MACHINE_TAG: Final = "leads_pipeline/machine"

_OF_A_PROCESS: Final = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
]
# A queued run is dead only if a clock that ran ahead queued it: see _may_be_dead.
_UNFINISHED: Final = [*_OF_A_PROCESS, DagsterRunStatus.QUEUED]

# A run takes its lock within seconds of its start, and lives on for a while after it has released
# it.
_DEAD_AFTER: Final = timedelta(minutes=10)
_SECOND_LOOK_SECONDS: Final = 2.0


def end_dead_runs(
    instance: DagsterInstance,
    data: DataFolder,
    now: datetime,
    sleep: Callable[[float], None] = time.sleep,
    *,
    dead_after: timedelta = _DEAD_AFTER,
    is_own: Callable[[DagsterRun], bool] = lambda _: True,
) -> int:
    """Have runs whose process was killed count as failed, and return how many.

    Dagster would wait for them for hours. `is_own` tells our runs from those of others in the same
    Dagster, which are left alone.

    A pull and a publication hold a lock while they work. A run that began less than `dead_after`
    ago may not have it yet. Locks of other machines aren't seen, so their runs are left to
    Dagster's run monitoring: those of another launcher, and commands on another machine with the
    same bucket.
    """
    if not isinstance(instance.run_launcher, DefaultRunLauncher):
        return 0

    unfinished = instance.get_run_records(RunsFilter(statuses=_UNFINISHED))
    suspects = [one.dagster_run for one in unfinished if _may_be_dead(one, now, dead_after)]
    suspects = [run for run in suspects if is_own(run)]

    if data.bucket is not None:
        here = platform.node()
        suspects = [run for run in suspects if run.tags.get(MACHINE_TAG, here) == here]

    suspects = _not_at_work(suspects, data)
    if suspects:
        sleep(_SECOND_LOOK_SECONDS)  # between two steps nobody holds the lock
        suspects = _not_at_work(suspects, data)

    if not suspects:
        return 0

    # One may have ended meanwhile.
    ids = [run.run_id for run in suspects]
    dead = instance.get_runs(RunsFilter(run_ids=ids, statuses=_UNFINISHED))

    for run in dead:
        instance.report_run_failed(run, "The run's process is gone. What it landed stays.")

    return len(dead)


def _may_be_dead(record: RunRecord, now: datetime, dead_after: timedelta) -> bool:
    """Whether the run began so long ago that it must have its lock, or in the future.

    A start in the future comes from a clock that ran ahead. A queued run has no process, so it may
    wait for as long as it likes.
    """
    began_at = (
        datetime.fromtimestamp(record.start_time, UTC)
        if record.start_time
        else record.update_timestamp
    )
    if record.dagster_run.status is DagsterRunStatus.QUEUED:
        return began_at > now + dead_after
    return abs(began_at - now) > dead_after


def _not_at_work(runs: Sequence[DagsterRun], data: DataFolder) -> list[DagsterRun]:
    return [run for run in runs if not _is_at_work(run.job_name, data)]


def _is_at_work(job: str, data: DataFolder) -> bool:
    """Whether the lock is held that a run of the job works under.

    A run of single assets may work under either.
    """
    is_pulling = not job.endswith(PUBLISH_JOB) and data.state.is_pulling()
    return is_pulling or (not job.endswith(PULL_JOB) and data.state.is_publishing())
