"""Publishes a data folder: applies the suppression list, then updates leads.duckdb, then writes data/tables.

Belongs here: what leads.duckdb is made from, and what follows it. Doesn't: how the file is updated
(warehouse/publish.py), when (publish_sensor.py), how the list is applied to raw files (privacy/sweeping.py).
"""

# ruff: noqa: S608 - only the contract's own names are in the statements

import hashlib
import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import Scope, Window, days, today
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.privacy.retain import anonymise_lost
from leads_pipeline.privacy.sweeping import Swept, in_line
from leads_pipeline.storage.branches import Branches
from leads_pipeline.storage.data_folder import CACHE, DataFolder
from leads_pipeline.storage.durable import digest_of, replace_file, storing
from leads_pipeline.storage.raw import PUSH_SCOPE, RAW, RESTRICTED, Place
from leads_pipeline.storage.store import FolderStore
from leads_pipeline.storage.suppression import Meant, Suppressed
from leads_pipeline.storage.windows import WindowRow, window_rows
from leads_pipeline.warehouse import marts
from leads_pipeline.warehouse.answers import answer_files
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, macros, quoted, set_person_key
from leads_pipeline.warehouse.inventory import load_inventory
from leads_pipeline.warehouse.own_marts import OwnFiles, keep_own_tables, make_own_tables, own_files
from leads_pipeline.warehouse.publish import Content, Publication, publish
from leads_pipeline.warehouse.raw_windows import RECENT_DAYS, RawWindows
from leads_pipeline.warehouse.typed import TABLES, delete_tables, remove_tables, want_deltalake, write_tables

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings of a publication. `tables` is parquet, delta or none, `marts_dir` is LEADS_MARTS_DIR."""

    scopes: Sequence[Scope]
    first_day: date
    zone: ZoneInfo
    branches: Branches = field(default_factory=Branches)
    tables: str = "parquet"
    marts_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of bringing leads.duckdb up to date. `publication` is None if leads.duckdb was up to date.

    If data/tables couldn't be written, `swept.failed` says why. The next publication writes it.
    """

    publication: Publication | None
    swept: Swept
    size_bytes: int


def bring_up_to_date(data: DataFolder, wanted: Wanted, now: datetime) -> Outcome:
    """Take out whom the suppression list keeps out, then have leads.duckdb and its tables be as the raw files are.

    Raises StorageError and BugError. Then leads.duckdb is as before.
    """
    with in_line(data) as swept, data.state.publishing():
        rewriting = data.state.rewriting_wanted()
        file = data.folder / WAREHOUSE_FILE
        published_at = datetime.fromtimestamp(file.stat().st_mtime, UTC) if file.exists() else None
        # The first publication of a local day looks at all windows.
        of_all_days = published_at is None or today(wanted.zone, published_at) != today(wanted.zone, now)
        raw = RawWindows(data.store, data.gate, lambda: now)
        publication = publish(
            data.folder,
            raw,
            _content(data, raw, wanted, now, swept.number, of_all_days=of_all_days),
            is_rewritten=rewriting is not None,
            of_all_days=of_all_days,
        )
        if rewriting is not None:
            data.state.rewritten(rewriting)
        try:
            write_typed(data, wanted.tables)
            _delete_former(data)
        except LeadsPipelineError as error:
            swept.failed[TABLES] = str(error)  # they may hold somebody who is erased
        return Outcome(publication, swept, (data.folder / WAREHOUSE_FILE).stat().st_size)


def write_typed(data: DataFolder, tables: str) -> None:
    """Make data/tables as LEADS_TABLES says. Other files there are deleted."""
    folder = data.folder / TABLES
    store = data.bucket or FolderStore(data.folder)
    if tables == "delta":
        want_deltalake()
        # Only Delta tables need this extra package.
        from leads_pipeline.warehouse.delta import write_delta

        write_delta(data.folder, store)
        if data.bucket is not None:
            replace_file(folder / "README.md", f"The tables are in {store.address}/{TABLES}/.\n".encode())
        return
    if folder.is_dir() and not folder.is_symlink():  # Delta tables of before
        delete_tables(store)
        with storing(folder):
            shutil.rmtree(folder)
    if tables == "parquet":
        write_tables(data.folder)
    else:
        remove_tables(data.folder)


def _delete_former(data: DataFolder) -> None:
    """Delete what earlier releases made of the leads, and a former bucket's cache. No erasure reaches them."""
    cache = () if data.bucket else (f"{CACHE}/{root}" for root in (RAW, RESTRICTED))
    for name in ("staged", "delta", *cache):
        with storing(data.folder / name):
            if (data.folder / name).exists():
                shutil.rmtree(data.folder / name)
    if data.bucket is not None:
        delete_tables(data.bucket, "delta/")


def _content(
    data: DataFolder, raw: RawWindows, wanted: Wanted, now: datetime, list_number: int, *, of_all_days: bool
) -> Content:
    suppressed = data.gate.entries.read()
    inputs = _inputs(data, raw, wanted, now, of_all_days=of_all_days)
    own = own_files(wanted.marts_dir)

    def make_marts(db: duckdb.DuckDBPyConnection, is_rewritten: bool) -> None:
        marts.make_tables(db)
        load_inventory(db, data.inventory.searches())
        # Read anew: reading the windows may have taught the list more leads of whoever objects.
        _note_who_objects(db, data.gate.entries.read().objecting, is_whole=is_rewritten)
        is_new = not db.execute("from pipeline.window_states limit 1").fetchall()
        of_all = _inputs(data, raw, wanted, now, of_all_days=True) if is_new and not of_all_days else inputs
        problems = marts.make_marts(db, of_all, is_rewritten=is_rewritten)
        for mart, problem in problems.items():
            logger.error("%s couldn't be made and stays as it was. %s", mart, problem)
        keep_own_tables(db, own, is_rewritten=is_rewritten)

    def make_own(draft: Path, is_rewritten: bool) -> None:
        if own.files or own.trouble:
            troubles = make_own_tables(data.folder, draft, own, inputs.today, is_rewritten=is_rewritten)
            for file, problem in troubles.items():
                logger.warning("%s: %s", file, problem)

    return Content(
        zone=wanted.zone,
        fingerprint=repr((marts.fingerprint(wanted.branches), macros("people"), data.state.person_key())),
        inputs=_fingerprint(inputs, data.inventory.hashes(), own),
        list_number=list_number,
        at=now,
        prepare=partial(set_person_key, key=data.state.person_key()),
        refuse=partial(_refuse, suppressed, data.state.retained_before()),
        make_marts=make_marts,
        make_own_tables=make_own,
    )


def _inputs(data: DataFolder, raw: RawWindows, wanted: Wanted, now: datetime, *, of_all_days: bool) -> marts.Inputs:
    """Return the other inputs of marts: of all days, or of those that an update looks at."""
    to_day = today(wanted.zone, now)
    first_day = wanted.first_day if of_all_days else max(wanted.first_day, to_day - timedelta(days=RECENT_DAYS))
    shown = days(first_day, to_day)
    configured = dict.fromkeys(Window.of(day, scope, wanted.zone) for day in shown for scope in wanted.scopes)
    rows: list[WindowRow] = []
    for kind in LEAD_KINDS:
        folders = raw.folders(kind, of_all_days=of_all_days)
        landed = [
            Window.of(place.day, Scope.parse(place.scope), wanted.zone)
            for place in map(Place.parse, folders)
            if place and place.scope != PUSH_SCOPE and (of_all_days or place.day >= first_day)
        ]
        rows += window_rows(data.store, kind, {**configured, **dict.fromkeys(landed)}, folders, now)
    return marts.Inputs(
        *(data.folder, wanted.zone, to_day, rows, configured.keys(), wanted.branches),
        first_day=None if of_all_days else first_day,
        marts_dir=wanted.marts_dir,
    )


def _fingerprint(inputs: marts.Inputs, inventory: Sequence[str], own: OwnFiles) -> str:
    configured = inputs.configured
    windows = [
        (row.kind, row.window.partition_key, row.state, row.leads, row.looked_at, row.failure, row.window in configured)
        for row in inputs.windows
    ]
    answers = [digest_of(path) for path in answer_files(inputs.marts_dir, inputs.folder)]
    looks = sorted((one.file, one.look) for one in own.files)
    parts = (inputs.today, windows, answers, inventory, looks, own.trouble)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _ids_of(db: duckdb.DuckDBPyConnection, meant: Meant, kind: LeadKind, source: str) -> list[str]:
    """The leads among these rows that the list knows by their ids. A lead that left raw is known by its id."""
    rows = db.execute(f"select distinct lead_id from {source}").fetchall() if meant else []
    return [lead_id for (lead_id,) in rows if meant.is_known(kind.name, lead_id)]


def _note_who_objects(db: duckdb.DuckDBPyConnection, objecting: Meant, *, is_whole: bool) -> None:
    """Note who objects: the people of the objections, and those whom their leads name now."""
    is_whole = is_whole or not db.execute("from pipeline.objected limit 1").fetchall()
    if is_whole:
        db.execute("delete from pipeline.objected")
        people = {"people": sorted(objecting.persons)}
        db.execute("insert into pipeline.objected (person) select unnest($people::uuid[])", people)
    else:
        db.execute("delete from pipeline.objected where (kind, lead_id) in (select (kind, lead_id) from touched)")
    for kind in LEAD_KINDS:
        source = quoted(kind.table) if is_whole else f"touched where kind = '{kind.name}'"
        db.execute(
            f"""
            insert into pipeline.objected
            select person, '{kind.name}', lead_id from {quoted(kind.table)}
            where lead_id in (select unnest($ids::varchar[])) and person is not null
            """,
            {"ids": _ids_of(db, objecting, kind, source)},
        )


def _refuse(suppressed: Suppressed, before: date | None, db: duckdb.DuckDBPyConnection) -> None:
    """Apply list and retention to leads that raw has no longer."""
    for kind in LEAD_KINDS:
        leads, is_listed = quoted(kind.table), "lead_id in (select unnest($ids::varchar[]))"
        out, cleared = (_ids_of(db, meant, kind, leads) for meant in (suppressed.out, suppressed.cleared))
        db.execute(
            f"insert into touched select '{kind.name}', lead_id, lead_day from {leads} where {is_listed}",
            {"ids": out + cleared},
        )
        for table in kind.tables:
            db.execute(f"delete from {quoted(table)} where {is_listed}", {"ids": out})
        db.execute(f"update {leads} set message = '' where message <> '' and {is_listed}", {"ids": cleared})
    if before is not None:
        anonymise_lost(db, before)
