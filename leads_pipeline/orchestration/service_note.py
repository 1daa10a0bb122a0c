"""What Dagster knows and findings need, noted in the data folder, so that `status` needs no Dagster."""

from datetime import datetime

from dagster import DagsterInstance, DefaultScheduleStatus, DefaultSensorStatus, RepositoryDefinition

from leads_pipeline.storage.state import State


def note_service(
    instance: DagsterInstance, repository: RepositoryDefinition | None, state: State, now: datetime
) -> None:
    """Note that the daemon works, and which schedules and sensors a person stopped that are on by default.

    To be called by a sensor at each tick. Raises StorageError.
    """
    stopped = {one.instigator_name for one in instance.all_instigator_state() if not one.is_running}
    on_by_default = (
        [
            *(one.name for one in repository.schedule_defs if one.default_status is DefaultScheduleStatus.RUNNING),
            *(one.name for one in repository.sensor_defs if one.default_status is DefaultSensorStatus.RUNNING),
        ]
        if repository
        else []
    )
    state.note_service(now, sorted(stopped & {*on_by_default}))
