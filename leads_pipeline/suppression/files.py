"""The suppression list's files.

Belongs here: the list, its key, its chain, what the data folder knows of it, and the same in an object store. Doesn't:
what an entry says (entries.py).

A line is an entry, added and synced, never changed. Each has a chained HMAC under the list's own key, so that a line
that is gone, added or changed shows. The data folder remembers the last entry that it knew (the guard): a list that
lacks it is not the list. Where the list, its key or its chain isn't what it should be, reading it raises StorageError,
and who was about to land a lead stops: nobody comes back because a file was lost.

Where a store has the truth, each entry is an object of its number, which only one can create: of two machines that add
one at once, the second makes its own anew, after the first's.
"""

import fcntl
import hmac
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from leads_pipeline.durable import PRIVATE_FILE_MODE, make_folder, reading, replace_file, storing, sync
from leads_pipeline.errors import StorageError
from leads_pipeline.objects import ObjectStore
from leads_pipeline.suppression.entries import NOBODY, Entry, Suppressed

LIST_FILE: Final = "suppressed"
KEY_FILE: Final = "key"

# Where the store has the list.
_ENTRIES: Final = "privacy/entries/"
_KEY: Final = "privacy/key"


class SuppressionList:
    """The list's files in their folder, and the guard in the data folder. Many processes may use it at once."""

    def __init__(self, folder: Path, guard: Path, store: ObjectStore | None = None) -> None:
        self.folder = folder
        self.guard = guard
        self._store = store

    @property
    def path(self) -> Path:
        """The list's file."""
        return self.folder / LIST_FILE

    def read(self) -> Suppressed:
        """The list as it is now. Raises StorageError where it isn't whole, or isn't the one that the guard knows.

        It is asked for at each landing, so what hasn't changed isn't read again.
        """
        identity = tuple(map(_identity, (self.path, self.guard, self.folder / KEY_FILE)))
        if identity[:2] == (None, None):
            return NOBODY
        cached = _cache.get(self.folder)
        if cached is not None and cached[0] == (self.guard, *identity):
            return cached[1]
        suppressed = self._read()
        _cache[self.folder] = ((self.guard, *identity), suppressed)
        return suppressed

    def append(self, make: Callable[[Suppressed, int], Entry]) -> Entry:
        """Add the entry that is made of the list, for its hashes, and the next number. It is on the disk afterwards."""
        with self._held():
            while True:
                self._refresh()
                key = self._made_key()
                entries, chain, size = self._entries(key)
                entry = make(Suppressed(key, entries), len(entries) + 1)
                content = msgspec.json.encode(entry)
                line = f"{_chained(key, chain, content)} ".encode() + content + b"\n"
                if self._is_kept(entry.number, line):
                    break
            self._add(entry.number, line, size)
        return entry

    def refresh(self) -> None:
        """Have here what the store's list has, and there what this one has. Raises StorageError where they part."""
        if self._store is not None:
            with self._held():
                self._refresh()

    def _add(self, number: int, line: bytes, size: int) -> None:
        """Have the line on the disk, where the whole lines of the file end."""
        with storing(self.path):
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE_MODE)
            try:
                # What a killed process had begun was never acknowledged to anybody.
                os.ftruncate(descriptor, size)
                if os.pwrite(descriptor, line, size) != len(line):
                    raise StorageError(f"{self.path} can't be written to its end. Free some space, then run again.")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if is_new:
                sync(self.folder)
        replace_file(self.guard, f"{number} {line.partition(b' ')[0].decode()}\n".encode())

    # --- the same in a store ----------------------------------------------------------------------------------------

    def _is_kept(self, number: int, line: bytes) -> bool:
        """Whether the entry of that number is this one. It is kept then, wherever there is a store."""
        if self._store is None:
            return True
        key = f"{_ENTRIES}{number:08}"
        # It may have been ours all along: an answer gets lost.
        return self._store.create(key, line) or self._store.get(key) == line

    def _refresh(self) -> None:
        if self._store is None:
            return
        self._refresh_key(self._store)
        if not (self.folder / KEY_FILE).exists():
            return
        key = self._key()
        entries, chain, size = self._entries(key)
        there = {*self._store.list(_ENTRIES)}
        for number, line in enumerate(self._lines(size), 1):
            name = f"{_ENTRIES}{number:08}"
            if name not in there and not self._is_kept(number, line):
                raise self._broken(f"its entry {number} is another than the one in {self._store.address}")
            there.discard(name)
        for number, name in enumerate(sorted(there), len(entries) + 1):
            if name != f"{_ENTRIES}{number:08}":
                raise self._broken(
                    f"{self._store.address} lacks its entry {number}, which any machine that has it puts back with its "
                    "next run"
                )
            line = self._store.get(name) or b""
            chain = _chained(key, chain, line.rstrip(b"\n").partition(b" ")[2])
            if not hmac.compare_digest(line.partition(b" ")[0], chain.encode()):
                raise self._broken(f"{self._store.address}/{name} isn't its entry {number} as it was written")
            self._add(number, line, size)
            size += len(line)

    def _refresh_key(self, store: ObjectStore) -> None:
        path = self.folder / KEY_FILE
        with reading(path):
            here = path.read_bytes() if path.exists() else None
        there = store.get(_KEY)
        if here is not None and there is None:
            there = here if store.create(_KEY, here) else store.get(_KEY)
        if there is None:
            return
        if here is None:
            replace_file(path, there)
        elif here != there:
            raise self._broken(f"its key {path} is another than the one in {store.address}")

    def _lines(self, size: int) -> list[bytes]:
        with reading(self.path):
            return self.path.read_bytes()[:size].splitlines(keepends=True) if size else []

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Against whoever else adds an entry."""
        path = self.folder / ".lock"
        with storing(path):
            make_folder(self.folder)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _read(self) -> Suppressed:
        key = self._key()
        entries, _, _ = self._entries(key)
        return Suppressed(key, entries)

    def _entries(self, key: bytes) -> tuple[list[Entry], str, int]:
        """The entries, the chain's end, and the size of the file without a line that somebody had only begun."""
        number, known_chain = self._guarded()
        with reading(self.path):
            try:
                content = self.path.read_bytes()
            except FileNotFoundError:
                content = b""
        entries: list[Entry] = []
        chain, size, is_known = "", 0, number == 0
        for line in content.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            written, _, text = line[:-1].partition(b" ")
            chain = _chained(key, chain, text)
            if not hmac.compare_digest(written, chain.encode()):
                raise self._broken(f"its line {len(entries) + 1} isn't as it was written, or its key isn't its own")
            entries.append(_ENTRY.decode(text))
            is_known = is_known or (len(entries), chain) == (number, known_chain)
            size += len(line)
        if not is_known:
            raise self._broken(f"it lacks the entry {number} that this data folder knows")
        return entries, chain, size

    def _guarded(self) -> tuple[int, str]:
        with reading(self.guard):
            try:
                number, _, chain = self.guard.read_text(encoding="ascii", errors="replace").strip().partition(" ")
            except FileNotFoundError:
                return 0, ""
        if not number.isdigit():
            raise self._broken(f"{self.guard}, which says how far it goes, can't be read")
        return int(number), chain

    def _key(self) -> bytes:
        path = self.folder / KEY_FILE
        with reading(path):
            try:
                text = path.read_text(encoding="ascii", errors="replace").strip()
                return bytes.fromhex(text)
            except FileNotFoundError:
                raise self._broken(f"{path} is gone") from None
            except ValueError:
                raise self._broken(f"{path} holds no key") from None

    def _made_key(self) -> bytes:
        """The key, made where there is neither a list nor a guard yet."""
        path = self.folder / KEY_FILE
        if not (path.exists() or self.path.exists() or self.guard.exists()):
            made = f"{secrets.token_hex(32)}\n".encode()
            if self._store is not None and not self._store.create(_KEY, made):
                made = self._store.get(_KEY) or made
            replace_file(path, made)
        return self._key()

    def _broken(self, why: str) -> StorageError:
        return StorageError(
            f"The suppression list {self.path} can't be used: {why}. Nothing is landed, staged or published until it "
            "can, as people who were erased would come back. Put list and key back from a backup, both of them, or "
            "point LEADS_PRIVACY_DIR to where they are. What was landed before is untouched.",
            reason="suppression list",
        )


_ENTRY: Final = msgspec.json.Decoder(Entry)

# What each list's files looked like when they were read, and what they said.
_cache: Final[dict[Path, tuple[tuple[object, ...], Suppressed]]] = {}


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - at each landing
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} can't be looked at: {error.strerror}. Check the disk and its rights.") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _chained(key: bytes, before: str, content: bytes) -> str:
    return hmac.digest(key, before.encode() + b"\n" + content, "sha256").hex()
