"""The suppression list's files.

Belongs here: the list, its key, its versions, and what the data folder knows of it. Doesn't: what
an entry says (entries.py).

A version of the list is one document: a seal, then an entry a line. Its name is the number of its
newest entry. It is created once and never changed, in a folder and, if a bucket has the truth, in
the bucket first. The seal is a chain of HMACs under the list's own key, so a line that is gone,
added or changed shows. The data folder remembers the newest entry that it knew (the guard). If the
list lacks that entry, or it or its key is damaged or gone, reading it raises StorageError. Then
nothing is landed or published, so nobody comes back because a file was lost.
"""

import hmac
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from leads_pipeline.errors import StorageError
from leads_pipeline.features.privacy.suppression.entries import NOBODY, Action, Entry, Suppressed
from leads_pipeline.raw.durable import locked, reading, replace_file, storing
from leads_pipeline.raw.store import FolderStore, Store

KEY_FILE: Final = "key"
VERSIONS: Final = "list/"

# The place of the list in a bucket, and in the folder of earlier versions, which had a chained
# file.
_STORED: Final = "privacy/"
_FORMER_FILE: Final = "suppressed"
_FORMER_ENTRIES: Final = "privacy/entries/"

# A process that has just listed them can still read the newest.
_VERSIONS_KEPT: Final = 5


class SuppressionList:
    """The list's files in their folder, and the guard in the data folder.

    Many processes may use them at once. A holder of the lock needs a moment, with a bucket a few
    seconds.
    """

    def __init__(
        self, folder: Path, guard: Path, store: Store | None = None, *, lock_seconds: float = 60
    ) -> None:
        self.folder = folder
        self.guard = guard
        self._lock_seconds = lock_seconds
        self._here = FolderStore(folder)
        self._store = store
        # The identity of the files when they were read, and their content.
        self._read: tuple[object, Suppressed] | None = None

    def read(self) -> Suppressed:
        """The list as it is now.

        Raises StorageError if it isn't whole, or isn't the one that the guard knows. It is asked
        for at each landing, so a version that was read isn't read again.
        """
        newest = self._newest()
        if newest is None and _identity(self.folder / _FORMER_FILE):
            with self._held():
                self._take_over()
            newest = self._newest()

        guard = _identity(self.guard)
        if newest is None and guard is None:
            return NOBODY

        version = _identity(self.folder / newest) if newest else None
        identity = (newest, version, guard, _identity(self.folder / KEY_FILE))
        read = self._read  # another thread may bring an older list meanwhile

        if read is None or read[0] != identity:
            guarded = self._guarded()  # before the list, which is never behind it then
            read = (identity, self._opened(self._lines(self._here, VERSIONS), guarded))
            self._read = read

        return read[1]

    def append(self, make: Callable[[Suppressed, int], Entry]) -> Entry:
        """Add the entry that `make` returns for the list and the next number.

        `make` gets the list for its hashes. The entry is on the disk afterwards.
        """
        with self._held():
            self._take_over()
            while True:
                self._exchange()
                self._make_key()
                lines = self._lines(self._here, VERSIONS)
                entry = make(self._opened(lines, self._guarded()), len(lines) + 1)
                if self._create([*lines, msgspec.json.encode(entry)]):
                    return entry

    def exchange(self) -> None:
        """Exchange entries with the bucket's list, both ways.

        Raises StorageError if the two contradict each other.
        """
        if self._store is not None:
            with self._held():
                self._take_over()
                self._exchange()

    def put_back(self, versions: Sequence[Path], now: datetime) -> list[int]:
        """Use the newest of these copies, with the key beside its folder if there is one.

        If the bucket's list goes on from the copy, that is used. Entries that the data folder knew
        and the list lacks are noted as lost. Return their numbers, which no other entry gets.
        Raises StorageError if the copy isn't whole, or is of another list.
        """
        newest = max(versions, key=lambda path: int(path.name))
        key_path = newest.parent.parent / KEY_FILE

        if not key_path.exists():
            key_path = self.folder / KEY_FILE

        with self._held(), reading(newest):
            key = self._key_in(key_path)
            lines = self._checked(newest.read_bytes(), newest, key)
            newest_entry, mark = self._guarded()
            if 0 < newest_entry <= len(lines) and _marks(key, lines)[newest_entry - 1] != mark:
                raise self._broken(f"{newest} belongs to another list than this data folder's")
            theirs = self._lines_in_bucket(key)
            if theirs[: len(lines)] == lines:
                lines = theirs
            lost = [*range(len(lines) + 1, newest_entry + 1)]
            lines += [
                msgspec.json.encode(Entry(number=number, at=now, action=Action.LOST))
                for number in lost
            ]
            replace_file(self.folder / KEY_FILE, f"{key.hex()}\n".encode())
            name = f"{VERSIONS}{len(lines):08}"
            mark = _marks(key, lines)[-1]
            self._here.create(name, _document(mark, lines))
            replace_file(self.guard, f"{len(lines)} {mark}\n".encode())
            self._here.delete([one for one in self._here.list(VERSIONS) if one != name])
            if self._store is not None and theirs != lines:
                self._store.delete(
                    [f"{_STORED}{KEY_FILE}", *self._store.list(f"{_STORED}{VERSIONS}")]
                )
                self._exchange()

        return lost

    def _lines_in_bucket(self, key: bytes) -> list[bytes]:
        """The entries of the bucket's newest whole list under that key, none without a bucket."""
        for name in reversed(_versions(self._store, f"{_STORED}{VERSIONS}") if self._store else []):
            with suppress(StorageError):
                if self._store and (content := self._store.get(name)) is not None:
                    return self._checked(content, name, key)
        return []

    # --- versions ---------------------------------------------------------------------------------

    def _create(self, lines: Sequence[bytes]) -> bool:
        """Keep the version of these entries. False if another machine had that number first."""
        marks = _marks(self._key(), lines)
        name = f"{VERSIONS}{len(lines):08}"
        content = _document(marks[-1], lines)

        if self._store is not None and not self._store.create_once(f"{_STORED}{name}", content):
            return False
        if not self._here.create_once(name, content):
            return False

        replace_file(self.guard, f"{len(lines)} {marks[-1]}\n".encode())
        self._here.delete(self._here.list(VERSIONS)[:-_VERSIONS_KEPT])

        if self._store is not None:
            self._store.delete(self._store.list(f"{_STORED}{VERSIONS}")[:-_VERSIONS_KEPT])

        return True

    def _newest(self) -> str | None:
        """The key of the newest version."""
        return next(reversed(_versions(self._here, VERSIONS)), None)

    def _lines(self, store: Store, prefix: str) -> list[bytes]:
        """The entries of the newest version in a store, each as it was written."""
        while versions := _versions(store, prefix):
            # One that is gone again was followed by newer ones.
            if (content := store.get(versions[-1])) is not None:
                return self._checked(content, f"{store.address}/{versions[-1]}")
        return []

    def _checked(self, content: bytes, where: Path | str, key: bytes | None = None) -> list[bytes]:
        """The entries of a version's content. Raises StorageError if it isn't as it was written."""
        seal, *lines = content.split(b"\n")
        end = lines.pop() if lines else b"?"
        if (
            end
            or not lines
            or not hmac.compare_digest(seal, _marks(key or self._key(), lines)[-1].encode())
        ):
            raise self._broken(f"{where} was changed, or the key belongs to another list")
        return lines

    def _opened(self, lines: Sequence[bytes], guarded: tuple[int, str]) -> Suppressed:
        """The list of these entries.

        Raises StorageError if the data folder knows one that it lacks.
        """
        key = self._key()
        marks = _marks(key, lines)
        newest_entry, mark = guarded
        if newest_entry and (newest_entry > len(marks) or marks[newest_entry - 1] != mark):
            raise self._broken(f"it lacks the entry {newest_entry} that this data folder knows")
        return Suppressed(key, list(map(_entry, lines)))

    def _guarded(self) -> tuple[int, str]:
        with reading(self.guard):
            try:
                number, _, mark = (
                    self.guard.read_text(encoding="ascii", errors="replace").strip().partition(" ")
                )
            except FileNotFoundError:
                return 0, ""
        if not number.isdigit():
            raise self._broken(
                f"{self.guard}, which holds the number of its last entry, can't be read"
            )
        return int(number), mark

    # --- the same in a bucket, and from earlier versions ------------------------------------------

    def _exchange(self) -> None:
        """Have both be the longer list. Raises StorageError if neither begins with the other."""
        if self._store is None:
            return
        self._exchange_key(self._store)
        ours = self._lines(self._here, VERSIONS)
        theirs = self._lines(self._store, f"{_STORED}{VERSIONS}")
        shared = min(len(ours), len(theirs))
        if ours[:shared] != theirs[:shared]:
            raise self._broken(f"it is another than the one in {self._store.address}")
        if len(ours) != len(theirs):
            self._create(max(ours, theirs, key=len))

    def _exchange_key(self, store: Store) -> None:
        key = f"{_STORED}{KEY_FILE}"
        here = self._here.get(KEY_FILE)

        if here is not None:
            store.create_once(key, here)

        there = store.get(key)
        if here is None and there is not None:
            self._here.create(KEY_FILE, there)
        elif here != there:
            raise self._broken(
                f"its key {self.folder / KEY_FILE} is another than the one in {store.address}"
            )

    def _take_over(self) -> None:
        """Make a version of an earlier pipeline's list, if there is none yet."""
        path = self.folder / _FORMER_FILE
        if self._newest() is not None:
            return

        with reading(path):
            former = path.read_bytes() if path.exists() else b""

        if self._store is not None:
            self._exchange_key(self._store)
            if not self._store.list(f"{_STORED}{VERSIONS}"):
                entries = [self._store.get(key) or b"" for key in self._store.list(_FORMER_ENTRIES)]
                former = max(former, b"".join(entries), key=len)

        # A line that has no end was never acknowledged.
        sealed = [line.partition(b" ")[::2] for line in former.split(b"\n")[:-1]]
        lines = [line for _, line in sealed]

        if not lines:
            return

        for number, (seal, mark) in enumerate(
            zip(sealed, _marks(self._key(), lines), strict=True), 1
        ):
            if not hmac.compare_digest(seal[0], mark.encode()):
                raise self._broken(
                    f"its line {number} was changed, or the key belongs to another list"
                )

        self._opened(lines, self._guarded())
        self._create(lines)
        path.unlink(missing_ok=True)

    # --- lock and key -----------------------------------------------------------------------------

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Against whoever else adds an entry."""
        path = self.folder / ".lock"
        with storing(path), locked(path, self._lock_seconds):
            yield

    def _key(self) -> bytes:
        return self._key_in(self.folder / KEY_FILE)

    def _key_in(self, path: Path) -> bytes:
        with reading(path):
            try:
                text = path.read_text(encoding="ascii", errors="replace").strip()
                return bytes.fromhex(text)
            except FileNotFoundError:
                raise self._broken(f"{path} is gone") from None
            except ValueError:
                raise self._broken(f"{path} holds no key") from None

    def _make_key(self) -> None:
        """Make the key if there is neither a list nor a guard yet."""
        path = self.folder / KEY_FILE
        if not (path.exists() or self._newest() or self.guard.exists()):
            made = f"{secrets.token_hex(32)}\n".encode()
            if self._store is not None and not self._store.create_once(
                f"{_STORED}{KEY_FILE}", made
            ):
                made = self._store.get(f"{_STORED}{KEY_FILE}") or made
            replace_file(path, made)

    def _broken(self, why: str) -> StorageError:
        return StorageError(
            f"The suppression list in {self.folder} can't be used: {why}. Nothing is landed or "
            "published until it can, because people who were erased would come back. Set "
            "LEADS_PRIVACY_DIR to the folder of list and key, or put them back from a backup: "
            "`leads-pipeline privacy apply --list BACKUP`. What was landed before is untouched.",
            reason="suppression list",
        )


_ENTRY: Final = msgspec.json.Decoder(Entry)


def _entry(line: bytes) -> Entry:
    """The entry of a line.

    Of earlier versions, the addresses without tags count, as that is how keys are now.
    """
    entry = _ENTRY.decode(line)
    if entry.action is Action.CLEAR:
        return msgspec.structs.replace(entry, emails=(), mailboxes=(), phones=(), names=())
    return (
        msgspec.structs.replace(entry, emails=entry.mailboxes, mailboxes=())
        if entry.mailboxes
        else entry
    )


def _versions(store: Store, prefix: str) -> list[str]:
    """The keys of the list's versions, oldest first."""
    return [key for key in store.list(prefix) if key.rpartition("/")[2].isdecimal()]


def _identity(path: Path) -> tuple[int, ...] | None:
    with reading(path), suppress(FileNotFoundError):
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino
    return None


def _document(seal: str, lines: Sequence[bytes]) -> bytes:
    return b"\n".join([seal.encode(), *lines, b""])


def _marks(key: bytes, lines: Sequence[bytes]) -> list[str]:
    """The seal of the list after each of its entries."""
    marks: list[str] = []
    for line in lines:
        before = marks[-1] if marks else ""
        marks.append(hmac.digest(key, before.encode() + b"\n" + line, "sha256").hex())
    return marks
