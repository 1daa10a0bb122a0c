"""Which files somebody has gone through, so that nobody reads each of 300,000 every night.

Belongs here: telling a file from the one that was gone through. Doesn't: what was looked for in it (privacy/).
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from leads_pipeline.durable import reading, replace_file

# 96 bits tell all files that there will ever be apart.
_DIGEST_BYTES: Final = 12


class GoneThrough:
    """The files in which nothing was left to do in a certain state, each as it was before it was read.

    A file that was replaced, copied, restored or touched since is another one, by its size, times and inode; so is each
    in another state. What can't be read counts as nothing remembered: then all are gone through.
    """

    def __init__(self, path: Path, state: str, *, is_anew: bool = False) -> None:
        """`is_anew`: whatever was gone through before, all files are to be."""
        self._path = path
        self._state = state.encode()
        self._before = set[bytes]() if is_anew else self._remembered()
        self._now: set[bytes] = set()

    def left(self, paths: Iterable[Path]) -> list[Path]:
        """Those of the files that somebody has to go through. Each counts as gone through until `again` says no."""
        files = []
        for path in paths:
            digest = self._digest(path)
            if digest is not None:
                self._now.add(digest)
                if digest not in self._before:
                    files.append(path)
        return files

    def again(self, paths: Iterable[Path]) -> None:
        """Go through those the next time too."""
        self._now -= {self._digest(path) for path in paths} - {None}

    def note(self) -> None:
        """Remember, once it is done. Files that nobody has asked about are forgotten."""
        if self._now != self._before:
            replace_file(self._path, self._state + b"\n" + b"".join(sorted(self._now)))

    def _remembered(self) -> set[bytes]:
        with reading(self._path):
            try:
                state, _, digests = self._path.read_bytes().partition(b"\n")
            except FileNotFoundError:
                return set()
        if state != self._state or len(digests) % _DIGEST_BYTES:
            return set()
        return {digests[at : at + _DIGEST_BYTES] for at in range(0, len(digests), _DIGEST_BYTES)}

    @staticmethod
    def _digest(path: Path) -> bytes | None:
        with reading(path):
            try:
                stat = os.stat(path)  # noqa: PTH116 - 300,000 of them each night
            except FileNotFoundError:
                return None
        identity = f"{path}\0{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
        return hashlib.blake2b(identity.encode(errors="surrogateescape"), digest_size=_DIGEST_BYTES).digest()
