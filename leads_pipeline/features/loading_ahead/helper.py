"""The helper: it loads windows in rounds as they land, into a draft.

Belongs here: when it begins a draft, what a round is, when it stops. Doesn't: the draft itself
(draft.py), its process (pull.py, __main__.py).
"""

# ruff: noqa: S608 - only our own names are in the statements

import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.errors import StorageError
from leads_pipeline.features.loading_ahead.draft import (
    AHEAD,
    LOADED_AHEAD,
    LOCK,
    OF_ROUNDS,
    DraftFolder,
    Origin,
    windows_from,
    windows_in,
)
from leads_pipeline.features.loading_ahead.pull import Task
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import PRIVATE_FILE_MODE, copy_file, reading, storing, sync
from leads_pipeline.raw.room import has_room
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.current_leads import WindowKey
from leads_pipeline.warehouse.duck import connection, literal, set_person_key
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.load_leads import load_windows
from leads_pipeline.warehouse.published import attached
from leads_pipeline.warehouse.step import Changes, Draft
from leads_pipeline.warehouse.tables import insert
from leads_pipeline.warehouse.unpublished import RawWindows

# A round has at least so many leads, and no more windows once it has the most. DuckDB writes a
# group of 122,880 rows anew when it gets more, so small rounds cost. Large ones need memory, and
# the end of the pull waits for one.
ROUND_LEADS_MIN: Final = 5_000
ROUND_LEADS_MAX: Final = 10_000

# The published file is copied first. A pull takes longer than that if the file has at most so much
# for each window.
COPIED_BYTES_A_WINDOW: Final = 1_000_000

# The helper looks for more at most so often, and listing takes at most a tenth of its time.
_PAUSE_SECONDS: Final = 0.5
_PAUSES_A_LISTING: Final = 10

# The pull comes first. Not lower, because others may wait for a lock that the helper holds.
_NICENESS: Final = 10


class Round(NamedTuple):
    """Windows to load, with their hashes: none if too few leads have landed.

    `pause_seconds` is how long to wait afterwards.
    """

    windows: Mapping[WindowKey, str]
    pause_seconds: float


_NOTHING: Final = Round({}, _PAUSE_SECONDS)

# Waits until the pull has ended, at most so many seconds. Returns whether it has.
EndedWithin = Callable[[float], bool]


def help_pull() -> None:
    """Load ahead for the task in the first line of stdin, until stdin ends with the pull.

    Raises LeadsPipelineError.
    """
    os.nice(_NICENESS)
    task = Task(*json.loads(sys.stdin.readline()))
    settings = Settings.from_variables(task.variables)
    follow(DataFolder.of(settings), settings.zone, task.windows, _ended_within)


def _ended_within(seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable)


def follow(
    data: DataFolder,
    zone: ZoneInfo,
    windows: int,
    ended_within: EndedWithin,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    leads_min: int = ROUND_LEADS_MIN,
) -> None:
    """Load windows as they land, until a pull of so many windows has ended.

    Do nothing if another helper does it. A draft that a publication has taken is begun anew. Raises
    StorageError and BugError.
    """
    if not data.state.is_held(LOCK):
        with data.state.lock(LOCK, timeout_seconds=0):
            _Follower(data, zone, windows, ended_within, clock, leads_min).follow()


@dataclass(slots=True)
class _Follower:
    """The helper of one pull."""

    data: DataFolder
    zone: ZoneInfo
    windows: int
    ended_within: EndedWithin
    clock: Callable[[], datetime]
    leads_min: int

    @property
    def draft(self) -> DraftFolder:
        return DraftFolder(self.data.folder)

    @property
    def edition(self) -> Path | None:
        """The published file."""
        return Editions(self.data.folder).current()

    def follow(self) -> None:
        pause_seconds = _PAUSE_SECONDS
        while not self.ended_within(pause_seconds):
            try:
                first = self._first_round()
                pause_seconds = first.pause_seconds
                if not first.windows:
                    continue

                can_be_adopted = self._load_rounds(self._begin())
                if not can_be_adopted:
                    self.draft.remove()
            except StorageError:
                # Without the folder, a publication has taken it.
                if self.draft.path.exists():
                    raise

    def _first_round(self) -> Round:
        """Return a round of what isn't published, if a draft is worth its cost.

        It isn't if a publication is about to change the file.
        """
        if self.data.is_behind_list or self.data.state.is_publishing():
            return _NOTHING

        edition = self.edition
        if edition is None:
            return self._next_round({}) if self._has_room(0) else _NOTHING

        with reading(edition):
            size = edition.stat().st_size

        if size > self.windows * COPIED_BYTES_A_WINDOW or not self._has_room(size):
            return _NOTHING

        with attached(self.data.folder, edition) as db:
            return self._next_round(windows_in(db))

    def _has_room(self, file_bytes: int) -> bool:
        """Whether the pull's landing isn't in want of the room that the draft takes."""
        return has_room(self.data.folder, file_bytes)

    def _next_round(self, loaded: Mapping[WindowKey, str]) -> Round:
        began_at = time.monotonic()
        windows: dict[WindowKey, str] = {}
        leads = 0

        for window, folder in self._raw_windows().landed(of_all_days=False):
            if leads >= ROUND_LEADS_MAX:
                break
            if loaded.get(window) != folder.hash:
                windows[window] = folder.hash
                leads += sum(file.leads for file in folder.files)

        if leads >= ROUND_LEADS_MAX:  # the next round is there already
            return Round(windows, 0.0)

        listing_seconds = time.monotonic() - began_at
        pause_seconds = max(_PAUSE_SECONDS, _PAUSES_A_LISTING * listing_seconds)
        return Round(windows if leads >= self.leads_min else {}, pause_seconds)

    def _origin(self) -> Origin:
        forgets_if = self.data.forgets_if(self.data.gate.newest_entry)
        return Origin.of(self.edition, self.zone, self.data.state, forgets_if)

    def _begin(self) -> Origin:
        """Begin a draft, or go on with that of another helper. Return what it was begun from."""
        self.draft.make()
        origin = self._origin()

        if windows_from(origin, self.data.folder, self.draft.file) is not None:
            return origin

        self.draft.remove()
        self.draft.make()
        # Looked at once the folder is there. A publication that replaces the file takes the folder
        # after that.
        origin = self._origin()

        with storing(self.draft.file):
            if origin.edition:
                copy_file(self.draft.path.parent / origin.edition, self.draft.file)
                self.draft.file.chmod(PRIVATE_FILE_MODE)
                # Else the origin could be on the disk after a power cut, and the leads not.
                sync(self.draft.file)

        with connection(self.data.folder, self.draft.file) as db:
            db.execute("create schema if not exists pipeline")  # the published file has it
            db.execute(f"create schema {AHEAD}")
            columns = "edition varchar, made_by varchar, forgets_if varchar"
            db.execute(f"create table {AHEAD}.origin ({columns})")
            insert(db, f"{AHEAD}.origin", [origin])

        return origin

    def _load_rounds(self, origin: Origin) -> bool:
        """Load rounds until the pull has ended. False if the draft can't be adopted any more."""
        with connection(self.data.folder, self.draft.file) as db:
            # In the folder that a publication takes.
            db.execute(f"set temp_directory = {literal(str(self.draft.path / 'spill'))}")
            set_person_key(db, self.data.state.person_key())
            pause_seconds = 0.0

            while not self.ended_within(pause_seconds):
                if self._origin() != origin:
                    return False
                with reading(self.draft.file):
                    size = self.draft.file.stat().st_size
                if not self._has_room(size):
                    pause_seconds = _PAUSE_SECONDS
                    continue

                round_ = self._next_round(windows_in(db))
                pause_seconds = round_.pause_seconds
                if round_.windows:
                    self._load(db, round_.windows)

        return True

    def _load(self, db: duckdb.DuckDBPyConnection, windows: Mapping[WindowKey, str]) -> None:
        draft = Draft(self.data.folder, db, Changes(LOADED_AHEAD, windows))
        with draft.transaction():
            load_windows(draft, self._raw_windows(), self.zone)
            _note_round(draft)

    def _raw_windows(self) -> RawWindows:
        # Made anew each time, because it lists once.
        return RawWindows(self.data.store, self.data.gate, self.clock)


def _note_round(draft: Draft) -> None:
    """Keep in the draft which leads this round has received and changed."""
    db = draft.db
    for name in OF_ROUNDS:
        db.execute(f"create table if not exists {AHEAD}.{name} as from {name} limit 0")
        db.execute(f"insert into {AHEAD}.{name} from {name}")
        db.execute(f"delete from {name}")
