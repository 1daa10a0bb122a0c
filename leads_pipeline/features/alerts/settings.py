"""The settings of alerts."""

from typing import Annotated, Final, Self

from pydantic import PlainValidator, model_validator

from leads_pipeline.settings import FeatureSettings, Secret, list_of, setting

_ALERTS: Final = "Alerts; `leads-pipeline alert --test` tries them"


class AlertSettings(FeatureSettings):
    """Who is told of problems, and by what."""

    alert_email: Annotated[tuple[str, ...], PlainValidator(list_of)] = setting("LEADS_ALERT_EMAIL", _ALERTS, ())
    """Who gets e-mails: addresses, comma-separated. They go through the mail server of LEADS_SMTP_URL"""
    alert_from: str | None = setting("LEADS_ALERT_FROM", _ALERTS)
    """The sender of the e-mails; if it is empty, the user of LEADS_SMTP_URL if that is an address, else the first
    recipient"""
    smtp_url: Secret | None = setting("LEADS_SMTP_URL", _ALERTS)
    """The mail server: smtps://user:password@host:465, or smtp://host:587 with STARTTLS. In user and password, write %,
    @ and / as %25, %40 and %2F. `?tls=none` at the end sends unencrypted, to a server of your own network"""
    alert_slack_webhook: Secret | None = setting("LEADS_ALERT_SLACK_WEBHOOK", _ALERTS)
    """Address of a Slack webhook. One of Mattermost works too, and one of Discord with /slack at its end"""
    alert_webhook: Secret | None = setting("LEADS_ALERT_WEBHOOK", _ALERTS)
    """Address of any other webhook; it gets JSON"""
    heartbeat_url: Secret | None = setting("LEADS_HEARTBEAT_URL", _ALERTS)
    """Address of an outside monitor that alerts you when calls stop. It is called every hour, with /fail at the end of
    its path if windows or the publication are late"""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if bool(self.alert_email) != bool(self.smtp_url):
            raise ValueError("LEADS_ALERT_EMAIL and LEADS_SMTP_URL go together. Set both, or none.")
        return self
