"""The sensors that send something themselves: alerts to people, and leads to the agency's own system.

Belongs here: when they send. Doesn't: what is told to whom (observe/alerts.py), what is delivered (delivery/).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from dagster import (
    DagsterInstance,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    RepositoryDefinition,
    ResourceParam,
    SensorDefinition,
    SensorEvaluationContext,
    SkipReason,
    sensor,
)

from leads_pipeline.delivery.sending import Endpoint, deliver
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.observe.alerts import Alerts
from leads_pipeline.observe.channels import Heartbeat, channels_of
from leads_pipeline.observe.findings import look
from leads_pipeline.observe.known import Known
from leads_pipeline.orchestration.pulling import utc_now
from leads_pipeline.settings import Settings
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.state import State

ALERT_INTERVAL_SECONDS: Final = 300
DELIVERY_INTERVAL_SECONDS: Final = 5
# Without an endpoint there is nothing to do.
_IDLE_SECONDS: Final = 3600
# Dagster ends a tick of a sensor after a minute. The last requests of a pass take 15 seconds more.
_PASS_SECONDS: Final = 30.0


def alert_sensor(settings: Settings, *, clock: Callable[[], datetime] = utc_now) -> SensorDefinition:
    """Return the sensor. It is there without a channel too, because it notes what Dagster knows for the findings."""
    alerts = Alerts(DataFolder.of(settings).state.path, channels_of(settings), Heartbeat.of(settings))

    @sensor(
        name="alert",
        minimum_interval_seconds=ALERT_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Tells people of new problems, once a day of open ones, and once that a problem is over. "
        "Calls the heartbeat each hour.",
    )
    def alert(context: SensorEvaluationContext, data: ResourceParam[DataFolder]) -> SkipReason:
        now = clock()
        note_service(context.instance, context.repository_def, data.state, now)
        findings, failed = look(Known(settings, data, now))
        results = alerts.tell(findings, failed, now)
        for name in [name for name, is_sent in results.items() if not is_sent]:
            context.log.warning("%s: the message wasn't sent. `leads-pipeline findings` says why.", name)
        return SkipReason(
            f"Found {len(findings)}. Sent on: {', '.join(n for n, ok in results.items() if ok) or 'none'}."
        )

    return alert


def note_service(
    instance: DagsterInstance, repository: RepositoryDefinition | None, state: State, now: datetime
) -> None:
    """Note that the daemon works, and which schedules and sensors a person stopped that are on by default.

    `status` reads it in the data folder and needs no Dagster. Raises StorageError.
    """
    on_by_default = set()
    if repository is not None:
        schedules, sensors = repository.schedule_defs, repository.sensor_defs
        on_by_default |= {one.name for one in schedules if one.default_status is DefaultScheduleStatus.RUNNING}
        on_by_default |= {one.name for one in sensors if one.default_status is DefaultSensorStatus.RUNNING}
    stopped = {one.instigator_name for one in instance.all_instigator_state() if not one.is_running}
    state.note_service(now, sorted(stopped & on_by_default))


def deliver_sensor(settings: Settings) -> SensorDefinition:
    """Return `deliver`. It sends inside its tick, and asks for no run."""

    @sensor(
        name="deliver",
        minimum_interval_seconds=DELIVERY_INTERVAL_SECONDS if settings.delivery_url else _IDLE_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Posts each new lead, and each new version of one, to LEADS_DELIVERY_URL.",
    )
    def deliver_leads(context: SensorEvaluationContext, data: ResourceParam[DataFolder]) -> SkipReason:
        try:
            endpoint = Endpoint.of(settings)
            if endpoint is None:
                return SkipReason("LEADS_DELIVERY_URL is not set.")
            sent = deliver(settings, data, endpoint, seconds=_PASS_SECONDS, patience_seconds=0)
        except LeadsPipelineError as error:
            return SkipReason(str(error))
        if sent.failed:
            context.log.warning("Failed: %d. %s %s", sent.failed, endpoint.host, sent.trouble)
        return SkipReason(f"Delivered {sent.delivered} versions of leads. {sent.left} are left.")

    return deliver_leads
