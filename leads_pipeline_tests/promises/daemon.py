"""Dagster's own daemon, one round at a time, for a test that moves the clock.

Belongs here: Dagster's loops and `leads_pipeline.definitions`. Doesn't: the clock and what happens
when (machine.py). Each line of the input starts a round. The answer is a line with the number of
runs that the round started. Runs work in this process, so that whoever kills it kills a run.
"""

import logging
import sys
import warnings
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Final

from dagster import DagsterInstance, RunsFilter
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.dagster_run import FINISHED_STATUSES
from dagster._core.storage.event_log.sql_event_log import SqlEventLogStorage
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from leads_pipeline_tests.support.daemon_loops import UNFINISHED, finish, workspace_of

# Everything but this is as the user's dagster.yaml has it.
IN_THIS_PROCESS: Final = {
    "run_launcher": {
        "module": "dagster._core.launcher.sync_in_memory_run_launcher",
        "class": "SyncInMemoryRunLauncher",
    },
    # Dagster's own starts four processes for each step.
    "compute_logs": {
        "module": "dagster._core.storage.noop_compute_log_manager",
        "class": "NoOpComputeLogManager",
    },
}


def one_round(workspace: WorkspaceProcessContext) -> int:
    """One iteration of each loop, and the runs that come of it, to their ends.

    Give the number of runs.

    A run that waited since an earlier round counts again. A backfill that isn't finished counts as
    one, as more runs may follow.
    """
    instance = workspace.instance
    ended = RunsFilter(statuses=list(FINISHED_STATUSES))
    before = instance.get_runs_count()
    ended_before = instance.get_runs_count(ended)
    log = logging.getLogger("daemon")
    finish(launch_scheduled_runs(workspace, log, datetime.now(UTC), {}))
    finish(execute_sensor_iteration(workspace, log, None, None))
    finish(execute_backfill_iteration(workspace, log))
    finish(execute_run_monitoring_iteration(workspace, log))
    finish(QueuedRunCoordinatorDaemon(interval_seconds=0).run_iteration(workspace))
    # Old runs may be deleted meanwhile.
    runs = max(0, instance.get_runs_count() - before, instance.get_runs_count(ended) - ended_before)
    return runs + sum(len(instance.get_backfills(status=status)) for status in UNFINISHED)


def look_up_once() -> None:
    """Have Dagster look up once what stays the same in this process.

    With the migrations, it takes a third of the CPU time (measured).
    """
    ReconstructableRepository.get_definition = cache(ReconstructableRepository.get_definition)  # type: ignore[method-assign]
    has_index = SqlEventLogStorage.has_secondary_index
    indexes = set[str]()

    def has_index_once(storage: SqlEventLogStorage, name: str) -> bool:
        if name not in indexes and has_index(storage, name):
            indexes.add(name)  # it stays
        return name in indexes

    SqlEventLogStorage.has_secondary_index = has_index_once  # type: ignore[method-assign, assignment]


def main() -> None:
    """Work on the Dagster home that the argument names, until the input ends."""
    look_up_once()
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    reference = InstanceRef.from_dir(str(home), overrides=IN_THIS_PROCESS)
    with (
        DagsterInstance.from_ref(reference) as instance,
        workspace_of(instance) as workspace,
    ):
        for _ in sys.stdin:
            sys.stdout.write(f"{one_round(workspace)}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
