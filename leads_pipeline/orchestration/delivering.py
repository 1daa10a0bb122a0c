"""The sensor that delivers leads. The rules are in delivery/."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from dagster import DefaultSensorStatus, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

from leads_pipeline.delivery.sending import Endpoint, deliver
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.orchestration.pulling import utc_now
from leads_pipeline.settings import Settings

INTERVAL_SECONDS: Final = 5
# Without an endpoint there is nothing to do.
_IDLE_SECONDS: Final = 3600
# Dagster ends a tick of a sensor after a minute. The last requests of a pass take 15 seconds more.
_PASS_SECONDS: Final = 30.0


def deliver_sensor(settings: Settings, *, clock: Callable[[], datetime] = utc_now) -> SensorDefinition:
    """Return `deliver`. It sends inside its tick, and asks for no run."""

    @sensor(
        name="deliver",
        minimum_interval_seconds=INTERVAL_SECONDS if settings.delivery_url else _IDLE_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description="Posts each new lead, and each new version of one, to LEADS_DELIVERY_URL.",
        required_resource_keys={"data"},
    )
    def deliver_leads(context: SensorEvaluationContext) -> SkipReason:
        try:
            endpoint = Endpoint.of(settings)
            if endpoint is None:
                return SkipReason("LEADS_DELIVERY_URL is not set.")
            sent = deliver(
                settings, context.resources.data, endpoint, seconds=_PASS_SECONDS, patience_seconds=0, clock=clock
            )
        except LeadsPipelineError as error:
            return SkipReason(str(error))
        if sent.failed:
            context.log.warning("Failed: %d. %s %s", sent.failed, endpoint.host, sent.trouble)
        return SkipReason(f"Delivered {sent.delivered} versions of leads. {sent.left} are left.")

    return deliver_leads
