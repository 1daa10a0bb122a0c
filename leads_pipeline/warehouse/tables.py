"""The tables of leads in leads.duckdb: their columns, and what an analyst reads of each.

Belongs here: names, types and comments. Doesn't: the rows (flatten.py), marts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Final

import duckdb
import pyarrow as pa

from leads_pipeline.domain.contract import LEAD_KINDS, Field
from leads_pipeline.warehouse.duck import DUCKDB_TYPES, Column, literal, quoted


@dataclass(frozen=True, slots=True)
class Table:
    """A table of leads.duckdb. `reads` are the assets it is made from; empty for raw windows."""

    name: str
    description: str
    columns: tuple[Column, ...]
    reads: tuple[str, ...] = field(default=(), kw_only=True)

    @property
    def descriptions(self) -> dict[str, str]:
        """The description of each column, by its name."""
        return {column.name: column.description for column in self.columns}


_LEAD_COLUMNS: Final = (
    Column(
        "lead_id",
        "varchar",
        "The lead's own id; sha256: and the hash of its payload if it has none",
    ),
    Column(
        "lead_day",
        "date",
        "Local day on which the lead was submitted; the window's day if that is unknown",
    ),
    Column(
        "scope",
        "varchar",
        "Scope of the window that brought this version, e.g. branch-101; push if pushed for no "
        "configured branch",
    ),
    Column("fetched_at", "timestamptz", "When this version of the lead was first received, UTC"),
    Column(
        "sequence",
        "bigint",
        "Number of the request that brought this version; of two versions the higher one is the "
        "newer",
    ),
    Column("source", "varchar", "How this version was received: pull or push"),
    Column(
        "window_day",
        "date",
        "Day of the window that brought this version; a lead of midnight can have the next day as "
        "lead_day",
    ),
    Column(
        "published_in",
        "bigint",
        "Number of the publication that last wrote this row; each publication has a higher number "
        "than those before",
    ),
)
_CHILD_COLUMNS: Final = (
    Column("lead_id", "varchar", "The lead that it belongs to"),
    Column("position", "integer", "Place in the lead's list, from 0"),
)
DRIFT_COLUMNS: Final = (
    Column(
        "_problems",
        "varchar[]",
        "Fields whose value doesn't fit their column, and other oddities; raw has the exact text",
    ),
    Column(
        "_extra", "json", "Fields that the contract doesn't know, nested and written as received"
    ),
)
_PERSON: Final = Column(
    "person",
    "uuid",
    "Keyed hash of the e-mail address, or of the telephone number if there is none; NULL if "
    "neither is given",
)
_CHILD_DAY: Final = Column("day", "date", "window_day of the lead")


def lead_tables() -> Iterator[Table]:
    """Yield the tables of leads, each kind's own first, then those of its lists."""
    for kind in LEAD_KINDS:
        columns = (*_LEAD_COLUMNS, *declared_columns(kind.fields), *DRIFT_COLUMNS, _PERSON)
        yield Table(kind.table, f"One row per lead. {kind.description}", columns)
        for child in kind.children:
            columns = (*_CHILD_COLUMNS, *declared_columns(child.fields), *DRIFT_COLUMNS, _CHILD_DAY)
            yield Table(child.name, child.description, columns)


def declared_columns(fields: Sequence[Field]) -> tuple[Column, ...]:
    """Return a column for each declared field."""
    return tuple(
        Column(field.column, DUCKDB_TYPES[field.type], field.description) for field in fields
    )


def create_table(db: duckdb.DuckDBPyConnection, table: Table) -> None:
    """Make the table, empty, with its comments."""
    name = quoted(table.name)
    columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns)
    db.execute(f"create table {name} ({columns})")
    comment(db, name, table.description, table.descriptions)


def comment(
    db: duckdb.DuckDBPyConnection,
    name: str,
    description: str,
    columns: Mapping[str, str],
    *,
    is_view: bool = False,
) -> None:
    """Write what an analyst reads of a table or view. `name` is as in SQL."""
    db.execute(f"comment on {'view' if is_view else 'table'} {name} is {literal(description)}")
    for column, text in columns.items():
        db.execute(f"comment on column {name}.{quoted(column)} is {literal(text)}")


def columns_of(
    db: duckdb.DuckDBPyConnection, name: str, schema: str = "main", database: str = ""
) -> list[str]:
    """Return a table's or view's columns in order, or an empty list if there is no such table."""
    rows = db.execute(
        "select column_name from duckdb_columns() where schema_name = $schema and table_name = "
        "$name and database_name = coalesce(nullif($database, ''), current_database()) order by "
        "column_index",
        {"schema": schema, "name": name, "database": database},
    ).fetchall()
    return [column for (column,) in rows]


def is_of(days: Sequence[date]) -> str:
    """Return SQL for whether a row is of one of these days.

    The days are constants, so that DuckDB takes them down to where leads are read.
    """
    return (
        f"lead_day in ({', '.join(literal(day.isoformat()) for day in days)})" if days else "false"
    )


def insert(db: duckdb.DuckDBPyConnection, name: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows, as one Arrow table: `executemany` takes a thousand times as long."""
    if rows:
        names = [name for name, *_ in db.execute(f"describe {name}").fetchall()]
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        inserted = pa.table(columns, names)  # noqa: F841 - DuckDB finds it by its name
        db.execute(f"insert into {name} from inserted")
