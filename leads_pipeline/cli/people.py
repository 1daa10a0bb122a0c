"""Who is sought, and how what was found of them is shown.

Belongs here: options and questions that name a person, leads as a table and as JSON, masked unless asked for. Doesn't:
the search (privacy/finding.py), requests (cli/privacy.py).
"""

import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Final, TextIO

import click
from rich.markup import escape

from leads_pipeline.cli.output import err, out, table
from leads_pipeline.domain.person import Person
from leads_pipeline.errors import QuestionError
from leads_pipeline.privacy.export import Contact, context_of, versions_of
from leads_pipeline.privacy.finding import Found, FoundLead, find
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.suppression import Entry

# As options, as words of --from, and in the order in which they are asked for.
_IDENTIFIERS: Final = {
    "email": ("E-mail address", "E-mail address, in any spelling; repeat for more."),
    "phone": ("Telephone number", "Telephone number, in any spelling; repeat for more."),
    "lead": ("Lead id", "A lead's id. It counts as theirs; repeat for more."),
    "name": ("First and last name", "First and last name. It tells people apart who share a number."),
    "postcode": ("Postcode", "The person's own postcode."),
}

LISTED: Final = 20


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


def person_of(listed: TextIO | None, shared: bool, **given: Sequence[str]) -> Person:  # noqa: ARG001 - of the options
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


def search(data: DataFolder, person: Person, *, is_shared: bool) -> Found:
    """Search all files for the person, and say how far that is."""
    with err.status("Looking") as status:
        return find(data, person, is_shared=is_shared, tell=lambda count: status.update(f"Looking: {count} files"))


def counted(number: int) -> str:
    """So many leads, in words."""
    return f"{number} lead{'' if number == 1 else 's'}"


def show_found(found: Found, *, show: bool) -> None:
    """Print both groups, and the files that couldn't be read."""
    for title, leads in (("Theirs", found.theirs), ("To look at", found.to_look_at)):
        if not leads:
            continue
        rows = []
        for lead in leads:
            contact = Contact.of(lead) if show else Contact.of(lead).masked()
            texts = ("\n".join(contact.names), "\n".join(contact.others), "\n".join(sorted(lead.why)))
            more = ["\n".join(context_of(lead))] if show else []
            rows.append((lead.kind, lead.lead_id, *texts, *more, "\n".join(lead.places)))
        more_names = ["day, branch, postcode and message"] if show else []
        names = ("kind", "lead id", "name", "contact", "why", *more_names, "versions received, by place")
        shown = table(names, [[escape(text) for text in row] for row in rows], title)
        for column in shown.columns:
            column.overflow, column.no_wrap = "fold", column.header == "lead id"  # an id is of use only whole
        out.print(shown)
    theirs, to_look_at = counted(len(found.theirs)), counted(len(found.to_look_at))
    out.print(f"Theirs: {theirs}. To look at: {to_look_at}. Files read: {found.files}.")
    show_unread(found)


def show_unread(found: Found) -> None:
    """Name the files that couldn't be read."""
    for path in found.unread[:LISTED]:
        err.print(f"[bold red]not read:[/bold red] {escape(path)}", highlight=False, soft_wrap=True)
    if len(found.unread) > LISTED:
        err.print(f"… and {len(found.unread) - LISTED} more.")
    if found.unread:
        err.print("These files may hold the person as well. docs/guides/answer-a-person.md says what to do with them.")


def found_as_json(found: Found, held: Sequence[Entry], *, show: bool) -> dict[str, object]:
    """Both groups, and the entries of the list that hold for the person."""

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
