"""Which windows and pushed leads the staged files have, which days have others, and which files are damaged."""

import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

import duckdb

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.duck import connection, glob_literal, scratch_folder
from leads_pipeline.flatten.columns import windows_table
from leads_pipeline.lake import Lake


@dataclass(frozen=True, slots=True)
class StagedWindow:
    """A window as the staged files have it."""

    day: date
    scope: str
    rows: int
    looked_at: datetime
    fetched_at: datetime


def unstaged_days(lake: Lake, kind: LeadKind, since: date, before: date = date.max) -> list[date]:
    """Landed days of which a window's last answer, or a pushed lead, isn't staged.

    Before `since` only those of which no window ever was. Decided by what the files say, as a run may have been
    killed between landing and staging. An answer that lacks a piece is no look at a closed window, but the leads that
    it added count: so what changed last is compared as well. Raises StorageError.
    """
    staged: defaultdict[date, set[tuple[str, datetime, datetime]]] = defaultdict(set)
    for window in staged_windows(lake, kind):
        staged[window.day].add((window.scope, window.looked_at, window.fetched_at))
    landed_days = [day for day in lake.landed_days(kind) if day < before]
    asked = [day for day in landed_days if day >= since or day not in staged]
    unstaged = _days_with_unstaged_pushes(lake, kind, asked)
    for day in asked:
        landed = {(window.scope, window.looked_at, window.fetched_at) for window in lake.known_windows(kind, day)}
        if not landed <= staged[day]:
            unstaged.add(day)
    return sorted(unstaged)


def _days_with_unstaged_pushes(lake: Lake, kind: LeadKind, days: Iterable[date]) -> set[date]:
    """Those of the days that have a pushed lead of which neither that version is staged nor a newer one."""
    pushed = {day: leads for day in days if (leads := lake.pushed_leads(kind, day))}
    paths = [path for day in pushed if (path := lake.whole_staged(kind.table, day)) is not None]
    staged: dict[tuple[date, str], int] = {}
    if paths:
        with querying(lake) as db:
            rows = db.execute(
                """
                select window_day, lead_id, coalesce(sequence, epoch_us(fetched_at))
                from (
                    select null::bigint as sequence where false
                    union all by name
                    from read_parquet($files, hive_partitioning = false, union_by_name = true)
                )
                where lead_id in (select unnest($ids::varchar[]))
                """,
                {
                    "files": list(map(glob_literal, paths)),
                    "ids": [lead_id for leads in pushed.values() for lead_id in leads],
                },
            ).fetchall()
        staged = {(day, lead_id): sequence for day, lead_id, sequence in rows}
    return {
        day
        for day, leads in pushed.items()
        if any(staged.get((day, lead_id), -1) < sequence for lead_id, sequence in leads.items())
    }


def days_without_staged(lake: Lake, kind: LeadKind) -> list[date]:
    """Landed days of which nothing is staged, whatever became of their staged files. Raises StorageError."""
    return lake.landed_days(kind, but={file.day for file in lake.staged_files(windows_table(kind))})


def damaged_files(lake: Lake) -> list[str]:
    """Files that are damaged or missing and that nothing whole has replaced, by their paths in the data folder.

    They are files in quarantine/, and raw files of windows that are staged. Raises StorageError.
    """
    aside = lake.unreplaced()
    missing = {
        lake.window_path(kind, window.day, window.scope) for kind in LEAD_KINDS for window in staged_windows(lake, kind)
    }
    missing -= {lake.origin_of(path) for path in aside}
    paths = [*aside, *(path for path in missing if not path.exists())]
    return sorted(path.relative_to(lake.folder).as_posix() for path in paths)


def damage_message(files: Sequence[str]) -> str:
    """Say which files are damaged and what to do about it."""
    named = ", ".join(files[:FILES_NAMED])
    more = f" and {len(files) - FILES_NAMED} more" if len(files) > FILES_NAMED else ""
    return (
        f"{len(files)} files are damaged or missing: {named}{more}. What is staged and published of their days stays. "
        "A window that the portal still has is pulled again by itself. Else put the file back from a backup, or do "
        "without it: data/README.md says how, under 'What is damaged'."
    )


FILES_NAMED: Final = 10


def staged_ids(lake: Lake, kind: LeadKind, day: date) -> set[str]:
    """Every lead of the day's staged file, by its id; none where there is no whole file."""
    path = lake.whole_staged(kind.table, day)
    if path is None:
        return set()
    with querying(lake) as db:
        rows = db.execute("select lead_id from read_parquet($file)", {"file": glob_literal(path)}).fetchall()
    return {lead_id for (lead_id,) in rows}


def staged_windows(lake: Lake, kind: LeadKind) -> list[StagedWindow]:
    """The windows of every staged day, by day and scope. Those of a damaged file aren't among them."""
    table = windows_table(kind)
    files = [file.path for file in lake.staged_files(table) if lake.whole_staged(table, file.day)]
    if not files:
        return []
    with querying(lake) as db:
        rows = db.execute(
            """
            select window_day, scope, rows, coalesce(looked_at, fetched_at), fetched_at
            from (
                select null::timestamptz as looked_at where false
                union all by name
                from read_parquet($files, hive_partitioning = false, union_by_name = true)
            )
            order by window_day, scope
            """,
            {"files": list(map(glob_literal, files))},
        ).fetchall()
    return [StagedWindow(*row) for row in rows]


@contextmanager
def querying(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of its own, whose folder goes as those of killed readers of the warehouse do."""
    name = f"query-{secrets.token_hex(8)}"
    with lake.reading(name), scratch_folder(lake, name), connection(lake, f"{name}/query") as db:
        yield db
