"""The agency's own retention, the second half: whole leads go after so many days, and their daily figures stay.

Belongs here: which days are due and may go, in which order what is done. Doesn't: the figures (warehouse/frozen.py),
their file (lake/frozen.py), what goes of younger leads (retain.py).

The file of figures is what removes a day: before it is there nothing has changed, and from then on nobody looks at what
is left of the day's leads, which is deleted here, however often that is interrupted.
"""

import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import date
from typing import Final
from zoneinfo import ZoneInfo

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.damage import damages
from leads_pipeline.duck import connection, scratch_folder
from leads_pipeline.durable import reading, storing
from leads_pipeline.flatten.columns import staged_tables
from leads_pipeline.flatten.windows import unstaged_days
from leads_pipeline.lake import Lake
from leads_pipeline.lake.state import days_in
from leads_pipeline.warehouse import Warehouse, holding_version, write_figures

_SCRATCH: Final = "retiring"


@dataclass(slots=True)
class Retired:
    """Days whose leads were removed, and those that are due and stay, each with the reason.

    What is `damaged` stays until somebody has seen to it, what is `waiting` for a staging and a publication alone.
    """

    days: list[date] = field(default_factory=list)
    damaged: dict[date, str] = field(default_factory=dict)
    waiting: dict[date, str] = field(default_factory=dict)


def retire_days(lake: Lake, before: date, zone: ZoneInfo, *, is_dry: bool = False) -> Retired:
    """Freeze the figures of every day before that one, then delete its leads; the days that are done, and that stay.

    A day stays while anything of it is damaged, as what was lost there might be brought back, and until it is staged
    and published as it is. Nothing is deleted in a dry run. Raises StorageError.
    """
    # In the order in which others take those of them that they need.
    with (
        lake.sweeping(),
        lake.retaining(),
        lake.lock("spool"),  # whoever takes pushes in would add to a day between its figures and its end
        lake.lock("warehouse"),
    ):
        if not is_dry:
            _delete(lake, lake.removed_days())
        due = _days_with_leads(lake, before)
        retired = Retired(damaged=_damaged(lake, due))
        retired.waiting = _waiting(lake, [day for day in due if day not in retired.damaged], before)
        retired.days = [day for day in due if day not in retired.damaged.keys() | retired.waiting.keys()]
        if retired.days and not is_dry:
            # First: a process that is killed after this leaves the request for a rebuild.
            lake.want_rebuild()
            _freeze(lake, retired.days, zone)
            _delete(lake, retired.days)
        return retired


def finish_retiring(lake: Lake) -> int:
    """Delete what is left of removed days, as a kill or a restored backup left it; how many days it was of.

    They count nowhere, whatever the settings say by now. Raises StorageError.
    """
    if not lake.removed_days():  # of most, who wait for nobody's locks then
        return 0
    with lake.sweeping(), lake.retaining(), lake.lock("spool"), lake.lock("warehouse"):
        return _delete(lake, lake.removed_days())


def _days_with_leads(lake: Lake, before: date) -> list[date]:
    found = {file.day for kind in LEAD_KINDS for table in staged_tables(kind) for file in lake.staged_files(table)}
    found |= {day for kind in LEAD_KINDS for day in lake.landed_days(kind)}
    return sorted(day for day in found if day < before)


def _damaged(lake: Lake, due: Collection[date]) -> dict[date, str]:
    """Which of the days have something damaged, and what."""
    for kind in LEAD_KINDS:  # each file is read, so that what is damaged is known
        for day in due:
            lake.landed_windows(kind, day)
            lake.pushed_files(kind, day)
    return {
        damage.window[1]: (
            f"{damage.key} is damaged, so that figures may lack leads. Put the file back from a backup, or give it up: "
            "`leads-pipeline damaged --give-up KEY`"
        )
        for damage in (damages(lake) if due else [])
        if damage.window is not None and damage.window[1] in due
    }


def _waiting(lake: Lake, due: Collection[date], before: date) -> dict[date, str]:
    """Which of the days aren't published as they are landed."""
    if not due:
        return {}
    published = Warehouse(lake).made_from(due)
    waiting = {day: "it isn't published yet as it is staged" for day in due if day not in published}
    for kind in LEAD_KINDS:
        for day in unstaged_days(lake, kind, date.min, before):
            waiting[day] = f"{kind.name} leads are landed and not staged yet"
    return {day: why for day, why in waiting.items() if day in due}


def _freeze(lake: Lake, days: list[date], zone: ZoneInfo) -> None:
    with (
        holding_version(lake, Warehouse(lake).path) as held,
        scratch_folder(lake, _SCRATCH) as folder,
        connection(lake, f"{held.name}/freeze", held.path, read_only=True) as db,
    ):
        figures = folder / "figures.parquet"
        write_figures(db, lake, days, zone, figures)
        with reading(figures):
            content = figures.read_bytes()
    lake.freeze(days, content)


def _delete(lake: Lake, removed: Collection[date]) -> int:
    """Delete what is left of the leads of removed days: staged, raw, set aside; how many days. Figures are frozen."""
    left: set[date] = set()
    for part in ("staged", "raw", "quarantine/raw"):
        for kind in LEAD_KINDS:
            for table in staged_tables(kind):
                folder = lake.folder / part / table
                for day in days_in(folder):
                    if day in removed:
                        left.add(day)
                        lake.delete_objects(part, table, day)
                        with lake.holding_staged(day), storing(folder):
                            shutil.rmtree(folder / f"day={day}")
    return len(left)
