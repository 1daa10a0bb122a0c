"""The settings of alerts."""

from typing import Annotated, ClassVar, Final

from pydantic import PlainValidator

from leads_pipeline.settings import FeatureSettings, Secret, list_of, setting

_ALERTS: Final = "Alerts; `leads-pipeline alert --test` tries them"


class AlertSettings(FeatureSettings):
    """Who is told of problems, and by what."""

    needs: ClassVar = {"LEADS_ALERT_EMAIL": "LEADS_SMTP_URL"}

    alert_email: Annotated[tuple[str, ...], PlainValidator(list_of)] = setting(
        "LEADS_ALERT_EMAIL", _ALERTS, ()
    )
    """Who gets e-mails: addresses, comma-separated.

    They go through the mail server of LEADS_SMTP_URL
    """
    alert_slack_webhook: Secret | None = setting("LEADS_ALERT_SLACK_WEBHOOK", _ALERTS)
    """Address of a Slack webhook.

    One of Mattermost works too, and one of Discord with /slack at its end
    """
    alert_webhook: Secret | None = setting("LEADS_ALERT_WEBHOOK", _ALERTS)
    """Address of any other webhook; it gets JSON"""
    heartbeat_url: Secret | None = setting("LEADS_HEARTBEAT_URL", _ALERTS)
    """Address of an outside monitor that alerts you when calls stop.

    It is called every hour, with /fail at the end of its path if windows or the publication are
    late
    """
