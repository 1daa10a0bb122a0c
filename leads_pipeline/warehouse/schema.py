"""The tables that are loaded from staged and inventory files, and those that the file keeps for itself.

Belongs here: their columns and comments, filling one by columns. Doesn't: marts (sql_marts.py), loading (loading.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import duckdb

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.drift import PEOPLE_MIN
from leads_pipeline.duck import Column, literal, quoted
from leads_pipeline.flatten.columns import INVENTORY_COLUMNS, staged_columns, windows_table


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the warehouse that is loaded from staged or inventory files."""

    name: str
    description: str
    columns: tuple[Column, ...]


PERSON: Final = Column(
    "person",
    "uuid",
    "Keyed hash of the e-mail address, or of the telephone number where there is none; NULL where neither is given",
)


# Rows are stored by this day, so that replacing a day reads that day alone.
_CHILD_DAY: Final = Column("day", "date", "Day of the window that held the lead: its window_day")


@cache
def tables() -> tuple[Table, ...]:
    """The loaded tables of the warehouse, in the order in which an analyst should meet them."""
    loaded: list[Table] = []
    for kind in LEAD_KINDS:
        columns = staged_columns(kind)
        loaded.append(Table(kind.table, f"One row per lead. {kind.description}", (*columns[kind.table], PERSON)))
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


BOOKKEEPING: Final = (
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
    Table(
        "publications",
        "The publications of this file, so that the Delta tables name the one they were written for",
        (Column("id", "uuid", "By chance"), Column("number", "bigint", "Counts up")),
    ),
    Table(
        "touched_days",
        "Days of the tables of leads, and which publication last touched them, for the Delta tables",
        (Column("day", "date", "Day of the rows"), Column("publication", "bigint", "Its number")),
    ),
    Table(
        "objected",
        "Leads of people who objected to direct marketing: leave these people out of whatever serves it",
        (
            Column("kind", "varchar", "applicant or appraisal"),
            Column("lead_id", "varchar", "The lead's own id"),
            Column("person", "uuid", "Keyed hash of the person, as in the tables of leads"),
        ),
    ),
)


def create_tables(db: duckdb.DuckDBPyConnection) -> None:
    """Make every table but the marts, empty, where it isn't there: an earlier version's file lacks what came since."""
    db.execute("create schema if not exists pipeline")
    db.execute("drop table if exists pipeline.digests")  # of an earlier version
    for name, table in _named_tables():
        db.execute(
            f"create table if not exists {name} ({', '.join(f'{quoted(c.name)} {c.type}' for c in table.columns)})"
        )


def comment_tables(db: duckdb.DuckDBPyConnection) -> None:
    """Write what an analyst reads about each of them."""
    for name, table in _named_tables():
        comment(db, name, table.description, {column.name: column.description for column in table.columns})


def _named_tables() -> Iterator[tuple[str, Table]]:
    """Every table but the marts, with its name in SQL."""
    for schema, loaded in (("main", tables()), ("pipeline", BOOKKEEPING)):
        for table in loaded:
            yield f"{schema}.{quoted(table.name)}", table


def comment(db: duckdb.DuckDBPyConnection, table: str, description: str, columns: Mapping[str, str]) -> None:
    """Write what an analyst reads about one table."""
    db.execute(f"comment on table {table} is {literal(description)}")
    for column, text in columns.items():
        db.execute(f"comment on column {table}.{quoted(column)} is {literal(text)}")


def fill(db: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Sequence[object]]) -> None:
    """Insert columns, given by name and type. A statement per row would take minutes."""
    lists = ", ".join(f"unnest(${number}::{column.split()[1]}[])" for number, column in enumerate(columns, start=1))
    db.execute(f"insert into {table} select {lists}", list(columns.values()))
