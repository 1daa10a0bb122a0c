"""Leads to the agency's own system: `deliver`."""

import json
import sys
from datetime import UTC, date, datetime

import click

from leads_pipeline.cli.installation import existing
from leads_pipeline.cli.output import LISTED, day, json_option
from leads_pipeline.domain.contract import lead_in_words
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.ledger import Ledger, VersionState, reading_ledger, writing_ledger
from leads_pipeline.features.delivery.sending import Endpoint
from leads_pipeline.features.delivery.sending import deliver as deliver_due
from leads_pipeline.words import counted, moment


@click.group(invoke_without_command=True)
@click.option("--now", "is_all", is_flag=True, help="Send all waiting leads, also those that failed a moment ago.")
@click.pass_context
def deliver(context: click.Context, is_all: bool) -> None:
    """Send new leads to LEADS_DELIVERY_URL. The service does so every five seconds.

    Exit code 0 if no lead is left, 1 if some are, 2 if a setting is wrong.
    """
    if context.invoked_subcommand:
        return
    settings, data = existing()
    endpoint = Endpoint.of(settings)
    if endpoint is None:
        raise SettingsError(
            "LEADS_DELIVERY_URL is not set. Put the address of your system and LEADS_DELIVERY_SECRET into .env. "
            "`leads-pipeline settings` lists what else can be set."
        )
    sent = deliver_due(settings, data, endpoint, is_all=is_all)
    click.echo(f"Delivered to {endpoint.host}: {sent.delivered}. Left: {sent.left}.")
    if sent.left and sent.trouble:
        click.echo(f"{endpoint.host} {sent.trouble}", err=True)
    if sent.left:
        click.echo("`leads-pipeline deliver status` lists them.", err=True)
    sys.exit(1 if sent.left else 0)


@deliver.command()
@json_option
def status(as_json: bool) -> None:
    """Show how many leads were delivered, which ones wait, and why."""
    _, data = existing()
    with reading_ledger(data.folder) as ledger:
        if as_json:
            counts = ledger.counts() if ledger else {}
            last = ledger.last_delivered() if ledger else None
            trouble = ledger.fact("trouble") if ledger else None
            told: dict[str, object] = {state.value: counts.get(state, 0) for state in VersionState} | {
                "last_delivered_at": last,
                "trouble": trouble,
            }
            click.echo(json.dumps(told, indent=2, default=datetime.isoformat))
        elif ledger is None:
            click.echo("Nothing was ever delivered from this folder.")
        else:
            _show(ledger)


@deliver.command()
def retry() -> None:
    """Send leads that are held or given up.

    Each is tried for three more days.
    """
    _, data = existing()
    with data.state.lock("delivery", timeout_seconds=60), writing_ledger(data.folder) as ledger:
        _show_waiting(ledger.retry(datetime.now(UTC).timestamp()))


@deliver.command()
@click.option("--from", "first", type=day, metavar="DAY", required=True, help="First day, as 2026-11-01.")
@click.option("--to", "last", type=day, metavar="DAY", required=True, help="Last day, included.")
def replay(first: date, last: date) -> None:
    """Send the delivered leads of some days again.

    Each goes in its newest version, with the same webhook-id as before.
    """
    _, data = existing()
    with data.state.lock("delivery", timeout_seconds=60), writing_ledger(data.folder) as ledger:
        _show_waiting(ledger.replay(first, last, datetime.now(UTC).timestamp()))


def _show_waiting(count: int) -> None:
    sends = "The service sends them, or `leads-pipeline deliver`." if count else "Nothing was changed."
    click.echo(f"{counted(count, 'version')} of leads wait again. {sends}")


def _show(ledger: Ledger) -> None:
    counts = ledger.counts()
    click.echo(f"delivered  {counts[VersionState.DELIVERED]}, last {moment(ledger.last_delivered())}")
    click.echo(f"waiting    {counts[VersionState.WAITING]}")
    click.echo(f"held       {counts[VersionState.HELD]} (the portal emptied their contact)")
    click.echo(f"given up   {counts[VersionState.DEAD]} (they failed for three days, or their raw file is damaged)")
    if trouble := ledger.fact("trouble"):
        click.echo(f"The endpoint {trouble}")
    for kind, lead_id, lead_day, state, attempts, why in ledger.left(LISTED):
        tried = f"{counted(attempts, 'attempt')}{f', the last {why}' if why else ''}"
        click.echo(f"{state}: {lead_in_words(kind, lead_id)} of {lead_day}, {tried}")
    if counts[VersionState.HELD] or counts[VersionState.DEAD]:
        click.echo("`leads-pipeline deliver retry` sends those that are held or given up.")
