"""The people behind the leads: `privacy find` and `export` answer one, `share` writes a copy without their names."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import Any, TextIO

import click
from rich.markup import escape

from leads_pipeline.cli.session import Session, err, out, plain_errors, table
from leads_pipeline.definitions import variables
from leads_pipeline.delta.folder import delta_folder
from leads_pipeline.errors import QuestionError
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import MEANINGS, Group, Sought
from leads_pipeline.privacy.export import Contact, retention_of, versions_of, write_export
from leads_pipeline.privacy.objecting import entries_in_force
from leads_pipeline.privacy.retain import CutDay, cut_addresses, cut_days, due_before
from leads_pipeline.privacy.search import Found, FoundLead, search
from leads_pipeline.privacy.share import write_share
from leads_pipeline.runs import home_folder
from leads_pipeline.settings import Settings
from leads_pipeline.suppression import Entry

# How many files of a kind are listed by their name; the rest are counted.
LISTED_FILES = 20

# As options, as words of --from, and in the order in which they are asked for.
_IDENTIFIERS = {
    "email": "E-mail address",
    "phone": "Telephone number",
    "lead": "Lead id",
    "name": "First and last name",
    "postcode": "Postcode",
}
_HELP = {
    "email": "E-mail address, in any spelling; repeat for more.",
    "phone": "Telephone number, in any spelling; repeat for more.",
    "lead": "A lead's id; repeat for more.",
    "name": "First and last name. It only proposes, and tells people of one telephone apart.",
    "postcode": "The person's own postcode. It only proposes.",
}

privacy = click.Group(
    "privacy",
    short_help="Find, export, erase or restrict a person's data.",
    help="Find, export, erase or restrict a person's data. docs/privacy.md has the steps.",
)


def identifiers(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say who is sought."""
    options = [click.option(f"--{name}", f"{name}s", multiple=True, help=_HELP[name]) for name in _IDENTIFIERS]
    options += [
        click.option(
            "--from",
            "listed",
            type=click.File(encoding="utf-8", errors="replace"),
            metavar="FILE",
            help="Read them from a file, or from - (standard input): lines such as `email: jane@people.example`.",
        ),
        click.option("--shared", is_flag=True, help="Look for what many people share as well, an office's number say."),
    ]
    return reduce(lambda decorated, option: option(decorated), reversed(options), command)


@privacy.command(short_help="Show where a person's data is.")
@identifiers
@click.option("--show", is_flag=True, help="Don't mask names, addresses and numbers; on a terminal only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def find(show: bool, as_json: bool, **given: Any) -> None:
    """Say where a person's data lie: leads in every version and place, and traces beside them.

    Without an option it asks who is sought, so that no address stays in the shell's history. Leads come in groups: A is
    the person's, B, C, D and P may be, and somebody has to look.

    Exit code 1 if a file couldn't be read, so that what wasn't found may be there all the same.
    """
    with plain_errors():
        if show and not sys.stdout.isatty():
            raise QuestionError("--show prints personal data, and the output is no terminal. Leave it out.")
        settings = Settings.from_variables(variables())
        found, held = _search(settings, **given)
    if as_json:
        listed = [{"number": one.number, "action": one.action, "leads": leads} for one, leads in held]
        click.echo(json.dumps({**_as_json(found, show=show), "listed": listed}, indent=2))
    else:
        show_found(found, show=show)
        _show_held(held)
    sys.exit(0 if found.is_whole else 1)


@privacy.command(short_help="Write a person's data for their access request.")
@identifiers
@click.option(
    "--to",
    "folder",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for person.html and person.json.",
)
@click.option(
    "--with",
    "more",
    multiple=True,
    type=click.Choice([Group.MAILBOX.value, Group.TELEPHONE.value, Group.PROPOSED.value]),
    help="Export this group as well, once somebody has looked at it; repeat for more.",
)
def export(folder: Path, more: Sequence[str], **given: Any) -> None:
    """Write what a person is given who asks for their data: person.html to be read, person.json for a machine.

    All versions of the leads of group A, with sources, purposes and retention. Look at them before you send them, and
    see docs/privacy.md for what to add.

    Exit code 1 if nothing was found, or a file couldn't be read, so that something may be missing.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        found, held = _search(settings, **given)
        chosen = [lead for lead in found.leads if lead.group in (Group.GIVEN, *more)]
        if chosen:
            portal = Lake.of(settings).claimed_by()
            retention = retention_of(settings)
            shown, now = replace(found, leads=chosen), datetime.now(UTC)
            for path in write_export(folder, shown, portal, retention, now, settings.zone):
                out.print(f"{path}", highlight=False, soft_wrap=True)
    out.print(f"{len(chosen)} leads of the person are exported." if chosen else "No lead of the person was found.")
    for group, count in sorted(Counter(lead.group for lead in found.leads if lead not in chosen).items()):
        out.print(f"Left out, group {group} ({MEANINGS[group]}): {count}. `leads-pipeline privacy find` lists them.")
    _show_held(held)
    _show_undecoded(found)
    sys.exit(0 if chosen and found.is_whole else 1)


@privacy.command(short_help="Write a copy without names, to share.")
@click.argument("file", type=click.Path(path_type=Path))
def share(file: Path) -> None:
    """Write FILE, a new DuckDB file: a pseudonymised copy of the published leads, for wide use.

    An allow-list says which fields pass. Its table `about` says what it is, and that it isn't anonymous.
    docs/privacy.md says more.
    """
    with plain_errors():
        settings = Settings.from_variables(variables())
        lake = Lake.of(settings)
        shared = write_share(lake, file.absolute(), datetime.now(UTC))
    counts = ", ".join(f"{name} {count}" for name, count in shared.rows.items())
    out.print(f"{file}: {counts}. Leads of small groups, with less: {shared.in_small_groups}.", soft_wrap=True)
    out.print("It is pseudonymised and not anonymous: UK GDPR applies to it. An erasure doesn't reach it.")


@privacy.command(short_help="Delete personal fields of old leads.")
@click.option("--dry-run", is_flag=True, help="Only count what is due.")
def retain(dry_run: bool) -> None:
    """Delete the personal fields of leads older than LEADS_KEEP_PERSONAL_DAYS.

    They are deleted in raw, staged and published files. The leads stay and are counted. docs/privacy.md says which
    fields stay. The asset privacy_sweep does the same each night.

    Exit code 1 if a day couldn't be done, or leads.duckdb not be written anew.
    """
    with plain_errors(), Session.opened() as session:
        keep_days = session.settings.keep_personal_days
        if keep_days is None:
            raise QuestionError(
                "LEADS_KEEP_PERSONAL_DAYS is not set, so nothing is deleted. docs/privacy.md says what it does."
            )
        left = _cut(session, keep_days, dry_run=dry_run)
        # Delta tables may not have followed a publication that went well.
        is_to_publish = session.lake.rebuild_wanted() or delta_folder(session.lake).exists()
        troubles = session.refresh(set()) if is_to_publish and not dry_run else []
        for trouble in troubles:
            err.print(escape(trouble), highlight=False, soft_wrap=True)
    sys.exit(1 if troubles or left else 0)


def _cut(session: Session, keep_days: int, *, dry_run: bool) -> list[CutDay]:
    """Delete personal fields, and print what was done. Return the days that failed."""
    zone = session.settings.zone
    before = due_before(datetime.now(UTC), zone, keep_days)
    days = list(cut_days(session.lake, before, zone, is_dry=dry_run))
    done = [one for one in days if one.error is None]
    for one in done:
        out.print(f"{one.day} {one.kind.name}: {one.leads} leads", highlight=False)
    for one in days:
        if one.error is not None:
            err.print(f"[bold red]left:[/bold red] {one.day} {one.kind.name}: {escape(str(one.error))}")
    leads = sum(one.leads for one in done)
    verb = "are due" if dry_run else "have lost their personal fields"
    out.print(f"Of windows before {before}, {leads} leads of {len(done)} days and kinds {verb}.")
    return [one for one in days if one.error is not None]


def sought_in(lake: Lake, listed: TextIO | None, **given: Sequence[str]) -> Sought:
    """Who is sought, by options, by a file, or by asking; in leads that were cut, too. Raises QuestionError."""
    values = {name: list(given[f"{name}s"]) for name in _IDENTIFIERS}
    if listed is not None:
        _read_list(listed, values)
    if not any(values.values()):
        _ask(values)
    sought = Sought.of(values["email"], values["phone"], values["lead"], values["name"], values["postcode"])
    if not (sought.emails or sought.phones):
        return sought
    # As given and as normalised: the hash is of what the lead had, with little made equal.
    emails, phones = cut_addresses(lake, [*values["email"], *sought.emails], [*values["phone"], *sought.phones])
    return replace(sought, cut_emails=emails, cut_phones=phones)


def looked_for(settings: Settings, sought: Sought, shared: bool) -> Found:
    """What there is of them, with a word on what is being looked through. Raises QuestionError."""
    folder = settings.data_dir
    home = home_folder(variables(), folder)
    with err.status("Looking") as status:
        return search(
            Lake.of(settings),
            home,
            sought,
            may_be_shared=shared,
            tell=lambda stage, count: status.update(f"{stage}: {count} files"),
        )


def _search(
    settings: Settings, listed: TextIO | None, shared: bool, **given: Sequence[str]
) -> tuple[Found, list[tuple[Entry, int]]]:
    """What there is of them, and which objections and restrictions hold for them, for how many leads."""
    if not settings.data_dir.is_dir():
        raise QuestionError(
            f"{settings.data_dir} is no folder: there is nothing to look through. LEADS_DATA_DIR names the folder."
        )
    lake = Lake.refreshed(settings)
    sought = sought_in(lake, listed, **given)
    found = looked_for(settings, sought, shared)
    return found, entries_in_force(lake.suppression.read(), sought, found)


def _show_held(held: Sequence[tuple[Entry, int]]) -> None:
    for entry, leads in held:
        out.print(f"On the suppression list: {entry.action} {entry.number} holds for {leads} of these leads.")


def _read_list(lines: TextIO, values: dict[str, list[str]]) -> None:
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or name.strip().casefold() not in values:
            raise QuestionError(
                f"Line {number} of --from says nothing of a person. Write one of {', '.join(_IDENTIFIERS)}, a colon, "
                "and the value."
            )
        values[name.strip().casefold()].append(value.strip())


def _ask(values: dict[str, list[str]]) -> None:
    if not sys.stdin.isatty():
        raise QuestionError("Nobody is sought: give --email, --phone, --lead, --name, --postcode or --from.")
    for name, label in _IDENTIFIERS.items():
        answer = click.prompt(f"{label} (none: return)", default="", show_default=False, err=True)
        values[name] += [answer] if answer.strip() else []


def _contact(lead: FoundLead, *, show: bool) -> Contact:
    contact = Contact.of(lead)
    return contact if show else contact.masked()


def show_found(found: Found, *, show: bool) -> None:
    """Print the leads by group, the traces beside them, and what couldn't be read."""
    rows = []
    for lead in found.leads:
        contact = _contact(lead, show=show)
        places = Counter(sight.file.place for sight in lead.sights)
        rows.append(
            (
                lead.group,
                lead.kind,
                escape(lead.lead_id),
                escape("\n".join(contact.names)),
                escape("\n".join(contact.others)),
                len(versions_of(lead)),
                "\n".join(f"{place}: {count}" for place, count in sorted(places.items())),
            )
        )
    if rows:
        shown = table(("group", "kind", "lead id", "name", "contact", "versions", "rows by place"), rows)
        for column in shown.columns:
            column.overflow = "fold"  # an id is of use when it is whole
        out.print(shown)
        for group in sorted({lead.group for lead in found.leads}):
            out.print(f"{group}: {MEANINGS[group]}")
    else:
        out.print("No lead of the person was found.")
    for (file, part), count in sorted(found.traces.items(), key=lambda one: (one[0][0].path, one[0][1])):
        out.print(f"Beside leads: {escape(file.path)}, {escape(part)}: {count}", highlight=False, soft_wrap=True)
    out.print(f"{sum(found.files.values())} files were read: {_counted(found)}.", highlight=False)
    _show_undecoded(found)


def _counted(found: Found) -> str:
    return ", ".join(f"{place} {count}" for place, count in sorted(found.files.items()))


def _show_undecoded(found: Found) -> None:
    listed = list(found.undecoded.items())
    for file, why in listed[:LISTED_FILES]:
        err.print(f"[bold red]not read:[/bold red] {escape(file.path)}: {why}", highlight=False, soft_wrap=True)
    if len(listed) > LISTED_FILES:
        err.print(f"… and {len(listed) - LISTED_FILES} more.")
    if listed:
        err.print("Whatever those hold may be the person's too: docs/privacy.md says what to do with them.")


def _as_json(found: Found, *, show: bool) -> dict[str, object]:
    leads = []
    for lead in found.leads:
        contact = _contact(lead, show=show)
        leads.append(
            {
                "group": lead.group,
                "kind": lead.kind,
                "lead_id": lead.lead_id,
                "names": contact.names,
                "contacts": contact.others,
                "versions": len(versions_of(lead)),
                "rows": [
                    {"place": sight.file.place, "file": sight.file.path, "table": sight.row.table}
                    for sight in lead.sights
                ],
            }
        )
    return {
        "is_whole": found.is_whole,
        "leads": leads,
        "traces": [
            {"place": file.place, "file": file.path, "part": part, "count": count}
            for (file, part), count in found.traces.items()
        ],
        "not_read": [{"place": file.place, "file": file.path, "why": why} for file, why in found.undecoded.items()],
        "files": dict(found.files),
    }
