"""Marts of sql/: read from their files, and made in the order of what they read.

Belongs here: what a file declares, making marts and what they read besides the leads. Doesn't: the statements (sql/),
drift (drift.py), when to publish (publish.py).
"""

# ruff: noqa: S608 - only names of our own files and of the contract are in the statements

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import ENUMERATIONS, LEAD_KINDS, MEMBER_PATTERN, PREFIX_PATTERN
from leads_pipeline.domain.window import RETENTION, Window
from leads_pipeline.errors import BugError
from leads_pipeline.storage.branches import Branches
from leads_pipeline.storage.windows import WindowRow
from leads_pipeline.warehouse.answers import ANSWERS, answer_files, read_answers
from leads_pipeline.warehouse.drift import DRIFT, NEW_VALUE, make_drift
from leads_pipeline.warehouse.duck import SQL_FOLDER, Column, literal, macros, quoted, telling_errors
from leads_pipeline.warehouse.inventory import INVENTORY
from leads_pipeline.warehouse.tables import Table, columns_of, comment, create_table, fill, is_of

_BY_DAY: Final = "by lead_day"

# A temporary view of the leads of any kind. A statement that names it reads the tables of leads.
EVERY_LEAD: Final = "every_lead"


@dataclass(frozen=True, slots=True)
class Mart(Table):
    """A table or view that one file of sql/ makes. The columns are in the order of the select, as the file declares.

    `is_by_day`: a table with the column `lead_day`. The rows of a day are made from the leads of that day alone.
    """

    statement: str
    is_by_day: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """The other inputs of marts, besides the leads. `folder` is the data folder, `today` is the local day.

    `marts_dir` is LEADS_MARTS_DIR, whose answers count before those in the data folder.
    `windows` are those that are `configured` or were landed: all, or those from `first_day` on.
    """

    folder: Path
    zone: ZoneInfo
    today: date
    windows: Sequence[WindowRow] = ()
    configured: AbstractSet[Window] = frozenset()
    branches: Branches = field(default_factory=Branches)
    first_day: date | None = None
    marts_dir: Path | None = None


@cache
def marts(folder: Path = SQL_FOLDER) -> tuple[Mart, ...]:
    """Return the marts in the folder's files, each after those that it reads."""
    found = {path.stem: read_mart(path) for path in sorted(folder.glob("*.sql"))}
    words = {name: set(re.findall(r"\w+", mart.statement)) for name, mart in found.items()}
    reads = {name: (words[name] & found.keys()) - {name} for name in found}
    return tuple(found[name] for name in TopologicalSorter(reads).static_order())


def read_mart(path: Path) -> Mart:
    """Read a file. Its first comment line is the grain, the lines after it are the columns, up to an empty line."""
    header, _, statement = path.read_text(encoding="utf-8-sig").partition("\n\n")
    description, *lines = [line.removeprefix("-- ") for line in header.splitlines()]
    columns = []
    for declared, text in (line.split(": ", 1) for line in lines if line != _BY_DAY):
        name, _, type_ = declared.partition(" ")
        columns.append(Column(name, type_, text))
    return Mart(path.stem, description, tuple(columns), statement, is_by_day=_BY_DAY in lines)


def fingerprint(branches: Branches) -> str:
    """Return a text that changes when all marts have to be made anew."""
    return repr((marts(), macros("marts"), ENUMERATIONS, MEMBER_PATTERN, _TABLES, branches))


def make_marts(
    db: duckdb.DuckDBPyConnection, inputs: Inputs, *, is_rewritten: bool = False, of: Sequence[Mart] = ()
) -> dict[str, str]:
    """Make all marts, or those of `of`, after `flatten` and `make_tables`. Return what went wrong, by mart.

    A mart that fails keeps its last good rows or definition, and is made as a whole the next time. If raw files were
    rewritten, it is removed instead, because it may hold an erased person. An error ends DuckDB's transaction, so each
    mart has its own. The caller's is committed, and another one is begun in the end. Raises StorageError.
    """
    has_new_words = _make_inputs(db, inputs)
    failed_before = db.execute("select mart from pipeline.mart_problems").fetchall()
    touched = db.execute("select distinct lead_day from touched order by lead_day").fetchall()
    # All days again: other marts may have read what the failed one kept.
    days = None if has_new_words or failed_before else [day for (day,) in touched]
    _make_every_lead(db, days)
    db.commit()
    problems: dict[str, str] = {}
    for mart in of or marts():
        try:
            with _transaction(db, inputs.folder):
                _make(db, mart, days, reads_views=is_rewritten or inputs.first_day is None)
        except BugError as error:
            problems[mart.name] = str(error)
            _keep_last_good(db, mart, inputs.folder, is_rewritten=is_rewritten)
    db.begin()
    db.execute("delete from pipeline.mart_problems")
    fill(db, "pipeline.mart_problems", list(problems.items()))
    return problems


@contextmanager
def _transaction(db: duckdb.DuckDBPyConnection, folder: Path) -> Iterator[None]:
    with telling_errors(folder):
        db.begin()
        try:
            yield
        except BaseException:
            db.rollback()
            raise
        db.commit()


# --- one mart ---------------------------------------------------------------------------------------------------------


def _make(db: duckdb.DuckDBPyConnection, mart: Mart, days: Sequence[date] | None, *, reads_views: bool) -> None:
    """Make the rows of these days, or all. A view stays, unless all are made.

    A view is read when it is made, and in the day's first publication, as it may fail on new leads. To read those of
    people and listings each time would take seconds of a publication with a million leads. A rewriting reads them too,
    as it removes marts that fail.
    """
    name = quoted(mart.name)
    if days is not None and _exists(db, mart.name):
        if mart.is_by_day:
            db.execute(f"delete from {name} where {is_of(days)}")
            db.execute(f"insert into {name} by name select * from ({mart.statement}) where {is_of(days)}")
        elif reads_views:
            db.execute(f"from {name} limit 1").fetchall()
        return
    _drop(db, mart.name)
    db.execute(f"create {'table' if mart.is_by_day else 'view'} {name} as {mart.statement}")
    if not mart.is_by_day:
        db.execute(f"from {name} limit 1").fetchall()
    columns = columns_of(db, mart.name)
    if columns != [*mart.descriptions]:
        raise BugError(f"{mart.name} has the columns {', '.join(columns)}, and its file describes others.")
    _comment(db, mart)


def _keep_last_good(db: duckdb.DuckDBPyConnection, mart: Mart, folder: Path, *, is_rewritten: bool) -> None:
    """Have the mart as it was before. In a new file, take it over from the file before, which is attached then."""
    try:
        with _transaction(db, folder):
            if is_rewritten:
                _drop(db, mart.name)
            elif not _exists(db, mart.name) and (definition := _definition(db, mart.name, "before")):
                db.execute(definition)
                _comment(db, mart)
            if _exists(db, mart.name):
                db.execute(f"from {quoted(mart.name)} limit 1").fetchall()
    except BugError:
        with _transaction(db, folder):
            _drop(db, mart.name)


def _definition(db: duckdb.DuckDBPyConnection, name: str, database: str) -> str | None:
    """Return a statement that makes the table or view that another file has. None if it has none."""
    of_name = f"database_name = {literal(database)} and schema_name = 'main'"
    views = db.execute(
        f"select sql from duckdb_views() where {of_name} and view_name = $name", {"name": name}
    ).fetchall()
    if views:
        return str(views[0][0])
    if columns_of(db, name, database=database):
        return f"create table {quoted(name)} as from {quoted(database)}.main.{quoted(name)}"
    return None


def _exists(db: duckdb.DuckDBPyConnection, name: str) -> bool:
    return bool(columns_of(db, name))


def _drop(db: duckdb.DuckDBPyConnection, name: str) -> None:
    views = "select view_name from duckdb_views() where database_name = current_database() and not temporary"
    if _exists(db, name):
        db.execute(f"drop {'view' if (name,) in db.execute(views).fetchall() else 'table'} {quoted(name)}")


def _comment(db: duckdb.DuckDBPyConnection, mart: Mart) -> None:
    there = {column: mart.descriptions.get(column, "") for column in columns_of(db, mart.name)}
    comment(db, quoted(mart.name), mart.description, there, is_view=not mart.is_by_day)


# --- what marts read besides the leads --------------------------------------------------------------------------------

_TABLES: Final = {
    "pipeline.window_states": "kind varchar, day date, scope varchar, state varchar, "
    "window_start timestamptz, window_end timestamptz, is_closed boolean, rows bigint, "
    "last_looked_at timestamptz, failed_attempts integer, last_error varchar, is_refused boolean, "
    "deleted_from_at timestamptz, is_configured boolean",
    "pipeline.objected": "person uuid, kind varchar, lead_id varchar",
    "pipeline.answers": ANSWERS,
    "pipeline.words": "value varchar, words varchar",
    "pipeline.mart_problems": "mart varchar, problem varchar",
    # `name` is NULL if the file can't make a table. `tried` is the look of the file and the day.
    "pipeline.own_tables": "file varchar, name varchar, is_made boolean, tried varchar, problem varchar",
}
_BRANCHES: Final = Table(
    "branches",
    "One row per scope that is configured, has a landed window, or that LEADS_BRANCHES_FILE names",
    (
        Column("scope", "varchar", "Scope as in every other table, e.g. branch-101"),
        Column("branch_id", "varchar", "The portal's id in it, e.g. 101"),
        Column(
            "name", "varchar", "Name of the branch, from LEADS_BRANCHES_FILE; the scope if the file has no name for it"
        ),
    ),
)


def other_tables() -> tuple[Table, ...]:
    """Return the tables that are neither of leads nor marts: the inventory, names of branches, drift."""
    return INVENTORY, _BRANCHES, DRIFT


def make_tables(db: duckdb.DuckDBPyConnection) -> None:
    """Make the tables that marts read besides the leads, if they aren't there. The caller fills the inventory."""
    for name, columns in _TABLES.items():
        db.execute(f"create table if not exists {name} ({columns})")
    if not _exists(db, "inventory"):
        create_table(db, INVENTORY)


def _make_inputs(db: duckdb.DuckDBPyConnection, inputs: Inputs) -> bool:
    """Fill the tables that marts read. Return whether other values of enumerated fields are known than before."""
    states = [_state(row, is_configured=row.window in inputs.configured) for row in inputs.windows]
    db.execute("delete from pipeline.window_states where day >= $since", {"since": inputs.first_day or date.min})
    fill(db, "pipeline.window_states", states)
    db.execute("delete from pipeline.answers")
    fill(db, "pipeline.answers", read_answers(answer_files(inputs.marts_dir, inputs.folder), inputs.zone))
    _make_branches(db, inputs.branches)
    _make_macros(db, inputs.zone)
    make_drift(db, inputs.today)
    return _make_words(db)


def _make_macros(db: duckdb.DuckDBPyConnection, zone: ZoneInfo) -> None:
    """Make the macros of sql/macros/marts.sql, with this time zone and the contract's patterns."""
    statements = macros("marts")
    for name, text in (("zone", zone.key), ("prefix", PREFIX_PATTERN), ("member", MEMBER_PATTERN)):
        statements = statements.replace(f"{{{name}}}", literal(text))
    db.execute(statements)


def _make_every_lead(db: duckdb.DuckDBPyConnection, days: Sequence[date] | None) -> None:
    """Make the temporary view of the leads of any kind of these days, or of all, for lead_facts.

    DuckDB doesn't take days down through the macro `readable`.
    """
    of_days = "" if days is None else f"where {is_of(days)}"
    kinds = (f"select {literal(kind.name)} as kind, * from {quoted(kind.table)} {of_days}" for kind in LEAD_KINDS)
    db.execute(f"create or replace temp view {EVERY_LEAD} as {' union all by name '.join(kinds)}")


def _make_words(db: duckdb.DuckDBPyConnection) -> bool:
    """Note the declared members, and other values that marts may show, and how they read. Return if that changed."""
    known = "select list(words order by words.value) from pipeline.words"
    before = db.execute(known).fetchall()
    db.execute("delete from pipeline.words")
    db.execute(
        """
        insert into pipeline.words
        select value, words_of(value)
        from (select unnest($members) as value union select value from drift where change = $change)
        """,
        {"members": _declared_members(), "change": NEW_VALUE},
    )
    return db.execute(known).fetchall() != before


def _declared_members() -> list[str]:
    return sorted({member for members in ENUMERATIONS.values() for member in members})


def _make_branches(db: duckdb.DuckDBPyConnection, names: Branches) -> None:
    known = db.execute("select distinct scope from pipeline.window_states").fetchall()
    scopes = {scope for (scope,) in known} | names.names.keys()
    more = (Column(name, "varchar", "From LEADS_BRANCHES_FILE") for name in names.columns)
    db.execute("drop table if exists branches")
    create_table(db, replace(_BRANCHES, columns=(*_BRANCHES.columns, *more)))
    empty = (None,) * len(names.columns)
    rows = [
        (scope, scope.partition("-")[2] or scope, names.names.get(scope, scope), *names.more.get(scope, empty))
        for scope in sorted(scopes)
    ]
    fill(db, "branches", rows)


def _state(row: WindowRow, *, is_configured: bool) -> tuple[object, ...]:
    failure = row.failure
    return (
        row.kind,
        row.day,
        row.scope,
        str(row.state),
        row.window.start,
        row.window.end,
        row.looked_at is not None and row.looked_at >= row.window.end,
        row.leads if row.looked_at or row.leads else None,
        row.looked_at,
        failure.attempts if failure else 0,
        (failure.message or failure.reason) if failure else None,
        failure is not None and failure.verdict == "refused",
        row.window.start + RETENTION,
        is_configured,
    )
