"""`leads-pipeline privacy …`: find, export, erase, correct, object, restrict, lift, apply, log, retain, share."""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path
from typing import Any, Final, TextIO

import click
from rich.markup import escape

from leads_pipeline.cli.output import err, out, plain_errors, table
from leads_pipeline.cli.session import Session, opened
from leads_pipeline.domain.person import Person, Reason, email_keys, phone_keys
from leads_pipeline.errors import QuestionError
from leads_pipeline.privacy import requests
from leads_pipeline.privacy.export import Contact, context_of, versions_of, write_export
from leads_pipeline.privacy.finding import Found, FoundLead, find, left_in_delta
from leads_pipeline.privacy.retain import cut_days, due_before
from leads_pipeline.privacy.share import write_share
from leads_pipeline.settings import Settings, variables
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.durable import replace_file
from leads_pipeline.storage.suppression import Action, Entry

# As options, as words of --from, and in the order in which they are asked for.
_IDENTIFIERS: Final = {
    "email": ("E-mail addresses, with commas between", "E-mail address, in any spelling; repeat for more."),
    "phone": ("Telephone numbers, with commas between", "Telephone number, in any spelling; repeat for more."),
    "lead": ("Lead id", "A lead's id. It counts as theirs; repeat for more."),
    "name": ("First and last name", "First and last name. It tells people apart who share a number."),
    "postcode": ("Postcode", "The person's own postcode."),
}

# A reference of the agency's own, in which no name and no address fits.
_CASE: Final = re.compile(r"[A-Za-z0-9._/-]{1,40}")

_LISTED: Final = 20

_NOUNS: Final = {
    Action.ERASE: "erasure",
    Action.OBJECT: "objection",
    Action.CORRECT: "correction",
    Action.RESTRICT: "restriction",
    Action.LIFT: "end",
}

_OUT_OF_REACH: Final = {
    Action.ERASE: """\
The pipeline can't reach these places. Please see to them:
- The portal: it answers for its own data. Send the person there.
- Copies of leads.duckdb and exports: delete them, or make them again from the new files.
- Notebooks, spreadsheets and e-mails: ask everybody who may have some to delete the person's rows.
- The CRM: erase the person there as well.
- Backups from before this moment hold the person until you delete them. A restored folder is swept by its first run.
- Programs that still have the old leads.duckdb open: close them.
- The disk: it keeps the bytes of deleted files until it writes over them.""",
    Action.OBJECT: """\
The pipeline can't reach these places. Please see to them:
- Marketing lists outside of leads.duckdb, for example in a CRM.
- Copies that analysts made.
- Marketing that reads the tables of leads itself: pipeline.objected names the people to leave out.""",
    Action.CORRECT: """\
The pipeline can't reach these places. Please see to them:
- The portal: it answers for its own data. Send the person there.
- A CRM, exports, notebooks and copies that analysts made.""",
    Action.RESTRICT: """\
The pipeline can't reach these places. Please see to them:
- The portal: it answers for its own data.
- A CRM, exports, e-mails, notebooks and copies that analysts made.
- Backups, and programs that still have an old leads.duckdb open.""",
}

privacy = click.Group(
    "privacy",
    short_help="Find, export, erase or restrict a person's data.",
    help="Find, export, erase or restrict a person's data. docs/privacy.md has the steps.",
)


def identifiers(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say who is sought."""
    options = [
        click.option(f"--{name}", f"{name}s", multiple=True, help=help_) for name, (_, help_) in _IDENTIFIERS.items()
    ]
    options += [
        click.option(
            "--from",
            "listed",
            type=click.File(encoding="utf-8", errors="replace"),
            metavar="FILE",
            help="Read them from a file, or from - (standard input): lines such as `email: jane@people.example`.",
        ),
        click.option("--shared", is_flag=True, help="Allow what more than three names share. Check each lead."),
    ]
    return reduce(lambda decorated, option: option(decorated), reversed(options), command)


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
        person = _person(**given)
        found = _found(data, person, is_shared=given["shared"])
        held = requests.in_force(data.gate.entries.read(), person, found)
    if as_json:
        click.echo(json.dumps(_as_json(found, held, show=show), indent=2))
    else:
        _show(found, show=show)
        for entry in held:
            out.print(f"On the suppression list: {_NOUNS[entry.action]} {entry.number}.")
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
        found = _found(data, _person(**given), is_shared=given["shared"])
        if found.theirs:
            for path in write_export(folder, found.theirs, data.state.claimed_by(), settings, datetime.now(UTC)):
                out.print(f"{path}", highlight=False, soft_wrap=True)
    out.print(f"Exported leads: {len(found.theirs)}.")
    if found.to_look_at:
        out.print(
            f"Leads to look at, not exported: {len(found.to_look_at)}. `leads-pipeline privacy find` shows them. "
            "Add one with --lead ID."
        )
    _show_unread(found)
    sys.exit(0 if found.theirs and not found.unread else 1)


@privacy.command(short_help="Write a copy without names, to share.")
@click.argument("file", type=click.Path(path_type=Path))
def share(file: Path) -> None:
    """Write FILE, a new DuckDB file: a pseudonymised copy of the published leads, for wide use.

    An allow-list says which fields pass. Its table `about` says what it is, and that it isn't anonymous.
    docs/privacy.md says more.
    """
    with plain_errors():
        data = opened(Settings.from_variables(variables()))
        shared = write_share(data, file.absolute(), datetime.now(UTC))
    counts = ", ".join(f"{name} {count}" for name, count in shared.rows.items())
    out.print(f"{file}: {counts}. Leads of small groups, with less: {shared.in_small_groups}.", soft_wrap=True)
    out.print("It is pseudonymised and not anonymous: UK GDPR applies to it. An erasure doesn't reach it.")


@privacy.command(short_help="Make old leads anonymous.")
@click.option("--dry-run", is_flag=True, help="Only count the leads that are due.")
def retain(dry_run: bool) -> None:
    """Make leads older than LEADS_KEEP_PERSONAL_DAYS anonymous. The rows stay and are counted.

    Each night does the same. docs/privacy.md says which fields stay.

    Exit code 1 if a day couldn't be done, or leads.duckdb couldn't be written anew.
    """
    with plain_errors(), Session.opened() as session:
        keep_days = session.settings.keep_personal_days
        if keep_days is None:
            raise QuestionError("LEADS_KEEP_PERSONAL_DAYS is not set, so leads are kept as they are.")
        before = due_before(datetime.now(UTC), session.settings.zone, keep_days)
        days = list(cut_days(session.data, before, is_dry=dry_run))
        done = [day for day in days if day.error is None]
        for day in done:
            if day.leads:
                out.print(f"{day.day} {day.kind.name}: {_leads(day.leads)}", highlight=False)
        leads = sum(day.leads for day in done)
        out.print(f"Leads from before {before} that {'are due' if dry_run else 'are anonymous now'}: {leads}.")
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
        still = requests.open_entries(suppressed)
        ends = {
            action: {entry.of: entry.at for entry in suppressed.entries if entry.action is action}
            for action in (Action.DONE, Action.LIFT)
        }
        rows = [
            {
                "number": entry.number,
                "action": f"{_NOUNS.get(entry.action, entry.action)}{f' of {entry.of}' if entry.of else ''}",
                "case": entry.case,
                "received": entry.received.isoformat(),
                "due": requests.due_on(entry.received).isoformat(),
                "done": _day(ends[Action.DONE].get(entry.number)),
                "lifted": _day(ends[Action.LIFT].get(entry.number)),
                "leads": len(entry.leads),
            }
            for entry in suppressed.entries
            if entry.received
        ]
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


def _day(moment: datetime | None) -> str | None:
    return f"{moment:%Y-%m-%d}" if moment else None


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
def erase(yes: bool, cleared: Sequence[str], quarantine: str, **asked: Any) -> None:
    """Erase a person, and keep them from coming back with the next pull, push or restore.

    It erases the leads that are theirs. Add leads that you have looked at with --lead. A new enquiry of theirs lands
    again: that person asks to be called. If it is interrupted, run `privacy apply`.

    Exit code 1 if something of the person is left.
    """
    with plain_errors(), Session.opened() as session:
        request = _Request(session, Action.ERASE, **asked)
        others = [lead for lead in request.found.to_look_at if lead.lead_id in cleared]
        if missing := set(cleared) - {lead.lead_id for lead in others}:
            raise QuestionError(f"--clear-message names {len(missing)} leads that don't mention the person.")
        if request.is_dry or not (request.can_list or others):
            request.stop(f"Leads to erase: {len(request.found.theirs)}. Messages to empty: {len(others)}.")
        if not yes:
            question = (
                f"Erase {_leads(len(request.found.theirs))} for good? Messages of others to empty: {len(others)}."
            )
            click.confirm(question, abort=True, err=True)
        entry = request.add()
        if others:
            requests.add_clearing(session.data, entry, others, datetime.now(UTC))
        troubles = request.carry_out(entry)
        found = _found(session.data, request.person, is_shared=True)
        if quarantine == "delete":
            for path in found.quarantined:
                session.data.quarantine.delete([path])
            found = _found(session.data, request.person, is_shared=True)
        erased = session.data.gate.entries.read().erased
        left = [lead for lead in found.leads if erased.is_known(lead.kind, lead.lead_id)]
        left += [lead for lead in found.leads if lead.lead_id in cleared and Reason.MENTION in lead.why]
        troubles += [f"{lead.kind} lead {lead.lead_id}: {', '.join(_places(lead))}" for lead in left]
        troubles += [f"{path} is in quarantine. Delete it with --quarantine delete." for path in found.quarantined]
        new = len(found.theirs) - sum(lead in left for lead in found.theirs)
        request.hand_out(
            entry,
            f"Erased: {_leads(len(request.found.theirs))}, with all versions.\n"
            f"Messages of others emptied: {len(others)}.\n"
            f"New enquiries of theirs, which stay: {new}.\n"
            f"Leads to look at, which stay: {len(found.to_look_at)}. `leads-pipeline privacy find` shows them.\n"
            "Kept: keyed hashes on the suppression list, so that the leads don't come back.",
            troubles,
        )


@privacy.command("object", short_help="Keep a person out of direct marketing.")
@identifiers
@dated
def object_(**asked: Any) -> None:
    """Keep a person out of direct marketing (UK GDPR, article 21): out of mart_hidden_valuations.

    Their leads stay, and new ones land. It holds until `privacy lift` ends it.

    Exit code 1 if it couldn't be published.
    """
    with plain_errors(), Session.opened() as session:
        request = _Request(session, Action.OBJECT, **asked)
        if request.is_dry or not request.can_list:
            request.stop(f"Leads of the person: {len(request.found.theirs)}.")
        entry = request.add()
        troubles = request.carry_out(entry)
        request.hand_out(
            entry,
            f"Out of mart_hidden_valuations. In the other tables stay: {_leads(len(request.found.theirs))}.\n"
            f"It holds until `leads-pipeline privacy lift {entry.number}`.",
            troubles,
        )


@privacy.command(short_help="Set a person's leads aside.")
@identifiers
@dated
def restrict(**asked: Any) -> None:
    """Set a person's leads aside (UK GDPR, article 18), in data/restricted/ alone: those here, and those that come.

    `privacy lift` lands and publishes them again.

    Exit code 1 if something of theirs is still published.
    """
    with plain_errors(), Session.opened() as session:
        request = _Request(session, Action.RESTRICT, **asked)
        if request.is_dry or not request.can_list:
            request.stop(f"Leads to set aside: {len(request.found.theirs)}.")
        entry = request.add(request.in_raw)
        troubles = [*request.carry_out(entry), *request.lost()]
        request.hand_out(
            entry,
            f"Set aside: {_leads(len(request.in_raw))}, and the person's new ones.\n"
            f"It holds until `leads-pipeline privacy lift {entry.number}`.",
            troubles,
        )


@privacy.command(short_help="Correct a person's address or number.")
@identifiers
@dated
@click.option("--new-email", help="The right e-mail address.")
@click.option("--new-phone", help="The right telephone number.")
def correct(new_email: str | None, new_phone: str | None, **asked: Any) -> None:
    """Correct the address or the number of a person's leads (UK GDPR, article 16). It holds over later pulls.

    The versions that were received stay in raw files. Tables show the correction.

    Exit code 1 if it couldn't be published.
    """
    with plain_errors(), Session.opened() as session:
        if not (new_email or new_phone):
            raise QuestionError("Nothing to correct. Give --new-email or --new-phone.")
        for option, text, keys in (("email", new_email, email_keys), ("phone", new_phone, phone_keys)):
            if text and not keys(text):
                raise QuestionError(f"--new-{option} can't be read. Check its spelling.")
        corrected = Person.of([new_email] if new_email else [], [new_phone] if new_phone else [])
        given = {"email": new_email, "phoneNumber": new_phone}
        patch = {"contact": {name: value for name, value in given.items() if value is not None}}
        request = _Request(session, Action.CORRECT, **asked)
        if request.is_dry or not request.found.theirs:
            request.stop(f"Leads to correct: {len(request.found.theirs)}.")
        held = requests.in_force(session.data.gate.entries.read(), request.person, request.found)
        entry = request.add()
        requests.learn_contact(session.data, held, corrected, datetime.now(UTC))
        requests.land_correction(session.data, request.in_raw, json.dumps(patch), datetime.now(UTC))
        troubles = [*(session.refresh() or request.carry_out(entry)), *request.lost()]
        request.hand_out(entry, f"Corrected: {_leads(len(request.in_raw))}.", troubles)


@privacy.command(short_help="End an objection or a restriction.")
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="NUMBER...")
@dated
def lift(numbers: Sequence[int], case: str, received: datetime | None, dry_run: bool) -> None:
    """End an objection or a restriction, by its NUMBER in `privacy log`. `privacy find` shows a person's numbers.

    Restricted leads are landed and published again. An erasure can't be ended.

    Exit code 1 if it couldn't be published.
    """
    with plain_errors():
        day = _received_on(case, received)
        with Session.opened() as session:
            entries = requests.liftable(session.data.gate.entries.read(), numbers)
            for entry in entries:
                out.print(f"Ends: {_NOUNS[entry.action]} {entry.number} of {entry.at:%Y-%m-%d}.")
            if dry_run:
                out.print("Nothing was changed.")
                sys.exit(0)
            for entry in entries:
                requests.add_lift(session.data, entry, case=case, received=day, now=datetime.now(UTC))
            if not (troubles := _carry_out(session)):
                requests.note_done(session.data, datetime.now(UTC))
        _show_troubles(troubles)
    sys.exit(1 if troubles else 0)


@privacy.command(short_help="Bring the folder in line with the suppression list.")
def apply() -> None:
    """Bring the data folder in line with the suppression list, and publish.

    An interrupted request is finished by this, or by the next publication. A restored folder is swept by its first run.

    Exit code 1 if a file couldn't be gone through, or a file in quarantine/ may hold an erased person.
    """
    with plain_errors():
        with Session.opened() as session:
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


class _Request:
    """One person's request, from the options to the receipt."""

    def __init__(
        self,
        session: Session,
        action: Action,
        *,
        case: str,
        received: datetime | None,
        dry_run: bool,
        shared: bool,
        **given: Any,
    ) -> None:
        self._session, self._action, self._case = session, action, case
        self._received = _received_on(case, received)
        self.is_dry = dry_run
        self.person = _person(shared=shared, **given)
        self.found = _found(session.data, self.person, is_shared=shared)
        _show(self.found, show=False)

    @property
    def can_list(self) -> bool:
        """Whether there is something to know the person by: a lead of theirs, an address or a number."""
        return bool(self.found.theirs or self.person.emails or self.person.phones)

    @property
    def in_raw(self) -> list[FoundLead]:
        """Their leads, without those that leads.duckdb alone has."""
        return [lead for lead in self.found.theirs if not lead.is_lost]

    def lost(self) -> list[str]:
        """Say of each of the others that it stays as it is: the only copy is neither taken out nor changed."""
        return [
            f"{lead.kind} lead {lead.lead_id} stays in leads.duckdb as it is: its raw file is lost. Pull its day again "
            "if the portal still has it, and repeat the request. Otherwise erase the lead."
            for lead in self.found.theirs
            if lead.is_lost
        ]

    def stop(self, counted: str) -> None:
        """End without a change."""
        out.print(f"{counted} Nothing was changed.")
        sys.exit(1 if self.found.unread else 0)

    def add(self, leads: Sequence[FoundLead] | None = None) -> Entry:
        """Put the person on the list with these leads, or all of theirs. From now on nobody lands what it keeps out."""
        return requests.add(
            self._session.data,
            self._action,
            self.person,
            self.found,
            self.found.theirs if leads is None else leads,
            case=self._case,
            received=self._received,
            now=datetime.now(UTC),
        )

    def carry_out(self, entry: Entry) -> list[str]:
        """Sweep and publish. Return what went wrong."""
        try:
            return _carry_out(self._session)
        except KeyboardInterrupt:
            err.print(
                f"The {_NOUNS[entry.action]} {entry.number} is on the list and not carried out yet. The next "
                "publication does it, or `leads-pipeline privacy apply`."
            )
            raise

    def hand_out(self, entry: Entry, done: str, troubles: Sequence[str]) -> None:
        """Print the receipt, and keep it beside the list. Exit with 1 if something is left; then it stays open."""
        if not troubles:
            requests.note_done(self._session.data, datetime.now(UTC))
        receipt = (
            f"{_NOUNS[entry.action].capitalize()} {entry.number}{f', case {entry.case}' if entry.case else ''}\n"
            f"Received {self._received}, due {requests.due_on(self._received)}, "
            f"listed {entry.at:%Y-%m-%d %H:%M} UTC\n\n{done}\n"
            f"{'NOT complete: see below.' if troubles else 'Looked again: nothing is left to do here.'}\n\n"
            f"{_OUT_OF_REACH[self._action]}\n"
        )
        path = self._session.data.gate.entries.folder / "receipts" / f"{entry.number}.txt"
        replace_file(path, receipt.encode())
        out.print(escape(receipt), highlight=False, soft_wrap=True)
        out.print(f"This receipt: {path}", highlight=False, soft_wrap=True)
        _show_troubles(troubles)
        sys.exit(1 if troubles else 0)


def _carry_out(session: Session) -> list[str]:
    """Sweep the folder and publish. Return what went wrong."""
    number = session.data.gate.entries.read().number
    with err.status("Sweeping the data folder and publishing"):
        trouble = session.publish()
    if trouble is None and not session.data.state.swept_to() >= number:
        trouble = "A file couldn't be gone through. The log of the run names it."
    if trouble:
        return [trouble]
    # With a bucket, the Delta tables may be another machine's.
    if session.settings.store and (left := left_in_delta(session.data)):
        return [
            f"{table} in the bucket holds an erased person. Run `leads-pipeline privacy apply` on the machine that has "
            "LEADS_TABLES=delta."
            for table in left
        ]
    return []


# --- who is sought, and what is shown -----------------------------------------------------------------------------


def _opened() -> tuple[DataFolder, Settings]:
    settings = Settings.from_variables(variables())
    if not settings.data_dir.is_dir():
        raise QuestionError(f"{settings.data_dir} is no folder. LEADS_DATA_DIR names the data folder.")
    return opened(settings), settings


def _person(listed: TextIO | None, shared: bool, **given: Sequence[str]) -> Person:  # noqa: ARG001 - of the options
    """Who is sought, by options, by a file, or by asking. Raises QuestionError."""
    values = {name: list(given[f"{name}s"]) for name in _IDENTIFIERS}
    if listed is not None:
        _read_list(listed, values)
    if not any(values.values()):
        if not sys.stdin.isatty():
            raise QuestionError("Nobody is sought. Give --email, --phone, --lead, --name, --postcode or --from.")
        for name, (label, _) in _IDENTIFIERS.items():
            answer = click.prompt(f"{label} (none: return)", default="", show_default=False, err=True)
            values[name] += [answer] if answer.strip() else []
    return Person.of(values["email"], values["phone"], values["lead"], values["name"], values["postcode"])


def _read_list(lines: TextIO, values: dict[str, list[str]]) -> None:
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or name.strip().casefold() not in values:
            raise QuestionError(
                f"Line {number} of --from can't be read. Write one of {', '.join(_IDENTIFIERS)}, a colon and the value."
            )
        values[name.strip().casefold()].append(value.strip())


def _received_on(case: str, received: datetime | None) -> date:
    """The day of the request. Raises QuestionError if the day or the reference can't be."""
    if case and not _CASE.fullmatch(case):
        raise QuestionError("--case takes up to 40 letters, digits, dots, dashes and slashes: a reference, no name.")
    today = datetime.now(UTC).date()
    day = received.date() if received else today
    if day > today:
        raise QuestionError("--received is in the future.")
    return day


def _found(data: DataFolder, person: Person, *, is_shared: bool) -> Found:
    with err.status("Looking") as status:
        return find(data, person, is_shared=is_shared, tell=lambda count: status.update(f"Looking: {count} files"))


def _leads(number: int) -> str:
    return f"{number} lead{'' if number == 1 else 's'}"


def _places(lead: FoundLead) -> list[str]:
    return [f"{place} {count}" for place, count in sorted(Counter(row.place for row in lead.rows).items())]


def _show(found: Found, *, show: bool) -> None:
    """Print both groups, and the files that couldn't be read."""
    for title, leads in (("Theirs", found.theirs), ("To look at", found.to_look_at)):
        if not leads:
            continue
        rows = []
        for lead in leads:
            contact = Contact.of(lead) if show else Contact.of(lead).masked()
            texts = ("\n".join(contact.names), "\n".join(contact.others), "\n".join(sorted(lead.why)))
            more = ["\n".join(context_of(lead))] if show else []
            rows.append((lead.kind, lead.lead_id, *texts, *more, "\n".join(_places(lead))))
        more_names = ["day, branch, postcode and message"] if show else []
        names = ("kind", "lead id", "name", "contact", "why", *more_names, "versions received, by place")
        shown = table(names, [[escape(text) for text in row] for row in rows], title)
        for column in shown.columns:
            column.overflow, column.no_wrap = "fold", column.header == "lead id"  # an id is of use only whole
        out.print(shown)
    out.print(
        f"Theirs: {_leads(len(found.theirs))}. To look at: {_leads(len(found.to_look_at))}. Files read: {found.files}."
    )
    _show_unread(found)


def _show_unread(found: Found) -> None:
    for path in found.unread[:_LISTED]:
        err.print(f"[bold red]not read:[/bold red] {escape(path)}", highlight=False, soft_wrap=True)
    if len(found.unread) > _LISTED:
        err.print(f"… and {len(found.unread) - _LISTED} more.")
    if found.unread:
        err.print("These files may hold the person as well. docs/privacy.md says what to do with them.")


def _show_troubles(troubles: Sequence[str]) -> None:
    for trouble in troubles[:_LISTED]:
        err.print(f"[bold red]left:[/bold red] {escape(trouble)}", highlight=False, soft_wrap=True)


def _as_json(found: Found, held: Sequence[Entry], *, show: bool) -> dict[str, object]:
    def of(lead: FoundLead) -> dict[str, object]:
        contact = Contact.of(lead) if show else Contact.of(lead).masked()
        return {
            "kind": lead.kind,
            "lead_id": lead.lead_id,
            "names": contact.names,
            "contacts": contact.others,
            "why": sorted(lead.why),
            "versions": len(versions_of(lead)),
            "rows": [{"place": row.place, "file": row.path} for row in lead.rows],
        }

    return {
        "theirs": [of(lead) for lead in found.theirs],
        "to_look_at": [of(lead) for lead in found.to_look_at],
        "quarantine": found.quarantined,
        "not_read": found.unread,
        "in_force": [{"number": entry.number, "action": entry.action} for entry in held],
        "files": found.files,
    }
