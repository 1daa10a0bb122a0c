"""Which of a lead's versions counts, over all staged days.

Belongs here: the staged files as they are during a publication, winners, what they replace. Doesn't: loading them
(loading.py).
"""

from collections.abc import Iterable, Set
from datetime import date
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.contract import LeadKind
from leads_pipeline.duck import files_of_days, link_or_copy, quoted
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.columns import staged_columns
from leads_pipeline.flatten.kept_out import ids_out
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse.sql_marts import followed_columns

_SEQUENCE: Final = "sequence"


class BrokenStagedError(StorageError):
    """A staged file was damaged since it was loaded, and has to be read again for leads that another day lost."""

    def __init__(self, kind: LeadKind, day: date) -> None:
        super().__init__(f"The staged {kind.name} leads of {day} are damaged. The day is staged anew.")
        self.kind = kind
        self.day = day


class HeldFiles:
    """The kind's staged files as they are now, for as long as the folder that holds them."""

    def __init__(self, db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, folder: Path) -> None:
        self._db = db
        self._lake = lake
        self._kind = kind
        self._folder = folder
        self._held: set[date] = set()

    def hold(self, days: Iterable[date]) -> None:
        """Hold the files of these days; those of one day belong together."""
        for day in set(days) - self._held:
            with self._lake.holding_staged(day):
                for table in staged_columns(self._kind):
                    path = self._lake.staged_path(table, day)
                    if path.exists():
                        if self._lake.whole_staged(table, day) is None:
                            raise BrokenStagedError(self._kind, day)
                        link_or_copy(path, self._folder / table / f"day={day.isoformat()}" / path.name)
            self._held.add(day)

    def select(self, table: str, *more: str) -> str:
        """`select … from … as staged` over the held files of the table, with the day of each as `staged.day`.

        A file from before a field was declared lacks its column, which is then what stands in for it, mostly NULL.
        """
        paths = sorted((self._folder / table).glob("*/*.parquet"))
        columns = staged_columns(self._kind)[table]
        if paths:
            source = files_of_days(self._db, table, paths)
            described = self._db.execute(f"describe select * from {source}").fetchall()  # noqa: S608 - no values
            present = {name for name, *_ in described}
        else:
            present = {column.name for column in columns}
            nulls = ", ".join(f"null::{column.type} as {quoted(column.name)}" for column in columns)
            source = f"(select null::date as day, {nulls} where false)"
        selected = list(more)
        for column in columns:
            values = [f"staged.{quoted(column.name)}"] if column.name in present else []
            values += [column.stand_in] if column.stand_in else []
            selected += [f"coalesce({', '.join(values)}) as {quoted(column.name)}"] if len(values) > 1 else []
            selected += [f"{values[0]} as {quoted(column.name)}"] if len(values) == 1 else []
        return f"select {', '.join(selected)} from {source} as staged"  # noqa: S608 - only our own names


def find_winners(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, files: HeldFiles) -> None:
    """Make the tables `winners`, which leads are to be loaded from which day's file, and `loaded`, what they replace.

    The highest `sequence` wins, then the later day. A lead that the changed days had and no longer have, or only in an
    older version, may still stand in other days' files: those are read for such leads alone, which is rare.
    """
    leads = quoted(kind.table)
    db.execute(
        f"""
        create or replace temp table versions as
        select lead_id, day, sequence, true as is_staged
        from ({files.select(kind.table, "staged.day")}) as staged
        """  # noqa: S608 - only the contract's own names, here and below
    )
    # The one look at all leads, whatever their day: at their ids alone.
    db.execute(
        f"""
        create or replace temp table loaded as
        with looked_for as materialized (
            select rowid as row_id from {leads} where window_day in (from changed_days)
            union
            select rowid from {leads} where lead_id in (select lead_id from versions)
        )
        select rowid as row_id, lead_id, window_day, sequence, {", ".join(c for _, c in followed_columns(kind)[1:])}
        from {leads}
        where rowid in (select row_id from looked_for)
        """  # noqa: S608
    )
    db.execute(
        """
        create or replace temp table lost as
        select lead_id from loaded
        where window_day in (from changed_days) and not exists (
            select 1 from versions
            where versions.lead_id = loaded.lead_id
                and (versions.sequence, versions.day) >= (loaded.sequence, loaded.window_day)
        )
        """
    )
    if db.execute("select count(*) from lost").fetchall() != [(0,)]:
        files.hold(file.day for file in lake.staged_files(kind.table))
        db.execute(
            f"""
            insert into versions
            select lead_id, day, sequence, true
            from ({files.select(kind.table, "staged.day")}) as staged
            where lead_id in (from lost) and day not in (from changed_days)
            """  # noqa: S608
        )
    db.execute(
        """
        insert into versions
        select lead_id, window_day, sequence, false
        from loaded
        where window_day not in (from changed_days)
        """
    )
    # A staged file that was put back from a backup may hold who was erased since.
    if ids_out(db, lake, kind, "versions"):
        db.execute("delete from versions where lead_id in (from ids_out)")
    db.execute(
        """
        create or replace temp table winners as
        select lead_id, day
        from (
            select * from versions
            qualify row_number() over (partition by lead_id order by sequence desc, day desc, is_staged) = 1
        )
        where is_staged
        """
    )


def confirm(db: duckdb.DuckDBPyConnection, kind: LeadKind, files: HeldFiles, days: Set[date]) -> None:
    """Give what the portal only confirmed its new `sequence` in place, and take it out of `winners`.

    So a day that is pulled again costs little, and the marts of its leads nothing. Makes the table `confirmed` of these
    rows. Only of days whose child tables are what they were.
    """
    leads = quoted(kind.table)
    columns = [quoted(column.name) for column in staged_columns(kind)[kind.table] if column.name != _SEQUENCE]
    staged, loaded = (", ".join(f"{table}.{column}" for column in columns) for table in ("staged", "loaded"))
    db.execute(
        f"""
        create or replace temp table confirmed as
        select loaded.rowid as row_id, loaded.lead_id, loaded.window_day as day, staged.sequence
        from ({files.select(kind.table, "staged.day")}) as staged
        semi join winners on winners.lead_id = staged.lead_id and winners.day = staged.day
        join {leads} as loaded on loaded.lead_id = staged.lead_id and loaded.window_day = staged.day
        where staged.day in (select unnest($days::date[])) and loaded.window_day in (select unnest($days::date[]))
            and row({staged}) is not distinct from row({loaded})
        """,  # noqa: S608 - only the contract's own names, here and below
        {"days": [*days]},
    )
    sql = f"update {leads} set sequence = confirmed.sequence from confirmed where {leads}.rowid = row_id"  # noqa: S608
    db.execute(sql)
    db.execute("delete from winners where (lead_id, day) in (select lead_id, day from confirmed)")
