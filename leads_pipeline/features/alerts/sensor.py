"""The sensor `alert`. It sends inside its tick, and asks for no run.

Belongs here: when somebody is told. Doesn't: what is told to whom (alerts.py).
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from dagster import Definitions, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

from leads_pipeline.features.alerts.alerts import Alerts
from leads_pipeline.features.alerts.channels import Heartbeat, channels_of
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.findings import find_all
from leads_pipeline.orchestration.asking import utc_now
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.orchestration.service import note_service
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings

ALERT_INTERVAL_SECONDS: Final = 300


def definitions(settings: Settings, names: Names) -> Definitions:
    """What alerts add to Dagster."""
    return Definitions(sensors=[alert_sensor(settings, names)])


def needed(settings: Settings) -> list[str]:
    """Without a channel and a heartbeat the sensor tells nobody."""
    return ["alert"] if channels_of(settings) or Heartbeat.of(settings) else []


def alert_sensor(
    settings: Settings, names: Names = PLAIN, *, clock: Callable[[], datetime] = utc_now
) -> SensorDefinition:
    """Return the sensor."""
    alerts = Alerts(
        DataFolder.of(settings).state.path, channels_of(settings), Heartbeat.of(settings)
    )

    @sensor(
        name=names.name("alert"),
        required_resource_keys={names.name("data")},
        minimum_interval_seconds=ALERT_INTERVAL_SECONDS,
        default_status=names.sensor_status,
        description="Tells people of new problems, once a day of open ones, and once that a "
        "problem is over. Calls the heartbeat each hour.",
    )
    def alert(context: SensorEvaluationContext) -> SkipReason:
        data: DataFolder = names.resource(context.resources, "data")
        now = clock()
        # The machine may have been off. If this sensor ticks first, that isn't to be told any more.
        note_service(context.instance, settings, data.state, now, names)
        findings, failed = find_all(Facts(settings, data, now))
        got_through_by_name = alerts.tell(findings, failed, now)
        for name, got_through in got_through_by_name.items():
            if not got_through:
                context.log.warning(
                    "Nothing got through to %s. `leads-pipeline findings` says why.", name
                )

        reached = [name for name, got_through in got_through_by_name.items() if got_through]
        return SkipReason(f"Found {len(findings)}. Reached: {', '.join(reached) or 'none'}.")

    return alert
