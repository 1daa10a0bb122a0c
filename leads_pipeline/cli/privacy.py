"""`leads-pipeline privacy …`: find, export, erase, correct, object, restrict, lift, apply, log, retain, share."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from rich.markup import escape

from leads_pipeline.cli.installation import opened
from leads_pipeline.cli.output import err, out, plain_errors, table
from leads_pipeline.cli.people import (
    LISTED,
    counted,
    found_as_json,
    identifiers,
    person_of,
    search,
    show_found,
    show_unread,
)
from leads_pipeline.cli.session import Session
from leads_pipeline.domain.person import email_keys, phone_keys
from leads_pipeline.errors import QuestionError
from leads_pipeline.privacy import receipt, requests
from leads_pipeline.privacy.export import write_export
from leads_pipeline.privacy.requests import NOUNS, Request
from leads_pipeline.privacy.retain import cut_days, due_before
from leads_pipeline.privacy.share import write_share
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.suppression import Action, Entry

# A reference of the agency's own, in which no name and no address fits.
_CASE: Final = re.compile(r"[A-Za-z0-9._/-]{1,40}")

privacy = click.Group(
    "privacy",
    short_help="Find, export, erase or restrict a person's data.",
    help="Find, export, erase or restrict a person's data. docs/guides/answer-a-person.md has the steps.",
)


def dated(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which request it is."""
    received = click.option(
        "--received", type=click.DateTime(["%Y-%m-%d"]), help="The day on which the request came. Default: today."
    )
    case = click.option("--case", default="", help="Your own reference, such as DSR-17. No name, no address.")
    dry_run = click.option("--dry-run", is_flag=True, help="Show the leads, and change nothing.")
    return case(received(dry_run(command)))


# --- looking ------------------------------------------------------------------------------------------------------


@privacy.command("find", short_help="Show where a person's data is.")
@identifiers
@click.option("--show", is_flag=True, help="Don't mask names, addresses and numbers. On a terminal only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def find_(show: bool, as_json: bool, **given: Any) -> None:
    """Show a person's leads, in two groups: theirs, and leads that somebody has to look at, with all reasons.

    Without an option it asks who is sought, so that no address stays in the shell's history.

    Exit code 1 if a file couldn't be read, so that something may be missing.
    """
    with plain_errors():
        if show and not sys.stdout.isatty():
            raise QuestionError("--show prints personal data, and the output is no terminal. Leave it out.")
        data, _ = _opened()
        person = person_of(**given)
        found = search(data, person, is_shared=given["shared"])
        held = requests.in_force(data.gate.entries.read(), person, found)
    if as_json:
        click.echo(json.dumps(found_as_json(found, held, show=show), indent=2))
    else:
        show_found(found, show=show)
        for entry in held:
            out.print(f"On the suppression list: {NOUNS[entry.action]} {entry.number}.")
    sys.exit(1 if found.unread else 0)


privacy.add_command(find_, "verify")


@privacy.command(short_help="Write a person's data for their access request.")
@identifiers
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for person.html and person.json.",
)
def export(folder: Path, **given: Any) -> None:
    """Write a person's data for their access request: person.html to be read, person.json for a machine.

    It holds all versions of the leads that are theirs, with sources, purposes and retention. Add leads that you have
    looked at with --lead. Look at both files before you send them.

    Exit code 1 if nothing was found, or a file couldn't be read, so that something may be missing.
    """
    with plain_errors():
        data, settings = _opened()
        found = search(data, person_of(**given), is_shared=given["shared"])
        if found.theirs:
            for path in write_export(folder, found.theirs, data.state.claimed_by(), settings, datetime.now(UTC)):
                out.print(f"{path}", highlight=False, soft_wrap=True)
    out.print(f"Exported leads: {len(found.theirs)}.")
    if found.to_look_at:
        out.print(
            f"Leads to look at, not exported: {len(found.to_look_at)}. `leads-pipeline privacy find` shows them. "
            "Add one with --lead ID."
        )
    show_unread(found)
    sys.exit(0 if found.theirs and not found.unread else 1)


@privacy.command(short_help="Write a copy without names, to share.")
@click.argument("file", type=click.Path(path_type=Path))
def share(file: Path) -> None:
    """Write FILE, a new DuckDB file: a pseudonymised copy of the figures, for wide use.

    It holds one row a lead without ids, names and contacts, and the marts that know no single person. Its table
    `about` says what it is, and that it isn't anonymous. docs/guides/answer-a-person.md says more.
    """
    with plain_errors():
        data, _ = _opened()
        if data.is_behind:
            with Session.opened() as session:
                _carry_out(session)
        rows = write_share(data, file.absolute(), datetime.now(UTC))
    out.print(f"{file}: {', '.join(f'{name} {count}' for name, count in rows.items())}.", soft_wrap=True)
    out.print(
        "It is pseudonymised and not anonymous: UK GDPR applies to it. An erasure doesn't reach it.", soft_wrap=True
    )


@privacy.command(short_help="Make old leads anonymous.")
@click.option("--dry-run", is_flag=True, help="Only count the leads that are due.")
def retain(dry_run: bool) -> None:
    """Make leads older than LEADS_KEEP_PERSONAL_DAYS anonymous. The rows stay and are counted.

    Each night does the same. docs/guides/answer-a-person.md says which fields stay.

    Exit code 1 if a day couldn't be done, or leads.duckdb couldn't be written anew.
    """
    with plain_errors(), _session() as session:
        keep_days = session.settings.keep_personal_days
        if keep_days is None:
            raise QuestionError(
                "LEADS_KEEP_PERSONAL_DAYS is not set, so leads are kept as they are. Set it to 35 or more."
            )
        before = due_before(datetime.now(UTC), session.settings.zone, keep_days)
        days = list(cut_days(session.data, before, is_dry=dry_run))
        done = [day for day in days if day.error is None]
        for day in done:
            if day.leads:
                out.print(f"{day.day} {day.kind.name}: {counted(day.leads)}", highlight=False)
        leads = counted(sum(day.leads for day in done))
        out.print(f"{'To be made anonymous' if dry_run else 'Made anonymous'}: {leads} from before {before}.")
        troubles = [f"{day.day} {day.kind.name}: {day.error}" for day in days if day.error is not None]
        if not dry_run and session.data.state.rewriting_wanted():
            troubles += session.refresh()
        _show_troubles(troubles)
    sys.exit(1 if troubles else 0)


@privacy.command(short_help="Show requests, what was done, and what is due.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def log(as_json: bool) -> None:
    """Show each request with its number, when it was received, by when an answer is due, and when it was done.

    An answer is due one month after the request was received. An objection or a restriction holds until
    `privacy lift NUMBER` ends it.

    Exit code 1 if a request isn't carried out yet.
    """
    with plain_errors():
        data, _ = _opened()
        suppressed = data.gate.entries.read()
        still, rows = requests.open_entries(suppressed), requests.log(suppressed)
    if as_json:
        click.echo(json.dumps({"entries": rows}, indent=2))
    elif rows:
        names = ("number", "action", "case", "due", "done", "lifted")
        shown = table(names, [[row[name] for name in names] for row in rows])
        for column in shown.columns:
            column.overflow, column.no_wrap = "fold", column.header != "case"  # a date is of use only whole
        out.print(shown)
    else:
        out.print("No requests yet.")
    sys.exit(1 if still else 0)


# --- requests -----------------------------------------------------------------------------------------------------


@privacy.command(short_help="Erase a person from every file, for good.")
@identifiers
@dated
@click.option("--yes", is_flag=True, help="Don't ask again.")
@click.option(
    "--clear-message",
    "cleared",
    multiple=True,
    metavar="ID",
    help="Empty the message of this lead of somebody else, which mentions the person; repeat for more.",
)
@click.option(
    "--quarantine",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    help="Files in quarantine/ that hold the person or can't be read: keep and name them, or delete them.",
)
def erase(yes: bool, cleared: Sequence[str], quarantine: str, dry_run: bool, **asked: Any) -> None:
    """Erase a person, and keep them from coming back with the next pull, push or restore.

    It erases the leads that are theirs. Add leads that you have looked at with --lead. A new enquiry of theirs lands
    again: that person asks to be called. If it is interrupted, run `privacy apply`.

    Exit code 1 if something of the person is left.
    """
    with plain_errors(), _session() as session:
        request = _asked(session, Action.ERASE, **asked)
        others = [lead for lead in request.found.to_look_at if lead.lead_id in cleared]
        if missing := set(cleared) - {lead.lead_id for lead in others}:
            raise QuestionError(f"--clear-message names {counted(len(missing))} that are not among those to look at.")
        count = len(request.found.theirs)
        if dry_run or not (request.can_be_listed or others):
            _stop(request, f"Leads to erase: {count}. Messages of others to empty: {len(others)}.")
        if not yes:
            question = f"Erase {counted(count)} for good? Messages of others to empty: {len(others)}."
            click.confirm(question, abort=True, err=True)
        entry = requests.add(session.data, request, datetime.now(UTC), others)
        troubles = _carry_out(session, entry)
        found = search(session.data, request.person, is_shared=True)
        if quarantine == "delete":
            session.data.quarantine.delete(found.quarantined)
            found = search(session.data, request.person, is_shared=True)
        left = receipt.left_of(session.data, entry, found, cleared)
        troubles += [f"{lead.kind} lead {lead.lead_id}: {', '.join(lead.places)}" for lead in left]
        troubles += [f"{path} is in quarantine. Delete it with --quarantine delete." for path in found.quarantined]
        new, to_look_at = ([lead for lead in of if lead not in left] for of in (found.theirs, found.to_look_at))
        done = (
            f"Erased: {counted(count)}, with all versions.\n"
            f"Messages of others emptied: {len(others)}.\n"
            f"New enquiries of theirs, which stay: {len(new)}.\n"
            f"Leads to look at, which stay: {len(to_look_at)}. `leads-pipeline privacy find` shows them.\n"
            "Kept: keyed hashes on the suppression list, so that the leads don't come back."
        )
        _hand_out(session, entry, done, troubles)


@privacy.command("object", short_help="Keep a person out of direct marketing.")
@identifiers
@dated
def object_(dry_run: bool, **asked: Any) -> None:
    """Keep a person out of direct marketing (UK GDPR, article 21): out of mart_hidden_valuations.

    Their leads stay, and new ones land. It holds until `privacy lift` ends it.

    Exit code 1 if it couldn't be published.
    """
    with plain_errors(), _session() as session:
        request = _asked(session, Action.OBJECT, **asked)
        leads = counted(len(request.found.theirs))
        if dry_run or not request.can_be_listed:
            _stop(request, f"Leads of the person: {leads}.")
        entry = requests.add(session.data, request, datetime.now(UTC))
        done = (
            f"Out of mart_hidden_valuations: the person, with later leads too. Kept in the other tables: {leads}.\n"
            f"{_until_lifted(entry)}"
        )
        _hand_out(session, entry, done, _carry_out(session, entry))


@privacy.command(short_help="Set a person's leads aside.")
@identifiers
@dated
def restrict(dry_run: bool, **asked: Any) -> None:
    """Set a person's leads aside (UK GDPR, article 18), in data/restricted/ alone: those here, and those that come.

    `privacy lift` lands and publishes them again.

    Exit code 1 if something of theirs is still published.
    """
    with plain_errors(), _session() as session:
        request = _asked(session, Action.RESTRICT, **asked)
        leads = counted(len(request.found.in_raw))
        if dry_run or not request.can_be_listed:
            _stop(request, f"To set aside: {leads}.")
        entry = requests.add(session.data, request, datetime.now(UTC))
        troubles = [*_carry_out(session, entry), *request.found.lost]
        _hand_out(session, entry, f"Set aside: {leads}, and the person's new ones.\n{_until_lifted(entry)}", troubles)


def _checked(keys: Callable[[str], frozenset[str]]) -> Callable[..., str | None]:
    def check(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
        if text and not keys(text):
            raise click.BadParameter("It can't be read. Check its spelling.")
        return text

    return check


@privacy.command(short_help="Correct a person's address or number.")
@identifiers
@dated
@click.option("--new-email", callback=_checked(email_keys), help="The right e-mail address.")
@click.option("--new-phone", callback=_checked(phone_keys), help="The right telephone number.")
def correct(new_email: str | None, new_phone: str | None, dry_run: bool, **asked: Any) -> None:
    """Correct the address or the number of a person's leads (UK GDPR, article 16). It holds over later pulls.

    The versions that were received stay in raw files. Tables show the correction.

    Exit code 1 if it couldn't be published.
    """
    with plain_errors(), _session() as session:
        if not (new_email or new_phone):
            raise QuestionError("Nothing to correct. Give --new-email or --new-phone.")
        request = _asked(session, Action.CORRECT, **asked)
        leads = counted(len(request.found.in_raw))
        if dry_run or not request.found.theirs:
            _stop(request, f"To correct: {leads}.")
        entry = requests.add_correction(session.data, request, new_email, new_phone, datetime.now(UTC))
        troubles = [*_carry_out(session, entry), *request.found.lost]
        _hand_out(session, entry, f"Corrected: {leads}.", troubles)


@privacy.command(short_help="End an objection or a restriction.")
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="NUMBER...")
@dated
def lift(numbers: Sequence[int], case: str, received: datetime | None, dry_run: bool) -> None:
    """End an objection or a restriction, by its NUMBER in `privacy log`. `privacy find` shows a person's numbers.

    Restricted leads are landed and published again. An erasure can't be ended.

    Exit code 1 if it couldn't be published.
    """
    with plain_errors(), _session() as session:
        day = _received_on(case, received)
        entries = requests.liftable(session.data.gate.entries.read(), numbers)
        for entry in entries:
            out.print(
                f"{'Would end' if dry_run else 'Ends'}: {NOUNS[entry.action]} {entry.number} of {entry.at:%Y-%m-%d}."
            )
        if dry_run:
            out.print("Nothing was changed.")
            return
        for entry in entries:
            ended = requests.add_lift(session.data, entry, case=case, received=day, now=datetime.now(UTC))
        if not (troubles := _carry_out(session, ended)):
            requests.note_done(session.data, datetime.now(UTC))
        _show_troubles(troubles)
    sys.exit(1 if troubles else 0)


@privacy.command(short_help="Bring the folder in line with the suppression list.")
@click.option(
    "--list",
    "copy",
    type=click.Path(exists=True, path_type=Path),
    metavar="COPY",
    help="First put a lost or damaged list back, from a copy of its file or folder or from a backup.",
)
def apply(copy: Path | None) -> None:
    """Bring the data folder in line with the suppression list, and publish.

    An interrupted request is finished by this, or by the next publication. A restored folder is swept by its first run.

    Exit code 1 if a file couldn't be gone through, or a file in quarantine/ may hold an erased person.
    """
    with plain_errors(), _session() as session:
        if copy is not None:
            said = receipt.put_list_back(session.data, copy, datetime.now(UTC))
            out.print(escape(said), highlight=False, soft_wrap=True)
        session.data.state.note_swept(0)  # so that files are looked through that somebody put back by hand
        troubles = _carry_out(session)
        left = {} if troubles else requests.note_done(session.data, datetime.now(UTC))
        out.print("The folder follows the suppression list." if not troubles else "The folder doesn't follow it yet.")
        troubles += [
            f"{path} may hold the person of erasure {number}. Delete the file, then run `leads-pipeline privacy apply`."
            for number, paths in left.items()
            for path in paths
        ]
        _show_troubles(troubles)
    sys.exit(1 if troubles else 0)


def _asked(
    session: Session, action: Action, *, case: str, received: datetime | None, shared: bool, **given: Any
) -> Request:
    """A request, from the options. What was found of the person is shown."""
    day, person = _received_on(case, received), person_of(shared=shared, **given)
    found = search(session.data, person, is_shared=shared)
    show_found(found, show=False)
    return Request(action, person, found, day, case)


def _stop(request: Request, counted: str) -> NoReturn:
    """End without a change."""
    out.print(f"{counted} Nothing was changed.")
    sys.exit(1 if request.found.unread else 0)


def _carry_out(session: Session, entry: Entry | None = None) -> list[str]:
    """Sweep the folder and publish. Return what went wrong."""
    try:
        with err.status("Sweeping the data folder and publishing"):
            return receipt.carry_out(session.data, session.publish)
    except KeyboardInterrupt:
        if entry:
            err.print(
                f"The {NOUNS[entry.action]} {entry.number} is on the list and not carried out yet. The next "
                "publication does it, or `leads-pipeline privacy apply`."
            )
        raise


def _hand_out(session: Session, entry: Entry, done: str, troubles: Sequence[str]) -> NoReturn:
    """Print the receipt. Exit with 1 if something is left; then the request stays open."""
    if not troubles:
        requests.note_done(session.data, datetime.now(UTC))
    text, path = receipt.write_receipt(session.data, entry, done, is_complete=not troubles)
    out.print(escape(text), highlight=False, soft_wrap=True)
    out.print(f"This receipt: {path}", highlight=False, soft_wrap=True)
    _show_troubles(troubles)
    sys.exit(1 if troubles else 0)


def _until_lifted(entry: Entry) -> str:
    return f"It holds until `leads-pipeline privacy lift {entry.number}`."


# --- what the commands share -------------------------------------------------------------------------------------


def _filled() -> Settings:
    """The settings, if leads were landed in their data folder. In a mistyped folder nobody would be found."""
    settings = Settings.from_variables(variables())
    if settings.store is None and not (settings.data_dir / "raw").is_dir():
        raise QuestionError(f"{settings.data_dir} holds no leads. Nothing was done. Correct LEADS_DATA_DIR.")
    return settings


def _opened() -> tuple[DataFolder, Settings]:
    settings = _filled()
    return opened(settings), settings


@contextmanager
def _session() -> Iterator[Session]:
    _filled()
    with Session.opened() as session:
        yield session


def _received_on(case: str, received: datetime | None) -> date:
    """The day of the request. Raises QuestionError if the day or the reference can't be."""
    if case and not _CASE.fullmatch(case):
        raise QuestionError("--case takes up to 40 letters, digits, dots, dashes and slashes: a reference, no name.")
    today = datetime.now(UTC).date()
    day = received.date() if received else today
    if day > today:
        raise QuestionError("--received is in the future.")
    return day


def _show_troubles(troubles: Sequence[str]) -> None:
    for trouble in troubles[:LISTED]:
        err.print(f"[bold red]left:[/bold red] {escape(trouble)}", highlight=False, soft_wrap=True)
