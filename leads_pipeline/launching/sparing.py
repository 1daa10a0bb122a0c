"""What both launchers need so that a run of the command line isn't taken for dead."""

from dagster import DagsterRun
from dagster._core.launcher.base import CheckRunHealthResult, RunLauncher, WorkerStatus

from leads_pipeline.launching import COMMAND_LINE, LAUNCHED_BY


class SparingLauncher(RunLauncher):
    """Before a launcher of Dagster's, which finds no container of a run that it didn't start, and so calls it dead.

    Dagster's run monitoring would then fail each `leads-pipeline backfill` that takes more than two minutes. Whether
    such a run is alive is seen by its lock (end_dead_runs in sensors.py).
    """

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """As Dagster's, but for runs of the command line."""
        if run.tags.get(LAUNCHED_BY) == COMMAND_LINE:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return super().check_run_worker_health(run)
