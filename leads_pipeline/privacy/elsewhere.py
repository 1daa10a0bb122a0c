"""The suppression list applied outside of this data folder: to a restored one, to a copy of leads.duckdb.

Belongs here: what such a path is, and that what the list withholds is gone from it. Doesn't: this data folder
(erase.py), what is in a file (warehouse/). The list is this installation's, which the folder's own guard has to know.
"""

import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from leads_pipeline.contract import LEAD_KINDS, known_members
from leads_pipeline.delta.folder import remove_tables
from leads_pipeline.duck import WAREHOUSE_FILE, connection, literal, quoted
from leads_pipeline.durable import PRIVATE_FILE_MODE, copy_file, publish_file, reading, storing
from leads_pipeline.errors import QuestionError
from leads_pipeline.flatten.withholding import withheld_leads
from leads_pipeline.lake import Lake
from leads_pipeline.person.showing import is_contact, is_name
from leads_pipeline.privacy.erase import Swept, left_by_list, sweep
from leads_pipeline.privacy.held import held_files
from leads_pipeline.warehouse import Grid, Warehouse, marts, tables, write_without_withheld

# What a data folder has once anything was landed there; other folders have none of them.
_OF_DATA: Final = ("raw", "staged", "spool", WAREHOUSE_FILE)


def is_data_folder(path: Path) -> bool:
    """Whether it is a data folder, and not a file. Raises QuestionError where the list can't be applied to it."""
    if not path.exists():
        raise QuestionError(f"{path} isn't there. Name a data folder, or a copy of {WAREHOUSE_FILE}.")
    if not path.is_dir():
        return False
    if (path / "backups").is_dir() and (path / "files").is_dir():
        raise QuestionError(
            f"{path} holds backups, which are never changed. Restore one into a folder with `leads-pipeline restore`, "
            "and apply the list to that, or delete the backup."
        )
    if not any((path / name).exists() for name in _OF_DATA):
        raise QuestionError(f"{path} is no data folder: it has none of {', '.join(_OF_DATA)}.")
    return True


def apply_to_folder(lake: Lake, grid: Grid, now: datetime) -> tuple[Swept, list[str]]:
    """Take what the list refuses out of another data folder; what that did, and what is left. Raises StorageError."""
    swept = sweep(lake, grid.zone)
    if Warehouse(lake).path.exists():
        Warehouse(lake).publish(grid, now)
    remove_tables(lake)  # whoever runs that folder makes them anew
    return swept, [*(f"{what}: {why}" for what, why in swept.failed.items()), *left_by_list(lake)]


def apply_to_copy(lake: Lake, copy: Path, zone: ZoneInfo) -> tuple[int, list[str]]:
    """Replace a copy of leads.duckdb by one without the leads that the list withholds; how many, and what is left.

    Whole or not at all, and nobody writes it meanwhile. Raises QuestionError where it is no such copy, StorageError.
    """
    _check(copy)
    with lake.sweeping():
        with storing(copy):
            for leftover in copy.parent.glob(f".{copy.name}.*.tmp"):  # of a killed one: nobody else has the lock
                shutil.rmtree(leftover, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=f".{copy.name}.", suffix=".tmp", dir=copy.parent))
        try:
            draft, anew = folder / "draft", folder / copy.name
            with storing(copy):
                before = copy.stat()
                copy_file(copy, draft)
                draft.chmod(PRIVATE_FILE_MODE)
            with connection(lake, "sweep-of-copy") as db:
                # Held open, so that no program writes into what is being replaced. From here on nothing else in this
                # process may open it: to close a file gives up all of a process's locks on it (fcntl, POSIX).
                db.execute(f"attach {literal(str(copy))} as copy (read_only)")
                if (now := copy.stat()).st_mtime_ns != before.st_mtime_ns or now.st_size != before.st_size:
                    raise QuestionError(f"{copy} was written just now. Close what writes it, then run this again.")
                columns = (
                    "select table_name, column_name from duckdb_columns() "
                    "where not internal and (column_name <> 'window_day' or data_type = 'DATE')"
                )
                lacking = _check_tables(copy, {*db.execute(columns).fetchall()})
                gone, has_new_marts = write_without_withheld(lake, draft, anew, zone)
                with storing(copy):
                    anew.chmod(before.st_mode & 0o777)
                publish_file(anew, copy)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        left = [
            *_left_in(lake, copy),
            *(f"perhaps who is known by {column} alone, in {copy}, which lacks that column" for column in lacking),
        ]
        if lake.suppression.read().objections and not has_new_marts:
            left.append(
                f"perhaps who objects to marketing, in marts of {copy}: they can't be made anew, as its tables aren't "
                "those of this version"
            )
        return gone, left


def _check(copy: Path) -> None:
    with reading(copy), copy.open("rb") as file:
        head = file.read(12)
    if head[8:] != b"DUCK":
        raise QuestionError(
            f"{copy} is neither a data folder nor a copy of {WAREHOUSE_FILE}: DuckDB hasn't written it."
        )
    if copy.name == WAREHOUSE_FILE and (copy.parent / ".state").is_dir():
        raise QuestionError(f"{copy} is what a data folder publishes. Name the folder: {copy.parent}.")
    if (log := copy.with_name(f"{copy.name}.wal")).exists():
        raise QuestionError(
            f"{log} lies beside it: a program has the copy open for writing, or died over it. Close it there, or open "
            "and close it with DuckDB, which takes the log in; then run this again."
        )


def _check_tables(copy: Path, columns: set[tuple[str, str]]) -> list[str]:
    """The columns of people's addresses and numbers that the copy lacks. Raises QuestionError where no rows can go."""
    tables = {table for table, _ in columns}
    if "about" in tables and "facts" not in tables:
        raise QuestionError(
            f"{copy} was written by `privacy share`: it knows nobody's leads by name, and no list reaches it. "
            "Delete it, and make it anew."
        )
    if missing := {"facts", *(table for kind in LEAD_KINDS for table in kind.tables)} - tables:
        raise QuestionError(f"{copy} is no copy of {WAREHOUSE_FILE}: it has no table {', '.join(sorted(missing))}.")
    needed = {(table, "lead_id") for kind in LEAD_KINDS for table in kind.tables}
    needed |= {(kind.table, column) for kind in LEAD_KINDS for column in ("window_day", "person")}
    # Without names, whoever shares somebody's telephone would count as them.
    ours = [(kind.table, field) for kind in LEAD_KINDS for field in kind.fields if known_members(field.path) is None]
    needed |= {(table, field.column) for table, field in ours if is_name(field.column)}
    if missing := {f"{column} of {table}" for table, column in needed - columns}:
        raise QuestionError(
            f"{copy} lacks {', '.join(sorted(missing))}, without which nobody can say whose its rows are. Nothing was "
            "changed. Put the columns back, or delete the copy."
        )
    contacts = {(table, field.column) for table, field in ours if is_contact(field.column)}
    return [f"{column} of {table}" for table, column in sorted(contacts - columns)]


def _left_in(lake: Lake, copy: Path) -> list[str]:
    """Where the copy, or a version of it that a program still has open, holds what the list withholds."""
    copy = copy.resolve()
    versions = {copy: str(copy)}
    for held in held_files([copy.parent]):
        if held.path == copy:
            versions[held.file] = f"an old {copy.name} that process {held.process} still has open"
    left = []
    for path, name in versions.items():
        with connection(lake, "sweep-copied") as db:
            db.execute(f"attach {literal(str(path))} as copy (read_only)")
            left += [
                f"{kind.table} of {name}"
                for kind in LEAD_KINDS
                if withheld_leads(db, lake, kind, f"copy.{quoted(kind.table)}", "window_day", is_copy=True)
            ]
            others = db.execute(
                "select table_name from duckdb_tables() where database_name = 'copy' and schema_name = 'main' "
                "and not list_contains($ours, table_name)",
                {"ours": [*(table.name for table in tables()), *(mart.name for mart in marts())]},
            ).fetchall()
            left += [f"perhaps {table} of {name}, a table that isn't leads-pipeline's" for (table,) in others]
    return left
