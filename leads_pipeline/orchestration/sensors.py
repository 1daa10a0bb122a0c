"""The sensors that send something themselves: alerts to people, and leads to the agency's own system.

Belongs here: when they send. Doesn't: what is told to whom (observe/alerts.py), what is delivered (delivery/).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from dagster import (
    DagsterInstance,
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
from leads_pipeline.orchestration.names import NEEDED, PLAIN, Names
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


def alert_sensor(
    settings: Settings, names: Names = PLAIN, *, clock: Callable[[], datetime] = utc_now
) -> SensorDefinition:
    """Return the sensor. It is there without a channel too, because it notes what Dagster knows for the findings."""
    alerts = Alerts(DataFolder.of(settings).state.path, channels_of(settings), Heartbeat.of(settings))

    @sensor(
        name=names.name("alert"),
        required_resource_keys={names.name("data")},
        minimum_interval_seconds=ALERT_INTERVAL_SECONDS,
        default_status=names.sensor_status,
        description="Tells people of new problems, once a day of open ones, and once that a problem is over. "
        "Calls the heartbeat each hour.",
    )
    def alert(context: SensorEvaluationContext) -> SkipReason:
        data: DataFolder = names.resource(context.resources, "data")
        now = clock()
        note_service(context.instance, names, data.state, now)
        findings, failed = look(Known(settings, data, now))
        results = alerts.tell(findings, failed, now)
        for name in [name for name, is_sent in results.items() if not is_sent]:
            context.log.warning("%s: the message wasn't sent. `leads-pipeline findings` says why.", name)
        return SkipReason(
            f"Found {len(findings)}. Sent on: {', '.join(n for n, ok in results.items() if ok) or 'none'}."
        )

    return alert


def note_service(instance: DagsterInstance, names: Names, state: State, now: datetime) -> None:
    """Note that the daemon works, and which of the schedules and sensors that the pipeline needs are off.

    `status` reads it in the data folder and needs no Dagster. Raises StorageError.
    """
    is_running = {one.instigator_name: one.is_running for one in instance.all_instigator_state()}
    needed = map(names.name, NEEDED)
    state.note_service(now, sorted(name for name in needed if not is_running.get(name, names.is_served)))


def deliver_sensor(settings: Settings, names: Names = PLAIN) -> SensorDefinition:
    """Return `deliver`. It sends inside its tick, and asks for no run."""

    @sensor(
        name=names.name("deliver"),
        required_resource_keys={names.name("data")},
        minimum_interval_seconds=DELIVERY_INTERVAL_SECONDS if settings.delivery_url else _IDLE_SECONDS,
        default_status=names.sensor_status,
        description="Posts each new lead, and each new version of one, to LEADS_DELIVERY_URL.",
    )
    def deliver_leads(context: SensorEvaluationContext) -> SkipReason:
        data: DataFolder = names.resource(context.resources, "data")
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
