"""Digests of the days of each table, so that what follows the file needn't read all of it to see what differs.

Belongs here: which tables have days, noting which of them a publication touches, their digests. Doesn't: who follows
(delta/).

They are kept where somebody follows: where the folder of the Delta tables is. A publication takes away the digests of
what it touches, whoever follows or not, and makes those that are missing. So one that is there is right.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import duckdb

from leads_pipeline.duck import quoted
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse.schema import tables
from leads_pipeline.warehouse.sql_marts import marts

# Of the data folder. delta/ makes it.
FOLLOWERS: Final = "delta"


_DAYS: Final = ("window_day", "lead_day", "last_lead_day", "day")

# An item that nobody asks about has no day.
_UNDATED: Final = ("inventory", "mart_listing_stock")


def day_column(name: str) -> str | None:
    """The column by whose days the table or mart is replaced; None where it is replaced as a whole.

    A lead lies with its window's day, and what is counted of people or listings with the day of their last lead: most
    of whom are met again were there lately.
    """
    columns = {table.name: {column.name for column in table.columns} for table in tables()}
    columns |= {mart.name: set(mart.columns) for mart in marts()}
    return None if name in _UNDATED else next((day for day in _DAYS if day in columns.get(name, ())), None)


def begin_noting(db: duckdb.DuckDBPyConnection) -> None:
    """Make the table of what the publication touches: tables, and their days; NULL where it may be any."""
    db.execute("create temp table touched_days (table_name varchar, day date)")


def is_followed(lake: Lake) -> bool:
    """Whether somebody follows the file by its digests."""
    return (lake.folder / FOLLOWERS).is_dir()


def note_days(
    db: duckdb.DuckDBPyConnection, names: Sequence[str], days: str, parameters: Mapping[str, object] | None = None
) -> None:
    """Note that the tables' rows of these days are touched. `days` is a statement that selects them, in SQL."""
    db.execute(
        f"insert into touched_days select * from (select unnest($names::varchar[])), ({days})",  # noqa: S608 - our own
        {"names": list(names), **(parameters or {})},
    )


def bring_digests_up_to_date(db: duckdb.DuckDBPyConnection, *, is_followed: bool) -> None:
    """Take away the digests of what was touched; where somebody follows, make all that are missing."""
    touched = "select 1 from touched_days where touched_days.table_name = digests.table_name"
    is_touched = f"exists ({touched} and (touched_days.day is null or touched_days.day = digests.day))"
    db.execute(f"delete from pipeline.digests where {is_touched if is_followed else 'true'}")  # noqa: S608 - our own
    for name in [*(table.name for table in tables()), *(mart.name for mart in marts())] if is_followed else ():
        if (day := day_column(name)) is not None:
            missing = db.execute(
                f"select distinct {quoted(day)} from {quoted(name)} "  # noqa: S608 - our own names, here and below
                "except select day from pipeline.digests where table_name = $table",
                {"table": name},
            ).fetchall()
            if missing:
                columns = ", ".join(quoted(column) for column, *_ in db.execute(f"describe {quoted(name)}").fetchall())
                rows = f"from {quoted(name)} where {quoted(day)} in (select unnest($days::date[]))"
                db.execute(
                    f"insert into pipeline.digests {digests_of('$table', quoted(day), columns, rows)}",
                    {"table": name, "days": [one for (one,) in missing]},
                )


def digests_of(table: str, day: str, columns: str, rows: str) -> str:
    """The statement that makes the digests of rows, one a day. All is in SQL."""
    return (
        f"select {table}, day, count(*), bit_xor(hashed), sum(hashed) "  # noqa: S608 - our own names
        f"from (select {day} as day, hash({columns}) as hashed {rows}) group by day"
    )
