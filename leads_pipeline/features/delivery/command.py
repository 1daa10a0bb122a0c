"""Leads to the agency's own systems: `deliver`."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any, Final

import click

from leads_pipeline.cli.installation import existing_folder
from leads_pipeline.cli.output import LISTED, day, json_option
from leads_pipeline.domain.contract import LEAD_KINDS, lead_in_words
from leads_pipeline.errors import LeadsPipelineError, QuestionError, SettingsError
from leads_pipeline.features.delivery.destinations import Destination, destinations_of
from leads_pipeline.features.delivery.form import Event, UnusableTemplateError
from leads_pipeline.features.delivery.ledger import (
    DEFAULT,
    Ledger,
    Version,
    VersionState,
    ledger_names,
    lock_name,
    reading_ledger,
    writing_ledger,
)
from leads_pipeline.features.delivery.message import masked
from leads_pipeline.features.delivery.outcomes import ask
from leads_pipeline.features.delivery.questions import (
    Attempt,
    Retried,
    Selection,
    VersionStory,
    counts,
    last_delivered,
    left,
    story,
)
from leads_pipeline.features.delivery.questions import replay as replay_chosen
from leads_pipeline.features.delivery.questions import retry as retry_all
from leads_pipeline.features.delivery.sending import deliver_to_all, preview
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline.words import counted, moment

_SENDS = "The service sends them, or `leads-pipeline deliver`."

# Of a version, that many digits are shown.
_SHOWN_DIGITS: Final = 8

_destination_option = click.option(
    "--destination",
    "chosen",
    metavar="NAME",
    help="One destination of LEADS_DESTINATIONS_FILE alone.",
)


@click.group(invoke_without_command=True)
@click.option(
    "--now",
    "is_all",
    is_flag=True,
    help="Send all waiting leads, also those that failed a moment ago.",
)
@click.option(
    "--dry-run", is_flag=True, help="Send nothing. Show what would be sent, with all values masked."
)
@click.pass_context
def deliver(context: click.Context, is_all: bool, dry_run: bool) -> None:
    """Send new leads to your own systems. The service does so every five seconds.

    Exit code 0 if no lead is left, 1 if some are, 2 if a setting is wrong.
    """
    if context.invoked_subcommand:
        return
    settings, data = existing_folder()
    destinations = _destinations(settings)
    if dry_run:
        for destination in destinations:
            _show_preview(destination, preview(settings, data, destination, datetime.now(UTC)))
        return

    results = deliver_to_all(settings, data, destinations, is_all=is_all)

    errors = []
    lefts = 0
    for destination in destinations:
        result = results[destination.name]
        if isinstance(result, LeadsPipelineError):
            errors.append(result)
            click.echo(f"{destination.shown}: {result}", err=True)
            continue
        click.echo(f"Delivered to {destination.shown}: {result.delivered}. Left: {result.left}.")
        if result.left and result.trouble:
            click.echo(f"{destination.shown} {result.trouble}", err=True)
        lefts += result.left
    if lefts:
        click.echo("`leads-pipeline deliver status` lists them.", err=True)
    if len(errors) == len(destinations):
        raise errors[0]
    sys.exit(1 if lefts or errors else 0)


@deliver.command()
@json_option
def status(as_json: bool) -> None:
    """Show how many leads were delivered, which ones wait, and why."""
    _, data = existing_folder()
    names = ledger_names(data.folder)
    if as_json:
        by_destination: dict[str, Any] = {}
        for name, ledger in _reading(data, names):
            by_destination[name] = _as_json(ledger)
        click.echo(json.dumps(by_destination, indent=2, default=datetime.isoformat))
        return

    if not names:
        click.echo("Nothing was ever delivered from this folder.")
    for name, ledger in _reading(data, names):
        _show(name, ledger)


@deliver.command()
@click.argument("lead", metavar="KIND/ID")
@json_option
def log(lead: str, as_json: bool) -> None:
    """Show when a lead was delivered to whom, and what was answered: applicant/17.

    It has the status, the content type, and the error code of an answer in JSON, and the lead's id
    there if `id_there` says where it is. Nothing else of an answer is kept.
    """
    kind, lead_id = lead_of(lead)
    _, data = existing_folder()
    stories = {
        name: story(ledger, kind, lead_id)
        for name, ledger in _reading(data, ledger_names(data.folder))
    }
    if as_json:
        answer = {
            name: [_story_as_json(one) for one in versions] for name, versions in stories.items()
        }
        click.echo(json.dumps(answer, indent=2, default=datetime.isoformat))
        return

    if not any(stories.values()):
        click.echo("No destination knows this lead.")
    for name, versions in stories.items():
        for one in versions:
            _show_story(name, one)


@deliver.command("outcomes")
def ask_for_outcomes() -> None:
    """Ask Alto which leads were accepted or rejected. The service does so each night.

    Exit code 1 if Alto can't be asked, 2 if a setting is wrong.
    """
    settings, data = existing_folder()
    asked = [one for one in _destinations(settings) if one.outcomes]
    if not asked:
        raise SettingsError(
            'No destination has `outcomes = "alto"`. examples/destinations/alto.toml has it.'
        )

    has_failed = False
    for destination in asked:
        try:
            changed = ask(data, destination, datetime.now(UTC))
            click.echo(
                f"{destination.shown}: {counted(changed, 'outcome')}. The next publication has "
                "them."
            )
        except LeadsPipelineError as error:
            has_failed = True
            click.echo(f"{destination.shown}: {error}", err=True)
    sys.exit(1 if has_failed else 0)


@deliver.command()
@_destination_option
def retry(chosen: str | None) -> None:
    """Send leads that are held or given up, and those that wait, at once.

    Each is tried for three more days. A destination that answered 410 is asked again.
    """
    _, data = existing_folder()
    for name in _ledgers(data, chosen):
        with _writing(data, name) as ledger:
            done = retry_all(ledger, datetime.now(UTC).timestamp())
        click.echo(f"{name}: {_retried(done)}")


@deliver.command()
@click.option("--from", "first", type=day, metavar="DAY", help="First day, as 2026-11-01.")
@click.option("--to", "last", type=day, metavar="DAY", help="Last day, included.")
@click.option("--lead", metavar="KIND/ID", help="One lead, as applicant/17.")
@click.option("--branch", "scope", metavar="SCOPE", help="Leads of one branch, as branch-101.")
@click.option(
    "--kind", type=click.Choice([kind.name for kind in LEAD_KINDS]), help="Leads of one kind."
)
@_destination_option
def replay(
    first: date | None,
    last: date | None,
    lead: str | None,
    scope: str | None,
    kind: str | None,
    chosen: str | None,
) -> None:
    """Send delivered leads again: of some days, one lead, a branch or a kind.

    Each goes in its newest version, with the same webhook-id as before.
    """
    if not any((first, last, lead, scope, kind)):
        raise QuestionError(
            "Say which leads: --from and --to, --lead, --branch or --kind. Nothing was changed."
        )

    _, data = existing_folder()
    lead_id = None
    if lead:
        kind, lead_id = lead_of(lead)
    selection = Selection(first, last, kind, lead_id, scope)
    for name in _ledgers(data, chosen):
        with _writing(data, name) as ledger:
            count = replay_chosen(ledger, selection, datetime.now(UTC).timestamp())
        click.echo(
            f"{name}: {counted(count, 'version')} of leads wait again. "
            f"{_SENDS if count else 'Nothing else.'}"
        )


def lead_of(text: str) -> tuple[str, str]:
    """Return kind and id of `applicant/17`. Raises QuestionError."""
    kind, _, lead_id = text.partition("/")
    if kind not in {one.name for one in LEAD_KINDS} or not lead_id:
        raise QuestionError("Write the lead as KIND/ID: applicant/17 or appraisal/17.")
    return kind, lead_id


def _story_as_json(one: VersionStory) -> dict[str, Any]:
    return one._asdict() | {"attempts": [attempt._asdict() for attempt in one.attempts]}


def _show_story(name: str, one: VersionStory) -> None:
    at = f" {moment(one.delivered_at)}" if one.delivered_at else ""
    id_there = f", there {one.id_there}" if one.id_there else ""
    click.echo(
        f"{name}: version {one.version[:_SHOWN_DIGITS]} of {one.day} {one.state}{at}{id_there}"
    )
    for attempt in one.attempts:
        click.echo(f"    {moment(attempt.at)}  {_answer_in_words(attempt)}")


def _answer_in_words(attempt: Attempt) -> str:
    if attempt.status is None:
        return attempt.trouble or "taken"

    parts = (str(attempt.status), attempt.content_type, attempt.code)
    return " ".join(part for part in parts if part)


def _show_preview(destination: Destination, found: Sequence[tuple[Version, Event]]) -> None:
    click.echo(f"{destination.shown}: {counted(len(found), 'message')} would be sent first.")
    for version, event in found[:LISTED]:
        name = lead_in_words(version.kind, version.lead_id)
        try:
            request = destination.form.request(event, datetime.now(UTC))
        except UnusableTemplateError as error:
            click.echo(f"{event.type} {name}: {error}")
            continue
        click.echo(f"{event.type} {name}: {request.method} to {destination.form.host}")
        click.echo(f"    {masked(request.content)}")


def _destinations(settings: Settings) -> list[Destination]:
    destinations = destinations_of(settings)
    if not destinations:
        raise SettingsError(
            "LEADS_DELIVERY_URL is not set. Put the address of your system and "
            "LEADS_DELIVERY_SECRET into .env. `leads-pipeline settings` lists what else can be set."
        )
    return destinations


def _ledgers(data: DataFolder, chosen: str | None) -> list[str]:
    """Return the names of the ledgers that a person means.

    Raises QuestionError if there is none.
    """
    names = ledger_names(data.folder)
    if chosen is not None and chosen not in names:
        raise QuestionError(
            f"Nothing was ever delivered to {chosen}. `leads-pipeline deliver status` shows the "
            "destinations."
        )
    if not names:
        raise QuestionError("Nothing was ever delivered from this folder. Nothing was changed.")
    return names if chosen is None else [chosen]


def _reading(data: DataFolder, names: Sequence[str]) -> Iterator[tuple[str, Ledger]]:
    for name in names:
        with reading_ledger(data.folder, name) as ledger:
            if ledger is not None:
                yield name, ledger


@contextmanager
def _writing(data: DataFolder, name: str) -> Iterator[Ledger]:
    with (
        data.state.lock(lock_name(name), timeout_seconds=60),
        writing_ledger(data.folder, name) as ledger,
    ):
        yield ledger


def _retried(done: Retried) -> str:
    said = []
    if done.was_gone:
        said.append("It answered 410, and is asked again.")
    elif done.was_paused:
        said.append("It was left alone for a while, and is asked again.")
    if done.again:
        said.append(
            f"{counted(done.again, 'version')} of leads that were held or given up wait again."
        )
    if done.waiting:
        said.append(f"{counted(done.waiting, 'waiting version')} of leads are sent at once.")
    return " ".join([*said, _SENDS]) if said else "Nothing waits, and nothing was changed."


def _as_json(ledger: Ledger) -> dict[str, Any]:
    by_state = {state.value: count for state, count in counts(ledger).items()}
    return {
        **by_state,
        "last_delivered_at": last_delivered(ledger),
        "trouble": ledger.fact("trouble"),
    }


def _show(name: str, ledger: Ledger) -> None:
    found = counts(ledger)
    if name != DEFAULT:
        click.echo(f"{name}:")
    click.echo(f"delivered  {found[VersionState.DELIVERED]}, last {moment(last_delivered(ledger))}")
    click.echo(f"waiting    {found[VersionState.WAITING]}")
    click.echo(f"held       {found[VersionState.HELD]} (the portal emptied their contact)")
    click.echo(
        f"given up   {found[VersionState.DEAD]} (they failed for three days, or their raw file is "
        "damaged)"
    )
    if found[VersionState.UNWANTED]:
        click.echo(
            f"not wanted {found[VersionState.UNWANTED]} (the destination takes no such events)"
        )
    if trouble := ledger.fact("trouble"):
        click.echo(f"The destination {trouble}")
    for one in left(ledger, LISTED):
        last = f", the last {one.trouble}" if one.trouble else ""
        tried = f"{counted(one.attempts, 'attempt')}{last}"
        click.echo(f"{one.state}: {lead_in_words(one.kind, one.lead_id)} of {one.day}, {tried}")
    if found[VersionState.HELD] or found[VersionState.DEAD]:
        click.echo("`leads-pipeline deliver retry` sends those that are held or given up.")
