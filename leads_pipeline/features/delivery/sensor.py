"""The sensor `deliver`. It sends inside its tick, and asks for no run.

Belongs here: when leads are sent. Doesn't: which are due (due.py), how they are sent (sending.py).
"""

from typing import Final

from dagster import Definitions, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.delivery.destinations import destinations_of
from leads_pipeline.features.delivery.sending import deliver_to_all
from leads_pipeline.features.delivery.settings import DeliverySettings
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings

DELIVERY_INTERVAL_SECONDS: Final = 5
# Without a destination there is nothing to do.
_IDLE_SECONDS: Final = 3600
# Dagster ends a tick of a sensor after a minute. The last requests of a pass take 15 seconds more.
_PASS_SECONDS: Final = 30.0


def definitions(settings: Settings, names: Names) -> Definitions:
    """What delivery adds to Dagster."""
    return Definitions(sensors=[deliver_sensor(settings, names)])


def needed(settings: Settings) -> list[str]:
    """Without a destination the sensor has nothing to do."""
    return ["deliver"] if settings.of(DeliverySettings).is_on else []


def deliver_sensor(settings: Settings, names: Names = PLAIN) -> SensorDefinition:
    """Return the sensor."""
    is_wanted = bool(needed(settings))

    @sensor(
        name=names.name("deliver"),
        required_resource_keys={names.name("data")},
        minimum_interval_seconds=DELIVERY_INTERVAL_SECONDS if is_wanted else _IDLE_SECONDS,
        default_status=names.sensor_status,
        description="Sends each new lead, and each new version of one, to your own systems.",
    )
    def deliver_leads(context: SensorEvaluationContext) -> SkipReason:
        data: DataFolder = names.resource(context.resources, "data")
        try:
            destinations = destinations_of(settings)
        except LeadsPipelineError as error:
            return SkipReason(str(error))
        if not destinations:
            return SkipReason("LEADS_DELIVERY_URL is not set.")

        results = deliver_to_all(
            settings, data, destinations, seconds=_PASS_SECONDS, patience_seconds=0
        )
        said = []
        for destination in destinations:
            result = results[destination.name]
            if isinstance(result, LeadsPipelineError):
                said.append(f"{destination.shown}: {result}")
                continue
            if result.failed:
                context.log.warning(
                    "Failed: %d. %s %s", result.failed, destination.shown, result.trouble
                )
            said.append(
                f"{destination.shown}: delivered {result.delivered} versions of leads, "
                f"{result.left} are left."
            )
        return SkipReason("\n".join(said))

    return deliver_leads
