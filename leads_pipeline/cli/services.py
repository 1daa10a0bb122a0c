"""What pulls depend on: `doctor` and `alert` try it, `receive` takes pushed leads."""

import json
import logging
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from dagster import build_resources

from leads_pipeline.cli.session import opened, plain_errors, show_finding
from leads_pipeline.definitions import variables
from leads_pipeline.errors import LeadsPipelineError, SettingsError
from leads_pipeline.observe.alerts import Alert, Level, Occasion
from leads_pipeline.observe.channels import beat
from leads_pipeline.observe.doctor import (
    Finding,
    Light,
    examine,
    examine_alerts,
    examine_env_file,
    examine_home,
    examine_names,
    writable,
)
from leads_pipeline.orchestration.home import home_folder
from leads_pipeline.orchestration.resources import AlertService, InventoryService, LeadsService, origin
from leads_pipeline.portal.credentials import secret_of
from leads_pipeline.portal.receiver import Receiver, serve
from leads_pipeline.settings import Settings
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.placement import Placement


@click.command(short_help="Check settings, secret, token, services and data folder.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def doctor(as_json: bool) -> None:
    """Say whether settings, secret, token, services and data folder work, and what to do where they don't.

    Exit code 1 if anything is red.
    """
    findings = []
    for finding in _findings():
        findings.append(finding)
        if not as_json:
            show_finding(finding)
    is_well = all(finding.light is not Light.RED for finding in findings)
    if as_json:
        click.echo(json.dumps({"is_well": is_well, "findings": [asdict(finding) for finding in findings]}, indent=2))
    sys.exit(0 if is_well else 1)


def _findings() -> Iterator[Finding]:
    yield from examine_env_file(Path.cwd() / ".env")
    yield examine_names(variables())
    try:
        settings = Settings.from_variables(variables())
        data = DataFolder.of(settings)
    except SettingsError as error:
        yield Finding("settings", Light.RED, str(error))
        return
    # Dagster reads the secrets' variables, as it does in a run. The folder stays as it is, unlike in a run.
    used = {
        "leads": LeadsService.of(settings, data),
        "inventory": InventoryService.of(settings, data),
        "alerts": AlertService.of(settings),
    }
    with build_resources(used) as made:
        yield from examine(settings, data, made.leads, made.inventory)
        yield examine_alerts(made.alerts)
    home = home_folder(settings)
    variables()["DAGSTER_HOME"] = str(home)  # its dagster.yaml asks for it
    yield examine_home(home)


@click.command(short_help="Receive leads that the portal pushes.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8750,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
def receive(host: str, port: int) -> None:
    """Take leads that the portal delivers by itself, and land them at once.

    Deliveries carry the key of LEADS_RECEIVE_KEY. The receiver speaks HTTP: put nginx or Caddy with TLS in front of it.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        given = settings.receive_key
        key = secret_of(given.value, given.file) if given else None
        if key is None:
            raise SettingsError(
                "Set LEADS_RECEIVE_KEY or LEADS_RECEIVE_KEY_FILE to the key that the portal's deliveries carry. Make "
                "one with: openssl rand -hex 32"
            )
        writable(settings.data_dir)
        data = opened(settings)
        receiver = Receiver(data.raw, Placement(settings.scopes, settings.zone), key.read())
        if settings.base_url:
            data.state.claim(origin(settings.base_url))
        logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
        serve(receiver, host, port, lambda address: click.echo(f"Deliver to {address} (ctrl-C stops it)."))


@click.command(short_help="Send a test message to the alert channels.")
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
