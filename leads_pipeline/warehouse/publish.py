"""Updates leads.duckdb in a copy, checks the copy, and swaps it in whole.

Belongs here: the two ways to publish, what the file remembers, the check. Doesn't: reading raw windows
(raw_windows.py), loading leads (flatten.py), files and links (versions.py), when to publish.
"""

# ruff: noqa: S608 - only our own names are in the statements

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.storage.durable import copy_file, storing
from leads_pipeline.warehouse.current_leads import WindowKey, WindowLeads
from leads_pipeline.warehouse.duck import connection, literal, quoted
from leads_pipeline.warehouse.flatten import flatten
from leads_pipeline.warehouse.reading import attached, is_open_for_writing, is_readable
from leads_pipeline.warehouse.tables import columns_of, create_table, fill, lead_tables
from leads_pipeline.warehouse.versions import Versions

logger = logging.getLogger(__name__)

# What changes with a window's files.
Hashes = Mapping[WindowKey, str]


class Raw(Protocol):
    """The raw windows, as publishing needs them."""

    def hashes(self, *, of_all_days: bool) -> dict[WindowKey, str]:
        """Hash the files of each window of the last 60 days, or of all."""

    def read(self, windows: Collection[WindowKey]) -> Iterable[WindowLeads]:
        """Read the leads of these windows, without those that the suppression list refuses."""


@dataclass(frozen=True, slots=True)
class Content:
    """The other contents and inputs of the file, besides leads and raw windows.

    If `fingerprint` changes, the file is built anew: marts, names of branches, the key of people.
    `inputs` stands for what marts read besides the leads: when it changes, they are made again. `list_number` is the
    suppression list's. `at` is the moment of the publication. `prepare` makes the macros that statements use,
    `person_of` among them. `refuse` takes leads that the list refuses out of the tables, and adds them to `touched`.
    `make_marts` follows `touched`, and hears whether raw files were rewritten. `make_own_tables` follows in the closed
    draft, and hears the same.
    """

    zone: ZoneInfo
    fingerprint: str
    inputs: str
    list_number: int
    at: datetime
    prepare: Callable[[duckdb.DuckDBPyConnection], None]
    refuse: Callable[[duckdb.DuckDBPyConnection], None]
    make_marts: Callable[[duckdb.DuckDBPyConnection, bool], None]
    make_own_tables: Callable[[Path, bool], None]


@dataclass(frozen=True, slots=True)
class Publication:
    """The result of publishing: an update or a new file. `windows` and `leads` count those that were written."""

    way: str
    windows: int
    leads: int


@dataclass(frozen=True, slots=True)
class _Known:
    """The inputs that a file remembers. `is_alone`: no version from before it may stay."""

    fingerprint: str
    inputs: str
    list_number: int
    is_alone: bool
    windows: Hashes


def publish(
    folder: Path, raw: Raw, content: Content, *, is_rewritten: bool = False, of_all_days: bool = False
) -> Publication | None:
    """Bring the data folder's leads.duckdb up to date. None if it was. The caller holds the lock of publications.

    With `of_all_days`, or if somebody has written to the file, all of it is read first.

    - Update: only windows have changed, or what marts read besides. They are read into a copy.
    - New file: anything else has changed, the file is damaged, raw files were rewritten, or the list has grown. It is
      made from raw, and from the file before it come the leads that raw has lost. If somebody may have had to go, no
      older version stays beside it.

    Raises StorageError and BugError; then the published file is as before.
    """
    versions = Versions(folder)
    with versions.drafting():
        return _publish(versions, raw, content, is_rewritten=is_rewritten, of_all_days=of_all_days)


def _publish(
    versions: Versions, raw: Raw, content: Content, *, is_rewritten: bool, of_all_days: bool
) -> Publication | None:
    before = versions.current()
    if before and is_open_for_writing(before):
        logger.warning("Another program has opened leads.duckdb for writing. Have it open the file read-only.")
        before = _copied(before, versions.draft("before"))

    known = _read_known(versions, before)
    if known and known.is_alone:
        versions.remove_older(0)  # a killed publication may have left some

    is_alone = is_rewritten or known is None or known.list_number != content.list_number
    if before is None or known is None or is_alone or known.fingerprint != _fingerprint(content):
        return _build_anew(versions, before, raw, content, is_alone=is_alone)

    is_as_published = versions.is_as_published()
    if (of_all_days or not is_as_published) and not versions.has_its_hash():
        logger.warning("leads.duckdb isn't as it was published, and is built anew.")
        return _build_anew(versions, before, raw, content, is_alone=False)

    hashes = raw.hashes(of_all_days=of_all_days)
    changed = {window for window, hash_ in hashes.items() if known.windows.get(window) != hash_}
    if not changed and known.inputs == content.inputs and is_as_published:
        return None

    try:
        return _update(versions, before, raw, content, changed=changed, hashes=hashes)
    except StorageError as error:
        # The file may be damaged. If the disk is at fault, building anew says so.
        logger.warning("%s can't be brought up to date and is built anew. %s", before, error)
        return _build_anew(versions, before, raw, content, is_alone=False)


def _update(
    versions: Versions,
    before: Path,
    raw: Raw,
    content: Content,
    *,
    changed: Collection[WindowKey],
    hashes: dict[WindowKey, str],
) -> Publication:
    number = versions.next_number(content.at)
    draft = _copied(before, versions.draft("copy"))
    with connection(versions.folder, draft) as db:
        content.prepare(db)
        db.begin()
        flatten(db, _noting(raw.read(changed), hashes), content.zone, publication=number)
        _check(db)
        leads = _finish(db, content, hashes, number, is_alone=False)

    content.make_own_tables(draft, False)
    versions.swap_in(draft, number, is_alone=False)
    return Publication("update", len(changed), leads)


def _copied(file: Path, draft: Path) -> Path:
    with storing(draft):
        copy_file(file, draft)
        draft.chmod(0o600)
    return draft


def _build_anew(versions: Versions, before: Path | None, raw: Raw, content: Content, *, is_alone: bool) -> Publication:
    leads_tables = [table.name for table in lead_tables()]
    files = [before, *versions.older()] if before else []
    # Of a damaged file, the version before it has what raw has lost.
    whole = next((file for file in files if is_readable(versions.folder, file, leads_tables)), None)

    number = versions.next_number(content.at)
    hashes = raw.hashes(of_all_days=True)
    draft = versions.draft("anew")
    with connection(versions.folder, draft) as db:
        content.prepare(db)
        if whole:
            db.execute(f"attach {literal(str(whole))} as before (read_only)")
        db.begin()
        _create_tables(db)
        flatten(db, _noting(raw.read([*hashes]), hashes), content.zone, publication=number)
        if whole:
            _take_over(db, content.zone, number)
        _check(db)
        content.refuse(db)
        leads = _finish(db, content, hashes, number, is_alone=is_alone)
    content.make_own_tables(draft, is_alone)

    if whole != before:
        logger.warning(
            "leads.duckdb was damaged. The damaged file is %s, and a new one is published.", versions.set_aside()
        )
    versions.swap_in(draft, number, is_alone=is_alone)
    return Publication("new file", len(hashes), leads)


def _noting(windows: Iterable[WindowLeads], hashes: dict[WindowKey, str]) -> Iterator[WindowLeads]:
    """Yield the windows, and note the hash of what was really read.

    A damaged file is left out, and counts as changed once it is put back.
    """
    for window in windows:
        hashes[window.kind.name, window.day, window.scope] = window.hash
        yield window


# --- what the file remembers ------------------------------------------------------------------------------------------

_BOOKKEEPING: Final = (
    ("facts", "name varchar, value varchar", "What this file was made from"),
    ("windows", "kind varchar, day date, scope varchar, hash varchar", "Raw windows that this file was made from"),
    ("emptied_contacts", "kind varchar, lead_id varchar, window_day date", "Leads that lost a part of their contact"),
    ("touched_days", "day date, publication bigint", "The publication that last touched a day of the tables of leads"),
)


def _create_tables(db: duckdb.DuckDBPyConnection) -> None:
    for table in lead_tables():
        create_table(db, table)
    db.execute("create schema pipeline")
    for name, columns, comment in _BOOKKEEPING:
        db.execute(f"create table pipeline.{name} ({columns})")
        db.execute(f"comment on table pipeline.{name} is {literal(comment)}")


def _fingerprint(content: Content) -> str:
    parts = (content.fingerprint, content.zone.key, list(lead_tables()), _BOOKKEEPING)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _read_known(versions: Versions, file: Path | None) -> _Known | None:
    """Read what the file remembers. None if it can't be read, is of another release, or isn't there."""
    if file is None:
        return None
    try:
        with attached(versions.folder, file) as db:
            if not columns_of(db, "windows", "pipeline"):
                return None
            facts = dict(db.execute("select name, value from pipeline.facts").fetchall())
            rows = db.execute("select kind, day, scope, hash from pipeline.windows").fetchall()
            windows = {(kind, day, scope): hash_ for kind, day, scope, hash_ in rows}
    except (StorageError, BugError):
        return None
    return _Known(
        facts["fingerprint"],
        facts["inputs"],
        int(facts["list_number"]),
        facts["is_alone"] == "true",
        windows,
    )


# --- what is in the file ----------------------------------------------------------------------------------------------


def _take_over(db: duckdb.DuckDBPyConnection, zone: ZoneInfo, number: int) -> None:
    """Take leads from the file before if raw has no version of them, or only older ones."""
    anew = {
        "published_in": str(number),
        "lead_day": f"coalesce(timezone({literal(zone.key)}, created_at)::date, window_day)",
        "person": "person_of(contact_email, contact_phone_number)",
    }
    for kind in LEAD_KINDS:
        if not columns_of(db, kind.table, database="before"):
            continue
        db.execute(
            f"""
            create or replace temp table taken as
            select lead_id
            from before.main.{quoted(kind.table)} as former
            anti join {quoted(kind.table)} as loaded
                on loaded.lead_id = former.lead_id
                and (loaded.sequence, loaded.window_day, loaded.scope)
                    >= (former.sequence, former.window_day, former.scope)
            """
        )
        for table in kind.tables:
            name, shared = quoted(table), set(columns_of(db, table)) & set(columns_of(db, table, database="before"))
            db.execute(f"delete from {name} where lead_id in (select lead_id from taken)")
            if shared:
                columns = ", ".join(f"{anew.get(column, quoted(column))} as {quoted(column)}" for column in shared)
                former = f"before.main.{name} semi join taken using (lead_id)"
                db.execute(f"insert into {name} by name select {columns} from {former}")
        taken = f"from {quoted(kind.table)} semi join taken using (lead_id)"
        db.execute(f"insert into touched select {literal(kind.name)}, lead_id, lead_day {taken}")


def _check(db: duckdb.DuckDBPyConnection) -> None:
    """Raise BugError unless each lead that was read is there, and each lead once."""
    for kind in LEAD_KINDS:
        [(lost, doubled)] = db.execute(
            f"""
            select
                (select count(*) from (select lead_id from received_ids where kind = {literal(kind.name)})
                    anti join {quoted(kind.table)} using (lead_id)),
                (select count(*) - count(distinct lead_id) from {quoted(kind.table)})
            """
        ).fetchall()
        if lost or doubled:
            raise BugError(
                f"Publishing would lose {lost} {kind.name} leads and double {doubled}. leads.duckdb is as before. "
                "Running again doesn't help. Please report it."
            )


def _finish(db: duckdb.DuckDBPyConnection, content: Content, hashes: Hashes, number: int, *, is_alone: bool) -> int:
    """Make the marts, note what the file was made from, and write it all. Return how many leads were written."""
    content.make_marts(db, is_alone)
    db.execute("delete from pipeline.facts")
    facts = {
        "fingerprint": _fingerprint(content),
        "inputs": content.inputs,
        "list_number": content.list_number,
        "is_alone": "true" if is_alone else "false",
    }
    fill(db, "pipeline.facts", [(name, str(value)) for name, value in facts.items()])
    db.execute("create temp table hashes as from pipeline.windows limit 0")
    fill(db, "hashes", [(*window, hash_) for window, hash_ in hashes.items()])
    db.execute("delete from pipeline.windows where (kind, day, scope) in (select (kind, day, scope) from hashes)")
    db.execute("insert into pipeline.windows from hashes")
    changed = "(kind, lead_id) in (select (kind, lead_id) from touched)"
    db.execute(f"delete from pipeline.emptied_contacts where {changed}")
    db.execute(f"insert into pipeline.emptied_contacts from emptied where {changed}")
    days = "select distinct lead_day from touched"
    db.execute(f"delete from pipeline.touched_days where day in ({days})")
    db.execute(f"insert into pipeline.touched_days select *, {number} from ({days})")
    written = [f"select lead_id from {quoted(kind.table)} where published_in = {number}" for kind in LEAD_KINDS]
    [(leads,)] = db.execute(f"select count(*) from ({' union all '.join(written)})").fetchall()
    db.commit()
    db.execute("checkpoint")
    return int(leads)
