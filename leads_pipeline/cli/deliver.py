"""Leads to the agency's own system: `deliver`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from leads_pipeline.cli.output import plain_errors
from leads_pipeline.delivery.ledger import Ledger, VersionState, looked_at, opened
from leads_pipeline.delivery.sending import Endpoint
from leads_pipeline.delivery.sending import deliver as deliver_due
from leads_pipeline.errors import SettingsError
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.data_folder import DataFolder

_LISTED = 20


@click.group(invoke_without_command=True)
@click.option("--now", "is_all", is_flag=True, help="Send all that waits, also what failed a moment ago.")
@click.pass_context
def deliver(context: click.Context, is_all: bool) -> None:
    """Send new leads to LEADS_DELIVERY_URL. The service does so every five seconds.

    Exit code 0 if no lead is left, 1 if some are, 2 if a setting is wrong.
    """
    if context.invoked_subcommand:
        return
    with plain_errors():
        settings = Settings.from_variables(variables())
        endpoint = Endpoint.of(settings)
        if endpoint is None:
            raise SettingsError("LEADS_DELIVERY_URL is not set, so there is nowhere to deliver leads to.")
        sent = deliver_due(settings, DataFolder.of(settings), endpoint, is_all=is_all)
    click.echo(f"Delivered to {endpoint.host}: {sent.delivered}. Left: {sent.left}.")
    if sent.trouble:
        click.echo(f"{endpoint.host} {sent.trouble}", err=True)
    if sent.left:
        click.echo("`leads-pipeline deliver status` lists them.", err=True)
    sys.exit(1 if sent.left else 0)


@deliver.command()
def status() -> None:
    """Show what was delivered, what waits, and why."""
    with plain_errors():
        data = DataFolder.of(Settings.from_variables(variables()))
        with looked_at(data.folder) as ledger:
            _show(ledger)


@deliver.command()
def retry() -> None:
    """Have leads that were given up or held wait again, for three days."""
    with _ledger() as ledger:
        count = ledger.retry(datetime.now(UTC).timestamp())
    click.echo(f"Wait again: {count}. The service sends them, or `leads-pipeline deliver`.")


@deliver.command()
@click.option("--from", "first", type=click.DateTime(["%Y-%m-%d"]), required=True, help="First day.")
@click.option("--to", "last", type=click.DateTime(["%Y-%m-%d"]), required=True, help="Last day.")
def replay(first: datetime, last: datetime) -> None:
    """Send the newest version of each delivered lead of these days again, with the same webhook-id."""
    with _ledger() as ledger:
        count = ledger.replay(first.date(), last.date(), datetime.now(UTC).timestamp())
    click.echo(f"Wait to be sent again: {count}. The service sends them, or `leads-pipeline deliver`.")


@contextmanager
def _ledger() -> Iterator[Ledger]:
    with plain_errors():
        data = DataFolder.of(Settings.from_variables(variables()))
        with data.state.lock("delivery", timeout_seconds=60), opened(data.folder) as ledger:
            yield ledger


def _show(ledger: Ledger | None) -> None:
    if ledger is None:
        click.echo("Nothing was ever delivered from this folder.")
        return
    counts, last = ledger.counts(), ledger.last_delivered()
    click.echo(f"delivered  {counts[VersionState.DELIVERED]}, last {f'{last:%Y-%m-%d %H:%M} UTC' if last else 'never'}")
    click.echo(f"waiting    {counts[VersionState.WAITING]}")
    click.echo(f"held       {counts[VersionState.HELD]}: the portal emptied their contact")
    click.echo(f"given up   {counts[VersionState.DEAD]}: they failed for three days")
    if trouble := ledger.fact("trouble"):
        click.echo(f"The endpoint {trouble}")
    for kind, lead_id, day, state, attempts, why in ledger.listed(
        [VersionState.WAITING, VersionState.HELD, VersionState.DEAD], _LISTED
    ):
        click.echo(f"{state:<8} {kind} lead {lead_id} of {day}, {attempts} attempts{f': {why}' if why else ''}")
    if counts[VersionState.HELD] or counts[VersionState.DEAD]:
        click.echo("`leads-pipeline deliver retry` sends held ones and those given up again.")
