"""The common parts of all uses of DuckDB: connections, limits, columns, names and texts in SQL.

Belongs here: what a statement needs around it, and what DuckDB's errors become. Doesn't: any
statement over leads.
"""

import glob
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.domain.contract import FieldType
from leads_pipeline.errors import BugError, OutOfMemoryError, StorageError
from leads_pipeline.raw.durable import MORE_FILES, make_folder, storing
from leads_pipeline.raw.room import full_disk_message, is_tight, says_full, says_too_many_files
from leads_pipeline.raw.state import State

# What DuckDB may hold before it spills to the data folder. With it, a process that publishes its
# first 3 million leads takes 730 MB. With 1 GB, a first million takes 1.3 GB and 6 % less CPU
# (measured).
MEMORY_LIMIT: Final = "350MB"

# How many times a checkpoint may write groups of rows anew, of any table, to close the gaps that
# deleted rows leave. DuckDB's 100 took 41 to 178 s of each publication at 46 million leads; 4 take
# 2.8 s, none 0.1 (measured).
VACUUM_TASKS_MAX: Final = 1

# Beyond a few threads, publishing gains nothing and takes from the runs beside it.
THREADS_MAX: Final = 4

# One statement a file: drift and marts at its top, the queries of checks and findings in their
# folders. The files of macros/ have one a macro.
SQL_FOLDER: Final = Path(__file__).parents[1] / "sql"

DUCKDB_TYPES: Final = {
    FieldType.TEXT: "varchar",
    FieldType.BOOLEAN: "boolean",
    FieldType.INTEGER: "bigint",
    FieldType.NUMBER: "double",
    FieldType.AMOUNT: "decimal(18,2)",
    FieldType.MOMENT: "timestamptz",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: DuckDB's type, and what an analyst reads."""

    name: str
    type: str
    description: str


@contextmanager
def connection(folder: Path, database: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB connection in UTC with bounded memory and threads.

    It spills to the data folder. It is in memory unless `database` names a file. Raises
    StorageError, or BugError if a statement is wrong, without DuckDB's text if that may quote a
    lead.
    """
    was_there = database is not None and database.exists()
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY_LIMIT,
        # Everything needed is linked in; nothing may be fetched from the network in the middle of a
        # run.
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "max_vacuum_tasks": str(VACUUM_TASKS_MAX),
        # DuckDB 1.5 can't open a file with 2.0's default, nor can what many analysts have
        # installed.
        "storage_compatibility_version": "v1.0.0",
    }

    with _spill_folder(folder) as spill:
        config["temp_directory"] = str(spill)
        with (
            telling_errors(folder),
            duckdb.connect(database or ":memory:", config=config) as db,
        ):
            if was_there and not db.execute("select 1 from duckdb_tables() limit 1").fetchall():
                # If a failing disk shows the file as empty, DuckDB begins a new one in its place.
                raise StorageError(
                    f"DuckDB finds no table in {database}, which a publication wrote: the disk may "
                    "be failing. Check it, then run again. What was published before is untouched."
                )
            [(threads,)] = db.execute(
                "select current_setting('threads')"
            ).fetchall()  # as a container may use
            db.execute(f"set threads = {min(THREADS_MAX, threads)}")
            db.execute("set TimeZone = 'UTC'")
            db.execute("set enable_progress_bar = false")
            yield db


@contextmanager
def telling_errors(folder: Path) -> Iterator[None]:
    """Turn DuckDB's errors into ours, which say what to do and don't quote a lead.

    `folder` is the data folder.
    """
    try:
        yield
    except duckdb.Error as error:
        raise _error_of(folder, error) from None


def _error_of(folder: Path, error: duckdb.Error) -> StorageError | BugError:
    untouched = "What was published before is untouched."
    # On a full disk a commit fails as on a damaged one, and then each statement after it.
    if says_full(str(error)) or (_tells_of_damage(error) and is_tight(folder)):
        published = folder / WAREHOUSE_FILE
        room = full_disk_message(folder, published.stat().st_size if published.exists() else 0)
        return StorageError(f"DuckDB can't write below {folder}. {room} {untouched}")

    if says_too_many_files(str(error)):
        return StorageError(
            f"DuckDB can't open a file below {folder}: too many files are open. {MORE_FILES} "
            f"{untouched}"
        )
    if isinstance(error, (duckdb.IOException, duckdb.TransactionException)):
        # These speak of files and the disk, never of content.
        return StorageError(f"DuckDB can't read or write below {folder}: {error} {untouched}")

    if isinstance(error, duckdb.OutOfMemoryException):
        if "max_temp_directory_size" in str(error):  # which is the free space of the disk
            return OutOfMemoryError(
                f"DuckDB has no space to spill to below {folder}. Free some space, then run again. "
                f"{untouched}"
            )
        return OutOfMemoryError(
            f"DuckDB ran out of memory. It may take {MEMORY_LIMIT}: see that the machine or the "
            "container has that much free, then run again. If it fails again although there is "
            f"enough, please report it. {untouched}"
        )

    if _tells_of_damage(error):
        return StorageError(
            f"DuckDB found damage in a file below {folder} ({type(error).__name__}; its message "
            f"may quote a lead and is left out). {untouched}"
        )

    # What is found before anything is read is about the statement alone.
    reads_nothing = isinstance(
        error, (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)
    )
    text = (
        str(error).splitlines()[0]
        if reads_nothing
        else "its message may quote a lead and is left out"
    )
    return BugError(
        f"A statement of leads-pipeline fails in DuckDB with {type(error).__name__} ({text}). "
        f"{untouched} Running again doesn't help, nor does another disk: please report it."
    )


def _tells_of_damage(error: duckdb.Error) -> bool:
    """Whether a file isn't as DuckDB wrote it.

    A block with a wrong checksum is an error of the base class alone.
    """
    return type(error) is duckdb.Error or isinstance(
        error, (duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException)
    )


# The published file's name in the data folder.
WAREHOUSE_FILE: Final = "leads.duckdb"
_SPILL_ROOT: Final = ".state/duckdb"

_SHA256_BLOCK_BYTES: Final = 64


@contextmanager
def _spill_folder(folder: Path) -> Iterator[Path]:
    """Make a private folder on the data folder's own file system for one connection.

    It is gone afterwards. Its lock is held before it is made, and until it is gone. So folders of
    killed processes are known, and deleted.
    """
    state = State(folder)
    root = folder / _SPILL_ROOT
    name = f"spill-{secrets.token_hex(8)}"
    for spill in root.glob("*"):
        if not state.is_held(spill.name):
            with state.alive(spill.name):  # which removes the lock's file, too
                shutil.rmtree(spill, ignore_errors=True)

    with state.alive(name):
        spill = root / name
        with storing(spill):
            make_folder(spill)
        try:
            yield spill
        finally:
            with suppress(OSError):  # rmtree doesn't ignore each of them
                shutil.rmtree(spill, ignore_errors=True)


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """Return a connection that only parses statements.

    To make one takes ten times as long as to parse a statement (measured).
    """
    return duckdb.connect(config={"threads": 1})


def tables_read(statement: str) -> frozenset[str]:
    """Return the tables and views that a SELECT reads: lower-case names without a schema.

    The statement is parsed and not bound, so they needn't be there. Of one that can't be parsed
    there are none.
    """
    with _parser().cursor() as db:
        [(table_names, expression_names)] = db.execute(
            """
            select tree ->> '$..table_name', tree ->> '$..cte_map.map[*].key'
            from (select json_serialize_sql($statement::varchar) as tree)
            """,
            {"statement": statement},
        ).fetchall()

    expressions = {name.lower() for name in expression_names}
    return frozenset(name.lower() for name in table_names) - expressions


@cache
def statement(name: str, folder: Path = SQL_FOLDER) -> str:
    """Read a statement by its path below the folder without .sql: `findings/windows_lost`."""
    return (folder / f"{name}.sql").read_text(encoding="utf-8")


@cache
def macros(name: str, folder: Path = SQL_FOLDER) -> str:
    """Read a file of macros/ without its comments, so that rewording one rebuilds nothing."""
    lines = statement(f"macros/{name}", folder).splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def set_person_key(db: duckdb.DuckDBPyConnection, key: bytes) -> None:
    """Make the macros of sql/macros/people.sql, which tell people apart.

    They live as long as the connection.
    """
    padded = key.ljust(_SHA256_BLOCK_BYTES, b"\0")
    for name, pad in (("person_inner_key", 0x36), ("person_outer_key", 0x5C)):
        db.execute(f"set variable {name} = $key", {"key": bytes(byte ^ pad for byte in padded)})
    db.execute(macros("people"))


def file_name(path: Path | str) -> str:
    """Return the path as DuckDB's readers take it, with `*`, `?` and `[` escaped."""
    return glob.escape(str(path))


def quoted(name: str) -> str:
    """Return the name as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return the text as a constant in SQL, for places that take no parameter.

    Never use it for a received value.
    """
    return "'" + text.replace("'", "''") + "'"
