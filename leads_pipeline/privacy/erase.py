"""A person on the suppression list: adding an entry for them, and what of them is left in the folder.

Belongs here: entries that commands add, looking again. Doesn't: finding a person by what they are called (search.py),
taking leads out (sweeping.py, lake/gate.py), whom an entry means (suppression/).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.delta.folder import DELTA, every_data_file
from leads_pipeline.duck import WAREHOUSE_FILE, connection, glob_literal, literal, quoted
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.kept_out import ids_out
from leads_pipeline.flatten.windows import querying
from leads_pipeline.lake import Lake
from leads_pipeline.lake.quarantine import QUARANTINE
from leads_pipeline.lake.rows import WHOSE_COLUMNS
from leads_pipeline.person.identity import mailbox_of
from leads_pipeline.person.matching import Sought
from leads_pipeline.person.showing import Shown, texts_of
from leads_pipeline.privacy.held import held_files
from leads_pipeline.privacy.places import File
from leads_pipeline.privacy.search import Found, FoundLead, Sight
from leads_pipeline.privacy.sweeping import SCRATCH, holding
from leads_pipeline.spool import Spool
from leads_pipeline.suppression import Action, Entry, Suppressed, hashes
from leads_pipeline.warehouse import set_person_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted for a person. `is_shared`: somebody of another name has the telephone that was given."""

    action: Action
    case: str = ""
    received: date | None = None
    is_shared: bool = False


def add_to_list(lake: Lake, sought: Sought, chosen: Sequence[FoundLead], wish: Wish, now: datetime) -> Entry:
    """Have the list mean the chosen leads and what else shows the person. An erasure means leads of before now."""
    is_erasure, is_objection = wish.action is Action.ERASE, wish.action is Action.OBJECT
    # What stands in place of the address once retention has cut it out; an erasure knows such leads by their ids.
    emails = sought.emails if is_erasure else sought.emails | sought.cut_emails
    # Whoever has the telephone under another name is somebody else.
    names = sought.names.union(*(lead.names for lead in chosen))
    persons = persons_of(lake, sought, chosen) if is_objection else frozenset()

    def entry(suppressed: Suppressed, number: int) -> Entry:
        return Entry(
            number=number,
            at=now,
            action=wish.action,
            case=wish.case,
            received=wish.received,
            until=now if is_erasure else None,
            emails=hashes(suppressed, "mailbox", set(map(mailbox_of, emails))),
            phones=hashes(suppressed, "phone", sought.phones),
            names=hashes(suppressed, "name", names),
            leads=_hashed(suppressed, chosen),
            persons=tuple(sorted(persons)),
            is_shared=wish.is_shared,
        )

    return lake.suppression.append(entry)


def add_clearing(lake: Lake, of: Entry, mentioning: Sequence[FoundLead]) -> Entry:
    """Have the list empty the messages of these leads of others."""

    def entry(suppressed: Suppressed, number: int) -> Entry:
        leads = _hashed(suppressed, mentioning)
        return Entry(number=number, at=datetime.now(UTC), action=Action.CLEAR, of=of.number, leads=leads)

    return lake.suppression.append(entry)


def _hashed(suppressed: Suppressed, leads: Sequence[FoundLead]) -> tuple[str, ...]:
    kinds = [kind.name for kind in LEAD_KINDS]
    return tuple(
        sorted(
            {
                suppressed.hashed_lead(kind, lead.lead_id)
                for lead in leads
                for kind in ([lead.kind] if lead.kind else kinds)
            }
        )
    )


def persons_of(lake: Lake, sought: Sought, leads: Sequence[FoundLead]) -> frozenset[str]:
    """What the column `person` has for these leads, and for the addresses and numbers that are sought."""
    contacts: list[tuple[str | None, str | None]] = [(email, None) for email in sought.emails]
    contacts += [(None, phone) for phone in sought.phones]
    contacts += [contact for lead in leads for sight in lead.sights for contact in _contact_of(sight.row.columns)]
    with querying(lake) as db:
        set_person_key(db, lake.person_key())
        rows = db.execute(
            "select distinct person_of(email, phone)::varchar from "
            "(select unnest($emails::varchar[]) as email, unnest($phones::varchar[]) as phone)",
            {"emails": [email for email, _ in contacts], "phones": [phone for _, phone in contacts]},
        ).fetchall()
    return frozenset(person for (person,) in rows if person) | {
        address.partition("@")[0] for address in sought.cut_emails | sought.cut_phones
    }


def _contact_of(columns: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None]]:
    """Address and number of a row as the tables have them."""
    if "contact_email" in columns or "contact_phone_number" in columns:
        yield columns.get("contact_email"), columns.get("contact_phone_number")
    elif isinstance(payload := columns.get("payload"), str):
        texts = dict(texts_of(payload))
        yield texts.get("contact.email"), texts.get("contact.phoneNumber")


@dataclass(frozen=True, slots=True)
class Left:
    """What a search still finds of a person that the list means.

    `leads` are files with rows of theirs, `traces` those that show them beside leads, `unread` those that nobody can
    read. `kept` counts leads of theirs that the list doesn't mean: new enquiries, and groups that weren't chosen.
    """

    leads: Sequence[File]
    traces: Sequence[File]
    unread: Sequence[File]
    kept: int

    @property
    def is_nothing(self) -> bool:
        """Whether the person was shown to be gone."""
        return not (self.leads or self.traces or self.unread)


def left_of(lake: Lake, found: Found) -> Left:
    """What of a search the list means. Raises StorageError."""
    suppressed = lake.suppression.read()
    meant: defaultdict[File, int] = defaultdict(int)
    kept, of_kept = 0, set[File]()
    for lead in found.leads:
        is_meant = bool(suppressed.erased.leads(row for sight in lead.sights for row in shown_of(lead, sight)))
        kept += not is_meant
        for sight in lead.sights:
            if is_meant:
                meant[sight.file] += 1
            else:
                of_kept.add(sight.file)
    # The footer and the pages of a file that rightly holds the person show them as well.
    traces = {file for file, _ in found.traces} - of_kept - meant.keys()
    return Left(sorted(meant, key=_path), sorted(traces, key=_path), sorted(found.undecoded, key=_path), kept)


def shown_of(lead: FoundLead, sight: Sight) -> Iterator[Shown]:
    """The row as the list looks at it."""
    columns = sight.row.columns
    day = columns.get("window_day") or columns.get("day") or columns.get("received_at")
    if not isinstance(day, date):
        with suppress(TypeError, ValueError):
            day = datetime.fromisoformat(str(day))
    if isinstance(day, datetime):
        day = day.date()
    for kind in [lead.kind] if lead.kind else [kind.name for kind in LEAD_KINDS]:
        yield Shown(kind, lead.lead_id, day if isinstance(day, date) else date.min, sight.row.texts)


def _path(file: File) -> str:
    return file.path


def quarantined_of(found: Found) -> list[Path]:
    """Files in quarantine/ that show the person, or of which nobody can say what is in them."""
    files = {sight.file for lead in found.leads for sight in lead.sights}
    files |= {file for file, _ in found.traces} | found.undecoded.keys()
    return sorted(file.file for file in files if file.place == QUARANTINE)


def left_by_list(lake: Lake) -> list[str]:
    """Where raw files, deliveries, staged days, leads.duckdb and delta/ hold what the list keeps out, or can't be read.

    Without knowing whom: what quarantine/, logs and texts show, only a search by name finds.
    """
    with lake.sweeping():
        left = list(_left_in_folder(lake))
    return [*left, *left_published(lake), *left_in_tables(lake)]


def _left_in_folder(lake: Lake) -> Iterator[str]:
    for path in lake.raw_lead_files():
        name = path.relative_to(lake.folder).as_posix()
        try:
            rows = pq.ParquetFile(path).read(WHOSE_COLUMNS, use_threads=False).to_pylist()
        except FileNotFoundError:
            continue
        except (pa.ArrowException, ValueError, OSError):
            yield f"{name}, which can't be read"
            continue
        if lake.verdict(map(Shown.of_raw, rows)).passed(rows) != rows:
            yield name
    yield from (path.relative_to(lake.folder).as_posix() for path in Spool(lake).with_erased())
    for kind in LEAD_KINDS:
        yield from (f"staged {kind.name} leads of {day}" for day in holding(lake, kind))
        for file in lake.staged_files(kind.table):
            if lake.whole_staged(kind.table, file.day) is None:
                yield f"{kind.table} of {file.day} in staged/, which is damaged"


def left_published(lake: Lake) -> list[str]:
    """Where leads.duckdb, or one that was replaced and that a program has open, holds what the list keeps out."""
    published = lake.folder / WAREHOUSE_FILE
    versions = {str(published): WAREHOUSE_FILE} if published.exists() else {}
    for held in held_files([lake.folder.resolve()]):
        if held.path.name == WAREHOUSE_FILE:
            versions[str(held.file)] = f"an old {WAREHOUSE_FILE} that process {held.process} still has open"
    left = []
    for path, name in versions.items():
        with connection(lake, f"{SCRATCH}published") as db:
            db.execute(f"attach {literal(path)} as published (read_only)")
            left += [
                f"{kind.table} of {name}"
                for kind in LEAD_KINDS
                if ids_out(db, lake, kind, f"published.{quoted(kind.table)}")
            ]
    return left


def left_in_tables(lake: Lake) -> list[str]:
    """Which Delta tables hold what the list withholds, or can't be read. A search by name doesn't see a bucket's."""
    with lake.lock(DELTA):
        return [what for kind in LEAD_KINDS for table in kind.tables for what in _of_delta(lake, kind, table)]


def _of_delta(lake: Lake, kind: LeadKind, table: str) -> Iterator[str]:
    """The table, where a file of it below delta/ holds what the list withholds, or can't be read."""
    try:
        with (
            every_data_file(lake, table, f"{SCRATCH}delta") as paths,
            connection(lake, f"{SCRATCH}published") as db,
        ):
            if not paths:
                return
            db.execute("set variable files = $files", {"files": list(map(glob_literal, paths))})
            files = "read_parquet(getvariable('files'), hive_partitioning = true, union_by_name = true)"
            # Somebody else's rows may lack it.
            if ids_out(db, lake, kind, f"(select coalesce(lead_id, '') as lead_id from {files})"):  # noqa: S608 - our own
                yield f"{table} of {DELTA}/"
    except LeadsPipelineError:  # whoever wrote there may have left other columns
        yield f"{table} of {DELTA}/, which can't be read"


def note_done(lake: Lake, entry: Entry) -> Entry:
    """Add to the list that an entry was carried out and that nothing was found any more."""

    def done_entry(_: Suppressed, number: int) -> Entry:
        return Entry(number=number, at=datetime.now(UTC), action=Action.DONE, of=entry.number)

    return lake.suppression.append(done_entry)
