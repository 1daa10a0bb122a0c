"""The person who is sought, and how the leads that were found are shown.

Belongs here: options and questions that name a person, leads in words and as JSON, masked unless
asked for. Doesn't: the search (search.py), requests (command.py).
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TextIO

import click
from rich.markup import escape

from leads_pipeline.cli.output import LISTED, err, out
from leads_pipeline.domain.contract import lead_reference
from leads_pipeline.errors import QuestionError
from leads_pipeline.features.privacy.access import Contact, versions_of, written_by
from leads_pipeline.features.privacy.identity import Person, lead_key
from leads_pipeline.features.privacy.search import Found, FoundLead, find
from leads_pipeline.features.privacy.suppression import Entry
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.words import counted

# As options, as words of --from, and in the order in which they are asked for.
_IDENTIFIERS: Final = {
    "email": ("E-mail address", "E-mail address, in any spelling; repeat for more."),
    "phone": ("Telephone number", "Telephone number, in any spelling; repeat for more."),
    "name": (
        "First and last name",
        "First and last name. It tells people apart who share an address or a number.",
    ),
    "postcode": ("Postcode", "The person's own postcode."),
    "lead": (
        "Lead, as KIND/ID",
        "A lead that counts as the person's, such as applicant/17; repeat for more.",
    ),
    "not-lead": (
        "Lead of somebody else, as KIND/ID",
        "A lead that is somebody else's, so it is left out; repeat for more.",
    ),
}
_KIND_ID: Final = "KIND/ID"

# More words of --from, which `privacy correct` alone reads.
NEW_EMAIL: Final = "new-email"
NEW_PHONE: Final = "new-phone"
CORRECTED: Final = (NEW_EMAIL, NEW_PHONE)

# What --from gives, by its words.
Listed = dict[str, list[str]]


def identifiers(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say who is sought."""
    options = [
        click.option(
            f"--{name}",
            _parameter(name),
            multiple=True,
            help=help_,
            metavar=_KIND_ID if "lead" in name else None,
        )
        for name, (_, help_) in _IDENTIFIERS.items()
    ]
    options += [
        click.option(
            "--from",
            "listed",
            type=click.File(encoding="utf-8", errors="replace"),
            callback=_read_list,
            metavar="FILE",
            help="Read them from a file, or from - (standard input): lines such as `email: "
            "jane@people.example`.",
        ),
        click.option(
            "--shared",
            is_flag=True,
            help="Take an address or number that many names use, and leads under several names. "
            "Check each lead.",
        ),
    ]

    for option in reversed(options):
        command = option(command)

    return command


def _parameter(name: str) -> str:
    return f"{name.replace('-', '_')}s"


def _read_list(_context: click.Context, __: click.Parameter, file: TextIO | None) -> Listed:
    """The lines of --from, by their words. Raises QuestionError, which repeats no line."""
    listed: Listed = {name: [] for name in (*_IDENTIFIERS, *CORRECTED)}
    if file is None:
        return listed

    with file:
        lines = file.readlines()

    for number, line in enumerate(lines, 1):
        name, _, value = (part.strip() for part in line.partition(":"))
        if value and name.casefold() in listed:
            listed[name.casefold()].append(value)
        elif line.strip():
            raise QuestionError(
                f"Line {number} of --from isn't valid. Write for example `email: "
                f"jane@people.example`. Allowed words: {', '.join(listed)}."
            )

    return listed


def person_of(listed: Listed, **given: Sequence[str]) -> Person:
    """The person who is sought, by options, by a file, or by asking. Raises QuestionError."""
    values = {name: [*given[_parameter(name)], *listed[name]] for name in _IDENTIFIERS}
    if not any(values.values()) and sys.stdin.isatty():
        for name, (label, _) in _IDENTIFIERS.items():
            while answer := click.prompt(
                f"{label} (no more: return)", default="", show_default=False, err=True
            ).strip():
                values[name].append(answer)

    leads, not_leads = (map(lead_key, values[name]) for name in ("lead", "not-lead"))
    return Person.of(
        values["email"], values["phone"], leads, values["name"], values["postcode"], not_leads
    )


def search(data: DataFolder, person: Person, *, is_shared: bool) -> Found:
    """Search all files for the person, and say how far that is."""
    with err.status("Looking") as status:
        return find(
            data,
            person,
            is_shared=is_shared,
            tell=lambda count: status.update(f"Looking: {count} files"),
        )


def read_as(person: Person, *, show: bool = False) -> list[str]:
    """Return the keys of the given addresses, numbers and names, masked unless `show`."""
    contact = person.contact
    keys = Contact(sorted(contact.names), [*sorted(contact.emails), *sorted(contact.phones)])
    shown = keys if show else keys.masked()
    return [*shown.others, *shown.names]


def show_person(person: Person, *, show: bool = False) -> None:
    """Print what was read, so that a slip shows."""
    if keys := read_as(person, show=show):
        out.print(escape(f"Looking for {', '.join(keys)}."), soft_wrap=False)


def show_found(found: Found, *, show: bool = False) -> None:
    """Print both groups, the files that couldn't be read, and what to do next."""
    groups = (
        ("The person's leads", found.theirs),
        ("Leads to look at, which may be theirs", found.to_look_at),
    )
    for title, leads in groups:
        if leads:
            out.print(f"[bold]{title}[/bold]")
        for lead in leads:
            out.print(escape("\n    ".join(lines_of(lead, show=show))))

    read = counted(found.files, "file")
    theirs = counted(len(found.theirs), "lead")
    if found.leads:
        next_ = " Theirs too: --lead KIND/ID. Somebody else's: --not-lead KIND/ID."
        out.print(
            f"{theirs} of the person, {len(found.to_look_at)} to look at, in {read}.{next_}",
            soft_wrap=False,
        )
    else:
        out.print(
            f"No lead of this person was found in {read}. Check the spelling, or give another "
            "address or number.",
            soft_wrap=False,
        )

    for path in found.unread[:LISTED]:
        err.print(f"[bold red]not read:[/bold red] {escape(path)}")

    if found.unread:
        more = f"… and {len(found.unread) - LISTED} more. " if len(found.unread) > LISTED else ""
        err.print(
            f"{more}These files may hold the person as well. `leads-pipeline privacy erase "
            "--quarantine delete` deletes those in quarantine/."
        )


def lines_of(lead: FoundLead, *, show: bool) -> Iterator[str]:
    """Yield the lines that show a lead, without line breaks and characters that terminals obey."""
    contact = Contact.of(lead) if show else Contact.of(lead).masked()
    places = [
        f"{place} ({counted(count, 'version')})" for place, count in sorted(lead.places.items())
    ]
    yield f"  {lead_reference(lead.kind, lead.lead_id)}"

    for label, texts in (
        ("name", contact.names),
        ("contact", contact.others),
        ("found by", sorted(lead.why)),
        ("day", [*dict.fromkeys(f"{row.place.day}, {row.place.scope}" for row in lead.rows)]),
        ("wrote", written_by(lead) if show else []),
        ("stored in", places),
    ):
        for text in texts:
            yield f"{label:9} {' '.join(text.split())}"
            label = ""  # it stands in the first line alone


def found_as_json(
    person: Person, found: Found, held: Sequence[Entry], *, show: bool
) -> dict[str, object]:
    """Return the identifiers as read, both groups of leads, and the entries for the person."""

    def of(lead: FoundLead) -> dict[str, object]:
        contact = Contact.of(lead) if show else Contact.of(lead).masked()
        return {
            "kind": lead.kind,
            "lead_id": lead.lead_id,
            "names": contact.names,
            "contacts": contact.others,
            "why": sorted(lead.why),
            "versions": len(versions_of(lead)),
            "rows": [{"place": row.place.root, "file": row.path} for row in lead.rows],
        }

    return {
        "read_as": read_as(person, show=show),
        "theirs": [of(lead) for lead in found.theirs],
        "to_look_at": [of(lead) for lead in found.to_look_at],
        "quarantine": found.quarantined,
        "not_read": found.unread,
        "in_force": [{"number": entry.number, "action": entry.action} for entry in held],
        "files": found.files,
    }
