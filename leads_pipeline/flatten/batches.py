"""Days flattened together: taking them, writing their staged files, one that fails alone."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa

from leads_pipeline import helper
from leads_pipeline.contract import LeadKind
from leads_pipeline.domain.cutting import MESSAGE
from leads_pipeline.duck import SCRATCH_ROOT, glob_literal, literal, quoted
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.flatten.beside import AskedDays, Beside, Days, Flattened, Left
from leads_pipeline.flatten.columns import (
    WINDOW_COLUMNS,
    more_columns,
    staged_columns,
    staged_tables,
    windows_table,
)
from leads_pipeline.flatten.counts import StagedDay, balanced, count_days, count_unexplained
from leads_pipeline.flatten.lost import refuse_damaged, refuse_lost
from leads_pipeline.flatten.raw import read_part, read_raw, second_names
from leads_pipeline.flatten.statement import make_tables
from leads_pipeline.flatten.windows import querying
from leads_pipeline.flatten.workspace import Workspace, let_go
from leads_pipeline.lake import Lake, LandedWindow
from leads_pipeline.window import offsets

# Days with fewer leads are flattened together, as planning a statement takes as long as flattening 3,000. The number of
# days bounds how many files of days with few leads are held at once.
BATCH_LEADS: Final = 10_000
BATCH_DAYS: Final = 31

# So many more, to go by the days that were taken, are worth the quarter of a second in which another process begins.
BESIDE_FROM_LEADS: Final = 10_000


def flatten_day(lake: Lake, kind: LeadKind, day: date, zone: ZoneInfo) -> StagedDay:
    """Flatten one day, as flatten_days does. Raises StorageError."""
    ((_, staged),) = flatten_days(lake, kind, [day], zone)
    if isinstance(staged, LeadsPipelineError):
        raise staged
    return staged


def flatten_days(
    lake: Lake, kind: LeadKind, days: Iterable[date], zone: ZoneInfo
) -> Iterator[tuple[date, StagedDay | LeadsPipelineError]]:
    """Write each day's staged files from its raw files. The same raw files always give the same bytes.

    No lead ever leaves a day's raw files, unless the suppression list refuses it. So a day fails with LostRawError if a
    raw file is damaged, or if its files lack a lead that is staged.

    Each lead id once within the day: the highest `sequence` wins, then the highest position, then the first scope.
    `lead_day` is the local day of `created_at` in `zone`, so that a lead at exactly midnight, which the windows of two
    days hold, has one; where the moment is unknown it is the window's day.

    Days come out as they are done. One that fails, or whose rows don't add up, fails alone: its own files stay as they
    were. Days are flattened together, up to BATCH_LEADS.
    """
    left = Left(days)
    # The clocks and not the zone's name, which another process may read something else under.
    clocks = offsets(zone)
    beside = Beside(left, __name__, (lake.folder, lake.suppression.folder, kind, clocks))
    # A lake with a store would take its secrets there.
    begin = beside.begin if lake.store is None else None
    try:
        with Workspace(lake, kind, clocks) as workspace:
            while left:
                while left:
                    yield from _flatten_next(workspace, left, begin)
                    yield from beside.flattened()
                beside.end()
                yield from beside.flattened()
    finally:
        left.clear()
        beside.end()


def main() -> None:
    """Flatten beside the process that began this one, as long as it has days."""
    connection, _ = helper.parent()
    helper.forward_logs(connection.send)
    with suppress(EOFError, OSError):  # there is nobody any more who would want to know
        folder, privacy, kind, clocks = connection.recv()
        with Workspace(Lake(folder, privacy), kind, clocks) as workspace:
            while flattened := _flatten_next(workspace, AskedDays(connection)):
                connection.send(flattened)


def _flatten_next(workspace: Workspace, left: Days, begin: Callable[[], None] | None = None) -> list[Flattened]:
    """Flatten as many of the days as make a batch. `begin` is called where there are many more."""
    taken: list[date] = []
    try:
        return [(staged.day, staged) for staged in _flatten_batch(workspace, left, taken, begin)]
    except LeadsPipelineError as error:
        if len(taken) == 1:
            return [(taken[0], error)]
        return [one for day in taken for one in _flatten_next(workspace, Left([day]))]


def _flatten_batch(
    workspace: Workspace, left: Days, taken: list[date], begin: Callable[[], None] | None
) -> list[StagedDay]:
    lake, kind = workspace.lake, workspace.kind
    with ExitStack() as stack:
        targets: dict[date, dict[str, Path]] = {}
        windows: list[LandedWindow] = []
        files: dict[Path, int | None] = {}
        leads = 0
        while len(taken) < BATCH_DAYS and leads < BATCH_LEADS:
            if (day := left.take(len(taken), leads)) is None:
                break
            taken.append(day)
            targets[day] = stack.enter_context(lake.replacing_staged(staged_tables(kind), day))
            landed, pushed = lake.landed_windows(kind, day), lake.pushed_files(kind, day)
            refuse_damaged(lake, kind, day)
            windows += landed
            files |= {window.path: window.rows for window in landed}
            files |= dict.fromkeys(pushed)
            leads += sum(window.rows for window in landed)
            if begin and len(left) * leads >= BESIDE_FROM_LEADS * len(taken):
                begin()
        if not taken:
            return []
        # The day's lock is held, so the name is this thread's.
        name = f"{_SCRATCH}{taken[0].isoformat()}"
        frozen = stack.enter_context(second_names(lake, name, list(files)))
        # The only batch, or the last of one process, may have two cores.
        is_alone = not left and not left.are_shared
        with workspace.batch(threads=min(2, os.cpu_count() or 1) if is_alone else 1) as db:
            db.execute("set preserve_insertion_order = false")  # nothing has one until it is written
            parts = read_raw(db, dict(zip(frozen, files.values(), strict=True)))
            _fill_windows(db, kind, windows)
            refuse_lost(db, lake, kind, taken, name)
            unexplained = _fill_tables(db, kind, parts)
            let_go(db)
            # Otherwise two threads may write a file's row groups of 122,880 rows in either order (seen).
            db.execute("set preserve_insertion_order = true")
            for day, paths in targets.items():
                _write(db, kind, day, paths)
            return [balanced(kind, staged) for staged in count_days(db, kind, targets, unexplained)]


def _fill_tables(db: duckdb.DuckDBPyConnection, kind: LeadKind, parts: Iterable[pa.Table]) -> Counter[date]:
    """Make the views of all leads and their children, a part at a time; how many leads are unexplained, by day.

    Each part has a schema of its own, in which all that needs the leads' texts is done: then these go, before the texts
    of the next part come.
    """
    unexplained: Counter[date] = Counter()
    schemas: list[str] = []

    for number, part in enumerate(parts):
        schemas.append(quoted(f"part {number}"))
        db.execute(f"create schema {schemas[-1]}; use {schemas[-1]}")
        odd_leads = read_part(db, kind, part)
        del part  # otherwise its texts stay until the next one comes
        make_tables(db, kind, odd_leads=odd_leads)
        unexplained.update(count_unexplained(db, kind))
        for column in more_columns(kind):
            db.execute(f"alter table {quoted(kind.table)} drop column {column}")
    db.execute("use main")
    for table in kind.tables:
        rows = " union all ".join(f"from {schema}.{quoted(table)}" for schema in schemas)
        db.execute(f"create view {quoted(table)} as {rows}")
    return unexplained


_SCRATCH: Final = "staged-"


def sweep_stagings(lake: Lake) -> None:
    """Remove what killed stagings left: second names, which keep raw files that have since been replaced.

    A day's lock is held for as long as its folders are in use, so those of a day that can be had at once are nobody's.
    """
    for folder in (lake.folder / SCRATCH_ROOT).glob(f"{_SCRATCH}????-??-??-*"):
        with suppress(StorageError, ValueError):
            day = date.fromisoformat(folder.name.removeprefix(_SCRATCH)[:10])
            with lake.holding_staged(day, timeout_seconds=0):
                shutil.rmtree(folder, ignore_errors=True)


# Parquet's statistics hold values, and zstd's level 3 is raw's; neither costs speed.
STAGED_FORMAT: Final = "(format parquet, compression zstd, compression_level 3)"


def _fill_windows(db: duckdb.DuckDBPyConnection, kind: LeadKind, landed: Sequence[LandedWindow]) -> None:
    """Make the table with one row per window that was read, so that the coverage comes the same way as the leads.

    A push lands none. Rows are counted and not taken from the footers, so that they agree with the leads beside them.
    """
    given = ", ".join(
        f"unnest(${c.name}::{c.type}[]) as {c.name}" for c in WINDOW_COLUMNS if c.name not in ("rows", "received")
    )
    db.execute(
        f"""
        create table {quoted(windows_table(kind))} as
        with windows as (select {given}),
        landed as (
            select scope, day as window_day, count(distinct lead_id) as rows
            from raw
            where source = 'pull'
            group by all
        )
        select * replace (coalesce(rows, 0)::bigint as rows), coalesce(rows, 0) + removed as received
        from windows
        left join landed using (scope, window_day)
        """,  # noqa: S608 - put together from constants alone
        {
            "scope": [window.scope for window in landed],
            "window_day": [window.day for window in landed],
            "window_start": [window.start for window in landed],
            "window_end": [window.end for window in landed],
            "removed": [window.removed for window in landed],
            "looked_at": [window.looked_at for window in landed],
            "fetched_at": [window.fetched_at for window in landed],
            "run_id": [window.run_id for window in landed],
            "attempts": [window.attempts for window in landed],
            "is_closed": [window.is_closed for window in landed],
            "is_partial": [window.is_partial for window in landed],
        },
    )


def _write(db: duckdb.DuckDBPyConnection, kind: LeadKind, day: date, targets: Mapping[str, Path]) -> None:
    """Write a day's rows of each table, sorted, so that they don't depend on how they came.

    Without what DuckDB knows of a column's values: what it writes shows whether other days of the batch have a NULL.
    """
    order = {kind.table: "lead_id", windows_table(kind): "scope"}
    db.execute("set disabled_optimizers = 'statistics_propagation'")
    for table, columns in staged_columns(kind).items():
        db.execute(
            f"""
            copy (
                select {", ".join(quoted(column.name) for column in columns)}
                from {quoted(table)}
                where window_day = date '{day}'
                order by {order.get(table, "lead_id, position")}
            ) to {literal(str(targets[table]))} {STAGED_FORMAT}
            """  # noqa: S608 - only our own names
        )
    db.execute("reset disabled_optimizers")


def rewrite_staged(lake: Lake, kind: LeadKind, day: date, out: Collection[str], cleared: Collection[str] = ()) -> None:
    """Take leads, and messages of others, out of the staged files of a day that can't be staged anew from raw.

    Raises StorageError, also if one of the files is damaged.
    """
    tables = [table for table in kind.tables if lake.staged_path(table, day).exists()]
    with lake.replacing_staged(tables, day) as targets, querying(lake) as db:
        for table in tables:
            path = lake.whole_staged(table, day)
            if path is None:
                raise StorageError(f"{table} of {day} is damaged in staged/, and may hold leads that are erased.")
            order = "lead_id" if table == kind.table else "lead_id, position"
            selected = f"* replace (if(lead_id in (select unnest($cleared)), '', {MESSAGE}) as {MESSAGE})"
            rows = (
                f"select {selected if table == kind.table else '*'} "  # noqa: S608 - our own names
                "from read_parquet($path, hive_partitioning = false) "
                f"where lead_id not in (select unnest($out)) order by {order}"
            )
            parameters = {"path": glob_literal(path), "out": [*out], "cleared": [*cleared]}
            used = {name: value for name, value in parameters.items() if f"${name}" in rows}
            db.execute(f"copy ({rows}) to {literal(str(targets[table]))} {STAGED_FORMAT}", used)


if __name__ == "__main__":
    main()
