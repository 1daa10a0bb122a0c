"""A data folder by itself: its locks, the order of what it receives, and what it remembers.

Belongs here: what all rooms of the lake stand on, and no file of leads. Doesn't: the warehouse's file (warehouse/).
"""

import fcntl
import io
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

import filelock

from leads_pipeline.durable import PRIVATE_FILE_MODE, make_folder, reading, replace_file, storing
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.objects import ObjectStore
from leads_pipeline.suppression import SuppressionList

# Longer than any honest holder needs (a publication of millions of leads takes seconds): whoever waits this long
# waits for a process that hangs.
LOCK_TIMEOUT_SECONDS: Final = 600.0

# flock(2) has no time limit. filelock's default of 0.05 s would be most of a landing that takes 3 ms.
LOCK_POLL_SECONDS: Final = 0.005

# How far the counter of sequences may get ahead of what of it is on the disk, in microseconds.
SEQUENCE_STEP: Final = 60_000_000


# Where the store has what is remembered.
_MEMORY: Final = "state/"

# Folders and stores that were compared in this process.
_shared: Final[set[tuple[Path, str]]] = set()

logger = logging.getLogger(__name__)


class FolderState:
    """The folder, whose files many processes and threads may use at once; it creates what it needs."""

    def __init__(self, folder: Path, privacy: Path | None = None, store: ObjectStore | None = None) -> None:
        """`privacy` is where the suppression list lies, `privacy/` in the folder where it isn't given.

        Where there is a `store`, it has the truth, and the folder is a copy of it that this machine works with.
        """
        self._folder = folder
        self._state = folder / ".state"
        self.store = store
        self.suppression = SuppressionList(privacy or folder / "privacy", self._state / "privacy", store)

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._folder

    # --- locks ----------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, name: str, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Hold the lock of that name against all other processes and threads.

        Raises StorageError when another holder keeps it for longer than `timeout_seconds`; below 0 there is no end.
        """
        path = self._lock_path(name)
        with storing(path):
            file = _locked(path, timeout_seconds)
        try:
            yield
        finally:
            with _telling_what_is_not_freed(path), file:
                fcntl.flock(file, fcntl.LOCK_UN)  # a forked process may have the descriptor too

    @contextmanager
    def _reentrant_lock(
        self, name: str, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS
    ) -> Iterator[filelock.BaseFileLock]:
        """The same against other processes alone."""
        path = self._lock_path(name)
        lock = filelock.FileLock(
            path, mode=PRIVATE_FILE_MODE, poll_interval=LOCK_POLL_SECONDS, is_singleton=True, thread_local=False
        )
        with storing(path):
            make_folder(path.parent)
            try:
                lock.acquire(timeout=timeout_seconds)
            except filelock.Timeout:
                raise _not_had(path, timeout_seconds) from None
        try:
            yield lock
        finally:
            with _telling_what_is_not_freed(path):
                lock.release()

    def _lock_path(self, name: str) -> Path:
        return self._state / "locks" / f"{name}.lock"

    @contextmanager
    def running(self, run_id: str) -> Iterator[None]:
        """Hold the lock that says that a run is alive. It goes with the process, however that ends.

        The run's next asset needn't wait for one that broke off and that Python hasn't cleared away yet.
        """
        name = f"run-{run_id}"
        with self._reentrant_lock(name) as lock:
            try:
                yield
            finally:
                if lock.lock_counter == 1:
                    self._lock_path(name).unlink(missing_ok=True)

    def is_running(self, run_id: str) -> bool:
        """Whether any process holds that run's lock at this moment."""
        return self._is_held(f"run-{run_id}")

    @contextmanager
    def pulling(self) -> Iterator[None]:
        """Hold the lock by which pulls take turns, for as long as that takes: two don't know of each other's pace.

        Dagster's pool does so for the runs of one queue alone: the command line launches its own, and a Dagster home
        without our dagster.yaml limits no pool.
        """
        with self._reentrant_lock("pull", timeout_seconds=-1):
            yield

    @contextmanager
    def reading(self, reader: str) -> Iterator[None]:
        """Hold the lock that says that a reader of the warehouse is alive. It goes with the process, like a run's."""
        with self.lock(reader):
            try:
                yield
            finally:
                with suppress(OSError):  # a file that nobody locks is in nobody's way
                    self._lock_path(reader).unlink(missing_ok=True)

    def is_reading(self, reader: str) -> bool:
        """Whether a reader of that name is alive at this moment, in any process."""
        return self._is_held(reader)

    def is_pulling(self) -> bool:
        """Whether a pull is under way at this moment, in any process."""
        return self._is_held("pull")

    def _is_held(self, name: str) -> bool:
        path = self._lock_path(name)
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

    def _keep_sequence_above(self, sequence: int) -> None:
        """Have what is drawn from now on be newer than what a file holds: a backup may lack `.state`."""
        with self._sequence_file() as file:
            if _read_sequence(file) < sequence:
                _write_sequence(file, sequence)

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
        remembered = self._remembered("start_date")
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

    def note_backup(self, made_at: datetime) -> None:
        """Remember the newest backup that this folder's files are in, wherever it lies."""
        path = self._state / "last_backup"
        with storing(path):
            replace_file(path, f"{made_at.astimezone(UTC).isoformat()}\n".encode())

    def last_backup(self) -> datetime | None:
        """When that was made, None where none is known of."""
        path = self._state / "last_backup"
        with reading(path), suppress(FileNotFoundError, ValueError):
            return datetime.fromisoformat(path.read_text(errors="replace").strip()).astimezone(UTC)
        return None

    def take_format(self, files: str, number: int) -> None:
        """Remember the highest format that such files were written in here, before any is.

        Raises StorageError where a newer version wrote them: this one would make them anew, without what it doesn't
        know of them, and without saying so.
        """
        path = self._state / "formats" / files
        with storing(path):
            text = path.read_text(errors="replace").strip() if path.exists() else ""
            highest = int(text) if text.isdecimal() else 0
            if highest < number:
                replace_file(path, f"{number}\n".encode())
        if highest > number:
            raise StorageError(
                f"{self._folder / files} was written by a newer version of leads-pipeline, in format {highest}, and "
                f"this one writes format {number}: this is a downgrade. Install the newer version again. Nothing was "
                "changed, and what is pulled still lands. docs/operations.md says how to go back all the same.",
                reason="downgrade",
            )

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
        with self.lock("state"):
            remembered = self._remembered(name)
            if remembered is None:
                # Of several machines, the first one's counts.
                if self.store is not None and not self.store.create(f"{_MEMORY}{name}", f"{value}\n".encode()):
                    return self._remembered(name) or value
                replace_file(self._state / name, f"{value}\n".encode())
        return remembered or value

    def _remembered(self, name: str) -> str | None:
        """What is remembered under the name, here or else in the store."""
        path = self._state / name
        with reading(path):
            text = path.read_text(errors="replace").strip() if path.exists() else ""
        if not text and self.store is not None and (content := self.store.get(f"{_MEMORY}{name}")):
            text = content.decode(errors="replace").strip()
            if text:
                replace_file(path, f"{text}\n".encode())
        return text or None

    def share_memory(self) -> None:
        """Have here what the store remembers, and there what this folder does.

        Raises SettingsError where they contradict each other: then this folder's leads aren't the store's.
        """
        if self.store is None or (self._folder, self.store.address) in _shared:
            return
        for name in ("origin", "person_key", "settings_key", "start_date"):
            here = self._remembered(name)
            if here is None or self.store.create(f"{_MEMORY}{name}", f"{here}\n".encode()):
                continue
            there = (self.store.get(f"{_MEMORY}{name}") or b"").decode(errors="replace").strip()
            if there != here:
                raise SettingsError(
                    f"{self._folder} isn't a copy of {self.store.address}: each has another {name}, so their leads "
                    "must not mix. Set LEADS_WORK_DIR to an empty folder, or LEADS_DATA_DIR to another prefix. "
                    "Nothing was changed.",
                    reason="another store's data folder",
                )
        _shared.add((self._folder, self.store.address))


def _locked(path: Path, timeout_seconds: float) -> io.FileIO:
    """The open file that holds its lock, flock(2), until it is closed. Raises OSError and StorageError.

    Not filelock's, by which threads that land spend a fifth of a pull asking where the path leads (measured).
    """
    until = time.monotonic() + timeout_seconds
    while True:
        try:
            file = io.FileIO(path, "r+", opener=_opened)
        except FileNotFoundError:
            make_folder(path.parent)
            continue
        is_had = False
        try:
            # Some file systems call a lock that another has forbidden.
            with suppress(BlockingIOError, PermissionError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_had = _is_file(path, file)
        finally:  # an error keeps the file, and so the lock, for as long as somebody looks at it
            if not is_had:
                file.close()
        if is_had:
            return file
        if timeout_seconds >= 0 and time.monotonic() >= until:
            raise _not_had(path, timeout_seconds)
        time.sleep(LOCK_POLL_SECONDS)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_FILE_MODE)


def _not_had(path: Path, timeout_seconds: float) -> StorageError:
    return StorageError(
        f"Another process has held {path} for more than {timeout_seconds:g} s. Look for one that hangs (fuser or lsof "
        "names it), end it and run again; the lock frees itself when its holder ends."
    )


@contextmanager
def _telling_what_is_not_freed(path: Path) -> Iterator[None]:
    """What was done under the lock is done, or has failed for a reason of its own."""
    try:
        yield
    except OSError as error:
        logger.warning("%s can't be freed: %s. It goes with this process.", path, error.strerror)


def _is_file(path: Path, file: io.FileIO) -> bool:
    """Whether that is still the file of that name: the holder before may have removed it."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(file.fileno()))  # noqa: PTH116 - a third of the time
    except FileNotFoundError:
        return False


# How far the counter of a folder is known to be on the disk, by this process's own syncing.
_synced_sequences: Final[dict[Path, int]] = {}


def _read_sequence(file: int) -> int:
    """The last number drawn, 0 where the file has none."""
    text = os.pread(file, 32, 0).strip()
    return int(text) if re.fullmatch(rb"[0-9]{1,18}", text) else 0


def _write_sequence(file: int, sequence: int) -> None:
    """In one write of always the same length: a killed process leaves the old number or the new one."""
    os.pwrite(file, b"%018d\n" % sequence, 0)


def found_in(folder: Path, pattern: str) -> list[Path]:
    """What is in the folder by that name, sorted; nothing where there is no folder."""
    with reading(folder):
        return sorted(folder.glob(pattern))


def days_in(folder: Path) -> list[date]:
    """Days of the `day=…` folders in there, sorted. A folder of another name isn't ours and stays out."""
    days = []
    for entry in found_in(folder, "day=*"):
        with suppress(ValueError):
            days.append(date.fromisoformat(entry.name.removeprefix("day=")))
    return sorted(days)
