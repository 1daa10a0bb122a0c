"""leads.duckdb: changed days in, each lead once, marts rebuilt, and the whole file swapped in at once.

Belongs here: what is loaded when, which of a lead's versions counts, publication. Doesn't: how a payload becomes
columns (flatten.py), what a mart holds (sql/), when to publish (assets/).
"""

import hashlib
import hmac
import logging
import secrets
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.contract import ENUM_PREFIXES, ENUMERATIONS, LEAD_KINDS, LeadKind, known_members
from leads_pipeline.drift import PEOPLE_MIN, Drift, Seen, find_drift
from leads_pipeline.duck import Column, connection, glob_literal, link_or_copy, literal, quoted, scratch_folder
from leads_pipeline.durable import publish_file, replace_file, syncing
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.flatten import (
    HIDDEN,
    INVENTORY_COLUMNS,
    WAREHOUSE_FILE,
    StagedDay,
    define_local_time,
    flatten_days,
    insert_inventory,
    staged_columns,
    trees_of,
    windows_table,
)
from leads_pipeline.lake import Lake
from leads_pipeline.window import RETENTION, Scope, day_interval, days, today

logger = logging.getLogger(__name__)

FILE_NAME: Final = WAREHOUSE_FILE

# Raised when a file of an older version can't be brought up to date by loading changed days: it is then built anew.
SCHEMA_VERSION: Final = 4

# What is loaded in one statement, at least a day. DuckDB holds the ids of all that the statement loads, and can't spill
# them: of 3 million leads they don't fit into 400 MB.
PART_LEADS: Final = 1_000_000

# Readable by the owner's group, as analysts are; for nobody to write, as one writer would lock out every reader.
_PUBLISHED_MODE: Final = 0o440

_SQL_FOLDER: Final = Path(__file__).parent / "sql"


@dataclass(frozen=True, slots=True)
class Failure:
    """A window that is still failed: `attempts` counts failed runs, `last_error` is the last one's reason.

    `kind` is the lead kind's name and `scope` the scope's key. `is_refused`: the last error won't pass by itself.
    """

    kind: str
    day: date
    scope: str
    attempts: int
    last_error: str
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """The windows that should be there: every scope on every day from `first_day` to today in `zone`."""

    scopes: Sequence[Scope]
    first_day: date
    zone: ZoneInfo
    failures: Sequence[Failure] = ()


@dataclass(frozen=True, slots=True)
class Publication:
    """What publishing did. `rows` counts each table's rows, whether or not anything changed.

    `days_changed` counts days of which at least one staged file was loaded or left out. `is_rebuilt`: everything was
    loaded anew, as there was no file yet, or none that could be brought up to date. Of days whose staged files were
    damaged or gone, `staged_again` are those that were made again, and `not_staged` those that couldn't be, with the
    reason; they stay as they were published.
    """

    is_changed: bool
    is_rebuilt: bool
    days_changed: int
    rows: Mapping[str, int]
    seconds: float
    size_bytes: int
    staged_again: Sequence[StagedDay]
    not_staged: Mapping[tuple[str, date], str]


@dataclass(frozen=True, slots=True)
class Mart:
    """A table that one statement in sql/ makes from the others. `columns` are in the statement's order.

    `follows` is the column of which a row's value says which leads it was made from: those with the same value. When
    leads change, only the rows of their values are made anew. None: it is made anew as a whole, which must be quick.
    """

    name: str
    description: str
    columns: Mapping[str, str]
    statement: str
    follows: str | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the warehouse that is loaded from staged or inventory files."""

    name: str
    description: str
    columns: tuple[Column, ...]


_PERSON: Final = Column(
    "person",
    "uuid",
    "Keyed hash of the e-mail address, or of the telephone number where there is none; NULL where neither is given",
)


# Whose rows lie together, so that replacing a day's reads a day's.
_CHILD_DAY: Final = Column("day", "date", "Day of the window that held the lead: its window_day")


@cache
def tables() -> tuple[Table, ...]:
    """The loaded tables of the warehouse, in the order in which an analyst should meet them."""
    loaded: list[Table] = []
    for kind in LEAD_KINDS:
        columns = staged_columns(kind)
        loaded.append(Table(kind.table, f"One row per lead. {kind.description}", (*columns[kind.table], _PERSON)))
        loaded += [Table(child.name, child.description, (*columns[child.name], _CHILD_DAY)) for child in kind.children]
    windows = staged_columns(LEAD_KINDS[0])[windows_table(LEAD_KINDS[0])]
    return (
        *loaded,
        Table(
            "inventory", "One row per item that the inventory searches found, in its newest state", INVENTORY_COLUMNS
        ),
        Table(
            "landed_windows",
            "One row per window that was landed; an empty one has a row too",
            (Column("kind", "varchar", "applicant or appraisal"), *windows),
        ),
    )


@cache
def marts() -> tuple[Mart, ...]:
    """The marts of sql/, one a file, by name.

    A file begins with a comment of its grain and one comment per column, `-- name: description`, up to an empty line;
    a star before the name of a column says that the mart follows it.
    """
    return tuple(_read_mart(path) for path in sorted(_SQL_FOLDER.glob("*.sql")))


def _read_mart(path: Path) -> Mart:
    header, _, statement = path.read_text(encoding="utf-8").partition("\n\n")
    description, *lines = [line.removeprefix("-- ") for line in header.splitlines()]
    columns = dict(line.removeprefix("*").split(": ", 1) for line in lines)
    follows = next((line[1:].split(": ")[0] for line in lines if line.startswith("*")), None)
    return Mart(path.stem, description, columns, statement, follows)


class Warehouse:
    """The published DuckDB file of a lake. Readers open it at any time; only `publish` replaces it, never writes it."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    @property
    def path(self) -> Path:
        """Where the file lies once something was published."""
        return self._lake.folder / FILE_NAME

    def publish(self, grid: Grid, now: datetime) -> Publication:
        """Bring the file up to date with the staged files and the grid, and swap it in whole.

        Where nothing changed since the last publication, the file stays untouched. A missing or damaged file, or one of
        another schema, is built anew from the staged files. A day whose staged files are damaged or gone is staged anew
        first, from raw and from what is published. Raises StorageError, and BugError where a statement is wrong; then
        the published file is as before.
        """
        began = time.monotonic()
        staged_again: list[StagedDay] = []
        try:
            with self._lake.lock("warehouse"):
                self._sweep()
                try:
                    return self._published(grid, now, began, staged_again)
                except _BrokenStagedError as error:
                    logger.warning("%s", error)
                    with self._lake.holding_staged(error.day):
                        if self._lake.whole_staged(error.table, error.day) is None:
                            self._lake.staged_path(error.table, error.day).unlink(missing_ok=True)
                    return self._published(grid, now, began, staged_again)
        except OSError as error:
            raise StorageError(
                f"{self.path} can't be replaced: {error.strerror}. Check the disk and its rights, then run again. The "
                "published file is as it was before."
            ) from error

    def _published(self, grid: Grid, now: datetime, began: float, staged_again: list[StagedDay]) -> Publication:
        found = _wanted(self._lake, grid, now)
        held = self._held(found)
        wanted, not_staged = self._mended(found, held.state if held else _EMPTY, grid, now, staged_again)
        if wanted != found:
            held = self._held(wanted)  # which counts the rows of what is wanted alone
        # All of it is read even if nothing changed: else analysts alone would meet what rots until the next lead comes.
        is_changed = held is None or held.state != wanted or not self._is_as_published(_checksum(self.path))
        if is_changed:
            held = self._build(wanted, grid, now, not_staged)
        assert held is not None  # noqa: S101 - for mypy: where nothing changed, something was held
        return Publication(
            is_changed=is_changed,
            is_rebuilt=held.is_rebuilt,
            days_changed=held.days_changed,
            rows=held.rows,
            seconds=time.monotonic() - began,
            size_bytes=self.path.stat().st_size,
            staged_again=staged_again,
            not_staged=not_staged,
        )

    def query(
        self, statement: str, parameters: Mapping[str, object] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Column names and rows of a query on the published file, as an analyst would see them.

        Raises StorageError where nothing is published yet.
        """
        if not self.path.exists():
            raise StorageError(f"{self.path} is not there yet. Publish the warehouse first: `leads-pipeline backfill`.")
        # Readers wait for nobody, so each has its own folder. The second name is for the moment in which the file is
        # built anew: the headers and the blocks that DuckDB opens one after the other are then of one version.
        self._sweep_readers()
        name = f"query-{secrets.token_hex(8)}"
        with self._lake.reading(name), scratch_folder(self._lake, name) as folder:
            link_or_copy(self.path, folder / FILE_NAME)
            with connection(self._lake, f"{name}/query", folder / FILE_NAME, read_only=True) as db:
                result = db.execute(statement, dict(parameters or {}))
                return [column[0] for column in result.description], result.fetchall()

    def _sweep_readers(self) -> None:
        """Remove what killed readers left: the second name of a version, which takes its space as long as it is there.

        A reader's lock is held before its folder is made, and until that is gone.
        """
        for folder in (self._lake.folder / ".state" / "duckdb").glob("query-*"):
            if not self._lake.is_reading(folder.name):
                shutil.rmtree(folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what killed publications left beside the file. The lock is held."""
        for leftover in self._lake.folder.glob(f".{FILE_NAME}.*"):
            leftover.unlink(missing_ok=True)
        for leftover in (self._lake.folder / ".state" / "duckdb").glob("warehouse-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._sweep_readers()

    def _held(self, wanted: "_State") -> "_Held | None":
        """What the published file remembers; None where there is none that can be read.

        Its rows are counted where it is as wanted, and so has all tables.

        It is opened under a second name: beside its own, the write-ahead log of a killed reader would be in the way.
        """
        if not self.path.exists():
            return None
        with scratch_folder(self._lake, "warehouse-held") as folder:
            link = folder / FILE_NAME
            link_or_copy(self.path, link)
            try:
                with connection(self._lake, "warehouse", link, read_only=True) as db:
                    state = _remembered(db)
                    return _Held(state, _counted(db) if state == wanted else {})
            except StorageError:
                return None

    def _mended(
        self, wanted: "_State", before: "_State", grid: Grid, now: datetime, staged_again: list[StagedDay]
    ) -> "tuple[_State, dict[tuple[str, date], str]]":
        """Stage each day again whose staged files are damaged or gone; what is wanted then, and what went wrong by day.

        Where that fails, the day stays as it is published, and the others go on. The warehouse's lock comes before the
        days', here as in loading.
        """
        # One that was loaded as it is was whole then, and isn't read again.
        known = before.files if before.schema == wanted.schema else {}
        failed: dict[tuple[str, date], str] = {}
        is_mended = False
        for kind in LEAD_KINDS:
            own = staged_columns(kind)
            broken = {day for table, day in before.files.keys() - wanted.files.keys() if table in own}
            broken |= {
                day
                for (table, day), fingerprint in wanted.files.items()
                if table in own
                and known.get((table, day)) != fingerprint
                and self._lake.whole_staged(table, day) is None
            }
            for day, staged in flatten_days(self._lake, kind, broken, grid.zone):
                is_mended = True
                if isinstance(staged, LeadsPipelineError):
                    logger.error("The %s leads of %s stay as they are published. %s", kind.name, day, staged)
                    failed[kind.name, day] = str(staged)
                else:
                    logger.warning("Staged files of the %s leads of %s were broken: staged again.", kind.name, day)
                    staged_again.append(staged)
        if is_mended:
            wanted = _wanted(self._lake, grid, now)
        kept = {(table, day) for name, day in failed for table in _tables_of(name)}
        files = {key: fingerprint for key, fingerprint in wanted.files.items() if key not in kept}
        files |= {key: fingerprint for key, fingerprint in before.files.items() if key in kept}
        return replace(wanted, files=files), failed

    def _build(self, wanted: "_State", grid: Grid, now: datetime, not_staged: Mapping[Any, str]) -> "_Held":
        """Write the new version beside the published one, then swap it in."""
        draft = self.path.with_name(f".{FILE_NAME}.draft")
        try:
            checksum = self._copied(draft)
            held = self._updated(draft, wanted, grid, now) if checksum else None
            if held is None and not_staged:
                raise StorageError(
                    f"{self.path} has to be built anew, but {len(not_staged)} days can't be staged and would miss. "
                    f"{next(iter(not_staged.values()))}"
                )
            if held is None:
                checksum, held = None, self._rebuilt(draft, wanted, grid, now)
            draft.chmod(_PUBLISHED_MODE)
            # That of the old version too, as it stays where this process is killed now.
            known = " ".join(filter(None, (checksum, _checksum(draft))))
            replace_file(self._checksums, known.encode())
            # Beside the new version, a log of the old one would keep it from being opened.
            self.path.with_name(f"{FILE_NAME}.wal").unlink(missing_ok=True)
            publish_file(draft, self.path)
        finally:
            with suppress(OSError):  # what went wrong before says more; the next publication sweeps again
                self._sweep()
        return held

    @property
    def _checksums(self) -> Path:
        return self._lake.folder / ".state" / "warehouse-checksums"

    def _copied(self, draft: Path) -> str | None:
        """Copy the published file, and return its checksum; None where there is none, or not as it was published.

        DuckDB notices damage only where it reads, and a publication leaves most of the file unread.
        """
        if not self.path.exists():
            return None
        shutil.copyfile(self.path, draft)
        draft.chmod(0o600)
        checksum = _checksum(draft)
        if self._is_as_published(checksum):
            return checksum
        logger.warning("%s is damaged: it isn't what was published. It is built anew from the staged files.", self.path)
        return None

    def _is_as_published(self, checksum: str) -> bool:
        """Whether a publication wrote the file with that checksum, or may have: earlier versions noted none."""
        try:
            return checksum in self._checksums.read_text(encoding="ascii").split()
        except FileNotFoundError:
            return True

    def _updated(self, draft: Path, wanted: "_State", grid: Grid, now: datetime) -> "_Held | None":
        """The published file's copy, brought up to date; None where it has to be built anew."""
        try:
            # DuckDB's commit waits for the whole copy to be on the disk, which has begun by then.
            with syncing(draft), connection(self._lake, "warehouse", draft) as db:
                state = _remembered(db)
                if state.schema != wanted.schema:
                    return None
                db.begin()
                held = _loaded(db, self._lake, state, wanted, grid, now)
        except _BrokenStagedError:
            raise
        except StorageError as error:
            # It may be broken, which building anew mends. Where the disk is at fault, that will say so.
            logger.warning("%s can't be brought up to date and is built anew. %s", self.path, error)
            return None
        self._keep_old_blocks(draft)
        return held

    def _keep_old_blocks(self, draft: Path) -> None:
        """Append what the published file has beyond the end of the draft, so that its headers hold for both.

        DuckDB opens a file by its name for the headers and once more for the blocks. A reader between whose steps the
        draft is swapped in must find each block that the old headers lead to. A checkpoint overwrites none of them, so
        that a power cut leaves the old version; but then it cuts free ones off the file's end, which are put back here.
        The next publication writes into them: the file is as long as its longest version, and doesn't grow by this.
        """
        with self.path.open("rb") as old, draft.open("ab") as new:
            old.seek(new.tell())
            shutil.copyfileobj(old, new)

    def _rebuilt(self, draft: Path, wanted: "_State", grid: Grid, now: datetime) -> "_Held":
        self._sweep()
        draft.touch(mode=0o600)
        draft.unlink()
        with connection(self._lake, "warehouse", draft) as db:
            db.begin()
            _create_tables(db)
            return replace(_loaded(db, self._lake, _EMPTY, wanted, grid, now), is_rebuilt=True)


class _BrokenStagedError(StorageError):
    """A staged file was damaged since it was loaded, and has to be read again for leads that another day lost."""

    def __init__(self, table: str, day: date) -> None:
        super().__init__(f"{table} of {day} is damaged in staged/. It is staged anew at the next publication.")
        self.table = table
        self.day = day


# --- what a file remembers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _State:
    """What a file was made from: fingerprints of schema, marts, comments and grid, and of each file loaded.

    `files` is by table and day, the inventory's files under the table `inventory`.
    """

    schema: str
    marts: str
    comments: str
    grid: str
    files: Mapping[tuple[str, date], str]


_EMPTY: Final = _State("", "", "", "", {})


@dataclass(frozen=True, slots=True)
class _Held:
    state: _State
    rows: Mapping[str, int]
    days_changed: int = 0
    is_rebuilt: bool = False


def _wanted(lake: Lake, grid: Grid, now: datetime) -> _State:
    staged = (file for kind in LEAD_KINDS for table in staged_columns(kind) for file in lake.staged_files(table))
    files = {(file.table, file.day): file.fingerprint for file in staged}
    for path in lake.inventory_files():
        stat = path.stat()
        day = date.fromisoformat(path.parent.name.removeprefix("day="))
        files[_INVENTORY, day] = f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ino}"
    return _State(
        schema=_fingerprint(
            SCHEMA_VERSION,
            [(table.name, [(column.name, column.type) for column in table.columns]) for table in tables()],
            _PERSON_MACROS,
            ENUMERATIONS,
            lake.person_key(),
        ),
        marts=_fingerprint([(mart.name, mart.statement, mart.follows) for mart in marts()], _MART_MACROS),
        comments=_fingerprint(tables(), _BOOKKEEPING, marts()),
        grid=_fingerprint(grid, today(grid.zone, now)),
        files=files,
    )


def _tables_of(kind_name: str) -> Iterable[str]:
    return next(staged_columns(kind) for kind in LEAD_KINDS if kind.name == kind_name)


def _fingerprint(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _checksum(path: Path) -> str:
    """Of all bytes, as quick as reading them."""
    value = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            value = zlib.crc32(piece, value)
    return f"{value:08x}"


def _remembered(db: duckdb.DuckDBPyConnection) -> _State:
    """What the file was made from; nothing where it isn't a file of the pipeline's."""
    if not db.execute(
        "select 1 from duckdb_tables() where schema_name = 'pipeline' and table_name = 'facts'"
    ).fetchall():
        return _EMPTY
    facts = dict(db.execute("select name, value from pipeline.facts").fetchall())
    files = db.execute("select table_name, day, fingerprint from pipeline.loaded_files").fetchall()
    return _State(
        schema=facts.get("schema", ""),
        marts=facts.get("marts", ""),
        comments=facts.get("comments", ""),
        grid=facts.get("grid", ""),
        files={(table, day): fingerprint for table, day, fingerprint in files},
    )


def _remember(db: duckdb.DuckDBPyConnection, state: _State) -> None:
    db.execute("delete from pipeline.facts")
    db.execute(
        "insert into pipeline.facts values ('schema', ?), ('marts', ?), ('comments', ?), ('grid', ?)",
        [state.schema, state.marts, state.comments, state.grid],
    )
    db.execute("delete from pipeline.loaded_files")
    _fill(
        db,
        "pipeline.loaded_files",
        {
            "table_name varchar": [table for table, _ in state.files],
            "day date": [day for _, day in state.files],
            "fingerprint varchar": list(state.files.values()),
        },
    )


def _counted(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    names = [*(table.name for table in tables()), *(mart.name for mart in marts())]
    counts = (db.execute(f"select count(*) from {quoted(name)}").fetchall()[0][0] for name in names)  # noqa: S608
    return dict(zip(names, counts, strict=True))


# --- tables and comments -----------------------------------------------------------------------------------------

_BOOKKEEPING: Final = (
    Table(
        "facts",
        "What this file was made from, for the pipeline itself",
        (Column("name", "varchar", "Name of the fact"), Column("value", "varchar", "Its fingerprint")),
    ),
    Table(
        "loaded_files",
        "Staged and inventory files that this file was made from, for the pipeline itself",
        (
            Column("table_name", "varchar", "Table that the file belongs to"),
            Column("day", "date", "Day that it holds"),
            Column("fingerprint", "varchar", "Changes whenever the file is replaced"),
        ),
    ),
    Table(
        "drift_by_day",
        "What the contract doesn't know, by the day of the staged file that has it: the table drift in the making",
        (
            Column("kind", "varchar", "applicant or appraisal"),
            Column("day", "date", "Day of the staged file"),
            Column("change", "varchar", "new field, new value or changed type"),
            Column("field", "varchar", "Path of the field, as far as the contract knows it"),
            Column("value", "varchar", "Whether there is a new value: …"),
            Column("type", "varchar", "Type of a new field, as contract.py calls it"),
            Column("name", "uuid", "Keyed hash of what the contract doesn't know: the field's path, the new value"),
            Column("leads", "bigint", "Rows that have it"),
            Column("people", "uuid[]", f"Keyed hashes of the people that it came from, up to {PEOPLE_MIN} of them"),
        ),
    ),
    Table(
        "drift_names",
        f"What came from {PEOPLE_MIN} different people or more, and is no person's name: the table drift may show it",
        (
            Column("name", "uuid", "Keyed hash of what follows"),
            Column("field", "varchar", "Path of the field"),
            Column("value", "varchar", "The new value"),
        ),
    ),
)


def _create_tables(db: duckdb.DuckDBPyConnection) -> None:
    db.execute("create schema pipeline")
    for name, table in _named_tables():
        db.execute(f"create table {name} ({', '.join(f'{quoted(c.name)} {c.type}' for c in table.columns)})")


def _comment_tables(db: duckdb.DuckDBPyConnection) -> None:
    for name, table in _named_tables():
        _comment(db, name, table.description, {column.name: column.description for column in table.columns})


def _named_tables() -> Iterator[tuple[str, Table]]:
    """Every table but the marts, with its name in SQL."""
    for schema, loaded in (("main", tables()), ("pipeline", _BOOKKEEPING)):
        for table in loaded:
            yield f"{schema}.{quoted(table.name)}", table


def _comment(db: duckdb.DuckDBPyConnection, table: str, description: str, columns: Mapping[str, str]) -> None:
    db.execute(f"comment on table {table} is {literal(description)}")
    for column, text in columns.items():
        db.execute(f"comment on column {table}.{quoted(column)} is {literal(text)}")


# --- loading -----------------------------------------------------------------------------------------------------

_INVENTORY: Final = "inventory"


def _loaded(
    db: duckdb.DuckDBPyConnection, lake: Lake, state: _State, wanted: _State, grid: Grid, now: datetime
) -> _Held:
    """Bring the open file from one state to the other, in the transaction that the caller began.

    One transaction, as each would wait for the disk, and only the finished file has to be on it.
    """
    if is_reworded := state.comments != wanted.comments:
        _comment_tables(db)
    _set_person_key(db, lake.person_key())
    for macro in _MART_MACROS:
        db.execute(f"create or replace macro {macro}")
    db.execute(f"create temp table touched ({', '.join(f'{name} {type_}' for name, type_ in _FOLLOWED.items())})")
    changed = {key for key in state.files.keys() | wanted.files.keys() if state.files.get(key) != wanted.files.get(key)}
    is_whole = state.marts != wanted.marts
    for kind in LEAD_KINDS:
        if of_kind := {(table, day) for table, day in changed if table in staged_columns(kind)}:
            is_whole = _load_leads(db, lake, kind, of_kind, is_whole=is_whole)
    if any(table == _INVENTORY for table, _ in changed):
        _load_inventory(db, lake)
    _set_grid(db, grid, now)
    _drop_former_marts(db)
    for mart in marts():
        is_anew = is_whole or mart.follows is None
        if is_anew:
            db.execute(f"create or replace table {quoted(mart.name)} as {mart.statement}")
        if is_anew or is_reworded:
            _comment(db, quoted(mart.name), mart.description, mart.columns)
        if not is_anew and mart.follows:
            _bring_up_to_date(db, mart, mart.follows)
    _remember(db, wanted)
    db.commit()
    db.execute("checkpoint")
    return _Held(wanted, _counted(db), days_changed=len({day for _, day in changed}))


def _load_leads(
    db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, changed: Set[tuple[str, date]], *, is_whole: bool
) -> bool:
    """Replace what the changed files hold; afterwards each lead id is there once, in its newest version of all days.

    Return whether the marts are to be made anew as a whole: as they were to be, or as that many leads have changed.
    Where they aren't, note which of the values that they follow are touched.
    """
    days_changed = {day for _, day in changed}
    children_changed = {day for table, day in changed if table in kind.tables and table != kind.table}
    db.execute(
        "create or replace temp table changed_days as select unnest($days::date[]) as day", {"days": [*days_changed]}
    )
    with scratch_folder(lake, "warehouse-staged") as folder:
        files = _Files(db, lake, kind, folder)
        files.hold(days_changed)
        _find_winners(db, lake, kind, files)
        _confirm(db, kind, files, days_changed - children_changed)
        db.execute(
            """
            create or replace temp table removed as
            from held
            where (window_day in (from changed_days) or lead_id in (select lead_id from winners))
                and row_id not in (select row_id from confirmed)
            """
        )
        parts = _parts(db)
        for table in kind.tables:
            is_child = table != kind.table
            # The lead's row is known; its children's are looked for where its day's lie.
            of_removed = (
                "day in (select window_day from removed) and lead_id in (select lead_id from removed)"
                if is_child
                else "rowid in (select row_id from removed)"
            )
            db.execute(f"delete from {quoted(table)} where {of_removed}")  # noqa: S608 - only our own names, as below
            more = "staged.day" if is_child else _PERSON_OF_LEAD
            staged = files.select(table, more)
            for first, last in parts:
                db.execute(
                    f"""
                    insert into {quoted(table)} by name
                    {staged}
                    semi join (from winners where day between $first and $last) as winners
                    on staged.lead_id = winners.lead_id and staged.day = winners.day
                    where staged.day between $first and $last
                    """,
                    {"first": first, "last": last},
                )
        changes = "(select count(*) from removed) + (select count(*) from winners)"
        sql = f"select {changes} > $most * (select count(*) from {quoted(kind.table)})"  # noqa: S608
        is_whole = is_whole or db.execute(sql, {"most": _TOUCHED_MAX}).fetchall() == [(True,)]
        if not is_whole:
            followed = ", ".join(f"{column} as {name}" for name, column in _followed_columns(kind))
            # The days are said as well, so that only their rows are looked at.
            added = (
                f"{quoted(kind.table)} where lead_id in (select lead_id from winners) "  # noqa: S608
                "and window_day in (select day from winners)"
            )
            for leads in ("removed", added):
                db.execute(f"insert into touched by name select {followed} from {leads}")  # noqa: S608
        db.execute(
            "delete from landed_windows where kind = $kind and window_day in (from changed_days)", {"kind": kind.name}
        )
        db.execute(
            f"insert into landed_windows by name {files.select(windows_table(kind), '$kind as kind')} "
            "semi join changed_days on staged.day = changed_days.day",
            {"kind": kind.name},
        )
        # Marts show a new member once it may be shown.
        return _record_drift(db, lake, kind, files) or is_whole


def _parts(db: duckdb.DuckDBPyConnection) -> list[tuple[date, date]]:
    """First and last day of what is loaded in one statement."""
    parts: list[tuple[date, date]] = []
    leads_of_last = PART_LEADS
    for day, leads in db.execute("select day, count(*) from winners group by day order by day").fetchall():
        if leads_of_last + leads > PART_LEADS:
            parts.append((day, day))
            leads_of_last = leads
        else:
            parts[-1] = (parts[-1][0], day)
            leads_of_last += leads
    return parts


def _load_inventory(db: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Fill the table anew, and note which leads may now be about another item."""
    items = (
        "select postcode_of(address_postcode) as postcode, columns('address.*|item_id|first_seen_day') from inventory"
    )
    db.execute(f"create or replace temp table items_before as {items}")
    db.execute("delete from inventory")
    if files := lake.inventory_files():
        insert_inventory(db, files, _INVENTORY)
    db.execute(
        f"""
        create or replace temp table changed_postcodes as
        select distinct postcode
        from ((from items_before except {items}) union all ({items} except from items_before))
        """  # noqa: S608 - put together from constants alone
    )
    for kind in LEAD_KINDS:
        leads, written = quoted(kind.table), quoted(_POSTCODES[kind.name])
        # A postcode is written in few ways, so few are normalised and not one a lead.
        db.execute(
            f"""
            insert into touched by name
            select lead_id, lead_day
            from {leads}
            where {written} in (
                select {written} from (select distinct {written} from {leads})
                where postcode_of({written}) in (from changed_postcodes)
            )
            """  # noqa: S608 - only the contract's own names
        )


_POSTCODES: Final = {
    "applicant": "listing_details_address_postcode",
    "appraisal": "property_details_address_postcode",
}


def _record_drift(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, files: "_Files") -> bool:
    """Replace what the changed days have that the contract doesn't know; the other days' counts stay as they are.

    Return whether other new members may be shown than before.
    """
    db.execute(
        "delete from pipeline.drift_by_day where kind = $kind and day in (from changed_days)", {"kind": kind.name}
    )

    def staged(table: str) -> str:
        return f"{files.select(table, 'staged.day')} semi join changed_days on staged.day = changed_days.day"

    contacts = (
        "select day, lead_id, coalesce(email_of(contact_email), phone_of(contact_phone_number)) as contact "  # noqa: S608
        f"from ({staged(kind.table)})"
    )
    trees = trees_of(kind)
    parts = [
        (kind.table, kind.fields, ""),
        *((child.name, child.fields, f"{child.path}[].") for child in kind.children),
    ]
    found: dict[Drift, Seen] = {}
    for table, fields, prefix in parts:
        found |= find_drift(db, staged(table), contacts, fields, trees[table], prefix)
    key = lake.person_key()
    names = {drift: None if drift.name is None else _hashed(key, "\0".join(drift.name)) for drift in found}
    _fill(
        db,
        "pipeline.drift_by_day",
        {
            "kind varchar": [kind.name] * len(found),
            "day date": [drift.day for drift in found],
            "change varchar": [drift.change for drift in found],
            "field varchar": [drift.shown_field for drift in found],
            "value varchar": [drift.value and HIDDEN for drift in found],
            "type varchar": [drift.type for drift in found],
            "name uuid": list(names.values()),
            "leads bigint": [seen.rows for seen in found.values()],
            "people uuid[]": [[_hashed(key, person) for person in seen.people] for seen in found.values()],
        },
    )
    db.execute("create or replace temp table named (name uuid, field varchar, value varchar)")
    named = [(name, drift) for drift, name in names.items() if name is not None]
    _fill(
        db,
        "named",
        {
            "name uuid": [name for name, _ in named],
            "field varchar": [drift.field for _, drift in named],
            "value varchar": [drift.value for _, drift in named],
        },
    )
    members = "select count(*), bit_xor(hash(name)) from pipeline.drift_names where value is not null"
    before = db.execute(members).fetchall()
    db.execute(
        """
        create or replace temp table shown as
        select name
        from (select name, unnest(people) as person from pipeline.drift_by_day where name is not null)
        group by name
        having count(distinct person) >= $people
        """,
        {"people": PEOPLE_MIN},
    )
    db.execute("delete from pipeline.drift_names where name not in (from shown)")
    # Whose people have become enough came on one of the days at hand.
    db.execute(
        """
        insert into pipeline.drift_names
        select distinct * from named
        where name in (from shown) and name not in (select name from pipeline.drift_names)
        """
    )
    return db.execute(members).fetchall() != before


def _hashed(key: bytes, text: str) -> UUID:
    return UUID(bytes=hmac.digest(key, text.encode(), "sha256")[:16])


class _Files:
    """The kind's staged files as they are now, for as long as the folder that holds them."""

    def __init__(self, db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, folder: Path) -> None:
        self._db = db
        self._lake = lake
        self._kind = kind
        self._folder = folder
        self._held: set[date] = set()

    def hold(self, days: Iterable[date]) -> None:
        """Hold the files of these days; those of one day belong together."""
        for day in set(days) - self._held:
            with self._lake.holding_staged(day):
                for table in staged_columns(self._kind):
                    path = self._lake.staged_path(table, day)
                    if path.exists():
                        if self._lake.whole_staged(table, day) is None:
                            raise _BrokenStagedError(table, day)
                        link_or_copy(path, self._folder / table / f"day={day.isoformat()}" / path.name)
            self._held.add(day)

    def select(self, table: str, *more: str) -> str:
        """`select … from … as staged` over the held files of the table, with the day of each as `staged.day`.

        A file from before a field was declared lacks its column, which is then what stands in for it, mostly NULL.
        """
        paths = sorted((self._folder / table).glob("*/*.parquet"))
        columns = staged_columns(self._kind)[table]
        if paths:
            self._db.execute(f"set variable {quoted(table)} = $files", {"files": list(map(glob_literal, paths))})
            source = (
                f"read_parquet(getvariable({literal(table)}), hive_partitioning = true, hive_types = {{'day': date}}, "
                "union_by_name = true)"
            )
            described = self._db.execute(f"describe select * from {source}").fetchall()  # noqa: S608 - no values
            there = {name for name, *_ in described}
        else:
            there = {column.name for column in columns}
            nulls = ", ".join(f"null::{column.type} as {quoted(column.name)}" for column in columns)
            source = f"(select null::date as day, {nulls} where false)"
        selected = list(more)
        for column in columns:
            values = [f"staged.{quoted(column.name)}"] if column.name in there else []
            values += [column.stand_in] if column.stand_in else []
            selected += [f"coalesce({', '.join(values)}) as {quoted(column.name)}"] if len(values) > 1 else []
            selected += [f"{values[0]} as {quoted(column.name)}"] if len(values) == 1 else []
        return f"select {', '.join(selected)} from {source} as staged"  # noqa: S608 - only our own names


def _find_winners(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, files: _Files) -> None:
    """Make the tables `winners`, which leads are to be loaded from which day's file, and `held`, what they replace.

    The highest `sequence` wins, then the later day. A lead that the changed days held and no longer hold, or only in an
    older version, may still stand in other days' files: those are read for such leads alone, which is rare.
    """
    leads = quoted(kind.table)
    db.execute(
        f"""
        create or replace temp table versions as
        select lead_id, day, sequence, true as is_staged
        from ({files.select(kind.table, "staged.day")}) as staged
        """  # noqa: S608 - only the contract's own names, here and below
    )
    # The one look at all leads, whatever their day.
    db.execute(
        f"""
        create or replace temp table held as
        select rowid as row_id, lead_id, window_day, sequence, {", ".join(c for _, c in _followed_columns(kind)[1:])}
        from {leads}
        where window_day in (from changed_days) or lead_id in (select lead_id from versions)
        """  # noqa: S608
    )
    db.execute(
        """
        create or replace temp table lost as
        select lead_id from held
        where window_day in (from changed_days) and not exists (
            select 1 from versions
            where versions.lead_id = held.lead_id
                and (versions.sequence, versions.day) >= (held.sequence, held.window_day)
        )
        """
    )
    if db.execute("select count(*) from lost").fetchall() != [(0,)]:
        files.hold(file.day for file in lake.staged_files(kind.table))
        db.execute(
            f"""
            insert into versions
            select lead_id, day, sequence, true
            from ({files.select(kind.table, "staged.day")}) as staged
            where lead_id in (from lost) and day not in (from changed_days)
            """  # noqa: S608
        )
    db.execute(
        """
        insert into versions
        select lead_id, window_day, sequence, false
        from held
        where window_day not in (from changed_days)
        """
    )
    db.execute(
        """
        create or replace temp table winners as
        select lead_id, day
        from (
            select * from versions
            qualify row_number() over (partition by lead_id order by sequence desc, day desc, is_staged) = 1
        )
        where is_staged
        """
    )


def _confirm(db: duckdb.DuckDBPyConnection, kind: LeadKind, files: _Files, days: Set[date]) -> None:
    """Give what the portal only confirmed its new `sequence` in place, and take it out of `winners`.

    So a day that is pulled again costs little, and the marts of its leads nothing. Makes the table `confirmed` of these
    rows. Only of days whose child tables are what they were.
    """
    leads = quoted(kind.table)
    columns = [quoted(column.name) for column in staged_columns(kind)[kind.table] if column.name != _SEQUENCE]
    staged, held = (", ".join(f"{table}.{column}" for column in columns) for table in ("staged", "held"))
    db.execute(
        f"""
        create or replace temp table confirmed as
        select held.rowid as row_id, held.lead_id, held.window_day as day, staged.sequence
        from ({files.select(kind.table, "staged.day")}) as staged
        semi join winners on winners.lead_id = staged.lead_id and winners.day = staged.day
        join {leads} as held on held.lead_id = staged.lead_id and held.window_day = staged.day
        where staged.day in (select unnest($days::date[])) and held.window_day in (select unnest($days::date[]))
            and row({staged}) is not distinct from row({held})
        """,  # noqa: S608 - only the contract's own names, here and below
        {"days": [*days]},
    )
    sql = f"update {leads} set sequence = confirmed.sequence from confirmed where {leads}.rowid = row_id"  # noqa: S608
    db.execute(sql)
    db.execute("delete from winners where (lead_id, day) in (select lead_id, day from confirmed)")


_SEQUENCE: Final = "sequence"


# --- people ------------------------------------------------------------------------------------------------------

# HMAC-SHA256 (RFC 2104), its two padded keys as variables: bound, so that neither is in a statement or in the file.
# 128 of its bits are a UUID, which DuckDB stores and groups by like a number. As DuckDB can't call it for a part of
# the rows, NULL goes through it.
_PERSON_MACROS: Final = (
    "email_of(v) as nullif(lower(trim(v)), '')",
    # 07700 900123, +44 7700 900123 and 0044 (0)7700 900123 are one number.
    """
    phone_of(v) as nullif(
        regexp_replace(regexp_replace(v, '[^0-9]', '', 'g'), '^(00)?440?|^0', ''), ''
    )""",
    """
    keyed_hash(v) as sha256(
        getvariable('person_outer_key') || unhex(sha256(getvariable('person_inner_key') || encode(v)))
    )[:32]::uuid""",
    "person_of(email, phone) as keyed_hash(coalesce(email_of(email), phone_of(phone)))",
)
_PERSON_OF_LEAD: Final = "person_of(staged.contact_email, staged.contact_phone_number) as person"

_SHA256_BLOCK_BYTES: Final = 64


def _set_person_key(db: duckdb.DuckDBPyConnection, key: bytes) -> None:
    """Make the macros that tell people apart, which live as long as the connection."""
    padded = key.ljust(_SHA256_BLOCK_BYTES, b"\0")
    for name, pad in (("person_inner_key", 0x36), ("person_outer_key", 0x5C)):
        db.execute(f"set variable {name} = $key", {"key": bytes(byte ^ pad for byte in padded)})
    for macro in _PERSON_MACROS:
        db.execute(f"create or replace temp macro {macro}")


# --- marts -------------------------------------------------------------------------------------------------------

# What marts can follow: the columns of a mart, with their types.
_FOLLOWED: Final = {"lead_id": "varchar", "lead_day": "date", "person": "uuid", "listing_id": "varchar"}

# Above this part of all leads, making each mart anew as a whole is quicker.
_TOUCHED_MAX: Final = 0.25


def _followed_columns(kind: LeadKind) -> list[tuple[str, str]]:
    """What marts follow, lead_id first, and the column of the kind's leads that it stands in."""
    names = {column.name for column in staged_columns(kind)[kind.table]} | {_PERSON.name}
    columns = ((followed, _COLUMNS_OF_LEADS.get(followed, followed)) for followed in _FOLLOWED)
    return [(followed, column) for followed, column in columns if column in names]


_COLUMNS_OF_LEADS: Final = {"listing_id": "listing_details_id"}


def _drop_former_marts(db: duckdb.DuckDBPyConnection) -> None:
    """Drop the tables of marts that sql/ no longer has."""
    known = [*(table.name for table in tables()), *(mart.name for mart in marts())]
    former = db.execute(
        "select table_name from duckdb_tables() where schema_name = 'main' and not temporary "
        "and not list_contains($known, table_name)",
        {"known": known},
    ).fetchall()
    for (name,) in former:
        db.execute(f"drop table {quoted(name)}")


def _is_touched(followed: str, column: str) -> str:
    """Whether a row's value is among the touched. A lead lies with its day, so only rows of such days are looked at."""
    conditions = [f"{column} in (select {followed} from touched)"]  # noqa: S608 - only our own names
    if followed == "lead_id":
        conditions.append("lead_day in (select lead_day from touched)")
    return " and ".join(conditions)


def _bring_up_to_date(db: duckdb.DuckDBPyConnection, mart: Mart, followed: str) -> None:
    """Make the mart's rows of touched values anew.

    By its own statement, which a temporary view in place of each table of leads lets see only the leads of such values.
    """
    (file,) = db.execute("select current_database()").fetchall()[0]
    shadowed = [(kind.table, dict(_followed_columns(kind)).get(followed)) for kind in LEAD_KINDS]
    for table, column in shadowed:
        if column is not None:
            db.execute(
                f"create temp view {quoted(table)} as select * from {quoted(file)}.main.{quoted(table)} "  # noqa: S608
                f"where {_is_touched(followed, column)}"
            )
    db.execute(f"delete from {quoted(mart.name)} where {_is_touched(followed, followed)}")  # noqa: S608
    db.execute(f"insert into {quoted(mart.name)} by name {mart.statement}")
    for table, column in shadowed:
        if column is not None:
            db.execute(f"drop view temp.main.{quoted(table)}")


_MEMBERS: Final = ", ".join(sorted(literal(member) for path in ENUMERATIONS for member in known_members(path) or ()))

# They stay in the file, for analysts to use as well.
_MART_MACROS: Final = (
    # Whatever else stands there may be a person's name.
    f"""
    as_member(v) as case
        when v in ({_MEMBERS})
            or v in (select value from pipeline.drift_names where value is not null) then v
        when v <> '' then '{HIDDEN}'
    end""",  # noqa: S608 - put together from constants alone
    # CONSUMER_SITUATION_PROPERTY_TO_SELL reads "property to sell"; what isn't known reads likewise, with its prefix.
    f"""
    readable(v) as
        nullif(lower(replace(regexp_replace(as_member(v), '^({"|".join(ENUM_PREFIXES)})', ''), '_', ' ')), '')""",
    """
    market_of(enquiry_type, intent) as case
        when enquiry_type = 'ENQUIRY_TYPE_SALES' then 'sales'
        when enquiry_type = 'ENQUIRY_TYPE_LETTINGS' then 'lettings'
        when ends_with(intent, '_BUY') or ends_with(intent, '_SELL') then 'sales'
        when ends_with(intent, '_RENT') or ends_with(intent, '_LET') then 'lettings'
        else 'unknown'
    end""",
    "postcode_of(v) as nullif(regexp_replace(upper(v), '[^A-Z0-9]', '', 'g'), '')",
)


def _set_grid(db: duckdb.DuckDBPyConnection, grid: Grid, now: datetime) -> None:
    """Make what the marts read besides tables: grid_…, failures, zone_offsets and the variable retention."""
    grid_days = [(day, *day_interval(day, grid.zone)) for day in days(grid.first_day, today(grid.zone, now))]
    db.execute("create temp table grid_kinds (kind varchar)")
    db.execute("create temp table grid_scopes (scope varchar)")
    db.execute(
        "create temp table grid_days (day date, window_start timestamptz, window_end timestamptz, is_over boolean, "
        "is_deleted boolean)"
    )
    db.execute(
        "create temp table failures "
        "(kind varchar, day date, scope varchar, attempts integer, last_error varchar, is_refused boolean)"
    )
    db.execute("set variable retention = $retention", {"retention": RETENTION})
    define_local_time(db, grid.zone)
    _fill(db, "grid_kinds", {"kind varchar": [kind.name for kind in LEAD_KINDS]})
    _fill(db, "grid_scopes", {"scope varchar": [scope.key for scope in grid.scopes]})
    _fill(
        db,
        "grid_days",
        {
            "day date": [day for day, _, _ in grid_days],
            "window_start timestamptz": [start for _, start, _ in grid_days],
            "window_end timestamptz": [end for _, _, end in grid_days],
            "is_over boolean": [end <= now for _, _, end in grid_days],
            "is_deleted boolean": [end <= now - RETENTION for _, _, end in grid_days],
        },
    )
    _fill(
        db,
        "failures",
        {
            "kind varchar": [failure.kind for failure in grid.failures],
            "day date": [failure.day for failure in grid.failures],
            "scope varchar": [failure.scope for failure in grid.failures],
            "attempts integer": [failure.attempts for failure in grid.failures],
            "last_error varchar": [failure.last_error for failure in grid.failures],
            "is_refused boolean": [failure.is_refused for failure in grid.failures],
        },
    )


def _fill(db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Sequence[object]]) -> None:
    """Insert columns, given by name and type. A statement per row would take minutes."""
    lists = ", ".join(f"unnest(${number}::{column.split()[1]}[])" for number, column in enumerate(columns, start=1))
    db.execute(f"insert into {table} select {lists}", list(columns.values()))
