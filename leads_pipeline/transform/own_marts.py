"""Marts and files of the agency's own: what lies in LEADS_MARTS_DIR becomes tables of leads.duckdb.

Belongs here: which file makes which table, and the limits of a statement that somebody else wrote. Doesn't: the marts
of sql/ (marts.py), answers (answers.py).

Each statement runs in a DuckDB of its own, which opens no files, and to which leads.duckdb is attached read-only. It
isn't enough that it is a SELECT: in DuckDB 2.0, `with gone as (delete from t returning *) select * from gone` is one.
"""

# ruff: noqa: S608 - names are quoted, and a statement of somebody else runs within the limits above

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from threading import Timer
from typing import Final

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import StorageError
from leads_pipeline.storage.durable import reading, replace_file
from leads_pipeline.transform.answers import ANSWER_FILES
from leads_pipeline.transform.duck import MEMORY_LIMIT, connection, literal, quoted
from leads_pipeline.transform.marts import Mart, marts, other_tables, read_mart
from leads_pipeline.transform.tables import columns_of, comment, fill, lead_tables

# Limits of each table, beside MEMORY_LIMIT: its time, and what it may spill to the disk.
SECONDS_MAX: Final = 60
_SPILL_MAX: Final = "1GB"

# DuckDB keeps to the limits between its steps. One function that makes a huge value may get the process killed. So the
# file that is being made is named here, in the data folder.
_BEGUN: Final = ".state/own_tables_begun"

_TOO_MUCH: Final = f"It needs more than {MEMORY_LIMIT} of memory and {_SPILL_MAX} of disk."
_KILLED: Final = "The process was killed while it made this table. It may need too much memory."

_SUFFIXES: Final = (".csv", ".parquet", ".sql")
_HEADER: Final = re.compile(r"(-- [^\n]+\n){2,}\n")

# Assets in Dagster that are no table.
_ASSETS: Final = (*(f"raw_{kind.table}" for kind in LEAD_KINDS), "raw_inventory", "leads_report")

# How many lines of a CSV are named.
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of the folder, and the table that it makes. `name` is None if no table can have its name.

    `look` changes with the file. `mart` is None for CSV and Parquet, and for SQL without a header. `reads` has the
    tables that it names, in lower case. `problem` says why the table can't be made.
    """

    file: Path
    look: str
    name: str | None
    mart: Mart | None = None
    reads: AbstractSet[str] = frozenset()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The files of the folder, each after those that it reads. `trouble` says why it can't be read."""

    files: Sequence[OwnFile] = ()
    trouble: str | None = None


# --- the folder -------------------------------------------------------------------------------------------------------


def own_files(folder: Path | None) -> OwnFiles:
    """Read the folder."""
    found, refused = dict[str, OwnFile](), list[OwnFile]()
    try:
        for file, look in _files(folder):
            if file.name in ANSWER_FILES:
                continue
            name = file.stem.lower()
            if problem := _problem_of_name(name, found):
                refused.append(OwnFile(file, look, None, problem=problem))
            else:
                found[name] = _read(OwnFile(file, look, name))
    except StorageError as error:
        return OwnFiles(trouble=str(error))
    return OwnFiles([*_in_order(found), *refused])


def look_of(folder: Path | None) -> str:
    """Return a text that changes with the files of the folder."""
    try:
        return repr(_files(folder))
    except StorageError as error:
        return str(error)


def _files(folder: Path | None) -> list[tuple[Path, str]]:
    """Return the files that count, each with a text that changes with it, and is empty if there is nothing to read."""
    if folder is None:
        return []
    with reading(folder):
        files = [file for file in sorted(folder.iterdir()) if file.suffix.lower() in _SUFFIXES]
    return [(file, _look(file)) for file in files if not file.name.startswith((".", "~$"))]


def _look(file: Path) -> str:
    with suppress(OSError):  # a link to nowhere, or a file that has just been removed
        found = file.stat()
        if stat.S_ISREG(found.st_mode):  # a pipe would be read for ever
            return f"{found.st_mtime_ns} {found.st_size}"
    return ""


def _problem_of_name(name: str, others: Mapping[str, OwnFile]) -> str | None:
    if name in {mart.name for mart in marts()}:
        return f"leads-pipeline has a mart {name} itself: leads_pipeline/sql/{name}.sql. Rename the file."
    if name in {*_ASSETS, *(table.name for table in (*lead_tables(), *other_tables()))}:
        return f"leads-pipeline has a table or an asset {name} itself. Rename the file."
    if name in others:
        return f"{others[name].file.name} makes a table of this name too. Rename one of them."
    with suppress(duckdb.ParserException):  # a reserved word
        if re.fullmatch("[a-z_][a-z0-9_]*", name) and duckdb.extract_statements(f"from {name}"):
            return None
    return "No table can have this name. Rename the file: letters, digits and _, and no word of SQL such as order."


def _read(one: OwnFile) -> OwnFile:
    if not one.look:
        return replace(one, problem="It isn't a file, or it is a link to a file that can't be read.")
    if one.file.suffix.lower() != ".sql":
        return one
    try:
        if not _HEADER.match(one.file.read_text(encoding="utf-8-sig")):
            raise ValueError(one.file)
        mart = read_mart(one.file)
    except (OSError, ValueError):
        return replace(
            one,
            problem="It has no header that can be read. A mart begins with `-- ` and what a row is, a line "
            "`-- column: description` for each column, and an empty line, in UTF-8.",
        )
    try:
        statements = duckdb.extract_statements(mart.statement)
        reads = _tables_in(mart.statement)
    except duckdb.Error as error:
        return replace(one, mart=mart, problem=_told(error))
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        return replace(one, mart=mart, problem="It isn't exactly one SELECT. A PIVOT has to name its values: `in (…)`.")
    return replace(one, mart=replace(mart, name=str(one.name)), reads=reads)


def _tables_in(statement: str) -> AbstractSet[str]:
    with duckdb.connect() as db:
        names = "select unnest(json_serialize_sql($statement::varchar) ->> '$..table_name')"
        return {name.lower() for (name,) in db.execute(names, {"statement": statement}).fetchall()}


def _in_order(found: dict[str, OwnFile]) -> list[OwnFile]:
    reads = {name: one.reads & found.keys() - {name} for name, one in found.items()}
    while True:
        try:
            return [found[name] for name in TopologicalSorter(reads).static_order()]
        except CycleError as error:
            circle = error.args[1]
            for name in circle:
                found[name] = replace(found[name], problem=f"Marts read each other in a circle: {', '.join(circle)}.")
                reads[name] = set()


# --- in the draft of leads.duckdb -------------------------------------------------------------------------------------


def keep_own_tables(db: duckdb.DuckDBPyConnection, own: OwnFiles, *, is_rewritten: bool) -> None:
    """Have the draft hold the tables of before whose files are still there, and none of them after a rewriting.

    A new draft takes them over from the file before. If there is one, it is attached as `before`.
    """
    files = {one.name for one in own.files}
    [(file,)] = db.execute("select current_database()").fetchall()  # a temporary table may have the same name
    here = _names(db, "")
    former = _names(db, "before.") if columns_of(db, "own_tables", "pipeline", "before") else set()
    for name in here | former:
        is_kept = not is_rewritten and (own.trouble is not None or name in files)
        if name in here and not is_kept:
            db.execute(f"drop table if exists {quoted(file)}.main.{quoted(name)}")
            db.execute("delete from pipeline.own_tables where name = $name", {"name": name})
        elif name not in here and is_kept and columns_of(db, name, database="before") and not columns_of(db, name):
            db.execute(f"create table {quoted(file)}.main.{quoted(name)} as from before.main.{quoted(name)}")
            db.execute(
                "insert into pipeline.own_tables from before.pipeline.own_tables where name = $name", {"name": name}
            )
    db.execute("delete from pipeline.own_tables where name is null")


def _names(db: duckdb.DuckDBPyConnection, database: str) -> set[str]:
    return {
        name for (name,) in db.execute(f"select name from {database}pipeline.own_tables").fetchall() if name is not None
    }


def make_own_tables(
    folder: Path, draft: Path, own: OwnFiles, today: date, *, is_rewritten: bool = False, seconds: float = SECONDS_MAX
) -> dict[str, str]:
    """Make the tables in the draft, a closed file, after everything else. Return what is wrong, by file.

    A table that can't be made stays as `keep_own_tables` left it. One that went beyond a limit, or
    had the process killed, is tried again only if its file changes, and once a day: each try delays the publication.
    Raises StorageError.
    """
    with connection(folder, draft) as db:
        rows = db.execute("select name, tried, problem from pipeline.own_tables").fetchall()
    waiting = {
        f"{name} {tried}": problem
        for name, tried, problem in rows
        if problem in (_too_long(seconds), _TOO_MUCH) and not is_rewritten
    }
    killed = _killed(folder, today)
    notes: list[tuple[object, ...]] = [("LEADS_MARTS_DIR", None, False, None, own.trouble)] if own.trouble else []
    for one in own.files:
        tried, is_made = f"{one.look} {today}", False
        attempt = f"{one.name} {tried}"
        problem = one.problem or (_KILLED if attempt in killed else waiting.get(attempt))
        if problem is None:
            make = partial(_make, one.mart, seconds) if one.mart else partial(_load, one, seconds)
            with _begun(folder, killed, attempt):
                is_made, problem = make(folder, draft)
        notes.append((one.file.name, one.name, is_made, tried, problem))
    with connection(folder, draft) as db:
        db.execute(
            "update pipeline.own_tables set is_made = false" if own.trouble else "delete from pipeline.own_tables"
        )
        fill(db, "pipeline.own_tables", notes)
    return {str(file): str(problem) for file, *_, problem in notes if problem}


def _killed(folder: Path, today: date) -> list[str]:
    """Return the attempts of today that no process came back from."""
    file = folder / _BEGUN
    with reading(file):
        attempts = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [attempt for attempt in attempts if attempt.endswith(f" {today}")]


@contextmanager
def _begun(folder: Path, killed: Sequence[str], attempt: str) -> Iterator[None]:
    """Have the attempt on the disk within this block. If the process is killed, it stays there."""
    replace_file(folder / _BEGUN, "\n".join([*killed, attempt]).encode())
    try:
        yield
    finally:
        replace_file(folder / _BEGUN, "\n".join(killed).encode())


def _make(mart: Mart, seconds: float, folder: Path, draft: Path) -> tuple[bool, str | None]:
    """Make the table of a mart. Return whether it is made, and what is wrong."""
    made, name = draft.with_name("draft-own.duckdb"), quoted(mart.name)
    try:
        if problem := _select(mart, seconds, folder, draft, made):
            return False, problem
        with connection(folder, draft) as db:
            db.execute(f"attach {literal(str(made))} as made (read_only)")
            db.execute(f"create or replace table {name} as from made.main.{name}")
            comment(db, name, mart.description, mart.columns)
        return True, None
    finally:
        made.unlink(missing_ok=True)


def _select(mart: Mart, seconds: float, folder: Path, draft: Path, made: Path) -> str | None:
    """Write the rows to a file of their own. Return what is wrong."""
    with connection(folder) as db:
        db.execute(f"attach {literal(str(made))} as made (storage_version 'v1.0.0')")
        db.execute(f"attach {literal(str(draft))} as leads (read_only)")
        db.execute("use leads")
        try:
            with _limited(db, seconds):
                db.execute("set enable_external_access = false")
                db.execute("set lock_configuration = true")
                db.execute(f"create table made.main.{quoted(mart.name)} as {mart.statement}")
        except duckdb.InterruptException:
            return _too_long(seconds)
        except duckdb.Error as error:
            return _told(error)
        columns = columns_of(db, mart.name, database="made")
    if columns == list(mart.columns):
        return None
    return f"It selects the columns {', '.join(columns)}. Its header has {', '.join(mart.columns)}."


@contextmanager
def _limited(db: duckdb.DuckDBPyConnection, seconds: float) -> Iterator[None]:
    """Have DuckDB raise InterruptException or OutOfMemoryException in this block if it goes beyond the limits."""
    db.execute(f"set max_temp_directory_size = '{_SPILL_MAX}'")
    timer = Timer(seconds, db.interrupt)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _load(one: OwnFile, seconds: float, folder: Path, draft: Path) -> tuple[bool, str | None]:
    """Make the table of a CSV or Parquet file. Return whether it is made, and what is wrong."""
    name, is_csv = str(one.name), one.file.suffix.lower() == ".csv"
    # All rows decide on a column's type, so that no row is left out because of its type.
    reader = "read_csv($path, header = true, sample_size = -1, store_rejects = true)"
    with connection(folder, draft) as db:
        try:
            rows = f"from {reader if is_csv else 'read_parquet($path)'}"
            with _limited(db, seconds):
                db.execute(f"create or replace table {quoted(name)} as {rows}", {"path": str(one.file)})
        except duckdb.InterruptException:
            return False, _too_long(seconds)
        except duckdb.OutOfMemoryException as error:
            return False, _told(error)
        except duckdb.Error:
            return False, "It can't be read as a CSV file." if is_csv else "It can't be read as a Parquet file."
        text = f"From {one.file.name} in LEADS_MARTS_DIR, as it is"
        comment(db, quoted(name), text, dict.fromkeys(columns_of(db, name), text))
        lines = db.execute("select distinct line from reject_errors order by line").fetchall() if is_csv else []
    if not lines:
        return True, None
    more = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return True, (
        "Lines are left out that have more or fewer columns than the header, or aren't in UTF-8: "
        f"{', '.join(str(line) for (line,) in lines[:_NAMED])}{more}."
    )


def _too_long(seconds: float) -> str:
    return f"It took longer than {seconds:g} seconds and was stopped."


def _told(error: duckdb.Error) -> str:
    """Say what is wrong with a statement, without what may quote a lead."""
    if isinstance(error, duckdb.OutOfMemoryException):
        return _TOO_MUCH
    if isinstance(error, duckdb.PermissionException):
        return "It opens files. Put them into LEADS_MARTS_DIR as CSV or Parquet, so that they become tables."
    # These are about the statement alone, and found before anything is read.
    if isinstance(error, (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)):
        return str(error).splitlines()[0]
    return (
        f"It fails with {type(error).__name__}. DuckDB's message may quote a lead and is left out here. Run the "
        "statement on leads.duckdb to read it."
    )
