"""Marts: read from the files of sql/ and of features, and made in the order of what they read.

Belongs here: what a file declares, and the step that makes marts. Doesn't: the statements (sql/,
features/marts/sql/), what marts read besides leads (window_states.py and others), drift (drift.py).
"""

# ruff: noqa: S608 - only names of our own files and of the contract are in the statements

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import ENUMERATIONS, LEAD_KINDS, MEMBER_PATTERN, PREFIX_PATTERN
from leads_pipeline.errors import BugError, OutOfMemoryError
from leads_pipeline.extensions import MART_FOLDERS
from leads_pipeline.warehouse.drift import NEW_VALUE
from leads_pipeline.warehouse.duck import SQL_FOLDER, Column, literal, macros, quoted, tables_read
from leads_pipeline.warehouse.step import FORMER, Draft, Step
from leads_pipeline.warehouse.tables import Table, columns_of, comment, insert, is_of

logger = logging.getLogger(__name__)

_BY_DAY: Final = "by lead_day"

# A temporary view of the leads of any kind. A statement that names it reads the tables of leads.
EVERY_LEAD: Final = "every_lead"

_TABLES: Final = {
    "words": "value varchar, words varchar",
    "mart_problems": "mart varchar, problem varchar",
}


# --- what a file declares -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mart(Table):
    """A table or view that one file makes. The columns are in the order of the select.

    `is_by_day`: a table with the column `lead_day`. The rows of a day are made from the leads of
    that day alone.
    """

    statement: str
    is_by_day: bool
    # Where the file lies changes nothing of what it makes.
    file: Path = field(repr=False, compare=False)


def marts() -> tuple[Mart, ...]:
    """Return the marts of the core and of the features, each after those that it reads."""
    return marts_in(SQL_FOLDER, *MART_FOLDERS)


@cache
def marts_in(*folders: Path) -> tuple[Mart, ...]:
    """Return the marts in the files of these folders, each after those that it reads."""
    files = sorted(path for folder in folders for path in folder.glob("*.sql"))
    found = {path.stem: read_mart(path) for path in files}
    reads = {name: tables_read(mart.statement) & found.keys() for name, mart in found.items()}
    # A mart may have the name of a table of pipeline that it reads.
    others = {name: of_mart - {name} for name, of_mart in reads.items()}
    return tuple(found[name] for name in TopologicalSorter(others).static_order())


def read_mart(path: Path) -> Mart:
    """Read a file. First comes the grain in a comment, then the columns, up to an empty line."""
    header, _, statement = path.read_text(encoding="utf-8-sig").partition("\n\n")
    description, *lines = [line.removeprefix("-- ") for line in header.splitlines()]

    columns = []
    for line in lines:
        if line == _BY_DAY:
            continue
        declared, text = line.split(": ", 1)
        name, _, type_ = declared.partition(" ")
        columns.append(Column(name, type_, text))
    return Mart(
        path.stem, description, tuple(columns), statement, is_by_day=_BY_DAY in lines, file=path
    )


# --- the step -------------------------------------------------------------------------------------


class MakeMarts(Step):
    """Makes the marts: tables by day for the days that were touched, and views.

    A mart that fails keeps its last good rows or definition, and is made as a whole the next time.
    If somebody may have had to go, it is removed instead, because it may hold them. An error ends
    DuckDB's transaction, so each mart has its own.
    """

    def __init__(self, zone: ZoneInfo, today: date, of: Sequence[Mart] = ()) -> None:
        self._zone = zone
        self._today = today
        self._marts = of or marts()

    def updates_if(self) -> str:
        """Marts say how old something is."""
        return self._today.isoformat()

    def rebuilds_if(self) -> str:
        """All that marts are made from, besides what they read."""
        patterns = (ENUMERATIONS, MEMBER_PATTERN, PREFIX_PATTERN)
        return repr((self._marts, _macros(), patterns, _TABLES, self._zone.key))

    def fill(self, draft: Draft) -> None:
        """Make them in the order of what they read."""
        with draft.transaction():
            days = self._prepare(draft)
            kinds = _kinds(draft.db)

        problems: dict[str, str] = {}
        for mart in self._marts:
            try:
                with draft.transaction():
                    _make(draft, mart, days, kinds.get(mart.name))
            except (BugError, OutOfMemoryError) as error:
                problems[mart.name] = str(error)
                logger.error("%s couldn't be made and stays as it was. %s", mart.name, error)
                _keep_last_good(draft, mart)

        with draft.transaction():
            draft.db.execute("delete from pipeline.mart_problems")
            insert(draft.db, "pipeline.mart_problems", [*problems.items()])

    def _prepare(self, draft: Draft) -> Sequence[date] | None:
        """Make what statements name. Return the days that are to be made, None for all."""
        db = draft.db
        for name, columns in _TABLES.items():
            db.execute(f"create table if not exists pipeline.{name} ({columns})")
        _make_macros(db, self._zone)
        has_new_words = _make_words(db)
        failed_before = db.execute("select mart from pipeline.mart_problems").fetchall()

        days = None
        # All days again: other marts may have read what the failed one kept.
        if not has_new_words and not failed_before:
            touched = db.execute("select distinct lead_day from touched order by lead_day")
            days = [day for (day,) in touched.fetchall()]
        _make_every_lead(db, days)
        return days


def _make(draft: Draft, mart: Mart, days: Sequence[date] | None, kind: str | None) -> None:
    """Make the rows of these days, or all. A view stays, unless all are made.

    `kind` is that of what is there, as `_kinds` has it.
    """
    db = draft.db
    name = quoted(mart.name)
    if days is None or kind is None:
        if kind:
            db.execute(f"drop {kind} {name}")
        _make_whole(db, mart)
    elif mart.is_by_day:
        db.execute(f"delete from {name} where {is_of(days)}")
        rows = f"select * from ({mart.statement}) where {is_of(days)}"
        db.execute(f"insert into {name} by name {rows}")
    elif draft.changes.is_first_of_day:
        # A view may fail on new leads. Reading those of people and listings takes seconds with a
        # million leads, so each publication would be too often.
        db.execute(f"from {name} limit 1").fetchall()


def _make_whole(db: duckdb.DuckDBPyConnection, mart: Mart) -> None:
    name = quoted(mart.name)
    db.execute(f"create {'table' if mart.is_by_day else 'view'} {name} as {mart.statement}")

    made = db.execute(f"from {name} limit 1")  # a view fails once it is read
    columns = [column for column, *_ in made.description or ()]
    made.fetchall()
    if columns != [*mart.descriptions]:
        raise BugError(
            f"{mart.name} has the columns {', '.join(columns)}, and its file describes others."
        )
    _comment(db, mart, columns)


def _keep_last_good(draft: Draft, mart: Mart) -> None:
    """Have the mart as it was before. A new file takes it over from the file before."""
    db = draft.db
    try:
        with draft.transaction():
            if draft.changes.forgets:
                _drop(db, mart.name)
            elif mart.name not in _kinds(db) and (definition := _former_definition(db, mart.name)):
                db.execute(definition)
                _comment(db, mart, columns_of(db, mart.name))
            if mart.name in _kinds(db):
                db.execute(f"from {quoted(mart.name)} limit 1").fetchall()
    except (BugError, OutOfMemoryError):
        with draft.transaction():
            _drop(db, mart.name)


def _former_definition(db: duckdb.DuckDBPyConnection, name: str) -> str | None:
    """Return a statement that makes the table or view of the file before. None if it has none."""
    views = db.execute(
        "select sql from duckdb_views() where database_name = $database and schema_name = 'main' "
        "and view_name = $name",
        {"database": FORMER, "name": name},
    ).fetchall()
    if views:
        return str(views[0][0])
    if columns_of(db, name, database=FORMER):
        return f"create table {quoted(name)} as from {FORMER}.main.{quoted(name)}"

    return None


def _kinds(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return `table` or `view` for each that is there, by its name.

    DuckDB takes 2 ms to tell, however many they are (measured).
    """
    rows = db.execute(
        """
        select table_name, 'table' from duckdb_tables()
        where database_name = current_database() and schema_name = 'main'
        union all
        select view_name, 'view' from duckdb_views()
        where database_name = current_database() and schema_name = 'main'
        """
    ).fetchall()
    return dict(rows)


def _drop(db: duckdb.DuckDBPyConnection, name: str) -> None:
    if kind := _kinds(db).get(name):
        db.execute(f"drop {kind} {quoted(name)}")


def _comment(db: duckdb.DuckDBPyConnection, mart: Mart, columns: Sequence[str]) -> None:
    there = {column: mart.descriptions.get(column, "") for column in columns}
    comment(db, quoted(mart.name), mart.description, there, is_view=not mart.is_by_day)


# --- what statements name -------------------------------------------------------------------------


def _make_macros(db: duckdb.DuckDBPyConnection, zone: ZoneInfo) -> None:
    """Make them with this time zone and the contract's patterns."""
    statements = _macros()
    texts = {"zone": zone.key, "prefix": PREFIX_PATTERN, "member": MEMBER_PATTERN}
    for name, text in texts.items():
        statements = statements.replace(f"{{{name}}}", literal(text))
    db.execute(statements)


def _macros() -> str:
    """Return the statements of macros/marts.sql, of the core and of the features that have one."""
    folders = [SQL_FOLDER, *MART_FOLDERS]
    with_macros = [folder for folder in folders if (folder / "macros" / "marts.sql").exists()]
    return "\n".join(macros("marts", folder) for folder in with_macros)


def _make_every_lead(db: duckdb.DuckDBPyConnection, days: Sequence[date] | None) -> None:
    """Make the temporary view of the leads of any kind of these days, or of all, for lead_facts.

    DuckDB doesn't take days down through the macro `readable`.
    """
    of_days = "" if days is None else f"where {is_of(days)}"
    kinds = [
        f"select {literal(kind.name)} as kind, * from {quoted(kind.table)} {of_days}"
        for kind in LEAD_KINDS
    ]
    rows = " union all by name ".join(kinds)
    db.execute(f"create or replace temp view {EVERY_LEAD} as {rows}")


def _make_words(db: duckdb.DuckDBPyConnection) -> bool:
    """Note how values of enumerated fields read: declared ones, and others that may be shown.

    Return whether that has changed.
    """
    words = "select list(words order by words.value) from pipeline.words"
    before = db.execute(words).fetchall()
    members = {member for of_field in ENUMERATIONS.values() for member in of_field}
    db.execute("delete from pipeline.words")
    db.execute(
        """
        insert into pipeline.words
        select value, words_of(value)
        from (select unnest($members) as value union select value from drift where change = $change)
        """,
        {"members": sorted(members), "change": NEW_VALUE},
    )

    return db.execute(words).fetchall() != before
