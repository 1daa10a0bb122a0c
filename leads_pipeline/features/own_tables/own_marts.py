"""Marts and files of the agency's own: what lies in LEADS_MARTS_DIR becomes tables of leads.duckdb.

Belongs here: which file makes which table, and the draft. Doesn't: the limits of a statement
(own_table.py), marts of the product (warehouse/marts.py), lists about leads (lists.py).
"""

# ruff: noqa: S608 - only quoted names are in the statements

import logging
import re
import stat
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import today
from leads_pipeline.errors import StorageError
from leads_pipeline.features.own_tables.lists import LIST_FILES, LoadLists
from leads_pipeline.features.own_tables.own_table import (
    SECONDS_MAX,
    STOPPED,
    TOO_MUCH,
    Made,
    Task,
    error_in_words,
    make_table,
)
from leads_pipeline.features.own_tables.settings import OwnTablesSettings
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import reading
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.contents import table_names
from leads_pipeline.warehouse.duck import connection, literal, quoted, tables_read
from leads_pipeline.warehouse.marts import Mart, read_mart
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.published import Edition
from leads_pipeline.warehouse.step import FORMER, Changes, Draft, Step
from leads_pipeline.warehouse.tables import columns_of, comment, insert

logger = logging.getLogger(__name__)

_SUFFIXES: Final = (".csv", ".parquet", ".sql")
# People put such tables there, and wonder where they are.
_OTHER_SUFFIXES: Final = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".json", ".jsonl", ".tsv")
_HEADER: Final = re.compile(r"(-- [^\n]+\n){2,}\n")

_NOT_READ: Final = (
    "Files of this kind aren't read. Save it as CSV, in Excel as CSV UTF-8, or as Parquet."
)
_NO_FILE: Final = "It isn't a file, or it is a link to a file that can't be read."

# `name` is NULL if the file can't make a table. `tried` is the look of the file and the day.
_COLUMNS: Final = "file varchar, name varchar, is_made boolean, tried varchar, problem varchar"

# Assets in Dagster that are no table.
_ASSETS: Final = (*(f"raw_{kind.table}" for kind in LEAD_KINDS), "raw_inventory", "leads_report")


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of the folder, and the table that it makes.

    `name` is None if no table can have its name.

    `look` changes with the file. `mart` is None for CSV and Parquet, and for SQL without a header.
    `reads` has the tables that it names, in lower case. `problem` says why the table can't be made.
    """

    file: Path
    look: str
    name: str | None
    mart: Mart | None = None
    reads: AbstractSet[str] = frozenset()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The files of the folder, each after those that it reads.

    `trouble` says why it can't be read.
    """

    files: Sequence[OwnFile] = ()
    trouble: str | None = None


# --- the folder -----------------------------------------------------------------------------------


def read_folder(folder: Path | None) -> OwnFiles:
    """Return the files of LEADS_MARTS_DIR that count, or why it can't be read."""
    found = dict[str, OwnFile]()
    refused = list[OwnFile]()
    try:
        for file, look in _files(folder):
            if file.name in LIST_FILES and look:
                continue
            name = file.stem.lower()
            is_readable = file.suffix.lower() in _SUFFIXES
            if name in found and not is_readable:  # a workbook beside its CSV
                continue

            problem = _problem_of_name(name, found)
            if problem is None:
                found[name] = _read(OwnFile(file, look, name))
            elif not look:
                refused.append(OwnFile(file, look, None, problem=_NO_FILE))
            else:
                refused.append(
                    OwnFile(file, look, None, problem=problem if is_readable else _NOT_READ)
                )
    except StorageError as error:
        return OwnFiles(trouble=str(error))
    return OwnFiles([*_in_order(found), *refused])


def look_of(settings: Settings) -> str:
    """Return a text that changes with the files of LEADS_MARTS_DIR. Empty without such a folder."""
    folder = settings.of(OwnTablesSettings).marts_dir
    if folder is None:
        return ""
    try:
        return repr(_files(folder))
    except StorageError as error:
        return str(error)


def _files(folder: Path | None) -> list[tuple[Path, str]]:
    """Return the files that count, each with a text that changes with it.

    The text is empty if there is nothing to read.
    """
    if folder is None:
        return []
    with reading(folder):
        there = sorted(folder.iterdir())
    files = [file for file in there if file.suffix.lower() in _SUFFIXES]
    files += [file for file in there if file.suffix.lower() in _OTHER_SUFFIXES]
    return [(file, _look(file)) for file in files if not file.name.startswith((".", "~$"))]


def _look(file: Path) -> str:
    with suppress(OSError):  # a link to nowhere, or a file that has just been removed
        found = file.stat()
        if stat.S_ISREG(found.st_mode):  # a pipe would be read for ever
            return f"{found.st_mtime_ns} {found.st_size}"
    return ""


def _problem_of_name(name: str, others: Mapping[str, OwnFile]) -> str | None:
    if name in _ASSETS or name in table_names():
        return f"leads-pipeline has a table or an asset {name} itself. Rename the file."
    if name in others:
        return f"{others[name].file.name} makes a table of this name too. Rename one of them."
    if not re.fullmatch("[a-z_][a-z0-9_]*", name) or _is_reserved(name):
        return (
            "No table can have this name. Rename the file: letters, digits and _, and no word of "
            "SQL such as order."
        )
    return None


def _is_reserved(word: str) -> bool:
    try:
        duckdb.extract_statements(f"from {word}")
    except duckdb.ParserException:
        return True
    return False


def _read(one: OwnFile) -> OwnFile:
    if not one.look:
        return replace(one, problem=_NO_FILE)
    if one.file.suffix.lower() in _OTHER_SUFFIXES:
        return replace(one, problem=_NOT_READ)
    if one.file.suffix.lower() != ".sql":
        return one

    mart = _mart_in(one.file)
    if mart is None:
        return replace(
            one,
            problem="It has no header that can be read. A mart begins with `-- ` and what a row "
            "is, a line `-- column: description` for each column, and an empty line, in UTF-8.",
        )

    try:
        statements = duckdb.extract_statements(mart.statement)
        reads = tables_read(mart.statement)
    except duckdb.Error as error:
        return replace(one, mart=mart, problem=error_in_words(error, mart.statement))

    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        return replace(
            one,
            mart=mart,
            problem="It isn't exactly one SELECT. A PIVOT has to name its values: `in (…)`.",
        )
    return replace(one, mart=replace(mart, name=str(one.name)), reads=reads)


def _mart_in(file: Path) -> Mart | None:
    """Read a mart's file. None if it can't be read, or has no header as read_mart needs it."""
    try:
        has_header = _HEADER.match(file.read_text(encoding="utf-8-sig"))
        return read_mart(file) if has_header else None
    except (OSError, ValueError):
        return None


def _in_order(found: dict[str, OwnFile]) -> list[OwnFile]:
    reads = {name: one.reads & found.keys() - {name} for name, one in found.items()}
    while True:
        try:
            return [found[name] for name in TopologicalSorter(reads).static_order()]
        except CycleError as error:
            circle = error.args[1]
            for name in circle:
                found[name] = replace(
                    found[name], problem=f"Marts read each other in a circle: {', '.join(circle)}."
                )
                reads[name] = set()


def made_tables(db: Edition) -> list[str]:
    """Return the tables that the last publication made."""
    _, rows = db.query("select name from pipeline.own_tables where is_made order by name")
    return [name for (name,) in rows]


# --- in the draft of leads.duckdb -----------------------------------------------------------------


class MakeOwnTables(Step):
    """Makes the tables of LEADS_MARTS_DIR in the closed draft, after everything else is filled.

    A table that can't be made stays as it was before. One that went beyond a limit is tried again
    only if its file changes, and once a day, because each try delays the publication.
    """

    def __init__(
        self,
        data_folder: Path,
        marts_dir: Path | None,
        today: date,
        seconds_per_table: float = SECONDS_MAX,
    ) -> None:
        self._data_folder = data_folder
        self._own = read_folder(marts_dir)
        self._today = today
        self._seconds_per_table = seconds_per_table

    def updates_if(self) -> str:
        """The files, and whether the folder can be read."""
        looks = sorted((one.file, one.look) for one in self._own.files)
        return repr((looks, self._own.trouble, self._today))

    def rebuilds_if(self) -> str:
        """The columns of what the file remembers of them."""
        return _COLUMNS

    def fill(self, draft: Draft) -> None:
        """Keep the tables of before whose files are still there.

        If somebody may have had to go, keep none.
        """
        with draft.transaction():
            draft.db.execute(f"create table if not exists pipeline.own_tables ({_COLUMNS})")
            _keep_tables(draft, self._own)

    def sealed(self, file: Path, changes: Changes) -> None:
        """Make the tables."""
        if not self._own.files and not self._own.trouble:
            return
        problems = _make_tables(
            self._data_folder,
            file,
            self._own,
            self._today,
            self._seconds_per_table,
            forgets=changes.forgets,
        )
        for name, problem in problems.items():
            logger.warning("%s: %s", name, problem)


def steps(data: DataFolder, settings: PublicationSettings, now: datetime) -> list[Step]:
    """Return what files of one's own add to a publication at that moment."""
    folder = settings.installation.of(OwnTablesSettings).marts_dir
    return [
        LoadLists([folder, data.folder], data.folder, settings.zone),
        MakeOwnTables(data.folder, folder, today(settings.zone, now)),
    ]


def _keep_tables(draft: Draft, own: OwnFiles) -> None:
    db = draft.db
    [(draft_name,)] = db.execute("select current_database()").fetchall()
    in_draft = _names(db, draft_name)
    in_former = set[str]()
    if draft.changes.has_former and columns_of(db, "own_tables", "pipeline", FORMER):
        in_former = _names(db, FORMER)

    kept = {one.name for one in own.files if one.name is not None}
    if own.trouble is not None:  # nobody knows which files there are
        kept = in_draft | in_former
    if draft.changes.forgets:
        kept = set()

    # With the name of the draft, because a temporary table may have the same name.
    for name in in_draft - kept:
        db.execute(f"drop table if exists {quoted(draft_name)}.main.{quoted(name)}")
        db.execute("delete from pipeline.own_tables where name = $name", {"name": name})
    for name in (in_former & kept) - in_draft:
        if columns_of(db, name, database=FORMER) and not columns_of(db, name):
            _bring_back(db, draft_name, name)
    db.execute("delete from pipeline.own_tables where name is null")


def _bring_back(db: duckdb.DuckDBPyConnection, draft_name: str, name: str) -> None:
    """Copy a table, and what is remembered of it, from the file before."""
    db.execute(
        f"create table {quoted(draft_name)}.main.{quoted(name)} as from "
        f"{FORMER}.main.{quoted(name)}"
    )
    db.execute(
        f"insert into pipeline.own_tables from {FORMER}.pipeline.own_tables where name = $name",
        {"name": name},
    )


def _names(db: duckdb.DuckDBPyConnection, database: str) -> set[str]:
    rows = db.execute(f"select name from {quoted(database)}.pipeline.own_tables").fetchall()
    return {name for (name,) in rows if name is not None}


def _make_tables(
    folder: Path, draft: Path, own: OwnFiles, today: date, seconds: float, *, forgets: bool
) -> dict[str, str]:
    """Make the tables in the draft. Return what is wrong, by file."""
    with connection(folder, draft) as db:
        rows = db.execute("select name, tried, problem from pipeline.own_tables").fetchall()
    beyond = () if forgets else (STOPPED, TOO_MUCH)
    waiting = {(name, tried): problem for name, tried, problem in rows if problem in beyond}
    notes: list[tuple[object, ...]] = (
        [("LEADS_MARTS_DIR", None, False, None, own.trouble)] if own.trouble else []
    )
    for one in own.files:
        tried = f"{one.look} {today}"
        is_made = False
        problem = one.problem or waiting.get((one.name, tried))
        if problem is None:
            is_made, problem = _make(one, folder, draft, seconds)
        notes.append((one.file.name, one.name, is_made, tried, problem))
    with connection(folder, draft) as db:
        db.execute(
            "update pipeline.own_tables set is_made = false"
            if own.trouble
            else "delete from pipeline.own_tables"
        )
        insert(db, "pipeline.own_tables", notes)
        # On a full disk, closing the file would leave the log beside it without an error.
        db.execute("checkpoint")
    return {str(file): str(problem) for file, *_, problem in notes if problem}


def _make(one: OwnFile, folder: Path, draft: Path, seconds: float) -> Made:
    """Make the table in the draft. Return whether it is made, and what is wrong."""
    file = draft.with_name("draft-own.duckdb")
    name = str(one.name)
    statement = one.mart.statement if one.mart else None
    columns = [*one.mart.descriptions] if one.mart else []
    try:
        made = make_table(
            Task(
                folder=str(folder),
                leads=str(draft),
                name=name,
                made=str(file),
                file=str(one.file),
                statement=statement,
                columns=columns,
            ),
            seconds,
        )
        if made.is_made:
            _take_over(one, folder, draft, file)
        return made
    finally:
        for left in draft.parent.glob(f"{file.name}*"):  # a killed process may have left a log
            left.unlink()


def _take_over(one: OwnFile, folder: Path, draft: Path, file: Path) -> None:
    """Copy the table from the file that it was made in, and describe it."""
    name = str(one.name)
    with connection(folder, draft) as db:
        db.execute(f"attach {literal(str(file))} as made (read_only)")
        db.execute(f"create or replace table {quoted(name)} as from made.main.{quoted(name)}")

        if one.mart:
            comment(db, quoted(name), one.mart.description, one.mart.descriptions)
        else:
            text = f"From {one.file.name} in LEADS_MARTS_DIR, as it is"
            comment(db, quoted(name), text, dict.fromkeys(columns_of(db, name), text))
