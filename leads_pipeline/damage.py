"""What is damaged or gone for good, until it is whole again or somebody gives it up in so many words.

Belongs here: finding it, and giving it up. Doesn't: noticing damage (lake/), keeping what was staged (flatten/).
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.flatten.windows import staged_windows
from leads_pipeline.lake import Lake
from leads_pipeline.lake.quarantine import QUARANTINE

# Of a file in quarantine/, below it. What is beside these was no window's: deliveries, and days of the inventory.
_RAW_FILE: Final = re.compile(
    r"raw/(?P<table>[^/]+)/day=(?P<day>[0-9-]{10})/scope=(?P<scope>[^/]+)/(?P<name>leads|pushed)\.parquet\..*"
)


DAMAGE_ADVICE: Final = (
    "What they held when they were last whole is still staged and published. A window that the portal still has is "
    "pulled again by itself. Else put the file back from a backup, or give it up: `leads-pipeline damaged` lists them."
)


def damage_message(count: int) -> str:
    """What somebody is told of so many."""
    what = "1 window or file is" if count == 1 else f"{count} windows or files are"
    return f"{what} damaged or gone. {DAMAGE_ADVICE}"


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is damaged. `key` names it: kind, day and scope of a window, or a path below quarantine/.

    `window` is kind, day and scope's key, None where it is no window's. `files` are those set aside, none where the raw
    file is simply gone. `leads` counts what the window held when it was last whole, None where that is unknown; those
    leads are still staged and published.
    """

    key: str
    window: tuple[LeadKind, date, str] | None
    files: tuple[Path, ...]
    leads: int | None


def damages(lake: Lake) -> list[Damage]:
    """Everything that is damaged or gone and that nothing whole has replaced, by key. Raises StorageError."""
    files: defaultdict[str, list[Path]] = defaultdict(list)
    windows: dict[str, tuple[LeadKind, date, str]] = {}
    leads: dict[str, int] = {}
    for path in lake.quarantined():
        below = path.relative_to(lake.folder / QUARANTINE).as_posix()
        match = _RAW_FILE.fullmatch(below)
        kind = next((kind for kind in LEAD_KINDS if match and kind.table == match["table"]), None)
        if match is None or kind is None:
            files[below].append(path)
            continue
        day, scope = date.fromisoformat(match["day"]), match["scope"]
        # A window that was pulled again is whole. What was pushed is only as whole as what has come by other ways.
        if match["name"] == "pushed" or not lake.is_landed(kind, day, scope):
            key = _key(kind, day, scope)
            files[key].append(path)
            windows[key] = kind, day, scope
    for kind in LEAD_KINDS:
        for window in staged_windows(lake, kind):
            if not lake.is_landed(kind, window.day, window.scope):
                key = _key(kind, window.day, window.scope)
                windows[key] = kind, window.day, window.scope
                leads[key] = window.rows
                files.setdefault(key, [])
    return [Damage(key, windows.get(key), tuple(paths), leads.get(key)) for key, paths in sorted(files.items())]


def give_up(lake: Lake, damage: Damage, zone: ZoneInfo) -> None:
    """Stage the day anew without what only the damaged window had, and delete what was set aside of it.

    What raw has, or another window, stays. The day's leads leave leads.duckdb with the next publication. Raises
    StorageError; then nothing was deleted.
    """
    if damage.window is not None:
        kind, day, scope = damage.window
        flatten_day(lake, kind, day, zone, {scope})
    for path in damage.files:
        path.unlink(missing_ok=True)


def _key(kind: LeadKind, day: date, scope: str) -> str:
    return f"{kind.name}/{day}/{scope}"
