"""Makes tables from the agency's own marts and files, each in a process that ends at its limits.

Belongs here: the limits of a statement that somebody else wrote. Doesn't: the files and
leads.duckdb (own_marts.py).

DuckDB can't stop a function in the middle, and a huge value may get its process killed. The
statement opens no files, and leads.duckdb is attached read-only. It isn't enough that it is a
SELECT: in DuckDB 2.0, `with gone as (delete from t returning *) select * from gone` is one.

Each process waits for the imports. So they are few, and pyarrow isn't among them.
"""

# ruff: noqa: S608 - only quoted names are in the statements

import codecs
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Final, NamedTuple

import duckdb

from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.warehouse.duck import MEMORY_LIMIT, connection, file_name, literal, quoted

# Limits of each table, beside MEMORY_LIMIT: its time, what DuckDB may spill to the disk, and what
# the process may have.
SECONDS_MAX: Final = 60
_SPILL_MAX: Final = "1GB"
_BYTES_MAX: Final = 2**30

STOPPED: Final = f"It took longer than {SECONDS_MAX} seconds, or had its process killed."
TOO_MUCH: Final = f"It needs more than {MEMORY_LIMIT} of memory and {_SPILL_MAX} of disk."

# All rows decide on a column's type, so that no row is left out because of its type. A folder
# called `team=a` is no column.
_READERS: Final = {
    ".csv": "read_csv($file, header = true, sample_size = -1, store_rejects = true, "
    "hive_partitioning = false)",
    ".parquet": "read_parquet($file, hive_partitioning = false)",
}

# How Excel writes numbers, dates and moments that DuckDB takes for text: a pattern that each value
# has, a type, and how a value is read. A day comes before its month, as in Britain. 07700 isn't a
# number, and 101,102 may be two ids: a comma needs decimals.
_EXCEL: Final = (
    (
        r"-?((0|[1-9]\d*)(\.\d+)?|[1-9]\d{0,2}(,\d{3})+\.\d+)",
        "double",
        "try_cast(replace({0}, ',', '') as double)",
    ),
    (r"\d{1,2}/\d{1,2}/\d{4}", "date", "try_strptime({0}, '%d/%m/%Y')::date"),
    (r"\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d\d", "timestamp", "try_strptime({0}, '%d/%m/%Y %H:%M')"),
)

NOT_UTF_8: Final = "It isn't in UTF-8. In Excel, save it as CSV UTF-8."
_NO_HEADER: Final = (
    "Its first line doesn't name the columns of the lines below it. Begin with a name for each "
    "column."
)


class Task(NamedTuple):
    """A table to make in the file `made`: from a mart's SELECT, or from `file`.

    `folder` is the data folder. The SELECT reads the file `leads`, which is closed.
    """

    folder: str
    leads: str
    name: str
    made: str
    file: str
    statement: str | None
    columns: list[str]


class Made(NamedTuple):
    """Whether a table is made, and what is wrong. If lines of a CSV are left out, it is both."""

    is_made: bool
    problem: str | None


def make_table(task: Task, seconds: float = SECONDS_MAX) -> Made:
    """Make one table in a process of its own, which is killed after that time."""
    command = [sys.executable, "-P", "-m", __name__, str(os.getpid())]
    try:
        done = subprocess.run(  # noqa: S603 - ours
            command,
            input=json.dumps(task).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # its errors may quote a lead
            timeout=seconds,
            check=True,
        )
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError):
        return Made(is_made=False, problem=STOPPED)

    return Made(*json.loads(done.stdout))


def main() -> None:
    """Make the table of the task on stdin, and print what became of it."""
    Thread(target=_end_with, args=[int(sys.argv[1])], daemon=True).start()
    task = Task(*json.load(sys.stdin))
    made = _make(task)
    json.dump(made, sys.stdout)


def _end_with(publication: int) -> None:
    """End this process, in the middle of a statement too, if the publication is killed."""
    while os.getppid() == publication:
        time.sleep(1)
    os._exit(1)


def _make(task: Task) -> Made:
    try:
        with connection(Path(task.folder)) as db:
            _prepare(db, task)
            try:
                if task.statement is None:
                    return _read(db, task)
                columns = _select(db, task.name, task.statement)
            except duckdb.Error as error:
                return Made(is_made=False, problem=error_in_words(error, task.statement))
    except (BugError, StorageError) as error:
        return Made(is_made=False, problem=str(error))
    except OSError as error:
        return Made(is_made=False, problem=f"It can't be read ({error.strerror}).")

    problem = _problem_of_columns(columns, task.columns)
    return Made(is_made=problem is None, problem=problem)


def _prepare(db: duckdb.DuckDBPyConnection, task: Task) -> None:
    """Attach both files, and limit the disk and the memory of this process."""
    db.execute(f"set max_temp_directory_size = '{_SPILL_MAX}'")
    db.execute(f"attach {literal(task.made)} as made (storage_version 'v1.0.0')")
    db.execute(f"attach {literal(task.leads)} as leads (read_only)")

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _BYTES_MAX if hard < 0 else min(_BYTES_MAX, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _select(db: duckdb.DuckDBPyConnection, name: str, statement: str) -> list[str]:
    """Make the table of a mart, which may open no files. Return its columns."""
    table = f"made.main.{quoted(name)}"
    db.execute("use leads")
    db.execute("set enable_external_access = false")
    db.execute("set lock_configuration = true")
    db.execute(f"create table {table} as {statement}")
    return [column for column, *_ in db.execute(f"describe {table}").fetchall()]


def _problem_of_columns(columns: list[str], header: list[str]) -> str | None:
    """Say how the columns of a SELECT differ from those of the mart's header."""
    if columns == header:
        return None

    missing = [name for name in header if name not in columns]
    which = (
        f"It doesn't select {', '.join(missing)}."
        if missing
        else "Name them in the order of the SELECT."
    )
    return f"It selects {len(columns)} columns, and its header has {len(header)}. {which}"


def _read(db: duckdb.DuckDBPyConnection, task: Task) -> Made:
    """Make the table of a CSV or Parquet file.

    In a CSV, texts become what Excel meant by them. Lines that don't fit are left out.
    """
    table = f"made.main.{quoted(task.name)}"
    suffix = Path(task.file).suffix.lower()
    # DuckDB leaves out lines in another encoding. If that is the header, the first row would become
    # the header.
    if suffix == ".csv" and not is_utf_8(Path(task.file)):
        return Made(is_made=False, problem=NOT_UTF_8)

    db.execute(f"create table {table} as from {_READERS[suffix]}", {"file": file_name(task.file)})
    if suffix != ".csv":
        return Made(is_made=True, problem=None)

    lines = db.execute("select distinct line from reject_errors order by line limit 10").fetchall()
    if lines and not db.execute(f"from {table} limit 1").fetchall():
        return Made(is_made=False, problem=_NO_HEADER)

    _read_as_excel_writes(db, task.name)
    if not lines:
        return Made(is_made=True, problem=None)

    first = ", ".join(str(line) for (line,) in lines)
    problem = (
        "Lines are left out that have more or fewer columns than the header. The first are "
        f"{first}."
    )
    return Made(is_made=True, problem=problem)


def is_utf_8(file: Path) -> bool:
    """Whether the whole file is text in UTF-8. Raises OSError."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with file.open("rb") as content:
            while block := content.read(2**20):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _read_as_excel_writes(db: duckdb.DuckDBPyConnection, name: str) -> None:
    """Give columns of text a type if Excel wrote each value: 1,300.50 or 01/12/2026."""
    table = f"made.main.{quoted(name)}"
    texts = db.execute(
        f"select column_name from (describe {table}) where column_type = 'VARCHAR'"
    ).fetchall()
    for (text,) in texts:
        column = quoted(text)
        for pattern, type_, reading in _EXCEL:
            value = reading.format(column)
            fits = f"bool_and(regexp_full_match({column}, $pattern) and {value} is not null)"
            rows = db.execute(
                f"select {fits} from {table} where {column} is not null", {"pattern": pattern}
            ).fetchall()
            if rows == [(True,)]:
                db.execute(
                    f"alter table {table} alter column {column} set data type {type_} using {value}"
                )
                break


def error_in_words(error: duckdb.Error, statement: str | None) -> str:
    """Say what is wrong with a statement, without what may quote a lead.

    A file that is read as it is has none.
    """
    # A commit that finds no memory fails with a TransactionException.
    if isinstance(
        error, duckdb.OutOfMemoryException
    ) or "Failed to commit: could not allocate" in str(error):
        return TOO_MUCH
    if statement is None:
        return "It can't be read as a CSV or Parquet file."
    if isinstance(error, duckdb.PermissionException):
        return (
            "It opens files. Put them into LEADS_MARTS_DIR as CSV or Parquet, so that they become "
            "tables."
        )
    if "attached in read-only mode" in str(error):
        return "It writes, and a mart may only read."
    # These are found before anything is read. But they may name columns for which the statement has
    # a `*`, and those of a CSV without a header are its first row. The lines after the first list
    # columns.
    if isinstance(error, (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)):
        line = str(error).splitlines()[0]
        named = re.findall(r"\w+", " ".join(re.findall('"([^"]*)"', line)))
        if "STRUCT(" not in line and {*named} <= {*re.findall(r"\w+", statement)}:
            return line
    return (
        f"It fails with {type(error).__name__}. DuckDB's message may quote a lead and is left out "
        "here. Run the statement on leads.duckdb to read it."
    )


if __name__ == "__main__":
    main()
