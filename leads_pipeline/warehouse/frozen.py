"""Daily figures of days whose leads are removed: counted once from the published file, and part of the marts for ever.

Belongs here: which marts have them, counting them, loading them. Doesn't: their files (lake/frozen.py), which days
are removed when (privacy/retire.py).

A lead is counted in the frozen figures or in what is made of the leads that are there, never in both: by its day, and
where it was held by no window but one of a removed day, by that.
"""

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.duck import glob_literal, quoted
from leads_pipeline.flatten.columns import WINDOW_COLUMNS
from leads_pipeline.flatten.statement import define_local_time
from leads_pipeline.lake import Lake
from leads_pipeline.lake.frozen import DAYS_FACT
from leads_pipeline.warehouse.schema import FROZEN
from leads_pipeline.warehouse.sql_marts import Mart, marts
from leads_pipeline.window import offsets

# How the counts of one row of a mart come together, of leads that are there and of those that were. The other columns
# say which row it is.
MEASURES: Final = {
    "leads": "sum",
    "people": "sum",
    "viewings": "sum",
    "estimates": "sum",
    "total_estimate": "sum",
    "lowest_estimate": "min",
    "highest_estimate": "max",
}

# What follows from the others, whenever it is asked for.
_DERIVED: Final = {"branch": "branch_of(scope)"}

_WINDOWS: Final = "landed_windows"
_REMOVED: Final = "removed_days"


def frozen_marts() -> list[Mart]:
    """The marts by day that keep the figures of removed days: those that say nothing of single people."""
    return [mart for mart in marts() if mart.follows == "lead_day" and "person" not in mart.columns]


def statement_of(mart: Mart, *, is_touched: bool = False) -> str:
    """The mart's statement, with the figures of removed days; of the touched days alone, where those are asked for."""
    if mart not in frozen_marts():
        return mart.statement
    names = [name for name in mart.columns if name not in _DERIVED]
    columns = ", ".join(map(quoted, names))
    keys = ", ".join(quoted(name) for name in names if name not in MEASURES)
    selected = ", ".join(
        f"{MEASURES[name]}({quoted(name)}) as {quoted(name)}" if name in MEASURES else quoted(name) for name in names
    )
    types = {column.name: column.type for column in FROZEN.columns}
    typed = ", ".join(
        f"{_DERIVED.get(name) or f'{quoted(name)}::{types[name]}'} as {quoted(name)}" for name in mart.columns
    )
    touched = "and lead_day in (select lead_day from touched)" if is_touched else ""
    return f"""
        with there as ({mart.statement}),
        together as (
            select {columns} from there
            where lead_day not in (select window_day from pipeline.frozen where mart = '{_REMOVED}')
            union all
            select {columns} from pipeline.frozen where mart = '{mart.name}' {touched}
        )
        select {typed}
        from (select {selected} from together group by {keys})
        order by {keys}
    """  # noqa: S608 - put together from constants alone


def load_frozen(db: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Have the open file hold the figures of the lake's files, and note which days of marts are touched by that."""
    touched = "insert into touched by name select distinct lead_day from pipeline.frozen where lead_day is not null"
    db.execute(touched)
    db.execute("delete from pipeline.frozen")
    files = [glob_literal(path) for path in lake.frozen_files().values()]
    if files:
        db.execute(
            "insert into pipeline.frozen by name from read_parquet($files, union_by_name = true)", {"files": files}
        )
    db.execute(touched)
    # A removed day itself, of which nothing was counted, too.
    db.execute(
        f"insert into touched by name select window_day as lead_day from pipeline.frozen where mart = '{_REMOVED}'"  # noqa: S608
    )
    db.execute(f"delete from {_WINDOWS} where window_day in (select window_day from pipeline.frozen)")  # noqa: S608
    columns = ", ".join(("kind", *(quoted(column.name) for column in WINDOW_COLUMNS)))
    db.execute(
        f"insert into {_WINDOWS} by name select {columns} from pipeline.frozen where mart = '{_WINDOWS}'"  # noqa: S608
    )


def write_figures(
    db: duckdb.DuckDBPyConnection, lake: Lake, days: Sequence[date], zone: ZoneInfo, target: Path
) -> None:
    """Count what goes with these days' windows in the open file, as it was published, into a Parquet file.

    What goes is each lead that lies in no window but theirs, and each whose own day is one of them: counted so far, and
    from then on in this file. The file was made from the lake's files as they are, and the warehouse's lock is held.
    """
    (file,) = db.execute("select current_database()").fetchall()[0]
    define_local_time(db, offsets(zone))
    db.execute("create temp table going_days as select unnest($days::date[]) as day", {"days": list(days)})
    gone = f"select window_day from {quoted(file)}.pipeline.frozen where mart = '{_REMOVED}'"  # noqa: S608
    for kind in LEAD_KINDS:
        published, going = f"{quoted(file)}.main.{quoted(kind.table)}", quoted(f"going_{kind.table}")
        db.execute(
            f"""
            create temp table {going} as
            select lead_id from {published}
            where lead_day in (from going_days)
            union all
            select lead_id from {published}
            where window_day in (from going_days) and lead_day not in (from going_days) and lead_day not in ({gone})
            """  # noqa: S608 - only our own names, here and below
        )
        if files := [glob_literal(one.path) for one in lake.staged_files(kind.table) if one.day not in days]:
            # One of midnight, say, that the window of its own day holds as well.
            db.execute(
                f"delete from {going} where lead_id in (select lead_id from read_parquet($files)) "  # noqa: S608
                f"and lead_id in (select lead_id from {published} where lead_day not in (from going_days))",
                {"files": files},
            )
        db.execute(
            f"create temp view {quoted(kind.table)} as "  # noqa: S608
            f"select * from {published} where lead_id in (from {going})"
        )
    columns = ", ".join(f"{quoted(column.name)} {column.type}" for column in FROZEN.columns)
    db.execute(f"create temp table frozen ({columns})")
    for mart in frozen_marts():
        kept_columns = ", ".join(quoted(name) for name in mart.columns if name not in _DERIVED)
        db.execute(
            f"insert into frozen by name select '{mart.name}' as mart, {kept_columns} from ({mart.statement})"  # noqa: S608
        )
    db.execute(
        f"insert into frozen by name select '{_WINDOWS}' as mart, * from {quoted(file)}.main.{_WINDOWS} "  # noqa: S608
        "where window_day in (from going_days)"
    )
    db.execute(f"insert into frozen by name select '{_REMOVED}' as mart, day as window_day from going_days")  # noqa: S608
    named = " ".join(sorted(map(str, days)))
    db.execute(
        f"copy (from frozen order by all) to $target (format parquet, compression zstd, "
        f"kv_metadata {{{DAYS_FACT}: '{named}'}})",
        {"target": str(target)},
    )
