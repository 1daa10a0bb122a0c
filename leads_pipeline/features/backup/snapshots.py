"""Backups: dated copies of a data folder in a target, a folder on another disk.

    TARGET/2026-11-22T021500Z/   a snapshot: a data folder, whose leads.duckdb opens in place
    TARGET/.unfinished-…/        one that is being made or deleted; the next backup deletes it

A file that the snapshot before has with the same bytes is a hard link to it, so a snapshot costs
what has changed.

Belongs here: what a snapshot holds, making and deleting snapshots. Doesn't: the way back
(restoring.py), carrying snapshots to another machine (docs/guides/back-up-and-restore.md).
"""

import io
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import BinaryIO, Final

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.backup.copying import copy_once
from leads_pipeline.raw import gatekeeper
from leads_pipeline.raw.data_folder import DEMO, RESTORING, DataFolder
from leads_pipeline.raw.durable import PRIVATE_FOLDER_MODE, reading, sync
from leads_pipeline.raw.names import QUARANTINE, RAW, RESTRICTED
from leads_pipeline.raw.room import is_full
from leads_pipeline.raw.store import FolderStore

# The suppression list in a snapshot, and the folders that a bucket holds in place of the data
# folder.
LIST: Final = f"{gatekeeper.LIST}/"
STORED: Final = (f"{RAW}/", f"{RESTRICTED}/", f"{QUARANTINE}/")

# Rows move from raw to restricted and back. A file that moves meanwhile is copied at its old or its
# new place.
_IN_ORDER: Final = (f"{RESTRICTED}/", *STORED)

# Files that are copied in another way, can be made again, or belong to the machine. A restored
# folder lacks the number of its last sweep, so its first publication takes out who was erased
# since.
_LEFT_OUT: Final = {
    *(prefix.rstrip("/") for prefix in (LIST, *STORED)),
    "leads.duckdb",
    ".versions",
    "tables",
    "outcomes",
    ".cache",
    ".dagster",
    ".env",
    "README.md",
    "lost+found",
    DEMO,
    RESTORING,
}
_STATE_LEFT_OUT: Final = tuple(
    f".state/{name}"
    for name in ("tokens/", "locks/", "duckdb/", "swept", "service", "dagster_home")
)

# Work goes on while a backup is made, so SQLite copies its databases. A journal belongs to a
# moment.
_DATABASE: Final = ".sqlite"
_JOURNAL: Final = ".sqlite-journal"

# It tells whose backup it is. Each data folder has one.
_KEY: Final = ".state/person_key"

_NAME: Final = "%Y-%m-%dT%H%M%SZ"
_UNFINISHED: Final = ".unfinished-"
_VERSIONS: Final = ".versions/"

# Raw files and versions of leads.duckdb are named by the hash of their bytes.
_HASH: Final = re.compile(r"-([0-9a-f]{16})\.(?:parquet|duckdb)$")


@dataclass(slots=True)
class BackedUp:
    """The result of a backup. `new` files were copied, the others are hard links.

    `damaged` files can't be read or aren't as they were written. The snapshot has them as the one
    before had them, or lacks them. `troubles` are sentences about what failed once the snapshot was
    whole.
    """

    name: str
    is_first: bool
    files: int = 0
    bytes: int = 0
    new: int = 0
    new_bytes: int = 0
    removed: int = 0
    damaged: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def back_up(data: DataFolder, target: Path, keep: int, now: datetime) -> BackedUp:
    """Make a snapshot while everything runs, and delete all but the newest `keep`.

    Raises SettingsError for a target that can't be one, StorageError if the target can't be written
    or the data can't be read. Then the snapshots before are untouched.
    """
    _check_place(data, target)
    key = data.state.person_key().hex().encode()

    with data.state.lock("backup", timeout_seconds=0):
        before = next(reversed(snapshots(target, now)), None)
        if before and _key_of(before) != key:
            raise SettingsError(
                f"{target} has backups of another data folder than {data.folder}: the two would "
                "delete each other's. Name a folder of its own. Nothing was changed.",
                reason="another folder's backups",
            )

        name = now.astimezone(UTC).strftime(_NAME)
        done = BackedUp(name, is_first=before is None)
        draft = _Draft(data, target / f"{_UNFINISHED}{name}", before, done)
        with _saying_what_target_lacks(target, draft):
            for unfinished in target.glob(f"{_UNFINISHED}*"):
                # It may hold the room that this one needs.
                shutil.rmtree(unfinished, ignore_errors=True)
            draft.fill()
            draft.publish(target / name)

        with _noting_trouble(done):
            _delete_old(target, keep, now, done)
        with _noting_trouble(done):
            data.state.note_backup(now)

    return done


@contextmanager
def _noting_trouble(done: BackedUp) -> Iterator[None]:
    """Note what fails once the snapshot is whole."""
    try:
        yield
    except StorageError as error:
        done.troubles.append(str(error))


def _delete_old(target: Path, keep: int, now: datetime, done: BackedUp) -> None:
    """Delete all but the newest snapshots, and undeleted leftovers. Raises StorageError."""
    for old in snapshots(target, now)[:-keep]:
        with _naming_backup_at_fault(old):
            old.rename(target / f"{_UNFINISHED}{old.name}")
        done.removed += 1
    for unfinished in target.glob(f"{_UNFINISHED}*"):
        with _naming_backup_at_fault(unfinished):
            shutil.rmtree(unfinished)


@contextmanager
def _naming_backup_at_fault(old: Path) -> Iterator[None]:
    """Say which backup can't be deleted. Raises StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"The old backup {old} can't be deleted: {error.strerror}. Let this user delete it, or "
            "delete it yourself."
        ) from error


def snapshots(target: Path, now: datetime) -> list[Path]:
    """Return the target's snapshots, oldest first.

    One of the future is of a clock that ran ahead, and comes first. A folder without the data
    folder's key is none, as an interrupted copy of the target leaves it.
    """
    of_future = []
    of_past = []

    with reading(target):
        for path in sorted(target.glob("*")):
            moment = made_at(path)
            if moment is None or not (path / _KEY).exists():
                continue
            if moment > now:
                of_future.append(path)
            else:
                of_past.append(path)

    return of_future + of_past


def _key_of(snapshot: Path) -> bytes:
    path = snapshot / _KEY
    with reading(path):
        return path.read_bytes().strip()


def made_at(snapshot: Path) -> datetime | None:
    """Return when the snapshot was made. None if its name isn't a snapshot's."""
    with suppress(ValueError):
        return datetime.strptime(snapshot.name, _NAME).replace(tzinfo=UTC)
    return None


def own_keys(folder: Path) -> Iterator[str]:
    """Yield the keys of the files in the folder itself, also if a bucket has the raw files.

    leads.duckdb comes first.
    """
    link = folder / "leads.duckdb"
    versions = list((folder / ".versions").glob("leads-*.duckdb"))
    if link.exists() or versions:
        # A snapshot may have no link, because not all file systems and tools take one.
        newest = link if link.exists() else max(versions, key=lambda path: path.stat().st_mtime_ns)
        yield newest.resolve().relative_to(folder.resolve()).as_posix()

    with reading(folder):
        paths = sorted(path for path in folder.iterdir() if path.name not in _LEFT_OUT)

    for path in paths:
        keys = FolderStore(folder).list(f"{path.name}/") if path.is_dir() else [path.name]
        yield from (
            key for key in keys if not (key.startswith(_STATE_LEFT_OUT) or key.endswith(_JOURNAL))
        )


def hash_in(key: str) -> str:
    """Return the first digits of the SHA-256 that the name says. Empty if it says none."""
    match = _HASH.search(key)
    return match[1] if match else ""


def _check_place(data: DataFolder, target: Path) -> None:
    if target.is_symlink() and not target.exists():
        raise SettingsError(
            f"{target} is a link to {target.readlink()}, which is not there. Is its disk mounted? "
            "Nothing was changed."
        )
    for folder in (data.folder, data.gate.folder):
        if target.resolve().is_relative_to(folder.resolve()):
            raise SettingsError(
                f"{target} lies in {folder}, so it would be lost together with it. Name a folder "
                "on another disk. Nothing was changed."
            )


@contextmanager
def _saying_what_target_lacks(target: Path, draft: "_Draft") -> Iterator[None]:
    """Say what the target lacks.

    The draft is gone afterwards, unless it was published. Sources raise StorageError.
    """
    try:
        yield
    except OSError as error:
        why = (
            f"can't be written: {error.strerror}. Is its disk mounted, and may this user write "
            "there?"
        )
        if is_full(error):
            # Its own room counts as free.
            shutil.rmtree(draft.folder, ignore_errors=True)
            why = (
                f"is full: a new backup needs about {draft.needed_bytes() / 1e6:.1f} MB, and "
                f"{shutil.disk_usage(target).free / 1e6:.1f} MB are free. Delete an old backup "
                "there, free some space, or name another disk."
            )
        before = f"The newest whole backup, {draft.before}, is untouched." if draft.before else ""
        raise StorageError(f"{target} {why} {before}".strip()) from error
    finally:
        shutil.rmtree(draft.folder, ignore_errors=True)


class _Draft:
    """A snapshot that is being made.

    Methods raise StorageError if the data can't be read, OSError if the target can't be written.
    """

    def __init__(self, data: DataFolder, folder: Path, before: Path | None, done: BackedUp) -> None:
        self.folder = folder
        self.before = before
        self.done = done
        self._data = data
        self._copied: list[Path] = []

    def fill(self) -> None:
        """Copy or link all files.

        References come before the files that they point to: leads.duckdb before raw, and the number
        of the newest entry before the suppression list. The list is last: it names who is erased
        meanwhile.
        """
        data = self._data
        self._add_all(own_keys(data.folder), partial(own_keys, data.folder))

        for prefix in _IN_ORDER:
            for folder, keys in groupby(
                data.store.list(prefix), lambda key: key[: key.rfind("/") + 1]
            ):
                self._add_all(keys, partial(data.store.list, folder))

        for damaged in data.quarantine.files():
            if damaged.file and not (self.folder / damaged.file.key).exists():
                self._keep_former(damaged.file.key)

        self._link_leads_duckdb()
        self._add_all(self._list_keys(), self._list_keys)

    def _link_leads_duckdb(self) -> None:
        """Link `leads.duckdb` to the snapshot's version of it, if symbolic links are possible."""
        for version in (self.folder / _VERSIONS).glob("leads-*.duckdb"):
            with suppress(OSError):
                (self.folder / "leads.duckdb").symlink_to(version.relative_to(self.folder))

    def needed_bytes(self) -> int:
        """Return the size of the files that the snapshot before lacks, without a bucket's."""
        total = 0
        for key in chain(own_keys(self._data.folder), *map(self._data.store.list, STORED)):
            with suppress(FileNotFoundError):
                total += 0 if self._same(key) else (self._data.folder / key).stat().st_size
        return total

    def publish(self, snapshot: Path) -> None:
        """Sync all of it to the disk, then give it its name."""
        os.sync()
        for path in self._copied:  # os.sync reports no errors
            sync(path)

        self.folder.rename(snapshot)
        try:
            sync(snapshot.parent)
        except OSError:
            with suppress(OSError):
                snapshot.rename(self.folder)  # a backup that failed must not look like a whole one
            raise

    def _list_keys(self) -> list[str]:
        keys = FolderStore(self._data.gate.folder).list("")
        return [f"{LIST}{key}" for key in keys if key != ".lock"]

    def _add_all(self, keys: Iterable[str], list_again: Callable[[], Iterable[str]]) -> None:
        """Add the files. If a name has vanished, a newer file may hold its rows."""
        tried: set[str] = set()
        while new := [key for key in keys if key not in tried]:
            tried.update(new)
            vanished = [key for key in new if not self._add(key)]
            if not vanished:
                break
            keys = list_again()

    def _add(self, key: str) -> bool:
        """Link or copy a file. False if it is gone."""
        same = self._same(key)
        if (self.folder / key).exists() or (same and self._link(same, key)):
            return True

        source = self._open(key)
        if source is None:
            return False

        with source:
            if not self._copy(source, key):
                self.done.damaged.append(key)
                self._keep_former(key)

        return True

    def _same(self, key: str) -> Path | None:
        """The file of the snapshot before with the same bytes, by the hash in its name.

        A window that was fetched again has a new name, and often the same bytes.
        """
        path = Path(key)
        hash_ = hash_in(key)
        if self.before is None or not hash_:
            return None
        return next((self.before / path.parent).glob(f"*-{hash_}{path.suffix}"), None)

    def _keep_former(self, key: str) -> None:
        """Take a file that is damaged now from the snapshot before."""
        former = self._same(key)
        if former is None and self.before and key.startswith(_VERSIONS):
            former = next(self.before.glob(f"{_VERSIONS}*"), None)
            key = f"{_VERSIONS}{former.name}" if former else key
        if former and not self._link(former, key):
            shutil.copyfile(former, self.folder / key)

    def _link(self, former: Path, key: str) -> bool:
        """Give the file of the snapshot before another name. False if the file system can't."""
        path = self.folder / key
        _make_folder(path.parent)
        try:
            path.hardlink_to(former)
        except OSError:
            return False
        self._count(path.stat().st_size)
        return True

    def _count(self, size: int) -> None:
        self.done.files += 1
        self.done.bytes += size

    def _open(self, key: str) -> BinaryIO | None:
        """Open a file of the data. None if it is gone."""
        if self._data.bucket and key.startswith(STORED):
            content = self._data.store.get(key)
            return None if content is None else io.BytesIO(content)

        path = self._data.folder / key
        if key.endswith(_DATABASE):
            with (
                suppress(sqlite3.DatabaseError),  # a damaged one is copied as it is
                closing(
                    sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30)
                ) as ledger,
                closing(sqlite3.connect(":memory:")) as copy,
            ):
                ledger.backup(copy)
                return io.BytesIO(copy.serialize())

        if key.startswith(LIST):
            path = self._data.gate.folder / key.removeprefix(LIST)

        with reading(path), suppress(FileNotFoundError):
            return path.open("rb")

        return None

    def _copy(self, source: BinaryIO, key: str) -> bool:
        """Write the source to a new file. False if it can't be read, or isn't as it was written."""
        path = self.folder / key
        _make_folder(path.parent)

        if not copy_once(source, path, hash_in(key)):
            return False

        size = path.stat().st_size
        self._copied.append(path)
        self.done.new += 1
        self.done.new_bytes += size
        self._count(size)
        return True


def _make_folder(folder: Path) -> None:
    """Like make_folder, without waiting for the disk: all is synced at once in the end."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(PRIVATE_FOLDER_MODE)
