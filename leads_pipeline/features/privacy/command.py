"""The commands of `leads-pipeline privacy`.

They are find, export, erase, correct, object, restrict, lift, apply, log and retain.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import click
from rich.markup import escape

from leads_pipeline.cli.installation import open_existing_folder, publish
from leads_pipeline.cli.output import LISTED, day, err, json_option, out
from leads_pipeline.domain.contract import lead_reference
from leads_pipeline.errors import QuestionError
from leads_pipeline.features.privacy import receipt, requests
from leads_pipeline.features.privacy.access import write_export
from leads_pipeline.features.privacy.carrying_out import CarriedOut, carry_out
from leads_pipeline.features.privacy.contact_keys import is_address, keys_in
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.identity import Person, lead_key
from leads_pipeline.features.privacy.nightly import check_clock
from leads_pipeline.features.privacy.people import (
    NEW_EMAIL,
    NEW_PHONE,
    Listed,
    found_as_json,
    identifiers,
    person_of,
    search,
    show_found,
    show_person,
)
from leads_pipeline.features.privacy.requests import NOUNS, Request
from leads_pipeline.features.privacy.retain import cut_days, due_before
from leads_pipeline.features.privacy.search import (
    Found,
    FoundLead,
    is_mentioned_beside_message,
    names_of_theirs,
    not_found,
)
from leads_pipeline.features.privacy.settings import PrivacySettings
from leads_pipeline.features.privacy.suppression import Action, Entry
from leads_pipeline.health.facts import Facts
from leads_pipeline.portal.http import server_time
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.words import counted

# A reference of the agency's own, in which no name and no address fits.
_CASE: Final = re.compile(r"[A-Za-z0-9._/-]{1,40}")


@click.group()
def privacy() -> None:
    """Find, export, erase or restrict a person's data. Begin with `find`: it changes nothing."""


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be done, and change nothing."
)


received_option = click.option(
    "--received",
    type=day,
    metavar="DAY",
    help="The day on which the request came, as 2026-11-01. Default: today.",
)
case_option = click.option(
    "--case", default="", help="Your own reference, such as DSR-17. No name, no address."
)


def dated(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which request it is."""
    return case_option(received_option(dry_run_option(command)))


# --- looking --------------------------------------------------------------------------------------


@privacy.command("find", short_help="Show where a person's data is.")
@identifiers
@click.option(
    "--show", is_flag=True, help="Don't mask names, addresses and numbers. On a terminal only."
)
@json_option
def find_(show: bool, as_json: bool, shared: bool, **given: Any) -> None:
    """Show a person's leads, and leads to look at that may be theirs, each with its reasons.

    Without an option it asks for the person, so that no address stays in the shell's history.

    Exit code 1 if a file couldn't be read, so that something may be missing.
    """
    _, data = open_existing_folder()
    if show and not sys.stdout.isatty():
        raise QuestionError(
            "--show prints personal data, and the output is no terminal. Leave it out."
        )

    person = person_of(**given)
    if not as_json:
        show_person(person, show=show)

    found = search(data, person, is_shared=shared)
    if unknown := person.lead_ids - found.keys:
        err.print(escape(not_found(unknown)))

    held = requests.in_force(list_of(data).read(), person, found)
    if as_json:
        click.echo(json.dumps(found_as_json(person, found, held, show=show), indent=2))
    else:
        show_found(found, show=show)
        for entry in held:
            out.print(f"On the suppression list: {NOUNS[entry.action]} {entry.number}.")

    sys.exit(1 if found.unread else 0)


@privacy.command(short_help="Write a person's data for their access request.")
@identifiers
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for person.html and person.json.",
)
@click.option(
    "--case",
    required=True,
    help="Your own reference, such as DSR-17. No name, no address. --answered takes a number of "
    "`privacy log`, too.",
)
@received_option
@click.option(
    "--answered",
    type=day,
    metavar="DAY",
    help="Note in the log that the request of --case was answered on this day.",
)
def export(
    folder: Path | None,
    shared: bool,
    case: str,
    received: date | None,
    answered: date | None,
    **given: Any,
) -> None:
    """Write a person's data for their access request.

    person.html is to be read, and person.json is for a machine. They hold all versions of the leads
    that are the person's, with sources, purposes, retention, and the recipients that the ledger of
    deliveries knows. Add leads that you have looked at with --lead. Look at both files before you
    send them. The request stands in `privacy log` with its due date, until you note the answer with
    --answered.

    Exit code 1 if a file couldn't be read, so that something may be missing.
    """
    received = _received_on(case, received)
    settings, data = open_existing_folder()

    if answered is not None:
        _note_answered(data, case, answered)
        return

    if folder is None:
        raise QuestionError("Name a new folder for the answer: --to FOLDER.")

    data.want_outside(folder)
    person, found = _theirs(data, Action.ACCESS, is_shared=shared, **given)
    now = datetime.now(UTC)
    paths = write_export(data, folder, found.theirs, settings, now) if found.theirs else []

    for path in paths:
        out.print(f"Wrote {path}.")

    entry = requests.add_access(data, Request(Action.ACCESS, person, found, received, case), now)
    text, path = receipt.write_receipt(data, entry, _exported(found), is_complete=not found.unread)
    out.print(escape(f"\n{text}"), soft_wrap=False)
    out.print(escape(f"This receipt: {path}"))
    sys.exit(1 if found.unread else 0)


def _exported(found: Found) -> str:
    """Say what was written for an access request, or what to do if nothing was."""
    if found.theirs:
        return (
            f"{counted(len(found.theirs), 'lead')} of the person written for their access request."
        )
    if found.to_look_at:
        return (
            "No lead was found that is surely theirs, so nothing was written. Read the leads to "
            "look at. Give theirs with --lead, and export again. If none is, tell the person that "
            "you hold none."
        )
    return "No lead was found, so nothing was written. Tell the person that you hold none."


def _note_answered(data: DataFolder, case: str, answered: date) -> None:
    if answered > datetime.now(UTC).date():
        raise QuestionError("--answered is in the future.")
    entry, before = requests.note_answered(data, case, answered)
    instead = f", not on {before}" if before not in (None, answered.isoformat()) else ""
    of_case = f", case {entry.case}," if entry.case else ""
    out.print(
        f"Noted: {NOUNS[entry.action]} {entry.number}{of_case} was answered on {answered}{instead}."
    )


@privacy.command(short_help="Make old leads anonymous.")
@dry_run_option
def retain(dry_run: bool) -> None:
    """Make leads older than LEADS_KEEP_PERSONAL_DAYS anonymous. The rows stay and are counted.

    Names, e-mail addresses, telephone numbers, messages and unknown fields are deleted. So are the
    applicant's postcode, and the owner's street, postcode, UPRN and coordinates. Each night does
    the same.

    Exit code 1 if a day couldn't be done, or leads.duckdb couldn't be written anew.
    """
    settings, data = open_existing_folder()
    keep_days = settings.of(PrivacySettings).keep_personal_days
    now = datetime.now(UTC)

    if keep_days is None:
        raise QuestionError(
            "LEADS_KEEP_PERSONAL_DAYS is not set, so leads are kept as they are. Set it to 35 or "
            "more."
        )

    check_clock(settings, now, server_time)
    before = due_before(now, Facts(settings, data, now).zone, keep_days)
    days = list(cut_days(data, before, is_dry=dry_run))
    leads = f"{counted(sum(one.leads for one in days), 'lead')} from before {before}"
    troubles = [f"{one.day} {one.kind.name}: {one.error}" for one in days if one.error is not None]

    if dry_run:
        _end(f"{leads} would be made anonymous.", troubles)

    if trouble := publish():
        troubles.append(trouble)

    out.print(f"Made anonymous: {leads}.")
    _exit(troubles)


@privacy.command(short_help="Show requests, what was done, and what is due.")
@json_option
def log(as_json: bool) -> None:
    """Show each request with its number and its dates: received, answer due, done.

    An answer is due one month after the request was received. An objection or a restriction holds
    until `privacy lift NUMBER` ends it. Numbers can have gaps.

    Exit code 1 if a request isn't carried out or answered yet.
    """
    _, data = open_existing_folder()
    suppressed = list_of(data).read()
    still = [*requests.open_entries(suppressed), *requests.open_access(suppressed)]
    rows = requests.log(suppressed)

    if as_json:
        click.echo(json.dumps({"entries": rows}, indent=2))
    elif not rows:
        click.echo("No requests yet.")
    else:
        for row in rows:
            case = f", case {row['case']}" if row["case"] else ""
            done = f"done {row['done']}" if row["done"] else "not done yet"
            lifted = f", ended {row['lifted']}" if row["lifted"] else ""
            due = f"due {row['due']}, " if row["due"] else ""
            dates = f"Received {row['received']}, {due}{done}{lifted}"
            click.echo(f"{row['number']}: {row['action']}{case}. {dates}.")

    sys.exit(1 if still else 0)


# --- requests -------------------------------------------------------------------------------------


@privacy.command(short_help="Erase a person from every file, for good.")
@identifiers
@dated
@click.option("--yes", is_flag=True, help="Don't ask again.")
@click.option(
    "--clear-message",
    "cleared",
    multiple=True,
    metavar="KIND/ID",
    help="Empty the message of this lead of somebody else, which mentions the person; repeat for "
    "more.",
)
@click.option(
    "--quarantine",
    type=click.Choice(["keep", "delete"]),
    default="keep",
    help="Files in quarantine/ that hold the person or can't be read: keep and name them, or "
    "delete them.",
)
def erase(yes: bool, cleared: Sequence[str], quarantine: str, dry_run: bool, **asked: Any) -> None:
    """Erase a person, and keep them from coming back with the next pull, push or restore.

    Add leads that you have looked at with --lead. If the person sends a new enquiry, it is stored:
    they ask to be called. If the command is interrupted, run `privacy apply`.

    Exit code 1 if something of the person is left, or you answer no.
    """
    data, request = _asked(Action.ERASE, **asked)
    found = request.found
    others = _to_clear(request, cleared)
    leads = counted(len(found.theirs), "lead")
    messages = f", and {counted(len(others), 'message')} of others emptied" if others else ""
    if dry_run:
        _end(f"{leads} would be erased{messages}.", found.unread)
    if not yes and not click.confirm(f"Erase {leads} for good{messages}?", err=True):
        out.print("Nothing was erased.")
        sys.exit(1)

    entry = requests.add(data, request, datetime.now(UTC), others)
    stay = (
        f"\nLeads to look at, which stay: {len(found.to_look_at) - len(others)}."
        if found.to_look_at
        else ""
    )
    if quarantine == "delete":
        data.quarantine.delete(found.quarantined)
        stay += f"\nDeleted from quarantine/: {counted(len(found.quarantined), 'file')}."
    kept = "Kept: keyed hashes on the suppression list, so that the leads don't come back."
    _hand_out(data, request, entry, f"{leads} erased, with all versions{messages}.{stay}\n{kept}")


def _to_clear(request: Request, cleared: Sequence[str]) -> list[FoundLead]:
    """Return the leads of others whose messages are emptied.

    Raises QuestionError if one can't be, or that isn't enough.
    """
    keys = {lead_key(text) for text in cleared}
    others = [lead for lead in request.found.to_look_at if lead.key in keys]
    missing = keys - {lead.key for lead in others}
    if missing:
        raise QuestionError(
            f"--clear-message names {counted(len(missing), 'lead')} that are not among those to "
            "look at."
        )

    beside = [
        lead_reference(*lead.key)
        for lead in others
        if is_mentioned_beside_message(request.person, lead)
    ]
    if beside:
        raise QuestionError(
            f"--clear-message empties the message alone, and {' and '.join(beside)} mentions the "
            "person in another field. Give it to --lead, which erases that lead, or leave it out."
        )
    return others


@privacy.command("object", short_help="Keep a person out of direct marketing.")
@identifiers
@dated
def object_(dry_run: bool, **asked: Any) -> None:
    """Keep a person out of direct marketing (UK GDPR, article 21): out of mart_hidden_valuations.

    Their leads stay, and new ones land. It holds until `privacy lift` ends it.

    Exit code 1 if it couldn't be published.
    """
    _hold(Action.OBJECT, "kept out of direct marketing (mart_hidden_valuations)", dry_run, **asked)


@privacy.command(short_help="Set a person's leads aside.")
@identifiers
@dated
def restrict(dry_run: bool, **asked: Any) -> None:
    """Set a person's leads aside (UK GDPR, article 18).

    They move to data/restricted/, and are in no table. So do leads that come later. `privacy lift`
    publishes them again.

    Exit code 1 if something of theirs is still published.
    """
    _hold(Action.RESTRICT, "set aside", dry_run, **asked)


def _hold(action: Action, what: str, dry_run: bool, **asked: Any) -> None:
    """Put an objection or a restriction on the list. It holds until somebody ends it."""
    data, request = _asked(action, **asked)
    leads = counted(
        len(request.found.in_raw if action is Action.RESTRICT else request.found.theirs), "lead"
    )
    if dry_run:
        _end(f"{leads} would be {what}.", request.found.unread)
    entry = requests.add(data, request, datetime.now(UTC))
    holds = f"This holds for later leads too, until `leads-pipeline privacy lift {entry.number}`."
    _hand_out(data, request, entry, f"{leads} {what}.\n{holds}")


@privacy.command(short_help="Correct a person's e-mail address or telephone number.")
@identifiers
@dated
@click.option("--new-email", multiple=True, help="The right e-mail address.")
@click.option("--new-phone", multiple=True, help="The right telephone number.")
def correct(
    new_email: Sequence[str], new_phone: Sequence[str], dry_run: bool, listed: Listed, **asked: Any
) -> None:
    """Correct the e-mail address or telephone number of a person's leads (UK GDPR, article 16).

    Leads of later pulls are corrected too.

    Without an option it asks for the right ones, or reads lines of --from such as `new-email:
    jane@home.example`. The versions that were received stay in raw files. Tables show the
    correction.

    Exit code 1 if it couldn't be published.
    """
    emails = [*new_email, *listed[NEW_EMAIL]]
    phones = [*new_phone, *listed[NEW_PHONE]]
    if not (emails or phones) and sys.stdin.isatty():
        emails = _prompted("The right e-mail address")
        phones = _prompted("The right telephone number")

    email, phone = _right_contact(emails, phones)
    data, request = _asked(Action.CORRECT, listed=listed, **asked)
    leads = counted(len(request.found.in_raw), "lead")

    if dry_run:
        requests.correction_of(data, request, email, phone)
        _end(f"{leads} would be corrected.", request.found.unread)

    entry = requests.add_correction(data, request, email, phone, datetime.now(UTC))
    _hand_out(data, request, entry, f"{leads} corrected.")


def _prompted(label: str) -> list[str]:
    """What is typed, outside of the shell's history."""
    typed = click.prompt(
        f"{label} (as it was: return)", default="", show_default=False, err=True
    ).strip()
    return [typed] if typed else []


def _right_contact(emails: Sequence[str], phones: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the right address and number, at most one of each.

    Raises QuestionError, which repeats neither.
    """
    if not (emails or phones):
        raise QuestionError(
            "Nothing to correct. Give --new-email or --new-phone, or a line of --from."
        )
    if max(len(emails), len(phones)) > 1:
        raise QuestionError(
            "A lead has one e-mail address and one telephone number. Give one of each."
        )
    if not all(map(is_address, emails)):
        raise QuestionError("The right e-mail address isn't valid. Check its spelling.")
    if not all(keys_in(text).phones for text in phones):
        raise QuestionError("The right telephone number isn't valid. Check its spelling.")

    return next(iter(emails), None), next(iter(phones), None)


@privacy.command(short_help="End an objection or a restriction.")
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="NUMBER...")
@dated
@click.option("--yes", is_flag=True, help="Don't ask again.")
def lift(
    numbers: Sequence[int], case: str, received: date | None, dry_run: bool, yes: bool
) -> None:
    """End an objection or a restriction, by its NUMBER in `privacy log`.

    `privacy find` shows a person's numbers. Restricted leads are landed and published again. An
    erasure can't be ended.

    Exit code 1 if it couldn't be published, or you answer no.
    """
    received = _received_on(case, received)
    _, data = open_existing_folder()
    entries = requests.liftable(list_of(data).read(), numbers)
    named = "; ".join(map(_named, entries))

    if any(entry.action is Action.RESTRICT for entry in entries):
        out.print("Tell the person before the restriction ends (UK GDPR, article 18(3)).")

    if dry_run:
        _end(f"Would end: {named}.")

    if not yes and not click.confirm(f"End {named}?", err=True):
        out.print("Nothing was ended.")
        sys.exit(1)

    for entry in entries:
        requests.add_lift(data, entry, case=case, received=received, now=datetime.now(UTC))

    carried_out = _carry_out(data)
    out.print(f"Ended: {named}.")

    for entry in requests.still_holding(list_of(data).read(), entries):
        out.print(
            f"{NOUNS[entry.action].capitalize()} {entry.number} still holds for one of these leads "
            "or more."
        )

    _exit(_troubles(carried_out))


@privacy.command(short_help="Bring the folder in line with the suppression list.")
@click.option(
    "--list",
    "copy",
    type=click.Path(exists=True, path_type=Path),
    metavar="COPY",
    help="First put a lost or damaged list back, from a copy of its file or folder or from a "
    "backup.",
)
def apply(copy: Path | None) -> None:
    """Take out of the data folder everybody who was erased or is restricted, and publish.

    An interrupted request is finished by this, or by the next publication. A restored folder is
    swept by its first run.

    Exit code 1 if a file couldn't be read or written, or a file in quarantine/ may hold an erased
    person.
    """
    _, data = open_existing_folder()
    if copy is not None:
        out.print(escape(receipt.put_list_back(data, copy, datetime.now(UTC))))

    data.state.note_swept(0)  # so that files are looked through that somebody put back by hand
    interrupted = [entry.number for entry in requests.open_entries(list_of(data).read())]
    carried_out = _carry_out(data, with_earlier_erasures=True)

    for path in (receipt.receipt_path(data, number) for number in interrupted):
        if path.exists():
            out.print(escape(f"\n{path.read_text(encoding='utf-8')}"), soft_wrap=False)
            out.print(escape(f"This receipt: {path}"))

    for line in (*receipt.forget_deliveries_of_erased(data), *receipt.note_confirmations(data)):
        out.print(escape(line))

    troubles = _troubles(carried_out)
    for number, texts in carried_out.left.items():
        troubles += [f"Erasure {number}: {text}" for text in texts]

    if not troubles:
        out.print(
            "Done. No erased person is in the data folder, and no restricted one is published."
        )

    _exit(troubles)


# --- what the commands share ----------------------------------------------------------------------


def _asked(
    action: Action, *, case: str, received: date | None, shared: bool, **given: Any
) -> tuple[DataFolder, Request]:
    """The data folder, and a request from the options. The leads of the person are shown."""
    received = _received_on(case, received)
    _, data = open_existing_folder()
    person, found = _theirs(data, action, is_shared=shared, **given)
    return data, Request(action, person, found, received, case)


def _theirs(
    data: DataFolder, action: Action, *, is_shared: bool, **given: Any
) -> tuple[Person, Found]:
    """Show the person and the leads that were found, and return both.

    Raises QuestionError if the leads may be two people's.
    """
    person = person_of(**given)
    show_person(person)
    found = search(data, person, is_shared=is_shared)
    _want_leads(data, action, person, found)
    show_found(found)
    count = len(names_of_theirs(person, found))

    if count > 1 and not (person.contact.names or is_shared):
        raise QuestionError(
            f"These leads carry {count} names. Give the person's name: --name. With --shared, all "
            "of them are theirs."
        )

    return person, found


def _want_leads(data: DataFolder, action: Action, person: Person, found: Found) -> None:
    """Raise QuestionError if no lead has a given id.

    An erasure goes on with a warning if an interrupted one may have taken the lead out: nothing of
    the person is found, or the list has the lead as erased.
    """
    unknown = person.lead_ids - found.keys
    if not unknown:
        return

    erased = list_of(data).read().erased
    may_be_erased = not found.leads or all(erased.is_known(*lead) for lead in unknown)
    if action is Action.ERASE and may_be_erased:
        err.print(f"[bold red]Warning:[/bold red] {escape(not_found(unknown))}")
        return

    raise QuestionError(not_found(unknown))


def _named(entry: Entry) -> str:
    of_case = f", case {entry.case}" if entry.case else ""
    return f"{NOUNS[entry.action]} {entry.number}{of_case}, of {entry.at:%Y-%m-%d}"


def _received_on(case: str, received: date | None) -> date:
    """The day of the request. Raises QuestionError if the day or the reference can't be."""
    if case and not _CASE.fullmatch(case):
        raise QuestionError(
            "--case takes up to 40 letters, digits, dots, dashes and slashes: a reference, no name."
        )
    today = datetime.now(UTC).date()
    if received and received > today:
        raise QuestionError("--received is in the future.")
    return received or today


def _carry_out(
    data: DataFolder,
    *,
    with_earlier_erasures: bool = False,
    done_in_words: Mapping[int, str] | None = None,
) -> CarriedOut:
    """Carry the open requests out (see carry_out). On ctrl-C, say what is left."""
    try:
        with err.status("Sweeping the data folder and publishing"):
            return carry_out(
                data,
                publish,
                datetime.now(UTC),
                with_earlier_erasures=with_earlier_erasures,
                done_in_words=done_in_words,
            )
    except KeyboardInterrupt:
        err.print(
            "Requests on the list may not be carried out yet. The next publication does it, or "
            "`leads-pipeline privacy apply`."
        )
        raise


def _hand_out(data: DataFolder, request: Request, entry: Entry, done: str) -> NoReturn:
    """Carry the request out, and print its receipt."""
    if not request.found.theirs:
        none = (
            "No lead of this person was found. Check the spelling. What was given is on the list."
        )
        done = f"{none}\n{done}"

    carried_out = _carry_out(data, done_in_words={entry.number: done})
    if carried_out.trouble is not None:
        receipt.write_receipt(
            data, entry, "The request is on the list, and isn't carried out yet.", is_complete=False
        )

    path = receipt.receipt_path(data, entry.number)
    text = path.read_text(encoding="utf-8")
    out.print(escape(f"\n{text}"), soft_wrap=False)
    out.print(escape(f"This receipt: {path}"))
    _exit([*_troubles(carried_out), *carried_out.left.get(entry.number, ())])


def _troubles(carried_out: CarriedOut) -> list[str]:
    return [carried_out.trouble] if carried_out.trouble is not None else []


def _end(said: str, troubles: Sequence[str] = ()) -> NoReturn:
    """End without a change."""
    out.print(f"{said} Nothing was changed.")
    sys.exit(1 if troubles else 0)


def _exit(troubles: Sequence[str]) -> NoReturn:
    """Print what is left. Exit with 1 if something is."""
    for trouble in troubles[:LISTED]:
        err.print(f"[bold red]left:[/bold red] {escape(trouble)}")
    sys.exit(1 if troubles else 0)
