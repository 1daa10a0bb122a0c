"""Which files were examined and had nothing left, so that nobody reads each of 300,000 every night.

Belongs here: telling a file from the one that was examined, and which leads it had. Doesn't: what was looked for in
it (privacy/).
"""

import hashlib
import os
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from leads_pipeline.durable import reading, replace_file

# 96 bits tell all files that there will ever be apart.
_DIGEST_BYTES: Final = 12
# Of a lead's hash 32 bits are kept: the files of the few leads that share them are read once more than they have to be.
_HEX_DIGITS: Final = 8

# State, the last entry of the list that was known with the mark of all up to it, and the leads of each file.
_CONTENT: Final = msgspec.msgpack.Decoder(tuple[str, int, str, dict[bytes, bytes]])


class ExaminedFiles:
    """The files in which nothing was left to do in a certain state, each as it was before it was read.

    A file that was replaced, copied, restored or touched since is another one, by its size, times and inode; so is each
    in another state. What can't be read counts as nothing remembered: then all are to be examined.
    """

    def __init__(
        self,
        path: Path,
        state: str,
        upto: int = 0,
        learned_since: Callable[[int], Iterable[str]] = lambda _: (),
        mark: Callable[[int], str] = str,
        *,
        is_anew: bool = False,
    ) -> None:
        """`is_anew`: whatever was examined before, all files are to be.

        Entries by number add leads to the state, of which `upto` is the last. `learned_since` has the hashes of those
        that came after an entry: files that have one of them are to be examined again. `mark` tells a list from
        another one up to an entry: one that was put back from a backup has learned other ids by the same numbers.
        """
        self._path = path
        self._state, self._upto, self._mark = state, upto, mark
        since, self._before = (0, dict[bytes, bytes]()) if is_anew else self._remembered()
        self._is_new = since != upto
        self._learned = frozenset(map(_shortened, learned_since(since)))
        self._now: dict[bytes, bytes] = {}

    def unexamined(self, paths: Iterable[Path]) -> list[Path]:
        """Those of the files that are to be examined. Each counts as examined from then on, until `again` says no."""
        files = []
        for path in paths:
            digest = self._digest(path)
            if digest is not None:
                leads = self._before.get(digest)
                self._now[digest] = leads or b""
                if leads is None or not self._learned.isdisjoint(memoryview(leads).cast("I")):
                    files.append(path)
        return files

    def has(self, path: Path, leads: Iterable[str]) -> None:
        """Remember which leads one of these files has, by their hashes."""
        digest = self._digest(path)
        if digest in self._now:
            self._now[digest] = array("I", map(_shortened, leads)).tobytes()

    def again(self, paths: Iterable[Path]) -> None:
        """Have those examined the next time too."""
        for path in paths:
            self._now.pop(self._digest(path) or b"", None)

    def note(self) -> None:
        """Remember, once it is done. Files that nobody has asked about are forgotten."""
        if self._is_new or self._now != self._before:
            content = msgspec.msgpack.encode((self._state, self._upto, self._mark(self._upto), self._now))
            replace_file(self._path, _digest_of(content) + content)

    def _remembered(self) -> tuple[int, dict[bytes, bytes]]:
        with reading(self._path):
            try:
                whole = self._path.read_bytes()
            except FileNotFoundError:
                whole = b""
        digest, content = whole[:_DIGEST_BYTES], whole[_DIGEST_BYTES:]
        if digest == _digest_of(content):
            with suppress(msgspec.ValidationError):  # of another version
                state, upto, mark, files = _CONTENT.decode(content)
                if state == self._state and mark == self._mark(upto):
                    return upto, files
        return 0, {}

    @staticmethod
    def _digest(path: Path) -> bytes | None:
        with reading(path):
            try:
                stat = os.stat(path)  # noqa: PTH116 - 300,000 of them each night
            except FileNotFoundError:
                return None
        identity = f"{path}\0{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
        return _digest_of(identity.encode(errors="surrogateescape"))


def _digest_of(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _shortened(lead: str) -> int:
    return int(lead[:_HEX_DIGITS], 16)
