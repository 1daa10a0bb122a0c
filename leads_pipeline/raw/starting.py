"""How a person starts a job by hand, and how jobs, schedules and sensors are called in Dagster.

Belongs here: sentences for a person. Doesn't: names in code (orchestration/names.py), runs
(orchestration/runs.py).

With a prefix, the pipeline is merged into somebody's Dagster. Commands don't know the prefix, so
they would record their runs under other keys there.
"""

from leads_pipeline.raw.state import State


def name_in_dagster(state: State, name: str) -> str:
    """Return the name that a job, schedule or sensor has in Dagster.

    It is `publish`, or `leads_publish` with the prefix `leads`.
    """
    parts = [*state.key_prefix.split("/"), name]
    return "_".join(filter(None, parts))


def how_to_start(state: State, job: str, command: str, partitions: str = "") -> str:
    """Return what a person does to start the job, by the command or in their Dagster.

    No dot is at its end.
    """
    if not state.key_prefix:
        return f"Run `{command}`"
    of_partitions = f" for {partitions}" if partitions else ""
    return f"In your Dagster, start the job `{name_in_dagster(state, job)}`{of_partitions}"


def how_to_publish(state: State) -> str:
    """Return what a person does to publish. No dot is at its end."""
    return how_to_start(state, "publish", "leads-pipeline backfill --last 1d")
