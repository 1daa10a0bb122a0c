"""Loading ahead: while a large pull waits for the portal, a helper process loads its windows.

It loads in rounds into a draft of its own, and each round is one transaction. The publication after
the pull adopts the draft and loads the rest. It deletes the draft if that was begun from something
else than what is there now. A helper that is killed leaves a draft that ends with its last round.

The draft lies in a folder of its own. A publication takes it by renaming the folder, so from then
on no helper can make a file in it: nobody who is erased comes back by a helper that still runs.

Belongs here: the helper, its beginning and end, and which draft a publication adopts. Doesn't: how
windows are loaded (load_leads.py), what the publication makes of them (publication.py).
"""

import hashlib
import json
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import PRIVATE_FILE_MODE, copy_file, reading, storing, sync
from leads_pipeline.raw.room import has_room
from leads_pipeline.raw.state import State
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.current_leads import WindowKey
from leads_pipeline.warehouse.duck import connection, literal, set_person_key
from leads_pipeline.warehouse.editions import Editions
from leads_pipeline.warehouse.load_leads import (
    AHEAD,
    LOADED_AHEAD,
    LOADED_WINDOWS,
    by_window,
    load_windows,
    made_by,
    note_round,
)
from leads_pipeline.warehouse.published import attached
from leads_pipeline.warehouse.step import Changes, Draft
from leads_pipeline.warehouse.tables import columns_of, fill
from leads_pipeline.warehouse.unpublished import RawWindows

logger = logging.getLogger(__name__)

# Smaller pulls start no helper: its imports cost a second.
WINDOWS_MIN: Final = 300

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

# For so long the pull's end waits for a round, which takes one or two seconds. If it is given up,
# the publication loads it from its beginning.
_LAST_ROUND_SECONDS: Final = 4.0

# The pull comes first. Not lower, because others may wait for a lock that the helper holds.
_NICENESS: Final = 10

# The module that the helper runs. It is among the features, because they bring the gatekeeper.
HELPER: Final = "leads_pipeline.features.loading_ahead"

# Held by the helper as long as it runs.
LOCK: Final = "following"

_FILE: Final = "leads.duckdb"

# Waits for at most so many seconds, and says whether the pull has ended.
HasEnded = Callable[[float], bool]


class Origin(NamedTuple):
    """The state that a draft was begun from: the file, how rows are made, and who is shown.

    `edition` is the published file's name, empty if nothing was published. `made_by` is a hash,
    because the text has the key of people.
    """

    edition: str
    made_by: str
    shown_by: str

    @classmethod
    def of(cls, edition: Path | None, zone: ZoneInfo, state: State, shown_by: str) -> Self:
        """Return what a draft would be begun from now."""
        made = made_by(zone, state.person_key())
        return cls(
            edition.name if edition else "", hashlib.sha256(made.encode()).hexdigest(), shown_by
        )


class Base(NamedTuple):
    """A file that a publication goes on from, and the windows that are loaded in it."""

    file: Path
    windows: Mapping[WindowKey, str]


# --- the publication ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoadedAhead:
    """The draft that is loaded ahead in a data folder, for this zone and this key of people."""

    state: State
    zone: ZoneInfo

    def adopt(self, editions: Editions, edition: Path | None, shown_by: str) -> Base | None:
        """Take the draft if it was begun from what is there now, else delete it.

        The caller holds the lock of publications. `edition` is the published file, None if there is
        none. Raises StorageError.
        """
        origin = Origin.of(edition, self.zone, self.state, shown_by)
        # Taken before it is read: one that kills its reader is gone then.
        taken = editions.take_ahead()
        windows = None

        # Nobody waits for a helper that still runs.
        with suppress(StorageError), self.state.lock(LOCK, timeout_seconds=0):
            windows = _windows_from(origin, editions.folder, taken / _FILE)

        if windows is None:
            editions.remove_taken(taken)
            return None

        return Base(taken / _FILE, windows)


def _windows_from(origin: Origin, folder: Path, draft: Path) -> dict[WindowKey, str] | None:
    """Return the windows in the draft.

    None if it was begun from something else, or can't be read.
    """
    if not draft.exists():
        return None
    with suppress(StorageError, BugError), connection(folder, draft) as db:
        # A helper may have been killed before it noted one.
        if db.execute(f"from {AHEAD}.origin").fetchall() == [origin]:
            return _windows_in(db)
    return None


# --- the pull -------------------------------------------------------------------------------------


class Task(NamedTuple):
    """What the helper has to know: the settings, as variables, and how many windows are pulled."""

    variables: dict[str, str]
    windows: int


@contextmanager
def loading_ahead(settings: Settings, windows: int) -> Iterator[None]:
    """Load ahead while the block pulls so many windows.

    The pull goes on even if the helper fails.
    """
    task = Task(settings.given, windows)
    helper = _started(task, settings.data_dir) if windows >= WINDOWS_MIN else None
    try:
        yield
    finally:
        if helper:
            _end(helper)


def _started(task: Task, folder: Path) -> "subprocess.Popen[bytes] | None":
    # Its errors may quote a lead.
    quiet = subprocess.DEVNULL
    # The folder is for people who look at the machine's processes. All else isn't for everybody,
    # and goes another way. -P: what lies in the working directory is no part of the program.
    command = [sys.executable, "-P", "-m", HELPER, str(folder)]

    try:
        helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet)  # noqa: S603 - ours
        stdin: Any = helper.stdin
        stdin.write(f"{json.dumps(task)}\n".encode())
        stdin.flush()
    except OSError as error:
        logger.warning(
            "No leads are loaded during the pull: %s. The publication loads them.", error.strerror
        )
        return None

    return helper


def _end(helper: "subprocess.Popen[bytes]") -> None:
    """Tell the helper that the pull has ended, and see it end."""
    try:
        helper.communicate(timeout=_LAST_ROUND_SECONDS)  # which closes its stdin
    except subprocess.TimeoutExpired:
        helper.kill()
        helper.wait()
        return
    if helper.returncode:
        logger.warning("Leads could not be loaded during the pull. The publication loads them.")


# --- the helper -----------------------------------------------------------------------------------


def help_pull() -> None:
    """Load ahead for the task in the first line of stdin, until stdin ends with the pull.

    Raises LeadsPipelineError.
    """
    os.nice(_NICENESS)
    task = Task(*json.loads(sys.stdin.readline()))
    settings = Settings.from_variables(task.variables)
    follow(DataFolder.of(settings), settings.zone, task.windows, _has_ended)


def _has_ended(seconds: float) -> bool:
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(readable)


def follow(
    data: DataFolder,
    zone: ZoneInfo,
    windows: int,
    has_ended: HasEnded,
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
            _Follower(data, zone, windows, has_ended, clock, leads_min).follow()


@dataclass(slots=True)
class _Follower:
    """The helper of one pull."""

    data: DataFolder
    zone: ZoneInfo
    windows: int
    has_ended: HasEnded
    clock: Callable[[], datetime]
    leads_min: int
    pause_seconds: float = _PAUSE_SECONDS

    @property
    def editions(self) -> Editions:
        return Editions(self.data.folder)

    @property
    def file(self) -> Path:
        return self.editions.ahead / _FILE

    def follow(self) -> None:
        while not self.has_ended(self.pause_seconds):
            try:
                if self._is_worth_a_draft():
                    self._load_rounds(self._begin())
            except StorageError:
                # Without the folder, a publication has taken it.
                if self.editions.ahead.exists():
                    raise

    def _is_worth_a_draft(self) -> bool:
        """Whether enough has landed that isn't published.

        Not if a publication is about to change the file.
        """
        self.pause_seconds = _PAUSE_SECONDS
        if self.data.is_behind or self.data.state.is_publishing():
            return False

        edition = self.editions.current()
        if edition is None:
            return self._has_room(0) and bool(self._next_round({}))

        with reading(edition):
            size = edition.stat().st_size

        if size > self.windows * COPIED_BYTES_A_WINDOW or not self._has_room(size):
            return False

        with attached(self.data.folder, edition) as db:
            return bool(self._next_round(_windows_in(db)))

    def _has_room(self, file_bytes: int) -> bool:
        """Whether the pull's landing isn't in want of the room that the draft takes."""
        return has_room(self.data.folder, file_bytes)

    def _next_round(self, loaded: Mapping[WindowKey, str]) -> dict[WindowKey, str]:
        """Return windows to load, with their hashes. None of them if too few leads have landed."""
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
            self.pause_seconds = 0.0
        else:
            listing_seconds = time.monotonic() - began_at
            self.pause_seconds = max(_PAUSE_SECONDS, _PAUSES_A_LISTING * listing_seconds)

        return windows if leads >= self.leads_min else {}

    def _origin(self) -> Origin:
        edition = self.editions.current()
        shown_by = self.data.shown_by(self.data.gate.newest_entry)
        return Origin.of(edition, self.zone, self.data.state, shown_by)

    def _begin(self) -> Origin:
        """Begin a draft, or go on with that of another helper. Return what it was begun from."""
        self.editions.make_ahead()
        origin = self._origin()

        if _windows_from(origin, self.data.folder, self.file) is not None:
            return origin

        self.editions.remove_ahead()
        self.editions.make_ahead()
        # Looked at once the folder is there. A publication that replaces the file takes the folder
        # after that.
        origin = self._origin()

        with storing(self.file):
            if origin.edition:
                copy_file(self.editions.ahead.parent / origin.edition, self.file)
                self.file.chmod(PRIVATE_FILE_MODE)
                # Else the origin could be on the disk after a power cut, and the leads not.
                sync(self.file)

        with connection(self.data.folder, self.file) as db:
            db.execute("create schema if not exists pipeline")  # the published file has it
            db.execute(f"create schema {AHEAD}")
            db.execute(
                f"create table {AHEAD}.origin (edition varchar, made_by varchar, shown_by varchar)"
            )
            fill(db, f"{AHEAD}.origin", [origin])

        return origin

    def _load_rounds(self, origin: Origin) -> None:
        """Load rounds until the pull has ended.

        Delete the draft if it can't be adopted any more.
        """
        with connection(self.data.folder, self.file) as db:
            # In the folder that a publication takes.
            db.execute(f"set temp_directory = {literal(str(self.editions.ahead / 'spill'))}")
            set_person_key(db, self.data.state.person_key())
            while not self.has_ended(self.pause_seconds):
                if not self.file.exists() or self._origin() != origin:
                    break
                if not self._has_room(self.file.stat().st_size):
                    self.pause_seconds = _PAUSE_SECONDS
                    continue
                windows = self._next_round(_windows_in(db))
                if windows:
                    self._load(db, windows)
            else:
                return
        self.editions.remove_ahead()

    def _load(self, db: duckdb.DuckDBPyConnection, windows: Mapping[WindowKey, str]) -> None:
        draft = Draft(self.data.folder, db, Changes(LOADED_AHEAD, windows))
        with draft.transaction():
            load_windows(draft, self._raw_windows(), self.zone)
            note_round(draft)

    def _raw_windows(self) -> RawWindows:
        # Made anew each time, because it lists once.
        return RawWindows(self.data.store, self.data.gate, self.clock)


def _windows_in(db: duckdb.DuckDBPyConnection) -> dict[WindowKey, str]:
    """Return the windows that are loaded, with the hashes of their files."""
    if not columns_of(db, "windows", "pipeline"):
        return {}
    return by_window(db.execute(LOADED_WINDOWS).fetchall())
