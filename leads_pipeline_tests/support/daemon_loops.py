"""Our code location in Dagster's daemon, in the test's process.

Belongs here: what tests need of Dagster's private modules to run its loops an iteration at a time.
Doesn't: when that happens.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dagster import DagsterInstance
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.test_utils import freeze_time
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.run_coordinator.queued_run_coordinator_daemon import QueuedRunCoordinatorDaemon
from dagster._daemon.sensor import execute_sensor_iteration
from dagster._scheduler.scheduler import launch_scheduled_runs

from leads_pipeline_tests.support.migrations import read_migrations_once

read_migrations_once()

# A part of dagster.yaml: runs start in the test's process instead of one each, which would cost
# seconds.
RUNS_IN_THIS_PROCESS: Final = """
run_launcher:
  module: dagster._core.launcher.sync_in_memory_run_launcher
  class: SyncInMemoryRunLauncher
"""

# Of a backfill.
UNFINISHED: Final = (
    BulkActionStatus.REQUESTED,
    BulkActionStatus.FAILING,
    BulkActionStatus.CANCELING,
)


@dataclass(frozen=True, slots=True)
class Daemon:
    """One iteration of each of the daemon's loops, when it is told to."""

    workspace: WorkspaceProcessContext

    def finish_backfill(self, name: str) -> None:
        """Run a backfill that was added to its end."""
        for _ in range(10):
            finish(execute_backfill_iteration(self.workspace, logging.getLogger("backfill")))
            self._launch_queued()
            now = self.workspace.instance.get_backfill(name)
            if now is not None and now.status not in UNFINISHED:
                return
        raise AssertionError("The backfill doesn't end.")

    def tick(self, now: datetime) -> None:
        """The ticks of every sensor and schedule that are due at that moment by Dagster's clock.

        Runs that sensors ask for are run. Those of schedules stay queued.
        """
        log = logging.getLogger("ticks")
        with freeze_time(now):
            finish(execute_sensor_iteration(self.workspace, log, None, None))
        self._launch_queued()
        with freeze_time(now):
            finish(launch_scheduled_runs(self.workspace, log, now, {}))

    def _launch_queued(self) -> None:
        """Launch the runs that are queued; they run at once and to the end."""
        queue = QueuedRunCoordinatorDaemon(interval_seconds=0)
        while True:
            before = self.workspace.instance.get_runs_count()
            finish(queue.run_iteration(self.workspace))
            if self.workspace.instance.get_runs_count() == before:
                return


@contextmanager
def daemon_of(instance: DagsterInstance) -> Iterator[Daemon]:
    """The daemon of that instance, with our code location."""
    # Dagster keeps the last job of a process, which an earlier test in it may have loaded with
    # other settings.
    ReconstructableJob.get_repository_definition.cache_clear()
    ReconstructableJob.get_definition.cache_clear()
    with workspace_of(instance) as workspace:
        yield Daemon(workspace)


def workspace_of(instance: DagsterInstance) -> WorkspaceProcessContext:
    """The code location as `workspace.yaml` loads it."""
    location = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(module_name="leads_pipeline.definitions"),
        location_name="leads_pipeline",
    )
    return WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget([location]))


def finish(iteration: Iterable[object]) -> None:
    """Finish an iteration of a loop, which gives its errors."""
    for error in iteration:
        assert error is None, error
