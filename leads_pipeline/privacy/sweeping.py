"""Bringing a data folder in line with the suppression list, before anything of it is published.

Belongs here: going through raw files, rows set aside, deliveries that wait and staged days. Doesn't: the gate that each
passes (lake/gate.py), publishing (warehouse/), whom an entry means (suppression/).

The list comes first: from then on nobody lands what it keeps out. Each step is done under the lock of what it changes,
whole or not at all. The folder notes how far it follows the list once that is published, so a sweep that is killed is
finished by whoever publishes next.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.cutting import MESSAGE
from leads_pipeline.domain.person import LeadRow, role_of
from leads_pipeline.duck import SCRATCH_ROOT
from leads_pipeline.durable import reading, storing
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.flatten.batches import flatten_days, rewrite_staged
from leads_pipeline.flatten.columns import windows_table
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.flatten.windows import days_without_staged
from leads_pipeline.lake import Lake
from leads_pipeline.lake.gate import Verdict
from leads_pipeline.spool import Spool

# Of the folders that DuckDB spills to while the folder is gone through.
SCRATCH: Final = "sweep-"

Day = tuple[str, date]


@dataclass(slots=True)
class Swept:
    """What going through the folder did: leads that left raw, deliveries, days that were staged anew.

    `failed` says what couldn't be done, by day or file; what it is about may still be there. `mark` is that of the list
    that the folder follows now.
    """

    leads: int = 0
    files: int = 0
    deliveries: int = 0
    days: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    mark: str = ""


@contextmanager
def in_line(lake: Lake, zone: ZoneInfo) -> Iterator[Swept]:
    """Have the folder follow the list while something is published; remember it once that went well."""
    swept = sweep(lake, zone, mark=lake.swept_to()) if lake.is_behind else Swept(mark=lake.swept_to())
    yield swept
    if not swept.failed:
        lake.note_swept(swept.mark)


def sweep(lake: Lake, zone: ZoneInfo, *, since_ns: int = 0, mark: str = "") -> Swept:
    """Take what the list keeps out from raw files, deliveries and staged days, and land what was lifted.

    Files that haven't changed since `since_ns` are left out. `mark` is that of the list that the folder follows, if it
    does. A publication has to follow. Raises StorageError if the list can't be read.
    """
    swept = Swept()
    with lake.sweeping():
        while True:
            suppressed = lake.suppression.read()
            by_id = suppressed.has_only_learned_since(mark)
            days = _sweep_files(lake, swept, since_ns, by_id=by_id) if suppressed else set()
            if suppressed:
                swept.deliveries += Spool(lake).drop_erased()
            _stage(lake, days, zone, swept, since_ns)
            _sweep_unfinished(lake)
            # A lead that was met by its contact has other versions, with other contacts; now its id is known.
            mark, since_ns = suppressed.mark, 0
            swept.mark = mark
            if lake.suppression.read().mark == mark:
                return swept


def sweep_what_appeared(lake: Lake, zone: ZoneInfo) -> Swept:
    """Sweep the files that appeared since the last call, which somebody may have put back by hand.

    Those that landing and staging wrote are among them, and have nothing that the list keeps out.
    """
    now = time.time_ns()
    swept = sweep(lake, zone, since_ns=lake.looked_at_ns())
    if not swept.failed:
        lake.note_looked_at(now)
    return swept


def _sweep_files(lake: Lake, swept: Swept, since_ns: int, *, by_id: bool) -> set[Day]:
    """Have each file pass the gate; the days that changed."""
    days: set[Day] = set()
    for path in [*lake.restricted_files(), *lake.raw_lead_files()]:
        if not _changed_since(path, since_ns):
            continue
        kind, day = _day_of(path)
        try:
            about_to_change = partial(_unstage, lake, kind, day)
            if path.is_relative_to(lake.folder / "restricted"):
                gone = lake.sweep_restricted(path, about_to_change)
            else:
                gone = lake.pass_again(path, about_to_change, by_id=by_id)
        except StorageError as error:
            lake.suppression.read()  # which raises if the list is at fault
            swept.failed[path.relative_to(lake.folder).as_posix()] = str(error)
            continue
        if gone is not None:
            swept.leads += len(gone)
            swept.files += 1
            days.add((kind.name, day))
    return days


def _changed_since(path: Path, since_ns: int) -> bool:
    """By the moment that no copying tool can set back."""
    with reading(path), suppress(FileNotFoundError):
        return path.stat().st_ctime_ns >= since_ns
    return False


def _day_of(path: Path) -> tuple[LeadKind, date]:
    table, day = path.parts[-4], path.parts[-3].removeprefix("day=")
    return next(kind for kind in LEAD_KINDS if kind.table == table), date.fromisoformat(day)


def _unstage(lake: Lake, kind: LeadKind, day: date) -> None:
    """Have the day count as not staged, so that it is staged anew even if this process is killed after raw changed."""
    lake.want_rebuild()
    path = lake.staged_path(windows_table(kind), day)
    with storing(path), suppress(FileNotFoundError):
        path.replace(_aside(path))


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.aside")


def _stage(lake: Lake, changed: set[Day], zone: ZoneInfo, swept: Swept, since_ns: int) -> None:
    """Stage anew the days that changed, those that aren't staged, and those that hold what the list keeps out."""
    for kind in LEAD_KINDS:
        held = holding(lake, kind, since_ns)
        days = {day for name, day in changed if name == kind.name} | {*days_without_staged(lake, kind)} | {*held}
        for day, staged in flatten_days(lake, kind, sorted(days), zone):
            try:
                windows = lake.staged_path(windows_table(kind), day)
                if isinstance(staged, LostRawError):
                    if day not in held and not _aside(windows).exists():
                        continue  # it is told elsewhere
                    verdict = held.get(day, Verdict())
                    rewrite_staged(lake, kind, day, verdict.out, [lead_id for _, lead_id in verdict.cleared])
                    with suppress(FileNotFoundError):
                        _aside(windows).replace(windows)
                elif isinstance(staged, LeadsPipelineError):
                    raise staged
                _aside(windows).unlink(missing_ok=True)
                swept.days[kind.name] += 1
            except LeadsPipelineError as error:
                swept.failed[f"staged {kind.name} leads of {day}"] = str(error)


def holding(lake: Lake, kind: LeadKind, since_ns: int = 0) -> dict[date, Verdict]:
    """The days whose staged leads the list keeps out, or whose messages are to go, and what it says of each."""
    days: dict[date, Verdict] = {}
    for file in lake.staged_files(kind.table) if lake.suppression.read() else ():
        # A damaged one is staged anew by itself.
        if _changed_since(file.path, since_ns) and (path := lake.whole_staged(kind.table, file.day)):
            names = [one.name for one in pq.ParquetFile(path).schema_arrow]
            shown = [one for one in names if one in _STAGED or role_of(one)]
            rows = pq.ParquetFile(path).read(shown, use_threads=False).to_pylist()
            verdict = lake.verdict(_lead_row(kind, file.day, row) for row in rows)
            messages = {(kind.name, row["lead_id"]) for row in rows if row.get(MESSAGE)}
            if verdict.out or verdict.cleared & messages:
                days[file.day] = verdict
    return days


_STAGED: Final = frozenset({"lead_id", "created_at", "_extra", MESSAGE})


def _lead_row(kind: LeadKind, day: date, row: Mapping[str, Any]) -> LeadRow:
    """A staged row, as far as its columns show whose it is."""
    extra = json.loads(row["_extra"]) if row.get("_extra") else {}
    texts = {name: value for name, value in row.items() if name not in ("_extra", MESSAGE)}
    return LeadRow(kind.name, row["lead_id"], day, json.dumps({**texts, "_extra": extra}, default=str))


def _sweep_unfinished(lake: Lake) -> None:
    """Remove what killed writers left where nothing finished is beside it."""
    for leftover in (lake.folder / "staged").glob(".writing-*"):
        with suppress(StorageError, ValueError, OSError):
            day = date.fromisoformat(leftover.name.removeprefix(".writing-"))
            with lake.holding_staged(day):
                shutil.rmtree(leftover, ignore_errors=True)
    for leftover in (lake.folder / SCRATCH_ROOT).glob(f"{SCRATCH}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    lake.sweep_raw_leftovers()
