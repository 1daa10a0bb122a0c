"""Names of Dagster that it doesn't document, each with its reason.

If a release moves one, it is mended here.
"""

from dagster import AssetExecutionContext, DagsterEvent, DagsterInstance

try:
    # A run by a list of keys shows exactly its failed windows red only if they were planned in it.
    # There is no public way to plan a partition from inside of a run.
    from dagster._core.events import AssetMaterializationPlannedData
except ImportError:
    AssetMaterializationPlannedData = None  # type: ignore[assignment,misc]

# A step that ctrl-C ends fails with an error of this name. A command has to end as an interrupted
# program does.
INTERRUPTED = "DagsterExecutionInterruptedError"

# Dagster writes these to the standard error output, with the SQL, before it raises the error or
# goes on.
CANT_STORE = (
    "Exception while storing event batch: ",
    "Exception while writing logger call to event log: ",
)
GOES_ON = "Falling back to storing multiple single-event storage requests..."


def show_as_planned(context: AssetExecutionContext, key: str) -> None:
    """Note that the run was to materialize this partition.

    If the run fails without doing so, Dagster shows the partition as failed. With a Dagster that
    has moved the name, the partition isn't shown as failed. Its observation says why it failed.
    """
    if AssetMaterializationPlannedData is None:
        return
    event = DagsterEvent.build_asset_materialization_planned_event(
        job_name=context.run.job_name,
        step_key=context.asset_key.to_python_identifier(),
        asset_materialization_planned_data=AssetMaterializationPlannedData(
            asset_key=context.asset_key, partition=key
        ),
    )
    context.instance.report_dagster_event(event, context.run.run_id)


def daemon_id(instance: DagsterInstance) -> str | None:
    """Return the id of the daemon that was seen last, None if none was.

    Each start of a daemon gives it another one.
    """
    heartbeats = instance.get_daemon_heartbeats().values()
    return max(heartbeats, key=lambda one: one.timestamp).daemon_id if heartbeats else None
