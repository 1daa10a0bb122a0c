"""The Parquet files of the data folder, and what else has to survive a crash there.

Belongs here: landing, reading, quarantine, staged replacement, locks, whose data the folder holds. Doesn't: HTTP
(client.py), what a lead's fields mean (flatten.py), the DuckDB file (warehouse.py), durable writing (durable.py).
"""

import fcntl
import hashlib
import logging
import os
import re
import secrets
import shutil
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import filelock
import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.contract import Answer, InventoryItem, LeadKind, PushedLead
from leads_pipeline.durable import (
    PRIVATE_FILE_MODE,
    PRIVATE_FOLDER_MODE,
    make_folder,
    not_read,
    publish_file,
    reading,
    replace_file,
    storing,
    sweep,
    sync,
)
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.window import Scope, Window

# Longer than any honest holder needs (a publication of millions of leads takes seconds): whoever waits this long
# waits for a process that hangs.
LOCK_TIMEOUT_SECONDS: Final = 600.0

# filelock polls; its default of 0.05 s would be most of a landing that takes 3 ms.
LOCK_POLL_SECONDS: Final = 0.005

# How many raw files a process remembers: 30 days of 500 scopes and both kinds, twice over. They take 40 MB.
_KNOWN_FILES: Final = 65_536

_DAY_SECONDS: Final = 86_400

# Raised when an older version of the pipeline could no longer read what is written. Files of 1 have no `sequence`, nor
# what the last answer said where it changed nothing; they are read as they are, for ever.
SCHEMA_VERSION: Final = "2"

# How far the counter of sequences may get ahead of what of it is on the disk, in microseconds.
SEQUENCE_STEP: Final = 60_000_000

_RAW_COLUMNS: Final[dict[str, pa.DataType]] = {
    "kind": pa.string(),
    "day": pa.date32(),
    "scope": pa.string(),
    "lead_id": pa.string(),
    "position": pa.int32(),
    "sequence": pa.int64(),
    "fetched_at": pa.timestamp("us", tz="UTC"),
    "run_id": pa.string(),
    "source": pa.string(),
    "payload": pa.string(),
    "oddity": pa.string(),
}
_RAW_SCHEMA: Final = pa.schema(_RAW_COLUMNS)

_INVENTORY_COLUMNS: Final[dict[str, pa.DataType]] = {
    "day": pa.date32(),
    "item_id": pa.string(),
    "address": pa.string(),
    "page": pa.int32(),
    "position": pa.int32(),
    "sequence": pa.int64(),
    "fetched_at": pa.timestamp("us", tz="UTC"),
    "run_id": pa.string(),
    "payload": pa.string(),
    "oddity": pa.string(),
}
_INVENTORY_SCHEMA: Final = pa.schema(_INVENTORY_COLUMNS)

# Columns with few values; the others would only pay for a dictionary.
_DICTIONARY_COLUMNS: Final = ("kind", "scope", "address", "run_id", "source", "oddity")

_SEAL_BYTES: Final = hashlib.sha256().digest_size

_LEADS_FILE: Final = "leads.parquet"

# Pushed leads lie in a file of their own beside the window's: what was pushed says nothing of what was pulled.
_PUSHED_FILE: Final = "pushed.parquet"

# Where pushed leads of no configured scope go. No scope of the settings has this key.
PUSH_SCOPE: Final = "push"

_RAW, _STAGED, _INVENTORY, _QUARANTINE = "raw", "staged", "inventory", "quarantine"

_Row = dict[str, Any]
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Landing:
    """What landing an answer did, in different lead ids. `leads` counts those that the file has afterwards.

    `unchanged`: answered, and already held like that (or in a newer version). `kept`: held, and no longer answered.
    `is_changed` is False where the answer only confirmed what was there.
    """

    leads: int
    new: int
    changed: int
    unchanged: int
    kept: int
    is_partial: bool
    is_closed: bool
    is_changed: bool
    path: Path


@dataclass(frozen=True, slots=True)
class LandedWindow:
    """What a raw file says about itself.

    `scope` is the scope's key. `leads` counts different lead ids, `rows` older versions of them as well. `looked_at`
    and `sequence` are those of the last answer, `fetched_at`, `run_id`, `request`, `body_sha256` and `attempts` of the
    last that changed something. `is_closed`: an answer from after the window's end was merged. `is_partial`: closed,
    but only by answers from when the portal had begun to delete the window.
    """

    kind: str
    day: date
    scope: str
    start: datetime
    end: datetime
    leads: int
    rows: int
    looked_at: datetime
    sequence: int
    fetched_at: datetime
    run_id: str
    request: str
    body_sha256: str
    attempts: int
    is_partial: bool
    is_closed: bool
    path: Path


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A published staged file. `fingerprint` changes whenever the file is replaced (size, time, inode)."""

    table: str
    day: date
    path: Path
    fingerprint: str


class Lake:
    """The files below one data folder. Many processes and threads may use it at once; it creates what it needs.

    Whatever holds personal data lies in folders of mode 0700 and files of mode 0600. Every method raises StorageError
    where the folder can't take or give what it should; what was there before is then still there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = folder / ".state"

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._folder

    # --- raw leads -----------------------------------------------------------------------------------------------

    def land(self, answer: Answer, run_id: str) -> Landing:
        """Merge a valid answer into its window's file: every version of every lead that any answer held, once.

        A lead that the answer no longer holds stays. A version that was held keeps its `fetched_at`, which says when it
        was first received, and takes the answer's `sequence`; of a lead's versions the one with the highest counts.
        When this returns, the file is on the disk.
        """
        window = answer.window
        sequence = _sequence(answer.sequence, answer.fetched_at)
        path = self._raw_path(answer.kind, window)
        with self.lock(_raw_lock(path)):
            sweep(path)
            held = self._read_or_quarantine(path, self._read_landed)
            merge = _merge(_rows(held.file) if held else [], _lead_rows(answer, run_id), "lead_id")
            # After a change of the time zone the file's window is another one, and says nothing about this one.
            before = (
                held.window if held and (held.window.start, held.window.end) == (window.start, window.end) else None
            )
            is_closed, is_partial = _completeness(before, answer)
            is_changed = (
                before is None or merge.has_changed or (is_closed, is_partial) != (before.is_closed, before.is_partial)
            )
            last_change = {
                "fetched_at": answer.fetched_at.isoformat(),
                "run_id": run_id,
                "request": answer.request,
                "body_sha256": answer.body_sha256,
                "attempts": str(answer.attempts),
            }
            if held is not None and not is_changed:
                last_change = {name: held.facts[name] for name in last_change}
            # A slower process may hold an older answer than the file.
            # Of a closed window, one that isn't whole is no look either.
            is_look = answer.failure is None or before is None or not before.is_closed
            is_last = before is None or (is_look and sequence >= before.sequence)
            facts = {
                "window_start": window.start.isoformat(),
                "window_end": window.end.isoformat(),
                "leads": str(merge.ids),
                "looked_at": (answer.fetched_at if before is None or is_last else before.looked_at).isoformat(),
                "sequence": str(sequence if before is None or is_last else before.sequence),
                "is_closed": str(is_closed),
                "is_partial": str(is_partial),
                **last_change,
            }
            replace_file(path, _parquet(merge.rows, _RAW_SCHEMA, facts | {"path": self._relative(path)}))
        self._keep_sequence_above(merge.highest)
        return Landing(
            leads=merge.ids,
            new=merge.new,
            changed=merge.changed,
            unchanged=merge.unchanged,
            kept=merge.kept,
            is_partial=is_partial,
            is_closed=is_closed,
            is_changed=is_changed,
            path=path,
        )

    def make_folders(self, kind: LeadKind, windows: Sequence[Window]) -> None:
        """Make the folders that landing these windows takes, and wait for the disk once a day and not once a window.

        Landing makes what is missing by itself, and says what is wrong where it can't; this only saves time.
        """
        by_day: defaultdict[Path, list[Path]] = defaultdict(list)
        for window in windows:
            folder = self._raw_path(kind, window).parent
            by_day[folder.parent].append(folder)
        for day, folders in by_day.items():
            with suppress(OSError):
                if missing := [folder for folder in folders if not folder.is_dir()]:
                    make_folder(day)
                    for folder in missing:
                        folder.mkdir(PRIVATE_FOLDER_MODE, exist_ok=True)
                    sync(day)

    def land_pushed(
        self, kind: LeadKind, day: date, scope: str, pushed: Sequence[PushedLead], run_id: str
    ) -> tuple[int, int]:
        """Merge leads of that kind that were pushed into the day's file of the scope (its key, or PUSH_SCOPE).

        As with an answer, every version is kept, with the moment of its first delivery and the `sequence` of its last.
        Returns how many leads were new, and how many had changed.
        """
        path = self._raw_folder(kind, day, scope) / _PUSHED_FILE
        with self.lock(_raw_lock(path)):
            sweep(path)
            held = self._read_or_quarantine(path, self._read_pushed)
            merge = _merge(_rows(held) if held else [], _pushed_rows(kind, day, scope, pushed, run_id), "lead_id")
            replace_file(path, _parquet(merge.rows, _RAW_SCHEMA, {"path": self._relative(path)}))
        self._keep_sequence_above(merge.highest)
        return merge.new, merge.changed

    def pushed_files(self, kind: LeadKind, day: date) -> list[Path]:
        """The day's readable files of pushed leads, one per scope, sorted; unreadable ones are set aside."""
        paths = _found(self._day_folder(kind, day), f"scope=*/{_PUSHED_FILE}")
        return [path for path in paths if self._inspect(path, self._read_pushed) is not None]

    def pushed_leads(self, kind: LeadKind, day: date) -> dict[str, int]:
        """The highest `sequence` of each lead that the day's files of pushed leads hold."""
        highest: dict[str, int] = {}
        for path in _found(self._day_folder(kind, day), f"scope=*/{_PUSHED_FILE}"):
            if file := self._inspect(path, self._read_pushed):
                for row in _rows(file, ["lead_id", "sequence", "fetched_at"]):
                    highest[row["lead_id"]] = max(row["sequence"], highest.get(row["lead_id"], 0))
        return highest

    def raw_files(self, kind: LeadKind, day: date) -> list[Path]:
        """The day's readable files of pulled leads, one per scope, sorted.

        Each was compared with its checksum, to the last bit. An unreadable one is set aside with a warning (see
        `quarantined`) and counts as never fetched.
        """
        return [path for path in self._raw_paths(kind, day) if self._inspect(path, self._read_landed)]

    def landed_windows(self, kind: LeadKind, day: date) -> list[LandedWindow]:
        """What the day's raw files say about themselves, by scope. Sets unreadable ones aside."""
        found = (self._inspect(path, self._read_landed) for path in self._raw_paths(kind, day))
        return [landed.window for landed in found if landed]

    def known_windows(self, kind: LeadKind, day: date) -> list[LandedWindow]:
        """The same as `landed_windows`, for those who ask every minute: a file that was read is only looked at.

        It is read again once it was replaced, copied or touched, and once a day in any case, so that one that rots is
        noticed while the portal still has what it held.
        """
        known = []
        for path, identity in _identities(self._day_folder(kind, day)):
            try:
                known.append(_known_window(self._folder, path, identity))
            except FileNotFoundError:
                continue
            except _UnreadableError:
                landed = self._inspect(Path(path), self._read_landed)
                known += [landed.window] if landed else []
        return known

    def is_landed(self, kind: LeadKind, day: date, scope: str) -> bool:
        """Whether the window has a file, whatever is in it."""
        return (self._raw_folder(kind, day, scope) / _LEADS_FILE).exists()

    def landed_days(self, kind: LeadKind) -> list[date]:
        """Days with at least one raw file, pulled or pushed, sorted."""
        days = _days_in(self._folder / _RAW / kind.table)
        return [day for day in days if _found(self._day_folder(kind, day), "scope=*/*.parquet")]

    def quarantined(self) -> list[Path]:
        """Every file that was set aside because it couldn't be read, sorted; each name ends with the moment, UTC."""
        folder = self._folder / _QUARANTINE
        with reading(folder):
            return sorted(path for path in folder.rglob("*") if path.is_file())

    # --- inventory ------------------------------------------------------------------------------------------------

    def land_inventory(
        self,
        day: date,
        found: Mapping[str, Sequence[InventoryItem]],
        fetched_at: datetime,
        run_id: str,
        sequence: int | None = None,
    ) -> int:
        """Merge what the searches found (address searched → all its items) into the day's file; its items afterwards.

        Every version of each item id, as with leads, or of the payload's hash where an item has none.
        """
        path = self._inventory_path(day)
        with self.lock(_raw_lock(path)):
            sweep(path)
            held = self._read_or_quarantine(path, self._read_inventory)
            rows = _inventory_rows(day, found, _sequence(sequence, fetched_at), fetched_at, run_id)
            merge = _merge(_rows(held) if held else [], rows, "item_id")
            replace_file(path, _parquet(merge.rows, _INVENTORY_SCHEMA, {"path": self._relative(path)}))
        self._keep_sequence_above(merge.highest)
        return merge.ids

    def inventory_files(self) -> list[Path]:
        """The readable inventory files, one per day, sorted; unreadable ones are set aside like raw files."""
        paths = (self._inventory_path(day) for day in _days_in(self._folder / _RAW / _INVENTORY))
        return [path for path in paths if self._inspect(path, self._read_inventory) is not None]

    # --- staged ---------------------------------------------------------------------------------------------------

    def staged_path(self, table: str, day: date) -> Path:
        """Where the day's staged file of a table lies once it is published."""
        return self._folder / _STAGED / table / f"day={day.isoformat()}" / f"{table}.parquet"

    @contextmanager
    def replacing_staged(self, tables: Sequence[str], day: date) -> Iterator[dict[str, Path]]:
        """Replace the day's files of these tables together: write a Parquet file to each path that this hands out.

        Holds the day's lock throughout, so that nobody stages the day from older raw files meanwhile. After an error
        nothing is replaced. Once all files are written and on the disk, a killed process can't leave a mix of old and
        new either: whoever comes next finishes the replacement. A file with the bytes of the published one isn't
        touched. Each is sealed, for whole_staged.
        """
        writing = self._folder / _STAGED / f".writing-{day.isoformat()}"
        with self.lock(_staged_lock(day)):
            self._finish_staged(day)
            with storing(writing):
                shutil.rmtree(writing, ignore_errors=True)
                make_folder(writing)
            try:
                paths = {table: writing / f"{table}.tmp" for table in tables}
                yield paths
                for path in paths.values():
                    with storing(path):
                        path.write_bytes(_seal(path.read_bytes()))
                        path.chmod(PRIVATE_FILE_MODE)
                        sync(path)
                with storing(writing):
                    sync(writing)
                    writing.replace(self._ready_folder(day))
                    sync(self._folder / _STAGED)
                self._finish_staged(day)
            finally:
                with suppress(OSError):  # rmtree doesn't ignore each of them
                    shutil.rmtree(writing, ignore_errors=True)

    def staged_files(self, table: str) -> list[StagedFile]:
        """The published files of a table, by day. Finishes what a killed process had begun to publish."""
        for ready in _found(self._folder / _STAGED, ".ready-*"):
            day = date.fromisoformat(ready.name.removeprefix(".ready-"))
            with self.lock(_staged_lock(day)):
                self._finish_staged(day)
        files = []
        for day in _days_in(self._folder / _STAGED / table):
            path = self.staged_path(table, day)
            with reading(path), suppress(FileNotFoundError):
                stat = path.stat()
                files.append(StagedFile(table, day, path, f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ino}"))
        return files

    @contextmanager
    def holding_staged(self, day: date) -> Iterator[None]:
        """Hold the day's staged files as they are, whole, so that files of several tables belong together."""
        with self.lock(_staged_lock(day)):
            self._finish_staged(day)
            yield

    def whole_staged(self, table: str, day: date) -> Path | None:
        """The day's staged file of a table; None where it is gone, or not what was written there to the last bit.

        DuckDB writes no checksums, and takes most flipped bits for content.
        """
        path = self.staged_path(table, day)
        with reading(path):
            try:
                return path if _is_intact(path.read_bytes()) else None
            except FileNotFoundError:
                return None

    def _ready_folder(self, day: date) -> Path:
        return self._folder / _STAGED / f".ready-{day.isoformat()}"

    def _finish_staged(self, day: date) -> None:
        """Publish what lies complete in the day's ready folder. The day's lock is held."""
        ready = self._ready_folder(day)
        with storing(ready):
            if not ready.is_dir():
                return
            for source in sorted(ready.glob("*.tmp")):
                target = self.staged_path(source.stem, day)
                make_folder(target.parent)
                if _is_same(source, target):
                    source.unlink()
                else:
                    publish_file(source, target)
            ready.rmdir()

    # --- locks ----------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(
        self, name: str, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS, is_reentrant: bool = False
    ) -> Iterator[filelock.BaseFileLock]:
        """Hold the lock of that name against all other processes and threads; a reentrant one against processes alone.

        Raises StorageError when another holder keeps it for longer than `timeout_seconds`; below 0 there is no end.
        """
        path = self._state / "locks" / f"{name}.lock"
        lock = filelock.FileLock(
            path,
            mode=PRIVATE_FILE_MODE,
            poll_interval=LOCK_POLL_SECONDS,
            is_singleton=is_reentrant,
            thread_local=not is_reentrant,
        )
        with storing(path):
            make_folder(path.parent)
            try:
                lock.acquire(timeout=timeout_seconds)
            except filelock.Timeout:
                raise StorageError(
                    f"Another process has held {path} for more than {timeout_seconds:g} s. Look for one that hangs "
                    "(fuser or lsof names it), end it and run again; the lock frees itself when its holder ends."
                ) from None
        try:
            yield lock
        finally:
            try:
                lock.release()
            except OSError as error:
                # What was done under the lock is done, or has failed for a reason of its own.
                logger.warning("%s can't be freed: %s. It goes with this process.", path, error.strerror)

    @contextmanager
    def running(self, run_id: str) -> Iterator[None]:
        """Hold the lock that says that a run is alive. It goes with the process, however that ends.

        The run's next asset needn't wait for one that broke off and that Python hasn't cleared away yet.
        """
        name = f"run-{run_id}"
        with self.lock(name, is_reentrant=True) as lock:
            try:
                yield
            finally:
                if lock.lock_counter == 1:
                    (self._state / "locks" / f"{name}.lock").unlink(missing_ok=True)

    def is_running(self, run_id: str) -> bool:
        """Whether any process holds that run's lock at this moment."""
        return self._is_held(f"run-{run_id}")

    @contextmanager
    def pulling(self) -> Iterator[None]:
        """Hold the lock by which pulls take turns, for as long as that takes: two don't know of each other's pace.

        Dagster's pool does so for the runs of one queue alone: the command line launches its own, and a Dagster home
        without our dagster.yaml limits no pool.
        """
        with self.lock("pull", timeout_seconds=-1, is_reentrant=True):
            yield

    @contextmanager
    def reading(self, reader: str) -> Iterator[None]:
        """Hold the lock that says that a reader of the warehouse is alive. It goes with the process, like a run's."""
        with self.lock(reader):
            try:
                yield
            finally:
                (self._state / "locks" / f"{reader}.lock").unlink(missing_ok=True)

    def is_reading(self, reader: str) -> bool:
        """Whether a reader of that name is alive at this moment, in any process."""
        return self._is_held(reader)

    def is_pulling(self) -> bool:
        """Whether a pull is under way at this moment, in any process."""
        return self._is_held("pull")

    def _is_held(self, name: str) -> bool:
        path = self._state / "locks" / f"{name}.lock"
        with reading(path):
            if not path.exists():
                return False
        try:
            with filelock.FileLock(path, timeout=0):
                return False
        except filelock.Timeout:
            return True

    # --- the order of what is received ----------------------------------------------------------------------------

    def next_sequence(self) -> int:
        """A number higher than any that a process got here before, whatever the clock has done meanwhile.

        It says of two answers or deliveries which is the newer one: it is drawn when a request is sent, and when a
        delivery is received. Microseconds since 1970 as long as the clock goes on; where it was set back, one by one.

        A power cut may take away what of the counter wasn't synced, SEQUENCE_STEP at the most, so each process leaves
        that out once. A lost or broken file begins with the clock anew, and landing makes up for the rest.
        """
        with self._sequence_file() as file:
            last, now = _read_sequence(file), time.time_ns() // 1000
            synced = _synced_sequences.get(self._state)
            drawn = max(last + (SEQUENCE_STEP if synced is None else 1), now)
            _write_sequence(file, drawn)
            if synced is None or drawn >= synced + SEQUENCE_STEP:
                os.fsync(file)
                _synced_sequences[self._state] = drawn
        return drawn

    def _keep_sequence_above(self, held: int) -> None:
        """Have what is drawn from now on be newer than what a file holds: a backup may lack `.state`."""
        with self._sequence_file() as file:
            if _read_sequence(file) < held:
                _write_sequence(file, held)

    @contextmanager
    def _sequence_file(self) -> Iterator[int]:
        """The counter's descriptor, held against all others for microseconds. A FileLock takes ten times as long."""
        path = self._state / "sequence"
        with storing(path):
            if not self._state.is_dir():
                make_folder(self._state)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield descriptor
            finally:
                os.close(descriptor)

    # --- what the folder remembers --------------------------------------------------------------------------------

    def claim(self, origin: str) -> None:
        """Remember which portal this folder's leads come from. Raises SettingsError where it is another one's.

        Leads of two portals, the simulator's and real ones for example, would be told apart by nothing afterwards.
        """
        remembered = self._remember("origin", origin)
        if remembered != origin:
            raise SettingsError(
                f"{self._folder} holds leads from {remembered}, and {origin} is another portal: their leads must not "
                "mix. Set LEADS_DATA_DIR to another folder; or, if this one was only the demo, delete it. Nothing was "
                "changed.",
                reason="another portal's data folder",
            )

    def claimed_by(self) -> str | None:
        """Which portal this folder's leads come from, None before the first claim."""
        try:
            return (self._state / "origin").read_text(errors="replace").strip() or None
        except OSError:
            return None

    def start_date(self) -> date | None:
        """The first partition's day as it was remembered, None before that."""
        path = self._state / "start_date"
        with reading(path):
            remembered = path.read_text(errors="replace").strip() if path.exists() else ""
        return self._start_date(remembered) if remembered else None

    def remember_start_date(self, default: date) -> date:
        """The first partition's day: `default` at the first call ever, afterwards what was remembered then."""
        return self._start_date(self._remember("start_date", default.isoformat()))

    def _start_date(self, remembered: str) -> date:
        try:
            return date.fromisoformat(remembered)
        except ValueError:
            raise StorageError(
                f"{self._state / 'start_date'} holds no day. Write the first day to pull into it, as 2026-11-19, or "
                "set LEADS_START_DATE; without it partitions would move."
            ) from None

    def person_key(self) -> bytes:
        """The key that people are hashed with: made at the first call, 32 random bytes, the same ever after.

        Whoever has it can tell whether an e-mail address they know is in a mart. Raises StorageError.
        """
        return self._key(
            "person_key",
            "Put the old one back from a backup, or remove the file: then the hashes of all people change.",
        )

    def settings_key(self) -> bytes:
        """The key of the settings' fingerprint, likewise: without it, nobody can try secrets on the fingerprint."""
        return self._key("settings_key", "Remove the file.")

    def _key(self, name: str, remedy: str) -> bytes:
        remembered = self._remember(name, secrets.token_hex(32))
        if not re.fullmatch(r"[0-9a-f]{64}", remembered):
            raise StorageError(f"{self._state / name} holds no key of 64 hexadecimal digits. {remedy}")
        return bytes.fromhex(remembered)

    def _remember(self, name: str, value: str) -> str:
        path = self._state / name
        with self.lock("state"):
            with storing(path):
                remembered = path.read_text(errors="replace").strip() if path.exists() else ""
            if not remembered:
                replace_file(path, f"{value}\n".encode())
        return remembered or value

    # --- paths ----------------------------------------------------------------------------------------------------

    def _raw_path(self, kind: LeadKind, window: Window) -> Path:
        return self._raw_folder(kind, window.day, window.scope.key) / _LEADS_FILE

    def _raw_folder(self, kind: LeadKind, day: date, scope: str) -> Path:
        # Scope.parse is the allow-list that keeps an id from leaving the folder; a Scope can be made without it.
        key = scope if scope == PUSH_SCOPE else Scope.parse(scope).key
        return self._day_folder(kind, day) / f"scope={key}"

    def _day_folder(self, kind: LeadKind, day: date) -> Path:
        return self._folder / _RAW / kind.table / f"day={day.isoformat()}"

    def _raw_paths(self, kind: LeadKind, day: date) -> list[Path]:
        return _found(self._day_folder(kind, day), f"scope=*/{_LEADS_FILE}")

    def _inventory_path(self, day: date) -> Path:
        return self._folder / _RAW / _INVENTORY / f"day={day.isoformat()}" / "items.parquet"

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    # --- reading and quarantine -----------------------------------------------------------------------------------

    def _read_landed(self, path: Path) -> "_Landed":
        file, facts = _open(path, _RAW_SCHEMA, self._relative(path))
        return _Landed(_landed_window(path, facts, file), facts, file)

    def _read_pushed(self, path: Path) -> pq.ParquetFile:
        return _open(path, _RAW_SCHEMA, self._relative(path))[0]

    def _read_inventory(self, path: Path) -> pq.ParquetFile:
        return _open(path, _INVENTORY_SCHEMA, self._relative(path))[0]

    def _inspect(self, path: Path, read: Callable[[Path], _T]) -> _T | None:
        """What `read` makes of the file; None where it is missing or had to be set aside. No lock is held."""
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except _UnreadableError:
            with self.lock(_raw_lock(path)):
                return self._read_or_quarantine(path, read)

    def _read_or_quarantine(self, path: Path, read: Callable[[Path], _T]) -> _T | None:
        """Like _inspect, with the file's lock held."""
        try:
            return read(path)
        except FileNotFoundError:
            return None
        except _UnreadableError as error:
            self._quarantine(path, str(error))
            return None

    def _quarantine(self, path: Path, why: str) -> None:
        # The moment comes last, so that no glob for *.parquet finds the file any more.
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        aside = self._folder / _QUARANTINE / f"{self._relative(path)}.{moment}"
        with storing(aside):
            make_folder(aside.parent)
            path.replace(aside)
            sync(aside.parent)
            sync(path.parent)
        logger.warning(
            "%s can't be used: %s. It was moved to %s and counts as never fetched: pull its partition again while "
            "the portal still has it. The other files are untouched.",
            path,
            why,
            aside,
        )


@lru_cache(maxsize=_KNOWN_FILES)
def _known_window(folder: Path, path: str, _: tuple[int, ...]) -> LandedWindow:
    """What the file says; its identity, which is only a part of the cache's key, says until when that holds."""
    return Lake(folder)._read_landed(Path(path)).window  # noqa: SLF001 - this module's own


def _identities(day_folder: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Each landed file of the day with what changes when it may have another content, sorted.

    A copy that keeps sizes and times has other inodes and ctimes. Each file has a moment of the day of its own at which
    it is to be read again, so that not all of them are at once.
    """
    with reading(day_folder):
        try:
            folders = sorted(entry.path for entry in os.scandir(day_folder) if entry.name.startswith("scope="))
        except FileNotFoundError:
            return
        for folder in folders:
            path = f"{folder}/{_LEADS_FILE}"
            try:
                stat = os.stat(path)  # noqa: PTH116 - 30,000 of them each minute
            except (FileNotFoundError, NotADirectoryError):
                continue
            turn = int(time.time() + zlib.crc32(path.encode(errors="surrogateescape"))) // _DAY_SECONDS
            yield path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, turn)


# --- merging ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Merge:
    """`ids` counts different ids, `highest` is the highest sequence among all rows (0 without any)."""

    rows: list[_Row]
    ids: int
    highest: int
    new: int
    changed: int
    unchanged: int
    kept: int

    @property
    def has_changed(self) -> bool:
        return bool(self.new or self.changed)


def _merge(held: Sequence[_Row], received: Sequence[_Row], id_column: str) -> _Merge:
    """All versions of each id that either has."""
    before, answered = _versions(held, id_column), _versions(received, id_column)
    merged = _versions([*held, *received], id_column)
    again = answered.keys() & before.keys()
    changed = sum(_newest(before[id_])["payload"] != _newest(merged[id_])["payload"] for id_ in again)
    rows = [row for _, versions in sorted(merged.items()) for row in sorted(versions.values(), key=_place)]
    return _Merge(
        rows=rows,
        ids=len(merged),
        highest=max((row["sequence"] for row in rows), default=0),
        new=len(answered) - len(again),
        changed=changed,
        unchanged=len(again) - changed,
        kept=len(before.keys() - answered.keys()),
    )


def _versions(rows: Iterable[_Row], id_column: str) -> dict[str, dict[str, _Row]]:
    """The rows by id and payload. Of a payload that came several times: the first row, with the last one's place."""
    found: dict[str, dict[str, _Row]] = {}
    for row in rows:
        versions = found.setdefault(row[id_column], {})
        first = versions.setdefault(row["payload"], row)
        if _place(row) > _place(first):
            versions[row["payload"]] = first | {"sequence": row["sequence"], "position": row["position"]}
    return found


def _newest(versions: Mapping[str, _Row]) -> _Row:
    return max(versions.values(), key=_place)


def _place(row: _Row) -> tuple[int, int]:
    """Where a row stands in the order of receipt: the highest of an id is the version that counts."""
    return row["sequence"], row["position"]


def _sequence(drawn: int | None, moment: datetime) -> int:
    """What was received before there were sequences counts by its moment, in microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1) if drawn is None else drawn


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# How far the counter of a folder is known to be on the disk, by this process's own syncing.
_synced_sequences: Final[dict[Path, int]] = {}


def _read_sequence(file: int) -> int:
    """The last number drawn, 0 where the file has none."""
    text = os.pread(file, 32, 0).strip()
    return int(text) if re.fullmatch(rb"[0-9]{1,18}", text) else 0


def _write_sequence(file: int, sequence: int) -> None:
    """In one write of always the same length: a killed process leaves the old number or the new one."""
    os.pwrite(file, b"%018d\n" % sequence, 0)


def _completeness(before: LandedWindow | None, answer: Answer) -> tuple[bool, bool]:
    """(is_closed, is_partial) of the window once the answer is merged.

    Closed: any whole answer came from after the window's end; an earlier one that lands later doesn't open it again.
    Partial: closed, but no answer came both after the end and before the portal began to delete the window. So a
    complete window stays complete when a later pull finds half of it gone, and one that was only ever pulled while it
    was still open becomes partial: what was submitted between that pull and midnight may have been deleted unseen.
    """
    is_closed = answer.failure is None and answer.window.is_closed(answer.fetched_at)
    is_complete = is_closed and answer.window.days_left(answer.fetched_at) >= 0
    if before is not None:
        is_complete = is_complete or (before.is_closed and not before.is_partial)
        is_closed = is_closed or before.is_closed
    return is_closed, is_closed and not is_complete


def _lead_rows(answer: Answer, run_id: str) -> list[_Row]:
    return [
        {
            "kind": answer.kind.name,
            "day": answer.window.day,
            "scope": answer.window.scope.key,
            "lead_id": _storable(lead.lead_id),
            "position": position,
            "sequence": _sequence(answer.sequence, answer.fetched_at),
            "fetched_at": answer.fetched_at,
            "run_id": run_id,
            "source": "pull",
            "payload": _storable(lead.payload),
            "oddity": lead.oddity,
        }
        for position, lead in enumerate(answer.leads)
    ]


def _pushed_rows(kind: LeadKind, day: date, scope: str, pushed: Sequence[PushedLead], run_id: str) -> list[_Row]:
    """A row per delivery, in their order."""
    deliveries = sorted(((_sequence(one.sequence, one.received_at), one) for one in pushed), key=lambda pair: pair[0])
    return [
        {
            "kind": kind.name,
            "day": day,
            "scope": scope,
            "lead_id": _storable(one.lead.lead_id),
            "position": position,
            "sequence": sequence,
            "fetched_at": one.received_at,
            "run_id": run_id,
            "source": "push",
            "payload": _storable(one.lead.payload),
            "oddity": one.lead.oddity,
        }
        for position, (sequence, one) in enumerate(deliveries)
    ]


def _inventory_rows(
    day: date, found: Mapping[str, Sequence[InventoryItem]], sequence: int, fetched_at: datetime, run_id: str
) -> list[_Row]:
    items = ((address, item) for address, items in found.items() for item in items)
    return [
        {
            "day": day,
            "item_id": _storable(item.item_id or f"sha256:{_sha256(_storable(item.payload))}"),
            "address": address,
            "page": item.page,
            "position": position,
            "sequence": sequence,
            "fetched_at": fetched_at,
            "run_id": run_id,
            "payload": _storable(item.payload),
            "oddity": item.oddity,
        }
        for position, (address, item) in enumerate(items)
    ]


def _storable(text: str) -> str:
    """The text with lone surrogates, which have no UTF-8 form, as the JSON escapes that mean the same."""
    return text.encode(errors="backslashreplace").decode()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# --- Parquet ------------------------------------------------------------------------------------------------------


class _UnreadableError(Exception):
    """The file's content isn't what was written there. Its text says why in a few words and quotes nothing."""


@dataclass(frozen=True, slots=True)
class _Landed:
    window: LandedWindow
    facts: Mapping[str, str]
    file: pq.ParquetFile


def _parquet(rows: Sequence[_Row], schema: pa.Schema, facts: Mapping[str, str]) -> bytes:
    """The rows as a Parquet file with the facts in its footer, sealed."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        schema,
        # Each column that is compressed takes a compressor of its own, which for the short ones costs more than all of
        # the payloads, and saves a tenth of the file.
        compression={name: "zstd" if name == "payload" else "none" for name in schema.names},
        compression_level={"payload": 3},
        use_dictionary=[name for name in schema.names if name in _DICTIONARY_COLUMNS],  # type: ignore[arg-type]  # the stubs know only bool
        # Neither is read by anybody here, and with 20 leads a file they would be a third of it.
        write_statistics=False,
        store_schema=False,
    ) as writer:
        writer.write_table(pa.Table.from_pylist(list(rows), schema=schema))
        writer.add_key_value_metadata({**facts, "schema_version": SCHEMA_VERSION})
    return _seal(sink.getvalue().to_pybytes())


def _seal(content: bytes) -> bytes:
    """The Parquet file with the SHA-256 of all of it in the gap before its footer.

    Parquet's own checksums cover pages and not the footer, where a flipped bit can hide all rows without an error or
    stop DuckDB in a file that pyarrow reads. Readers find pages by their offsets and never look into the gap.
    """
    at = _footer_start(content)
    return content[:at] + hashlib.sha256(content).digest() + content[at:]


def _is_intact(content: bytes) -> bool:
    """Whether a sealed file is what was written, to the last bit."""
    at = _footer_start(content)
    if at < _SEAL_BYTES:
        return False
    return hashlib.sha256(content[: at - _SEAL_BYTES] + content[at:]).digest() == content[at - _SEAL_BYTES : at]


def _footer_start(content: bytes) -> int:
    # A Parquet file ends with its footer, the footer's length in 4 bytes, and "PAR1".
    return len(content) - 8 - int.from_bytes(content[-8:-4], "little")


def _open(path: Path, schema: pa.Schema, relative: str) -> tuple[pq.ParquetFile, dict[str, str]]:
    """The file, opened in memory, and the facts of its footer.

    Raises _UnreadableError for content that isn't what was written there; FileNotFoundError where there is none;
    StorageError where the disk or the permissions are at fault.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise not_read(path, error) from error
    if not _is_intact(content):
        raise _UnreadableError("it is damaged, or no file of this pipeline")
    file = pq.ParquetFile(pa.BufferReader(content))
    facts = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    version = facts["schema_version"]
    if version == "1":
        schema = schema.remove(schema.get_field_index("sequence"))
    elif version != SCHEMA_VERSION:
        raise StorageError(
            f"{path} has format {version}, and this version of leads-pipeline reads up to {SCHEMA_VERSION}. "
            "Update leads-pipeline; the file is untouched."
        )
    if facts["path"] != relative or not file.schema_arrow.equals(schema):
        raise _UnreadableError("it was written for another place than this one")
    return file, facts


def _rows(file: pq.ParquetFile, columns: list[str] | None = None) -> list[_Row]:
    return [
        row if "sequence" in row else row | {"sequence": _sequence(None, row["fetched_at"])}
        for row in file.read(columns, use_threads=False).to_pylist()
    ]


def _landed_window(path: Path, facts: Mapping[str, str], file: pq.ParquetFile) -> LandedWindow:
    table, day, scope = path.parts[-4:-1]
    fetched_at = datetime.fromisoformat(facts["fetched_at"])
    is_first_format = facts["schema_version"] == "1"
    return LandedWindow(
        kind=table.removesuffix("_leads"),
        day=date.fromisoformat(day.removeprefix("day=")),
        scope=scope.removeprefix("scope="),
        start=datetime.fromisoformat(facts["window_start"]),
        end=datetime.fromisoformat(facts["window_end"]),
        leads=len(file.read(["lead_id"])["lead_id"].unique()) if is_first_format else int(facts["leads"]),
        rows=file.metadata.num_rows,
        looked_at=fetched_at if is_first_format else datetime.fromisoformat(facts["looked_at"]),
        sequence=_sequence(None, fetched_at) if is_first_format else int(facts["sequence"]),
        fetched_at=fetched_at,
        run_id=facts["run_id"],
        request=facts["request"],
        body_sha256=facts["body_sha256"],
        attempts=int(facts["attempts"]),
        is_partial=facts["is_partial"] == "True",
        is_closed=facts["is_closed"] == "True",
        path=path,
    )


# --- folders and files --------------------------------------------------------------------------------------------


def _is_same(one: Path, other: Path) -> bool:
    if not other.exists() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        return hashlib.file_digest(first, "sha256").digest() == hashlib.file_digest(second, "sha256").digest()


def _found(folder: Path, pattern: str) -> list[Path]:
    """What is in the folder by that name, sorted; nothing where there is no folder."""
    with reading(folder):
        return sorted(folder.glob(pattern))


def _days_in(folder: Path) -> list[date]:
    """Days of the `day=…` folders in there, sorted. A folder of another name isn't ours and stays out."""
    days = []
    for entry in _found(folder, "day=*"):
        with suppress(ValueError):
            days.append(date.fromisoformat(entry.name.removeprefix("day=")))
    return sorted(days)


def _raw_lock(path: Path) -> str:
    """One lock per kind and scope (one for the inventory) over all days: as many files as scopes, for ever."""
    folder = path.parent
    if folder.parent.name == _INVENTORY:
        return _INVENTORY
    return f"{folder.parent.parent.name}-{folder.name.removeprefix('scope=')}"


def _staged_lock(day: date) -> str:
    return f"staged-{day.isoformat()}"
