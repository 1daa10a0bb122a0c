"""The sensor `mail_report`. It sends inside its tick, and asks for no run."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from dagster import Definitions, SensorDefinition, SensorEvaluationContext, SkipReason, sensor

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.report.settings import ReportSettings
from leads_pipeline.orchestration.asking import utc_now
from leads_pipeline.orchestration.names import PLAIN, Names
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings

_SECONDS: Final = 300


def definitions(settings: Settings, names: Names) -> Definitions:
    """What the report adds to Dagster, besides its asset."""
    return Definitions(sensors=[mail_sensor(settings, names)])


def needed(settings: Settings) -> list[str]:
    """Without recipients the sensor mails nobody."""
    return ["mail_report"] if settings.of(ReportSettings).report_mail else []


def mail_sensor(
    settings: Settings, names: Names = PLAIN, *, clock: Callable[[], datetime] = utc_now
) -> SensorDefinition:
    """Return the sensor."""

    @sensor(
        name=names.name("mail_report"),
        required_resource_keys={names.name("data")},
        minimum_interval_seconds=_SECONDS,
        default_status=names.sensor_status,
        description="Mails last week's page on Monday at 07:00 to LEADS_REPORT_MAIL. Makes up for "
        "it until Wednesday.",
    )
    def mail_report(context: SensorEvaluationContext) -> SkipReason:
        data: DataFolder = names.resource(context.resources, "data")
        # Importing jinja2 takes a tenth of a second, which every code location would pay.
        from leads_pipeline.features.report.mailing import send_due

        try:
            sent = send_due(settings, data, clock())
        except LeadsPipelineError as error:
            return SkipReason(str(error))
        if sent.trouble:
            context.log.warning("A mail wasn't sent. `leads-pipeline findings` says why.")
        return SkipReason(sent.waits or f"Sent {sent.count} mails.")

    return mail_report
