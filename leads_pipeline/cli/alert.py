"""Try the alert channels: `alert`."""

import sys
from datetime import UTC, datetime
from functools import partial

import click
from dagster import build_resources

from leads_pipeline.cli.output import plain_errors
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.observe.alerts import Alert, Level, Occasion
from leads_pipeline.observe.channels import beat
from leads_pipeline.orchestration.resources import AlertService
from leads_pipeline.settings import Settings, variables


@click.command()
@click.option("--test", "is_test", is_flag=True, required=True, help="Send a message on each channel that is set up.")
def alert(is_test: bool) -> None:  # noqa: ARG001 - what else it may do one day has to be asked for by name too
    """Send a message on each channel that is set up, and call the heartbeat, to see whether they work.

    Exit code 1 if one didn't take it, 2 if none is set up.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
    with plain_errors(), build_resources({"alerts": AlertService.of(settings)}) as made:
        service: AlertService = made.alerts
        now = datetime.now(UTC)
        message = "This is a test: alerts of leads_pipeline arrive here. Nothing is wrong."
        test = Alert(Occasion.TEST, ("test",), "a test", message, Level.WARNING, now, now)
        ways = {channel.name: partial(channel.send, test) for channel in service.channels()}
        if (url := service.heartbeat()) is not None:
            ways["LEADS_HEARTBEAT_URL"] = partial(beat, "LEADS_HEARTBEAT_URL", url, "")
        if not ways:
            raise SettingsError(
                "No channel is set up, so nobody is told when something goes wrong. Set LEADS_ALERT_EMAIL with "
                "LEADS_SMTP_URL, LEADS_ALERT_SLACK_WEBHOOK or LEADS_ALERT_WEBHOOK."
            )
        is_well = True
        for name, send in ways.items():
            try:
                send()
                click.echo(f"{click.style('sent', 'green')}   {name}")
            except LeadsPipelineError as error:
                is_well = False
                click.echo(f"{click.style('failed', 'red')} {name}: {error}")
    sys.exit(0 if is_well else 1)
