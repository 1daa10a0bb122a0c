"""`privacy erase` takes a person out of every file. `apply` repeats that, `verify` looks again, `log` lists all."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, TextIO

import click
from rich.markup import escape

from leads_pipeline.cli.privacy import identifiers, looked_for, show_found, sought_in
from leads_pipeline.cli.session import Session, err, out, plain_errors, table
from leads_pipeline.definitions import variables
from leads_pipeline.durable import replace_file
from leads_pipeline.errors import QuestionError
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Group
from leads_pipeline.privacy.erase import (
    Left,
    Wish,
    add_clearing,
    add_to_list,
    left_by_list,
    left_in_tables,
    left_of,
    note_done,
    quarantined_of,
)
from leads_pipeline.privacy.objecting import close
from leads_pipeline.privacy.places import HELD_OPEN
from leads_pipeline.privacy.requests import due_on, is_on_an_erasure, no_backup_from, open_entries, open_entries_of
from leads_pipeline.privacy.sweeping import sweep
from leads_pipeline.settings import Settings
from leads_pipeline.suppression import Action, Entry

# A reference of the agency's own, in which no name and no address fits.
_CASE: Final = re.compile(r"[A-Za-z0-9._/-]{1,40}")

_LISTED_FILES: Final = 20

NAMES: Final = {
    Action.ERASE: "erasure",
    Action.OBJECT: "objection",
    Action.CLEAR: "emptied messages",
    Action.RESTRICT: "restriction",
    Action.LIFT: "end",
}

_BACKUPS_OF_NOW: Final = "Backups that are made before that is shown may hold them."

_OUT_OF_REACH: Final = """The pipeline can't reach these places. Please see to them:
- The portal: it answers for its own data. Send the person there.
- Copies of leads.duckdb, Delta tables and exports: delete them, or make them again from the new files.
- Notebooks, spreadsheets and e-mails: ask everybody who may have some to delete the person's rows.
- The CRM: erase the person there as well.
- Backups from before this moment: delete them in time. A restored one is swept by the next night, or at once by
  `leads-pipeline privacy apply`.
- Programs of other users, containers or machines that still have the old leads.duckdb open: close them.
- The disk: it keeps the bytes of deleted files until it writes over them."""


def dated(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which request it is."""
    day = click.DateTime(["%Y-%m-%d"])
    command = click.option("--received", type=day, help="The day on which the request came; today if not given.")(
        command
    )
    return click.option("--case", default="", help="Your own reference, such as DSR-17: no name, no address.")(command)


def request(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `dated`, --with for further groups, and --dry-run."""
    groups = click.Choice([Group.MAILBOX.value, Group.TELEPHONE.value, Group.PROPOSED.value])
    more = "Take this group as well, once somebody has looked at it; repeat for more."
    command = click.option("--with", "more", multiple=True, type=groups, help=more)(dated(command))
    return click.option("--dry-run", is_flag=True, help="Show whom it would mean, and change nothing.")(command)


def received_on(case: str, received: datetime | None) -> date:
    """The day of the request. Raises QuestionError where that or its reference can't be."""
    if case and not _CASE.fullmatch(case):
        raise QuestionError("--case takes 40 letters, digits, dots, dashes or slashes at most: a reference, no name.")
    day = received.date() if received else datetime.now(UTC).date()
    if day > datetime.now(UTC).date():
        raise QuestionError("--received is a day that hasn't come.")
    return day


@click.command(short_help="Erase a person from every file, for good.")
@identifiers
@request
@click.option("--yes", is_flag=True, help="Don't ask again.")
@click.option(
    "--clear-message",
    "clear",
    multiple=True,
    metavar="ID",
    help="Empty the message of this lead of somebody else, which mentions them; repeat for more.",
)
@click.option(
    "--quarantine",
    type=click.Choice(["delete", "keep"]),
    default="keep",
    help="Files in quarantine/ that show the person or that nobody can read: delete them, or keep and name them.",
)
def erase(
    dry_run: bool,
    yes: bool,
    more: Sequence[str],
    case: str,
    received: datetime | None,
    clear: Sequence[str],
    quarantine: str,
    listed: TextIO | None,
    shared: bool,
    **given: Any,
) -> None:
    """Take a person out of every file, and keep them from coming back with the next pull, push or backup.

    First they go on the suppression list, as hashes; then raw files, deliveries and staged days lose their leads, and
    leads.duckdb is written anew; then everything is looked through again. If it is interrupted, the next publication
    finishes it, or `privacy apply`. A new enquiry of theirs lands. What somebody else's message says of them stays,
    unless you have read it and give that lead's id by `--clear-message`: groups B, C, D and P are yours to read.

    Exit code 1 if the person wasn't shown to be gone.
    """
    with plain_errors():
        day = received_on(case, received)
        with Session.opened() as session:
            sought = sought_in(session.lake, listed, **given)
            found = looked_for(session.settings, sought, shared)
            chosen = [lead for lead in found.leads if lead.group in (Group.GIVEN, *more)]
            mentioning = [lead for lead in found.leads if lead not in chosen and lead.lead_id in clear]
            show_found(found, show=False)
            # A running pull, a delivery on its way or a backup may still bring what they sent before now.
            is_to_be_listed = bool(sought.emails or sought.phones)
            is_of_nobody = not (chosen or mentioning or is_to_be_listed)
            if dry_run or is_of_nobody:
                out.print(
                    "Nothing to erase."
                    if is_of_nobody
                    else f"{len(chosen)} leads would be erased, messages of {len(mentioning)} others emptied. "
                    "Nothing was changed."
                )
                sys.exit(0 if found.is_whole else 1)
            if not yes:
                emptied = f" and empty the messages of {len(mentioning)} others" if mentioning else ""
                click.confirm(
                    f"Erase {len(chosen)} leads{emptied} in every version and place, for good?"
                    if chosen or mentioning
                    else "No lead of theirs is here. Refuse what they sent before now, should it still come?",
                    abort=True,
                    err=True,
                )
            wish = Wish(action=Action.ERASE, case=case, received=day, is_shared=found.is_shared)
            entry = add_to_list(session.lake, sought, chosen, wish, datetime.now(UTC))
            with saying_what_is_left(entry):
                if mentioning:
                    add_clearing(session.lake, entry, mentioning)
                troubles = published(session)
                found = looked_for(session.settings, sought, shared=True)
                if quarantine == "delete" and (files := quarantined_of(found)):
                    for file in files:
                        file.unlink(missing_ok=True)
                    found = looked_for(session.settings, sought, shared=True)
            left = left_of(session.lake, found)
            troubles += _left_in_the_bucket(session.lake)
            # What stands only in a file that was replaced and is still open is named as that file.
            of_others = [
                lead
                for lead in found.leads
                if lead.group is Group.MENTION and any(sight.file.place != HELD_OPEN for sight in lead.sights)
            ]
            troubles += [f"Lead {lead.lead_id} still mentions them." for lead in of_others if lead.lead_id in clear]
            is_done = left.is_nothing and not troubles
            if is_done:
                note_done(session.lake, entry)
            mentions_line = f"emptied the messages of {len(mentioning)} leads, left in {len(of_others)}"
            backups = _backups(session.settings, datetime.now(UTC)) if is_done else _BACKUPS_OF_NOW
            receipt = _receipt(entry, left, mentions_line, backups, is_done=is_done)
            hand_out(session.lake, entry, receipt)
        _show_left(left, troubles)
    sys.exit(0 if is_done else 1)


@click.command(short_help="Apply the list of erased people again.")
def apply() -> None:
    """Apply the suppression list to the data folder again, after an interrupted erasure or a restored backup.

    The list knows only hashes. So this searches raw files, deliveries, staged days and published tables, and it closes
    objections and restrictions. It closes no erasure: `privacy verify` does, as it searches every file for a person.

    Exit code 1 if something that the list refuses is still there, or a file couldn't be read.
    """
    with plain_errors():
        with Session.opened() as session:
            # Somebody may have put files back by hand, of which no number tells.
            with err.status("Looking through raw files and staged days"):
                swept = sweep(session.lake, session.settings.zone)
            troubles = [f"{what}: {why}" for what, why in swept.failed.items()] + published(session)
            left = [*dict.fromkeys([*left_by_list(session.lake), *close(session.lake), *troubles])]
            out.print(
                f"{swept.leads} leads were taken out of {swept.files} raw files and {swept.deliveries} deliveries, "
                f"{sum(swept.days.values())} days were staged again, and leads.duckdb was published without them."
            )
            show_open(session.lake)
        for what in left:
            err.print(f"[bold red]left:[/bold red] {escape(what)}", highlight=False, soft_wrap=True)
    sys.exit(1 if left else 0)


@click.command("verify", short_help="Check that erased people are gone.")
@identifiers
def look_again(listed: TextIO | None, shared: bool, **given: Any) -> None:  # noqa: ARG001 - whoever is listed may share
    """Look whether a person who was erased is gone: by what is given, in every file; else by the list alone.

    By the list alone it looks through raw files, deliveries, staged days and what is published, for everybody on it.
    Given all addresses and numbers of an erasure that is still open, it closes that where the person is gone.

    Exit code 1 if something is left, if a file couldn't be read, or if leads are found of somebody whom no erasure on
    the list knows.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        lake = Lake.refreshed(settings)
        if listed is None and not any(given.values()):
            named = left_by_list(lake)
            for what in named:
                err.print(f"[bold red]left:[/bold red] {escape(what)}", highlight=False, soft_wrap=True)
            is_gone, where = not named, " in raw files, deliveries, staged days and what is published"
        else:
            sought = sought_in(lake, listed, **given)
            found = looked_for(settings, sought, shared=True)
            left = left_of(lake, found)
            troubles = []
            theirs = sum(lead.group is Group.GIVEN for lead in found.leads)
            if not is_on_an_erasure(lake.suppression.read(), sought):
                out.print("No erasure on the list is of who was given.")
                troubles = [f"{theirs} leads bear what was given: nobody has erased them."] if theirs else []
            troubles += _left_in_the_bucket(lake)
            _show_left(left, troubles)
            if left.kept:
                out.print(f"Kept: {left.kept} leads of theirs or about them. `leads-pipeline privacy find` lists them.")
            is_gone, where = left.is_nothing and not troubles, ""
            for entry in open_entries_of(lake.suppression.read(), sought) if is_gone else []:
                _close(lake, entry, settings)
        out.print(f"Nothing that the list refuses is left{where}." if is_gone else "Not shown to be gone.")
        show_open(lake)
    sys.exit(0 if is_gone else 1)


@click.command(short_help="Show requests, what was done, and what is due.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def log(as_json: bool) -> None:
    """Tell what was asked and done, and by when an answer is due: a month after the request was received.

    --json also says from which day no backup holds an erased person, by LEADS_BACKUP_DAYS. An objection or restriction
    holds until `privacy lift` ends it, by its number here.

    Exit code 1 if something isn't shown to be done.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        suppressed = Lake.refreshed(settings).suppression.read()
        done = {entry.of: entry for entry in suppressed.entries if entry.action is Action.DONE}
        lifted = {entry.of: entry for entry in suppressed.entries if entry.action is Action.LIFT}
        rows = [
            _as_row(entry, done.get(entry.number), lifted.get(entry.number), settings)
            for entry in suppressed.entries
            if entry.received
        ]
        if as_json:
            click.echo(json.dumps({"entries": rows}, indent=2))
        elif rows:
            # What decides, in 80 columns; --json has all of it.
            days = ("due", "done", "lifted")
            shown = table(
                ("number", "action", "case", *days),
                [
                    (row["number"], row["action"], row["case"], *(str(row[name] or "")[:10] for name in days))
                    for row in rows
                ],
            )
            for column in shown.columns:
                column.overflow, column.no_wrap = "fold", column.header != "case"
            out.print(shown)
        else:
            out.print("Nobody has asked for anything yet.")
    sys.exit(1 if open_entries(suppressed) else 0)


def _as_row(entry: Entry, done: Entry | None, lifted: Entry | None, settings: Settings) -> dict[str, object]:
    received = entry.received or entry.at.date()
    is_erasure = entry.action is Action.ERASE
    no_backup = no_backup_from(done.at, settings.zone, settings.backup_days) if done and is_erasure else None
    return {
        "number": entry.number,
        "action": f"{entry.action} {entry.of}" if entry.of else str(entry.action),
        "case": entry.case,
        "received": received.isoformat(),
        "due": due_on(received).isoformat(),
        "listed": f"{entry.at:%Y-%m-%d %H:%M}",
        "done": f"{done.at:%Y-%m-%d %H:%M}" if done else None,
        "lifted": f"{lifted.at:%Y-%m-%d %H:%M}" if lifted else None,
        "no_backup_from": no_backup.isoformat() if no_backup else None,
        "leads": len(entry.leads),
    }


def published(session: Session) -> list[str]:
    """Publish, which takes out of the folder what the list keeps out; what went wrong."""
    number = session.lake.suppression.read().number
    with err.status("Taking leads out of all files and writing leads.duckdb anew"):
        trouble = session.runner.publish()
    if trouble is None and not session.lake.follows(number):
        trouble = "Not every file could be gone through. The log of the run says which."
    return [trouble] if trouble else []


@contextmanager
def saying_what_is_left(entry: Entry) -> Iterator[None]:
    """Where somebody stops what an entry asks for, say that it is on the list and how it is finished."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(
            f"The {NAMES[entry.action]} {entry.number} is on the list and not carried out yet: "
            "`leads-pipeline privacy apply` finishes it"
            + (", `leads-pipeline privacy verify` closes it." if entry.action is Action.ERASE else "."),
            soft_wrap=True,
        )
        raise


def _left_in_the_bucket(lake: Lake) -> list[str]:
    """The bucket's Delta tables that hold somebody who is erased, and what to do about each."""
    advice = "Run `leads-pipeline privacy apply` on the machine that has LEADS_TABLES=delta."
    left = left_in_tables(lake) if lake.store else []
    return [f"{what} in the bucket holds an erased person. {advice}" for what in left]


def _close(lake: Lake, entry: Entry, settings: Settings) -> None:
    """Note that somebody was shown to be gone, and beside the list too, where the receipt lies."""
    done = note_done(lake, entry)
    path = _receipt_of(lake, entry)
    before = path.read_text(encoding="utf-8") if path.exists() else f"Erasure {entry.number}\n"
    shown = f"Shown to be gone by `privacy verify`, {done.at:%Y-%m-%d %H:%M} UTC.\n{_backups(settings, done.at)}\n"
    replace_file(path, f"{before}\n{shown}".encode())


def _receipt_of(lake: Lake, entry: Entry) -> Path:
    return lake.suppression.folder / "receipts" / f"{entry.number}.txt"


def hand_out(lake: Lake, entry: Entry, receipt: str) -> None:
    """Keep the receipt beside the list, and print it."""
    path = _receipt_of(lake, entry)
    replace_file(path, receipt.encode())
    out.print(escape(receipt), highlight=False, soft_wrap=True)
    out.print(f"This receipt: {path}", highlight=False, soft_wrap=True)


def _backups(settings: Settings, gone_at: datetime) -> str:
    """From when no backup holds who was shown to be gone then."""
    day = no_backup_from(gone_at, settings.zone, settings.backup_days)
    if day is None:
        return (
            "Older backups hold them for as long as you keep them. We don't know when the last one is deleted. Set\n"
            "LEADS_BACKUP_DAYS to the number of days for which you keep backups."
        )
    return (
        f"No backup holds them from {day} on: those made until now are kept for LEADS_BACKUP_DAYS, "
        f"{settings.backup_days} days,\nif each is deleted in time. Those made from now on don't hold them."
    )


def _receipt(entry: Entry, left: Left, mentions_line: str, backups: str, *, is_done: bool) -> str:
    """What was done, without a word of the person's."""
    received = entry.received or date.min
    return f"""\
Erasure {entry.number}{f", case {entry.case}" if entry.case else ""}
Received {received}, due {due_on(received)}, listed {entry.at:%Y-%m-%d %H:%M} UTC

Removed: {len(entry.leads)} leads in every version, from raw files, waiting deliveries, staged files, leads.duckdb.
Kept: {left.kept} leads of theirs or about them: new enquiries, groups that weren't chosen, what others wrote.
What others wrote of them: {mentions_line}.
Kept for keeping them out: keyed hashes on the suppression list.
Looked through again: {"nothing that the list refuses was found" if is_done else "NOT shown to be gone, see below"}.
{backups}

{_OUT_OF_REACH}
"""


def show_open(lake: Lake) -> None:
    """Print which requests nobody has shown to be carried out."""
    if still := open_entries(lake.suppression.read()):
        out.print(
            f"Not shown to be done: {', '.join(f'{NAMES[one.action]} {one.number}' for one in still)}. Once nothing is "
            "left, `leads-pipeline privacy verify` with a person's addresses and numbers looks everywhere and closes "
            "their erasure; `leads-pipeline privacy apply` closes the rest.",
            soft_wrap=True,
        )


def _show_left(left: Left, troubles: Sequence[str]) -> None:
    for what, files in (("left", left.leads), ("shown", left.traces), ("not read", left.unread)):
        for file in files[:_LISTED_FILES]:
            err.print(f"[bold red]{what}:[/bold red] {escape(file.path)}", highlight=False, soft_wrap=True)
        if len(files) > _LISTED_FILES:
            err.print(f"… and {len(files) - _LISTED_FILES} more.")
    for trouble in troubles:
        err.print(f"[bold red]failed:[/bold red] {escape(trouble)}", highlight=False)
