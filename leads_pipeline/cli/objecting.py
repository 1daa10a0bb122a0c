"""`privacy object` keeps a person out of direct marketing, `restrict` sets their leads aside; `lift` ends both."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import click
from rich.markup import escape

from leads_pipeline.cli.erasing import NAMES, dated, hand_out, published, received_on, request, saying_what_is_left
from leads_pipeline.cli.privacy import identifiers, looked_for, show_found, sought_in
from leads_pipeline.cli.session import Session, err, out, plain_errors
from leads_pipeline.errors import QuestionError
from leads_pipeline.person.matching import Group
from leads_pipeline.privacy.erase import Wish, add_to_list
from leads_pipeline.privacy.objecting import add_lift, close, liftable_numbered, liftable_of
from leads_pipeline.privacy.requests import due_on
from leads_pipeline.suppression import Action, Entry

_OUT_OF_REACH: Final = {
    Action.OBJECT: """\
Out of this tool's reach, for you to see to: marketing lists outside of leads.duckdb, in a CRM say; copies that analysts
made; who markets from the tables of leads themselves, where pipeline.objected names whom to leave out.""",
    Action.RESTRICT: """\
Out of this tool's reach, for you to see to: the portal, which is a controller of its own; a CRM, exports, e-mails,
notebooks; copies that analysts made, with `privacy share` too; backups; a program that still has an old leads.duckdb
open.""",
}


@click.command("object", short_help="Keep a person out of direct marketing.")
@identifiers
@request
def object_(**asked: Any) -> None:
    """Keep a person out of direct marketing (UK GDPR, article 21): out of mart_hidden_valuations.

    Their leads stay, and so does what they will still send, which serves no marketing either. It holds until
    `privacy lift` ends it.

    Exit code 1 if they weren't shown to be out.
    """
    _ask(Action.OBJECT, **asked)


@click.command(short_help="Set a person's leads aside.")
@identifiers
@request
def restrict(**asked: Any) -> None:
    """Set a person's leads aside in data/restricted/ (UK GDPR, article 18), out of all tables.

    Those that there are and those that come, until `privacy lift` ends it: then they are landed and published again.

    Exit code 1 if a lead of theirs is still staged or published.
    """
    _ask(Action.RESTRICT, **asked)


@click.command(short_help="End an objection or a restriction.")
@click.argument("numbers", nargs=-1, type=int, metavar="[NUMBER]...")
@identifiers
@dated
@click.option("--dry-run", is_flag=True, help="Show what would end, and change nothing.")
def lift(
    numbers: Sequence[int],
    case: str,
    received: datetime | None,
    dry_run: bool,
    listed: TextIO | None,
    shared: bool,  # noqa: ARG001 - whoever is listed may share
    **given: Any,
) -> None:
    """End an objection or a restriction, by its NUMBER in `privacy log` or by whom it was made for.

    Without a number it asks for whom: give every address and number that it was made with. What was restricted is
    landed and published again. An erasure can't be ended.

    Exit code 1 if something isn't back.
    """
    with plain_errors():
        day = received_on(case, received)
        with Session.opened() as session:
            suppressed = session.lake.suppression.read()
            if numbers:
                entries = liftable_numbered(suppressed, [*dict.fromkeys(numbers)])
            else:
                entries = liftable_of(suppressed, sought_in(session.lake, listed, **given))
            for entry in entries:
                verb = "would end" if dry_run else "ends"
                out.print(f"{NAMES[entry.action].capitalize()} {entry.number} of {entry.at:%Y-%m-%d} {verb}.")
            if dry_run:
                sys.exit(0)
            for entry in entries:
                add_lift(session.lake, entry, case, day, datetime.now(UTC))
            left = _carried_out(session)
        _show(left)
    sys.exit(1 if left else 0)


def _ask(
    action: Action,
    *,
    dry_run: bool,
    more: Sequence[str],
    case: str,
    received: datetime | None,
    listed: TextIO | None,
    shared: bool,
    **given: Any,
) -> None:
    """Add the person to the list under each of the actions, carry that out and say so."""
    with plain_errors():
        day = received_on(case, received)
        with Session.opened() as session:
            sought = sought_in(session.lake, listed, **given)
            is_by_contact = bool(sought.emails or sought.phones)
            if action is Action.OBJECT and not is_by_contact:
                raise QuestionError(
                    "Nobody knows their future leads by that. Give an address or a telephone number of theirs as well."
                )
            found = looked_for(session.settings, sought, shared)
            chosen = [lead for lead in found.leads if lead.group in (Group.GIVEN, *more)]
            show_found(found, show=False)
            if not (chosen or is_by_contact):
                raise QuestionError("No lead of theirs was found, and no address or number was given to know them by.")
            if dry_run:
                out.print(f"It would mean {len(chosen)} leads. Nothing was changed.")
                sys.exit(0 if found.is_whole else 1)
            entry = add_to_list(
                session.lake,
                sought,
                chosen,
                Wish(action=action, case=case, received=day, is_shared=found.is_shared),
                datetime.now(UTC),
            )
            with saying_what_is_left(entry):
                left = _carried_out(session)
            hand_out(session.lake, entry, _receipt(entry, len(chosen), by_contact=is_by_contact, is_done=not left))
        _show(left)
    sys.exit(1 if left else 0)


def _carried_out(session: Session) -> list[str]:
    """Publish, which brings the folder in line with the list; what is left to do."""
    return published(session) or close(session.lake)


def _receipt(entry: Entry, leads: int, *, by_contact: bool, is_done: bool) -> str:
    """What holds now, without a word of the person's."""
    day = entry.received or entry.at.date()
    effects = {
        Action.OBJECT: f"Out of mart_hidden_valuations, which is direct marketing: now and with what they will send. "
        f"Their {leads} leads stay.",
        Action.RESTRICT: f"Set aside in data/restricted/: {leads} leads"
        + (", and those that come." if by_contact else "; no address or number was given, so new ones are not."),
    }
    return "\n".join(
        [
            f"{NAMES[entry.action].capitalize()} {entry.number}{f', case {entry.case}' if entry.case else ''}",
            f"Received {day}, due {due_on(day)}, listed {entry.at:%Y-%m-%d %H:%M} UTC",
            "",
            effects[entry.action],
            f"Until `leads-pipeline privacy lift {entry.number}`. Kept for that: keyed hashes on the suppression list.",
            f"Looked at again: {'so it is' if is_done else 'NOT shown to be so, run `leads-pipeline privacy apply`'}.",
            "",
            _OUT_OF_REACH[entry.action],
            "",
        ]
    )


def _show(left: Sequence[str]) -> None:
    for what in left:
        err.print(f"[bold red]left:[/bold red] {escape(what)}", highlight=False, soft_wrap=True)
