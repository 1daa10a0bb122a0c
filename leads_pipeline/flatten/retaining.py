"""What a day's raw files have lost and was staged or published before: it stays."""

import logging
from collections.abc import Mapping, Sequence, Set
from datetime import date

import duckdb

from leads_pipeline.contract import LeadKind
from leads_pipeline.duck import WAREHOUSE_FILE, files_of_days, literal, quoted
from leads_pipeline.flatten.columns import staged_columns, staged_tables, windows_table
from leads_pipeline.flatten.raw import second_names
from leads_pipeline.lake import Lake

logger = logging.getLogger(__name__)


def staged_before(
    db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, days: Sequence[date], name: str
) -> Mapping[str, str]:
    """For each staged table a statement of what was staged of these days, whose locks are held.

    Where a staged file is gone or damaged, it is what is published of its day.
    """
    columns: dict[str, list[str]] = {}
    unread: dict[str, list[date]] = {}
    for table in staged_tables(kind):
        paths = {day: lake.whole_staged(table, day) for day in days}
        unread[table] = [day for day, path in paths.items() if path is None]
        if files := [path for path in paths.values() if path is not None]:
            variable = f"before {table}"
            source = files_of_days(db, variable, files)
            columns.setdefault(table, []).append(_as_declared(db, kind, table, source, "day"))
    published = lake.folder / WAREHOUSE_FILE
    if any(unread.values()) and published.exists():
        with second_names(lake, f"{name}-published", [published]) as [file]:
            try:
                db.execute(f"attach {literal(str(file))} as published (read_only)")
                tables = "select table_name from duckdb_tables() where database_name = 'published'"
                tables_present = {name for (name,) in db.execute(tables).fetchall()}
                for table, missing in unread.items():
                    # A list that was declared since has no table there yet.
                    if missing and _published_name(kind, table) in tables_present:
                        columns.setdefault(table, []).append(_published(db, kind, table, missing))
            except duckdb.Error as error:
                # It is built anew from what is staged, so it must keep no day from being staged.
                logger.warning("%s can't be read (%s): nothing is retained from it.", published, type(error).__name__)
            db.execute("detach database if exists published")
    return {table: " union all by name ".join(selects) for table, selects in columns.items()}


def _published(db: duckdb.DuckDBPyConnection, kind: LeadKind, table: str, days: Sequence[date]) -> str:
    """What is published of those days of the table, as a copy, so that a damaged file is noticed now."""
    is_windows = table == windows_table(kind)
    day = "window_day" if is_windows or table == kind.table else "day"
    db.execute(
        f"create table {quoted(f'published {table}')} as "  # noqa: S608 - only our own names
        f"select * from published.{quoted(_published_name(kind, table))} "
        f"where {day} in (select unnest($days::date[])){f' and kind = {literal(kind.name)}' if is_windows else ''}",
        {"days": list(days)},
    )
    return _as_declared(db, kind, table, quoted(f"published {table}"), day)


def _published_name(kind: LeadKind, table: str) -> str:
    return "landed_windows" if table == windows_table(kind) else table


def _as_declared(db: duckdb.DuckDBPyConnection, kind: LeadKind, table: str, source: str, day: str) -> str:
    """The columns of the table that the source has or that others stand in for, in today's types; its day as well."""
    columns_present = {name for name, *_ in db.execute(f"describe select * from {source}").fetchall()}  # noqa: S608
    read = {
        column.name: f"try_cast({quoted(column.name)} as {column.type})"
        if column.name in columns_present
        else column.stand_in
        for column in staged_columns(kind)[table]
        if column.name != "window_day"
    }
    selected = ", ".join(f"{expression} as {quoted(name)}" for name, expression in read.items() if expression)
    return f"select {selected}, {day} as window_day from {source} as staged"  # noqa: S608 - only our own names


def find_lost(db: duckdb.DuckDBPyConnection, kind: LeadKind, before: Mapping[str, str], given_up: Set[str]) -> None:
    """Make the table `lost` of the leads that raw has lost, and add its windows.

    Lost is a lead of which no raw file of its day has that version or a newer one any more. `is_held` says that raw
    has an older one, which it replaces.
    """
    windows = quoted(windows_table(kind))
    db.execute("create table lost (lead_id varchar, window_day date, is_held boolean)")
    db.execute("set variable given_up = $given_up::varchar[]", {"given_up": sorted(given_up)})
    if windows_table(kind) in before:
        db.execute(
            f"""
            insert into {windows} by name
            select former.*, true as is_damaged
            from (select columns(lambda c: c <> 'is_damaged') from ({before[windows_table(kind)]})) as former
            anti join {windows} as landed on landed.scope = former.scope and landed.window_day = former.window_day
            where not list_contains(getvariable('given_up'), former.scope)
            """  # noqa: S608 - only our own names, here and below
        )
    if kind.table in before:
        db.execute(
            f"""
            insert into lost
            select former.lead_id, former.window_day, new.lead_id is not null
            from ({before[kind.table]}) as former
            left join (
                select lead_id, day, max(sequence) as sequence from raw group by lead_id, day
            ) as new on new.lead_id = former.lead_id and new.day = former.window_day
            where (new.sequence is null or new.sequence < former.sequence)
                and not list_contains(getvariable('given_up'), former.scope)
            """  # noqa: S608
        )


def retain(db: duckdb.DuckDBPyConnection, kind: LeadKind, before: Mapping[str, str]) -> None:
    """Add the leads of the table `lost`, with what belongs to them, to the kind's tables, which have nobody else's."""
    for table in kind.tables:
        if table in before:
            db.execute(
                f"insert into {quoted(table)} by name "  # noqa: S608
                f"select * replace (coalesce(_problems, []) as _problems) from ({before[table]}) "
                "where (lead_id, window_day) in (select (lead_id, window_day) from lost)"
            )
    # It may have been staged with another time zone.
    db.execute(
        f"update {quoted(kind.table)} set lead_day = coalesce(local_time(created_at)::date, window_day)"  # noqa: S608
    )
