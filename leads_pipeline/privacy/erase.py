"""Taking people out of every file of the data folder, by the suppression list: what it means, and what is left.

Belongs here: adding a person to the list, going through raw files, spool and staged days, looking again. Doesn't:
finding a person by what they are called (search.py), publishing (warehouse/), whom an entry means (suppression/).

The list comes first: from then on nobody lands, stages or publishes what it means, so what this takes out stays out.
Each step is done under the lock of what it changes, whole or not at all, and can be repeated: whoever is killed in
between runs it again.
"""

import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.delta.folder import DELTA, every_data_file
from leads_pipeline.duck import SCRATCH_ROOT, WAREHOUSE_FILE, connection, glob_literal, literal, quoted
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.flatten.batches import flatten_days, withhold_staged
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.flatten.windows import staged_ids
from leads_pipeline.flatten.withholding import known_leads, withheld_leads
from leads_pipeline.lake import Lake
from leads_pipeline.lake.examined import ExaminedFiles
from leads_pipeline.lake.quarantine import QUARANTINE
from leads_pipeline.lake.rows import WHOSE_COLUMNS
from leads_pipeline.person.matching import Group, Sought
from leads_pipeline.person.showing import Shown
from leads_pipeline.privacy.held import held_files
from leads_pipeline.privacy.places import File
from leads_pipeline.privacy.requests import open_entries
from leads_pipeline.privacy.search import Found, FoundLead, Sight
from leads_pipeline.spool import Spool
from leads_pipeline.suppression import Action, Entry, Suppressed, hashes

# Of the folders that DuckDB spills to while the folder is gone through.
_SCRATCH: Final = "sweep-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is wanted for a person. `groups` are those that belong beside A, once somebody has looked at them.

    `is_shared`: somebody of another name has the telephone that was given, whether or not a lead was chosen.
    """

    action: Action
    groups: Collection[Group] = ()
    case: str = ""
    received: date | None = None
    is_shared: bool = False


def add_to_list(lake: Lake, sought: Sought, chosen: Sequence[FoundLead], wish: Wish, now: datetime) -> Entry:
    """Have the list mean the chosen leads and what else shows the person.

    What was created before now where they are erased, from now on where new enquiries are refused, and whenever it was
    where they object or are restricted.
    """
    is_erasure, is_refusal = wish.action is Action.ERASE, wish.action is Action.REFUSE
    # What stands in place of the address once retention has cut it out; an erasure knows such leads by their ids.
    emails = sought.emails if is_erasure else sought.emails | sought.cut_emails
    names = sought.names.union(*(lead.names for lead in chosen))
    kinds = [kind.name for kind in LEAD_KINDS]

    def entry(suppressed: Suppressed, number: int) -> Entry:
        leads = {
            suppressed.hashed_lead(kind, lead.lead_id)
            for lead in chosen
            for kind in ([lead.kind] if lead.kind else kinds)
        }
        return Entry(
            number=number,
            at=now,
            action=wish.action,
            case=wish.case,
            received=wish.received,
            until=now if is_erasure else None,
            since=now if is_refusal else None,
            emails=hashes(suppressed, "email", emails),
            mailboxes=hashes(suppressed, "mailbox", sought.mailboxes),
            phones=hashes(suppressed, "phone", sought.phones),
            names=hashes(suppressed, "name", names),
            any_tag=Group.MAILBOX in wish.groups,
            any_name=Group.TELEPHONE in wish.groups,
            is_shared=wish.is_shared,
            leads=() if is_refusal else tuple(sorted(leads)),
        )

    return lake.suppression.append(entry)


def add_redaction(lake: Lake, sought: Sought, mentioning: Sequence[FoundLead], now: datetime) -> Entry:
    """Have the list take the address, number and name that are sought out of these leads of others."""

    def entry(suppressed: Suppressed, number: int) -> Entry:
        return Entry(
            number=number,
            at=now,
            action=Action.REDACT,
            mailboxes=hashes(suppressed, "mailbox", sought.mailboxes),
            phones=hashes(suppressed, "phone", sought.phones),
            names=hashes(suppressed, "name", sought.names),
            leads=tuple(sorted({suppressed.hashed_lead(lead.kind, lead.lead_id) for lead in mentioning if lead.kind})),
        )

    return lake.suppression.append(entry)


@dataclass(slots=True)
class Swept:
    """What going through the folder did: leads taken out of raw, by day and kind; deliveries; days staged again.

    `failed` says what couldn't be done, by day or file; what it is about may still be there.
    """

    leads: int = 0
    files: int = 0
    deliveries: int = 0
    days: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)


def sweep(lake: Lake, zone: ZoneInfo, *, is_nightly: bool = False) -> Swept:
    """Take what the list refuses out of raw files and the spool, and stage the days anew that hold what it withholds.

    leads.duckdb is written anew by the next publication, by itself. A nightly one leaves out files that no sweep has to
    read again: as they are, they were read under the list as it is. Raises StorageError where the list can't be read.
    """
    with lake.sweeping():
        return _sweep(lake, zone, is_nightly=is_nightly)


def _sweep(lake: Lake, zone: ZoneInfo, *, is_nightly: bool) -> Swept:
    swept = Swept()
    is_anew = not is_nightly
    while True:
        suppressed = lake.suppression.read()
        examined = lake.examined_by(suppressed, is_anew=is_anew)
        days = _sweep_raw(lake, suppressed, swept, examined) if suppressed else set()
        swept.deliveries += Spool(lake).remove_refused()
        _stage(lake, _stagings(lake, days, examined), zone, swept)
        _sweep_unfinished(lake)
        examined.note()
        # A lead that was met by its contact has other versions, where another contact stands; now its id is known.
        if lake.suppression.read().state == suppressed.state:
            return swept
        is_anew = False


def restage(lake: Lake, zone: ZoneInfo) -> Swept:
    """Stage the days anew that hold what the list withholds, or lack what it no longer does. Raises StorageError."""
    swept = Swept()
    with lake.sweeping():
        _stage(lake, _stagings(lake, set()), zone, swept)
    return swept


def _stage(lake: Lake, stagings: Sequence[tuple[str, date]], zone: ZoneInfo, swept: Swept) -> None:
    for kind in LEAD_KINDS:
        for day, staged in flatten_days(lake, kind, [day for name, day in stagings if name == kind.name], zone):
            if isinstance(staged, LostRawError):
                try:
                    withhold_staged(lake, kind, day)
                    swept.days[kind.name] += 1
                except StorageError as error:
                    swept.failed[f"staged {kind.name} leads of {day}"] = str(error)
            elif isinstance(staged, LeadsPipelineError):
                swept.failed[f"staged {kind.name} leads of {day}"] = str(staged)
            else:
                swept.days[kind.name] += 1


def _sweep_raw(lake: Lake, suppressed: Suppressed, swept: Swept, examined: ExaminedFiles) -> set[tuple[str, date]]:
    days: set[tuple[str, date]] = set()
    for path in examined.unexamined(lake.raw_lead_files()):
        is_redacted = False
        ids: set[tuple[str, str]] = set()

        def cleaned(rows: list[dict[str, Any]], ids: set[tuple[str, str]] = ids) -> list[dict[str, Any]]:
            nonlocal is_redacted
            ids |= {(row["kind"], row["lead_id"]) for row in rows}
            refused = lake.refused(rows)
            left = [row for row in rows if row["lead_id"] not in refused]
            redacted = lake.redacted(left)
            is_redacted = redacted != left
            if is_redacted:
                lake.want_rebuild()  # first: a process that is killed after this leaves the request
            return redacted

        try:
            gone = lake.rewrite_raw(path, cleaned)
        except StorageError as error:
            if not lake.suppression.read():  # which raises where the list is at fault
                raise
            swept.failed[path.relative_to(lake.folder).as_posix()] = str(error)
            examined.again([path])
            continue
        examined.has(path, (suppressed.hashed_lead(*one) for one in ids))
        if gone or is_redacted:
            swept.leads += len(gone)
            swept.files += 1
            table, day = path.parts[-4], path.parts[-3].removeprefix("day=")
            days.add((next(kind.name for kind in LEAD_KINDS if kind.table == table), date.fromisoformat(day)))
    return days


def _stagings(lake: Lake, days: set[tuple[str, date]], examined: ExaminedFiles | None = None) -> list[tuple[str, date]]:
    """Those days, and all whose staged files hold a lead that is withheld, or lack one that no longer is."""
    days_to_stage = days | _lacking(lake) | _mentioning(lake)
    suppressed = lake.suppression.read()
    for kind in LEAD_KINDS if suppressed else ():
        files = {file.path: file.day for file in lake.staged_files(kind.table)}
        left = examined.unexamined(files) if examined else files
        paths = [path for path in left if lake.whole_staged(kind.table, files[path])]
        if examined:
            examined.again(path for path in left if path not in paths)  # the damaged
        if not paths:
            continue
        with connection(lake, f"{_SCRATCH}{kind.name}") as db:
            db.execute("set variable files = $files", {"files": list(map(glob_literal, paths))})
            source = "read_parquet(getvariable('files'), hive_partitioning = false, union_by_name = true)"
            if examined:
                for path in paths:
                    ids = db.execute("select lead_id from read_parquet($file)", {"file": glob_literal(path)}).fetchall()
                    examined.has(path, (suppressed.hashed_lead(kind.name, one) for (one,) in ids))
            if withheld_leads(db, lake, kind, source, "window_day"):
                rows = db.execute(
                    f"select distinct window_day from {source} where lead_id in (from withheld_ids)"  # noqa: S608
                ).fetchall()
                days_to_stage |= {(kind.name, day) for (day,) in rows}
                if examined:
                    examined.again(path for path in paths if (kind.name, files[path]) in days_to_stage)
    return sorted(days_to_stage)


def _mentioning(lake: Lake) -> set[tuple[str, date]]:
    """The days whose staged leads still say of somebody what was to be taken out of them."""
    suppressed = lake.suppression.read()
    if not suppressed.redactions:
        return set()
    days_to_stage = set()
    for kind in LEAD_KINDS:
        for table in kind.tables:
            for file in lake.staged_files(table):
                with suppress(pa.ArrowException, ValueError, OSError):  # a damaged one is staged anew by itself
                    ids = {row["lead_id"] for row in pq.ParquetFile(file.path).read(["lead_id"]).to_pylist()}
                    if any(suppressed.hashed_lead(kind.name, one) in suppressed.redactions for one in ids):
                        rows = pq.ParquetFile(file.path).read().to_pylist()
                        texts = ((row["lead_id"], json.dumps(row, default=str)) for row in rows)
                        if any(suppressed.redacted(kind.name, one, text) != text for one, text in texts):
                            days_to_stage.add((kind.name, file.day))
    return days_to_stage


def _lacking(lake: Lake) -> set[tuple[str, date]]:
    """The days that lack a lead in staged which nothing withholds any more, while that isn't shown to be done.

    What is withheld was met by its contact when its day was staged, and is known by its id since.
    """
    suppressed = lake.suppression.read()
    if not any(entry.action is Action.LIFT for entry in open_entries(suppressed)):
        return set()
    return {
        (kind.name, day)
        for kind in LEAD_KINDS
        for day in lake.landed_days(kind)
        if not all(
            suppressed.withheld.is_known(kind.name, lead_id)
            for lead_id in lake.lead_ids(kind, day) - staged_ids(lake, kind, day)
        )
    }


def _sweep_unfinished(lake: Lake) -> None:
    """Remove what killed writers left where nothing finished is beside it."""
    for leftover in (lake.folder / "staged").glob(".writing-*"):
        with suppress(StorageError, ValueError, OSError):
            day = date.fromisoformat(leftover.name.removeprefix(".writing-"))
            with lake.holding_staged(day):
                shutil.rmtree(leftover, ignore_errors=True)
    for leftover in (lake.folder / SCRATCH_ROOT).glob(f"{_SCRATCH}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    lake.sweep_raw_leftovers()


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
        is_meant = bool(suppressed.refusals.leads(row for sight in lead.sights for row in shown_of(lead, sight)))
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
    """Where raw files, deliveries, staged days, leads.duckdb and delta/ hold what the list refuses, or can't be read.

    Without knowing whom: what quarantine/, logs and texts show, only a search by name finds.
    """
    with lake.sweeping():
        return _left_by_list(lake)


def _left_by_list(lake: Lake) -> list[str]:
    suppressed = lake.suppression.read()
    left = _staged_or_published_by_list(lake)
    for path in lake.raw_lead_files():
        name = path.relative_to(lake.folder).as_posix()
        try:
            rows = pq.ParquetFile(path).read(WHOSE_COLUMNS, use_threads=False).to_pylist()
        except FileNotFoundError:
            continue
        except (pa.ArrowException, ValueError, OSError):
            left.append(f"{name}, which can't be read")
            continue
        if suppressed.refusals.leads(map(Shown.of_raw, rows)) or lake.redacted(rows) != rows:
            left.append(name)
    return left + [path.relative_to(lake.folder).as_posix() for path in Spool(lake).refused()]


def staged_or_published_by_list(lake: Lake) -> list[str]:
    """Where staged days and what is published hold what is withheld, lack what no longer is, or are damaged."""
    with lake.sweeping():
        return _staged_or_published_by_list(lake)


def _staged_or_published_by_list(lake: Lake) -> list[str]:
    left = [f"staged {kind} leads of {day}" for kind, day in _stagings(lake, set())]
    left += [
        f"{kind.table} of {file.day} in staged/, which is damaged"
        for kind in LEAD_KINDS
        for file in lake.staged_files(kind.table)
        if lake.whole_staged(kind.table, file.day) is None
    ]
    published = lake.folder / WAREHOUSE_FILE
    versions = {str(published): WAREHOUSE_FILE} if published.exists() else {}
    for held in held_files([lake.folder.resolve()]):
        if held.path.name == WAREHOUSE_FILE:
            versions[str(held.file)] = f"an old {WAREHOUSE_FILE} that process {held.process} still has open"
    for path, name in versions.items():
        with connection(lake, f"{_SCRATCH}published") as db:
            db.execute(f"attach {literal(path)} as published (read_only)")
            left += [
                f"{kind.table} of {name}"
                for kind in LEAD_KINDS
                if withheld_leads(db, lake, kind, f"published.{quoted(kind.table)}", "window_day")
            ]
    return left + left_in_tables(lake)


def left_in_tables(lake: Lake) -> list[str]:
    """Which Delta tables hold what the list withholds, or can't be read. A search by name doesn't see a bucket's."""
    with lake.lock(DELTA):
        return [what for kind in LEAD_KINDS for table in kind.tables for what in _of_delta(lake, kind, table)]


def _of_delta(lake: Lake, kind: LeadKind, table: str) -> Iterator[str]:
    """The table, where a file of it below delta/ holds what the list withholds, or can't be read."""
    try:
        with (
            every_data_file(lake, table, f"{_SCRATCH}delta") as paths,
            connection(lake, f"{_SCRATCH}published") as db,
        ):
            if not paths:
                return
            db.execute("set variable files = $files", {"files": list(map(glob_literal, paths))})
            # The day of a lead is in the file's path.
            files = "read_parquet(getvariable('files'), hive_partitioning = true, union_by_name = true)"
            # Somebody else's rows may lack either.
            source = f"(select * replace (coalesce(lead_id, '') as lead_id) from {files})"  # noqa: S608 - our own
            day = "coalesce(window_day, current_date)"
            if (
                withheld_leads(db, lake, kind, source, day, is_copy=True)
                if table == kind.table
                else known_leads(db, lake, kind, f"(select distinct lead_id from {source})")  # noqa: S608
            ):
                yield f"{table} of {DELTA}/"
    except LeadsPipelineError:  # whoever wrote there may have left other columns
        yield f"{table} of {DELTA}/, which can't be read"


def note_done(lake: Lake, entry: Entry, swept: Swept) -> Entry:
    """Add to the list that an entry was carried out and that nothing was found any more."""
    counts = {"leads": swept.leads, "raw files": swept.files, "deliveries": swept.deliveries}
    counts |= {f"days of {kind} leads": days for kind, days in swept.days.items()}

    def done_entry(_: Suppressed, number: int) -> Entry:
        return Entry(number=number, at=datetime.now(UTC), action=Action.DONE, of=entry.number, counts=counts)

    return lake.suppression.append(done_entry)
