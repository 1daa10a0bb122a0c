"""Typed Parquet for analysts: the tables of leads in data/tables, written from leads.duckdb.

Belongs here: one tree of files for each publication. Doesn't: the rows (warehouse/flatten.py),
Delta tables (delta.py).

`data/tables` is a link to a tree that belongs to one edition of leads.duckdb. So readers never meet
two publications, and a tree stays as long as its edition: after an erasure no older one is left.
"""

# ruff: noqa: S608 - only our own names are in the statements

import shutil
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.raw.durable import copy_file, storing, sync
from leads_pipeline.raw.store import Store
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.warehouse.editions import number_of
from leads_pipeline.warehouse.published import attached
from leads_pipeline.warehouse.tables import Table, is_of, lead_tables

TABLES: Final = "tables"

# Readable by the owner's group, as leads.duckdb.
_FOLDER_MODE: Final = 0o750
_FILE_MODE: Final = 0o440

_ROWS_AT_ONCE: Final = 10_000

# To compress and sync a file needs no Python.
_FILES_AT_ONCE: Final = 2

# A statement for each day takes seven times as long, and all days at once don't fit into memory.
_LEADS_AT_ONCE: Final = 50_000

# Other types become text.
_AS_TEXT: Final = ("uuid", "json")

_LEADS_OF: Final = {table: kind.table for kind in LEAD_KINDS for table in kind.tables}


def write_tables(folder: Path) -> None:
    """Have data/tables hold the tables of leads as published.

    `folder` is the data folder. Days that have changed since the tree before are written. The
    others are hard links to it. The caller holds the lock of publications. Raises StorageError.
    """
    _write_tree(folder)
    trees = folder / ".versions"
    kept = {number_of(edition) for edition in trees.glob("leads-*.duckdb")}
    for tree in trees.glob(f"{TABLES}-*"):
        if number_of(tree) not in kept:
            with storing(tree):
                shutil.rmtree(tree)


def _write_tree(folder: Path) -> None:
    path = folder / TABLES
    trees = folder / ".versions"
    file = (folder / WAREHOUSE_FILE).resolve()
    edition_number = number_of(file)
    before = number_of(path.resolve()) if path.is_symlink() and path.exists() else 0

    if edition_number == before:
        return

    draft = trees / f"{TABLES}-draft"
    with storing(path):
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=_FOLDER_MODE)
        with attached(folder, file) as db:
            publications = dict(
                db.execute("select day, publication from pipeline.touched_days").fetchall()
            )
            touched = {day for day, publication in publications.items() if publication > before}
            for table in lead_tables():
                (draft / table.name).mkdir(mode=_FOLDER_MODE)
                _link_days(path / table.name, draft / table.name, publications.keys() - touched)
                _write_days(db, table, draft / table.name, touched)
        tree = trees / f"{TABLES}-{edition_number}"
        shutil.rmtree(tree, ignore_errors=True)  # of a run that was killed before the link
        draft.rename(tree)
        sync(trees)
        _replace_link(path, tree)


def count_rows(table: Path) -> int | None:
    """Read every value of a table's files, which lie in a folder for each day.

    Return how many rows they hold, None if a file is damaged.
    """
    files = (
        pq.ParquetFile(file, page_checksum_verification=True)
        for file in table.glob("*/data.parquet")
    )
    try:
        return sum(len(batch) for file in files for batch in file.iter_batches(use_threads=False))
    except (OSError, pa.ArrowException):
        return None


def remove_tables(folder: Path) -> None:
    """Remove the files.

    Nobody would bring them up to date, so they would keep everybody who is erased from now on.
    """
    path = folder / TABLES
    with storing(path):
        if path.is_symlink():
            path.unlink()
        for tree in (folder / ".versions").glob(f"{TABLES}-*"):
            shutil.rmtree(tree)
        sync(folder)


def delete_tables(store: Store, prefix: str = f"{TABLES}/") -> None:
    """Delete Delta tables, logs first, so that no reader finds half a table.

    Raises StorageError.
    """
    keys = store.list(prefix)
    store.delete([key for key in keys if "/_delta_log/" in key])
    store.delete([key for key in keys if "/_delta_log/" not in key])


def _replace_link(path: Path, tree: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)  # Delta tables
    # A killed one is deleted with the drafts of publications.
    link = tree.with_name(f"draft-{TABLES}-link")
    link.unlink(missing_ok=True)
    link.symlink_to(tree.relative_to(path.parent))
    link.replace(path)
    sync(path.parent)


def _file(table: Path, day: date) -> Path:
    return table / f"lead_day={day.isoformat()}" / "data.parquet"


def _link_days(before: Path, table: Path, days: Collection[date]) -> None:
    """Give files of the tree before a second name. A day may have no rows."""
    for day in days:
        if _file(before, day).exists():
            _file(table, day).parent.mkdir(mode=_FOLDER_MODE)
            try:
                _file(table, day).hardlink_to(_file(before, day))
            except OSError:  # not all file systems have links
                copy_file(_file(before, day), _file(table, day))


def _write_days(
    db: duckdb.DuckDBPyConnection, table: Table, folder: Path, days: Collection[date]
) -> None:
    """Write a file for each of the days that has rows."""
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        for rows in rows_of(db, table, days):
            writing = [
                pool.submit(_write_day, rows, day, _file(folder, day.as_py()))
                for day in pc.unique(rows["lead_day"])
            ]
            for file in writing:
                file.result()


def _write_day(rows: pa.Table, day: "pa.Scalar[Any]", file: Path) -> None:
    # The folder's name says the day.
    of_day = rows.filter(pc.equal(rows["lead_day"], day)).drop_columns("lead_day")
    file.parent.mkdir(mode=_FOLDER_MODE)
    pq.write_table(of_day, file, compression="zstd", write_page_checksum=True)
    file.chmod(_FILE_MODE)
    sync(file)


def rows_of(
    db: duckdb.DuckDBPyConnection, table: Table, days: Collection[date]
) -> Iterator[pa.Table]:
    """Read the rows of these days, some days at a time, with the column `lead_day`.

    Without days it is one table without rows, because its columns are needed.
    """
    leads = quoted(_LEADS_OF[table.name])
    ordered = sorted(days)
    at_once = _days_at_once(db, leads, ordered)

    for first in range(0, max(len(ordered), 1), at_once):
        statement = _rows_statement(table, leads, ordered[first : first + at_once])
        yield db.sql(statement).to_arrow_table(batch_size=_ROWS_AT_ONCE)


def _days_at_once(db: duckdb.DuckDBPyConnection, leads: str, days: Sequence[date]) -> int:
    """Return how many days are read together, by the one with the most leads."""
    of_a_day = f"select count(*) as leads from {leads} where {is_of(days)} group by lead_day"
    [(most,)] = db.execute(f"select coalesce(max(leads), 1) from ({of_a_day})").fetchall()
    return max(1, _LEADS_AT_ONCE // int(most))


def _rows_statement(table: Table, leads: str, days: Sequence[date]) -> str:
    values = []
    for column in table.columns:
        name = quoted(column.name)
        cast = "::varchar" if column.type in _AS_TEXT else ""
        values.append(f"{name}{cast} as {name}")

    columns = ", ".join(values)
    of_days = f"from {leads} where {is_of(days)}"
    if quoted(table.name) == leads:
        return f"select {columns} {of_days}"
    # The rows of a list have the day of their lead.
    days_of_leads = f"(select lead_id, lead_day {of_days})"
    return (
        f"select lead_day, {columns} from {quoted(table.name)} join {days_of_leads} using (lead_id)"
    )
