"""The files of a backup's target.

    TARGET/files/ab/abcd…                      a content, once however many backups have it, named by its SHA-256
    TARGET/backups/000017-20261122T021500Z     a backup: which path has which content; written last

Belongs here: writing, reading and removing them. Doesn't: what is copied (parts.py). Contents are never changed, so
that nothing that is done to one backup can harm another, and so that any tool that carries folders carries only what
is new.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import filelock
import msgspec

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.storage.durable import PRIVATE_FILE_MODE, make_folder, reading, replace_file, storing, sync

# Raised when an older version of the pipeline could no longer restore what is written.
FORMAT: Final = 1

# Waiting for the disk is most of writing a small file, and files needn't wait for each other.
_WRITERS: Final = 8

_PIECE_BYTES: Final = 1 << 20


class Entry(msgspec.Struct, frozen=True):
    """A file of a backup. `identity` is that of the file that was copied, for the next backup to compare."""

    path: str
    sha256: str
    size: int
    identity: tuple[int, ...] = ()


class Backup(msgspec.Struct, frozen=True):
    """Which files there were. `owner` tells data folders apart without saying anything of them."""

    format: int
    number: int
    made_at: datetime
    owner: str
    files: list[Entry]

    @property
    def name(self) -> str:
        """What its file is called. The number makes the order, whatever the clock does."""
        return f"{self.number:06}-{self.made_at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


class Store:
    """A backup's target. Every method raises StorageError where the folder can't take or give what it should."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._files = target / "files"
        self._backups = target / "backups"

    # --- backups --------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Of all backups, oldest first."""
        with reading(self._backups):
            return sorted(path.name for path in self._backups.glob("*") if re.fullmatch(r"\d{6,}-\d+T\d+Z", path.name))

    def read(self, name: str) -> Backup:
        """The backup of that name. Raises StorageError where it is damaged, SettingsError where it is too new."""
        path = self._backups / name
        with reading(path):
            digest, _, text = path.read_bytes().partition(b"\n")
        if digest != hashlib.sha256(text).hexdigest().encode():
            raise StorageError(f"{path} is damaged. Its files may be whole; the other backups don't need it.")
        if (made := msgspec.json.decode(text, type=_Format).format) > FORMAT:
            raise SettingsError(
                f"{path} has format {made}, and this version of leads-pipeline reads up to {FORMAT}: it is older than "
                "the one that made the backup. Update leads-pipeline; nothing was changed.",
                reason="downgrade",
            )
        return msgspec.json.decode(text, type=Backup)

    def write(self, backup: Backup) -> None:
        """Write the backup's list, which makes it count: its contents must be on the disk before."""
        text = msgspec.json.encode(backup)
        replace_file(self._backups / backup.name, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the target against other backups, and sweep what killed ones left."""
        with storing(self.target):
            make_folder(self._files)
            lock = filelock.FileLock(self.target / ".lock", mode=PRIVATE_FILE_MODE)
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                raise StorageError(
                    f"Another backup to {self.target} is under way. Run again when it has ended."
                ) from None
            try:
                for leftover in (*self._files.glob("**/.*.tmp*"), *self._backups.glob(".*.tmp")):
                    leftover.unlink()
                yield
            finally:
                lock.release()

    def forget(self, keep: int) -> int:
        """Remove all but the newest `keep` backups, then the contents that no backup has; how many backups went."""
        names = self.names()
        old, kept = names[:-keep], names[-keep:]
        # Before anything goes: where one that stays can't be read, nobody knows which contents it needs.
        needed = {entry.sha256 for name in kept for entry in self.read(name).files}
        with storing(self.target):
            for name in old:
                (self._backups / name).unlink()
            sync(self._backups)
            for path in self._contents():
                if path.name not in needed:
                    path.unlink()
        return len(old)

    # --- contents -------------------------------------------------------------------------------------------------

    def content_sizes(self) -> dict[str, int]:
        """The size of each content that is there."""
        with reading(self._files):
            return {path.name: path.stat().st_size for path in self._contents()}

    def _contents(self) -> Iterator[Path]:
        return (path for path in self._files.glob("??/*") if not path.name.startswith("."))

    def _path(self, sha256: str) -> Path:
        return self._files / sha256[:2] / sha256

    def draft(self) -> Path:
        """A name for a file that `adding` can take over."""
        return self._files / f".{secrets.token_hex(8)}.tmp"

    @contextmanager
    def adding(self) -> Iterator["Adding"]:
        """Add contents; when the block ends, they are on the disk."""
        adding = Adding(self._files, self.content_sizes())
        with ThreadPoolExecutor(_WRITERS, "backup") as pool:
            adding.pool = pool
            yield adding
            adding.finish()

    def copy(self, entry: Entry, path: Path) -> bool:
        """Write the entry's content to a new file; False, and no file, where the content is gone or damaged."""
        if self._hashed(entry, path):
            return True
        path.unlink(missing_ok=True)
        return False

    def is_whole(self, entry: Entry) -> bool:
        """Whether the entry's content is there as it was written, to the last bit."""
        return self._hashed(entry, None)

    def _hashed(self, entry: Entry, copy: Path | None) -> bool:
        digest = hashlib.sha256()
        source = self._path(entry.sha256)
        try:
            file = source.open("rb")
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageError(f"{source} can't be read: {error.strerror}. Nothing was changed.") from error
        with file, _new_file(copy) if copy else nullcontext() as target:
            while piece := self._piece(file.fileno(), source):
                digest.update(piece)
                if target is not None:
                    target.write(piece)
        return digest.hexdigest() == entry.sha256

    @staticmethod
    def _piece(file: int, source: Path) -> bytes:
        with reading(source):
            return os.read(file, _PIECE_BYTES)


def _new_file(path: Path) -> BinaryIO:
    """Whose `write` writes all of it, where os.write of a full disk may stop in the middle and say so to nobody."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE), "wb")


class _Format(msgspec.Struct):
    format: int


class Adding:
    """Contents on their way to the target's disk, several at a time."""

    pool: ThreadPoolExecutor

    def __init__(self, folder: Path, sizes: dict[str, int]) -> None:
        self._folder = folder
        self.sizes = sizes
        self.written = 0
        self.written_bytes = 0
        self._waiting: list[Future[None]] = []

    def has(self, entry: Entry) -> bool:
        """Whether the content is there, by its name and size; `verify` reads it."""
        return self.sizes.get(entry.sha256) == entry.size

    def content(self, path: str, content: bytes, identity: tuple[int, ...] = ()) -> Entry:
        """Add a file's content."""
        entry = Entry(path, hashlib.sha256(content).hexdigest(), len(content), identity)
        if not self.has(entry):
            self._count(entry)
            # At most so many in memory.
            if len(self._waiting) >= 4 * _WRITERS:
                self._waiting.pop(0).result()
            self._waiting.append(self.pool.submit(self._write, entry.sha256, content))
        return entry

    def file(self, path: str, draft: Path, identity: tuple[int, ...]) -> Entry:
        """Take over a file that was written below the target."""
        with storing(draft):
            with draft.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            entry = Entry(path, digest, draft.stat().st_size, identity)
            if self.has(entry):
                draft.unlink()
            else:
                self._count(entry)
                make_folder(self._folder / digest[:2])
                sync(draft)
                draft.replace(self._folder / digest[:2] / digest)
        return entry

    def _count(self, entry: Entry) -> None:
        self.sizes[entry.sha256] = entry.size
        self.written += 1
        self.written_bytes += entry.size

    def _write(self, sha256: str, content: bytes) -> None:
        path = self._folder / sha256[:2] / sha256
        with storing(path):
            make_folder(path.parent)
            draft = path.with_name(f".{secrets.token_hex(8)}.tmp")
            with _new_file(draft) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)

    def finish(self) -> None:
        """Wait for all of it; then for the folders' entries, once each."""
        for waiting in self._waiting:
            waiting.result()
        with storing(self._folder):
            for folder in (self._folder, *(path for path in self._folder.glob("??") if self.written)):
                sync(folder)


def in_words(paths: Sequence[str], count: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(paths) - count} more" if len(paths) > count else ""
    return f"{', '.join(paths[:count])}{more}"
