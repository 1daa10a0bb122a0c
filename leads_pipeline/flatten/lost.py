"""A day isn't staged from raw files that are damaged or lack leads: what was staged of it stays.

Belongs here: finding that out before the day is staged, and saying what to do. Doesn't: noticing that a file is damaged
(lake/).
"""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Final

import duckdb

from leads_pipeline.contract import LeadKind
from leads_pipeline.duck import WAREHOUSE_FILE, files_of_days, literal, quoted
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.kept_out import ids_out
from leads_pipeline.flatten.raw import second_names
from leads_pipeline.lake import Lake

logger = logging.getLogger(__name__)


class LostRawError(StorageError):
    """A raw file of the day is damaged or missing, and nothing whole has replaced it."""


def refuse_damaged(lake: Lake, kind: LeadKind, day: date) -> None:
    """Raise LostRawError if a raw file of the day was set aside and nothing is in its place. The day's lock is held."""
    aside = [path for path in lake.unreplaced(kind, day) if not lake.origin_of(path).exists()]
    if aside:
        files, origins = " ".join(map(str, aside)), " ".join(str(lake.origin_of(path)) for path in aside)
        raise LostRawError(
            f"Raw files of the {kind.name} leads of {day} are damaged. They were moved to {files}. {_STAYS} The "
            f"pipeline pulls a window again while the portal has it. Else restore {origins} from a backup. "
            f"{_without(lake, kind, day, files)}",
            reason="damaged file",
        )


def refuse_lost(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, days: Sequence[date], name: str) -> None:
    """Raise LostRawError if the view `raw` lacks a staged lead of these days, or has only an older version of one.

    If a day has no whole staged file, its published leads count. The days' locks are held. Leads that the suppression
    list keeps out may be missing.
    """
    staged = {day: lake.whole_staged(kind.table, day) for day in days}
    by_day = Counter[date]()
    if files := [path for path in staged.values() if path is not None]:
        source = files_of_days(db, "staged before", files)
        rows = f"(select null::bigint as sequence where false union all by name from {source})"  # noqa: S608 - our own
        by_day += _lost(db, lake, kind, rows, "coalesce(before.sequence, epoch_us(before.fetched_at))")
    if unread := [day for day, path in staged.items() if path is None]:
        by_day += _lost_of_published(db, lake, kind, unread, name)
    if by_day:
        day = min(by_day)
        raise LostRawError(
            f"Raw files of the {kind.name} leads of {day} are missing, or older ones are in their place: they lack "
            f"{by_day[day]} leads that are staged or published. {_STAYS} Restore that day below {lake.folder}/raw/ "
            f"from a backup. {_without(lake, kind, day)}",
            reason="missing file",
        )


_STAYS: Final = "What is staged and published of that day stays, and nothing else of it is staged."


def _without(lake: Lake, kind: LeadKind, day: date, files: str = "") -> str:
    paths = f"{files} {lake.folder}/staged/{kind.name}_*/day={day} {lake.folder / WAREHOUSE_FILE}".strip()
    return (
        "To do without these leads, delete what is left of them, and leads.duckdb, which is then built anew: "
        f"rm -r {paths} (see 'What is damaged' in data/README.md)"
    )


def _lost(
    db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, rows: str, sequence: str = "null::bigint"
) -> Counter[date]:
    """How many of the rows `raw` lacks in that version or a newer one, by day, but for those kept out."""
    db.execute(
        f"""
        create or replace table lost as
        select before.*
        from {rows} as before
        left join (select lead_id, day, max(sequence) as sequence from raw group by all) as now
        on now.lead_id = before.lead_id and now.day = before.day
        where now.sequence is null or now.sequence < {sequence}
        """  # noqa: S608 - only our own names
    )
    ids_out(db, lake, kind, "lost")
    left = "select day, count(*) from lost where lead_id not in (from ids_out) group by day"
    return Counter(dict(db.execute(left).fetchall()))


def _lost_of_published(
    db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, days: Sequence[date], name: str
) -> Counter[date]:
    published = lake.folder / WAREHOUSE_FILE
    if not published.exists():
        return Counter()
    with second_names(lake, f"{name}-published", [published]) as [file]:
        try:
            db.execute(f"attach {literal(str(file))} as published (read_only)")
            db.execute("set variable published_days = $days::date[]", {"days": list(days)})
            rows = (
                f"(select *, window_day as day from published.{quoted(kind.table)} "  # noqa: S608 - our own names
                "where list_contains(getvariable('published_days'), window_day))"
            )
            return _lost(db, lake, kind, rows)
        except duckdb.Error as error:
            # It is built anew from what is staged, so it must keep no day from being staged.
            logger.warning("%s can't be read (%s): the day isn't compared with it.", published, type(error).__name__)
            return Counter()
        finally:
            db.execute("detach database if exists published")
