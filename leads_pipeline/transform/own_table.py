"""Makes tables from the agency's own marts and files, each in a process that ends at its limits.

Belongs here: the limits of a statement that somebody else wrote. Doesn't: the files and leads.duckdb (own_marts.py).

DuckDB can't stop a function in the middle, and a huge value may get its process killed. The statement opens no files,
and leads.duckdb is attached read-only. It isn't enough that it is a SELECT: in DuckDB 2.0,
`with gone as (delete from t returning *) select * from gone` is one.
"""

import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

import duckdb

from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.transform.duck import MEMORY_LIMIT, connection, file_name, literal, quoted
from leads_pipeline.transform.tables import columns_of

# Limits of each table, beside MEMORY_LIMIT: its time, what DuckDB may spill to the disk, and what the process may have.
SECONDS_MAX: Final = 60
_SPILL_MAX: Final = "1GB"
_BYTES_MAX: Final = 2**30

STOPPED: Final = f"It took longer than {SECONDS_MAX} seconds, or had its process killed."
TOO_MUCH: Final = f"It needs more than {MEMORY_LIMIT} of memory and {_SPILL_MAX} of disk."

# All rows decide on a column's type, so that no row is left out because of its type. A folder called `team=a` is no
# column.
_READERS: Final = {
    ".csv": "read_csv($file, header = true, sample_size = -1, store_rejects = true, hive_partitioning = false)",
    ".parquet": "read_parquet($file, hive_partitioning = false)",
}


class Task(NamedTuple):
    """A table to make in the file `made`: from the SELECT of a mart with these columns, or from `file` as it is."""

    name: str
    made: str
    file: str
    statement: str | None
    columns: Sequence[str]


# Whether a table is made, and what is wrong. If lines of a CSV are left out, it is both.
Made = tuple[bool, str | None]
Maker = Callable[[Task], Made]


@contextmanager
def making(folder: Path, leads: Path, seconds: float = SECONDS_MAX) -> Iterator[Maker]:
    """Have a process that makes one table after the other. They read the file `leads`, which is closed by then.

    To begin one for each table would take a third of a second.
    """
    command = [sys.executable, "-c", f"from {__name__} import main; main()", str(folder), str(leads), str(seconds)]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL  # its errors may quote a lead
    with subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=nowhere) as process:  # noqa: S603 - ours

        def make(task: Task) -> Made:
            with suppress(BrokenPipeError):
                cast("IO[bytes]", process.stdin).write(json.dumps(task).encode() + b"\n")
            if answer := cast("IO[bytes]", process.stdout).readline():
                is_made, problem = json.loads(answer)
                return is_made, problem
            return False, "The process that makes tables was killed. The next publication makes this one."

        try:
            yield make
        finally:
            process.kill()


def main() -> None:
    """Make a table for each line that comes in, and answer with a line. When the publication ends, so does this."""
    folder, leads, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    for line in sys.stdin:
        if not (child := os.fork()):
            # A signal ends this process in any state: after that time, or when the publication closes stdin.
            signal.setitimer(signal.ITIMER_REAL, seconds)
            fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(0, fcntl.F_SETFL, flags | os.O_ASYNC)
            made = _make(folder, leads, Task(*json.loads(line)))
            signal.setitimer(signal.ITIMER_REAL, 0)
            fcntl.fcntl(0, fcntl.F_SETFL, flags)  # before the answer, as the next line would end it too
            os.write(1, json.dumps(made).encode() + b"\n")
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            os.write(1, json.dumps((False, STOPPED)).encode() + b"\n")


def _make(folder: Path, leads: Path, task: Task) -> Made:
    create = f"create table made.main.{quoted(task.name)} as"
    suffix = Path(task.file).suffix.lower()
    try:
        with connection(folder) as db:
            db.execute(f"set max_temp_directory_size = '{_SPILL_MAX}'")
            db.execute(f"attach {literal(task.made)} as made (storage_version 'v1.0.0')")
            db.execute(f"attach {literal(str(leads))} as leads (read_only)")
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (_BYTES_MAX if hard < 0 else min(_BYTES_MAX, hard), hard))
            try:
                if task.statement is None:
                    db.execute(f"{create} from {_READERS[suffix]}", {"file": file_name(task.file)})
                    return True, _left_out(db) if suffix == ".csv" else None
                db.execute("use leads")
                db.execute("set enable_external_access = false")
                db.execute("set lock_configuration = true")
                db.execute(f"{create} {task.statement}")
            except duckdb.Error as error:
                return False, told(error, task.statement)
            columns = columns_of(db, task.name, database="made")
    except (BugError, StorageError) as error:
        return False, str(error)
    if columns == [*task.columns]:
        return True, None
    missing = [name for name in task.columns if name not in columns]
    which = f"It doesn't select {', '.join(missing)}." if missing else "Name them in the order of the SELECT."
    return False, f"It selects {len(columns)} columns, and its header has {len(task.columns)}. {which}"


def _left_out(db: duckdb.DuckDBPyConnection) -> str | None:
    lines = db.execute("select distinct line from reject_errors order by line limit 10").fetchall()
    return (
        "Lines are left out that have more or fewer columns than the header, or aren't in UTF-8. The first are "
        f"{', '.join(str(line) for (line,) in lines)}."
        if lines
        else None
    )


def told(error: duckdb.Error, statement: str | None) -> str:
    """Say what is wrong with a statement, without what may quote a lead. A file that is read as it is has none."""
    # A commit that finds no memory fails with a TransactionException.
    if isinstance(error, duckdb.OutOfMemoryException) or "Failed to commit: could not allocate" in str(error):
        return TOO_MUCH
    if statement is None:
        return "It can't be read as a CSV or Parquet file."
    if isinstance(error, duckdb.PermissionException):
        return "It opens files. Put them into LEADS_MARTS_DIR as CSV or Parquet, so that they become tables."
    if "attached in read-only mode" in str(error):
        return "It writes, and a mart may only read."
    # These are found before anything is read. But they may name columns for which the statement has a `*`, and those of
    # a CSV without a header are its first row. The lines after the first list columns.
    if isinstance(error, (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException)):
        line = str(error).splitlines()[0]
        named = re.findall(r"\w+", " ".join(re.findall('"([^"]*)"', line)))
        if "STRUCT(" not in line and {*named} <= {*re.findall(r"\w+", statement)}:
            return line
    return (
        f"It fails with {type(error).__name__}. DuckDB's message may quote a lead and is left out here. Run the "
        "statement on leads.duckdb to read it."
    )
