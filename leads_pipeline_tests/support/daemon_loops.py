"""Our code location in Dagster's daemon, in the test's process.

Belongs here: what the daemon works on, and an iteration of one of its loops. Doesn't: which loops,
and when.
"""

from collections.abc import Iterable
from typing import Final

from dagster import DagsterInstance
from dagster._core.execution.backfill import BulkActionStatus
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget

# Of a backfill.
UNFINISHED: Final = (
    BulkActionStatus.REQUESTED,
    BulkActionStatus.FAILING,
    BulkActionStatus.CANCELING,
)


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
