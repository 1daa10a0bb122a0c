"""Whether the published file is what was published, by checksums of its pieces.

Belongs here: which pieces are looked at when, and remembering them. Doesn't: what follows where one is damaged
(publication.py).

DuckDB notices damage only where it reads, and neither a publication nor a query reads all. So each publication looks at
the file: at all of it up to PIECES_AT_ONCE, and beyond that at so many more each time, going round. A piece that a copy
shares with the file that it is a copy of needn't be looked at to be the same.
"""

import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from leads_pipeline.durable import replace_file
from leads_pipeline.extents import shared_ranges
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse.state import checksum_of

PIECE_BYTES: Final = 1 << 20

# A GB, in half a second from the page cache. A file of 46 million leads is gone round in 20 publications.
PIECES_AT_ONCE: Final = 1024

_Checksums = Sequence[str]


class Pieces:
    """The checksums of the published file's pieces, in a file of their own. The warehouse's lock is held."""

    def __init__(self, lake: Lake) -> None:
        self._path = lake.folder / ".state" / "warehouse-pieces"
        # Of earlier versions: one checksum of the whole file for each that may be there.
        self._former = self._path.with_name("warehouse-checksums")
        self._compared: set[int] = set()

    def look_at(self, file: Path, copied_from: Path | None = None, *, is_whole: bool = False) -> _Checksums | None:
        """The checksums of the version that the file is; None where it is none that was published: it is damaged.

        All pieces are looked at where `is_whole`, and of a copy all that weren't copied by sharing. Raises OSError.
        """
        begin, versions = self._remembered()
        count = _count(file)
        if versions is None:
            return checksums_of(file) if self._is_as_before(file) else None
        pieces = {(begin + n) % count for n in range(count if is_whole else min(count, PIECES_AT_ONCE))}
        pieces.add(0)  # by its headers each version differs from the one before
        if copied_from is not None:
            pieces |= set(range(count)) - _same(file, copied_from)
        looked_at = _read(file, pieces)
        self._compared = pieces
        for version in versions:
            if len(version) == count and all(version[piece] == checksum for piece, checksum in looked_at.items()):
                if count > PIECES_AT_ONCE:
                    self._remember((begin + PIECES_AT_ONCE) % count, versions)
                return version
        return None  # and the next look is at the same pieces

    def after(self, draft: Path, copied_from: Path, before: _Checksums) -> _Checksums | None:
        """The checksums of what a whole copy was changed to; None where the file was damaged where it was changed.

        A piece that was changed may have damage beside the change, which a new checksum would take for right. So those
        that weren't looked at when the copy was made are now, as they were before. Raises OSError.
        """
        same = _same(draft, copied_from)
        changed = set(range(len(before))) - same - self._compared
        if any(before[piece] != checksum for piece, checksum in _read(copied_from, changed).items()):
            return None
        new = _read(draft, set(range(_count(draft))) - same)
        return [new[piece] if piece in new else before[piece] for piece in range(_count(draft))]

    def remember(self, *versions: _Checksums) -> None:
        """Take files of these checksums for published, and no others. Raises StorageError."""
        begin, _ = self._remembered()
        self._remember(begin, versions)
        self._former.unlink(missing_ok=True)

    def _is_as_before(self, file: Path) -> bool:
        """Whether the file is what an earlier version of the pipeline published; it is where that noted nothing."""
        try:
            return checksum_of(file) in self._former.read_text(encoding="ascii").split()
        except FileNotFoundError:
            return True

    def _remember(self, begin: int, versions: Sequence[_Checksums]) -> None:
        replace_file(self._path, "\n".join([str(begin), *map("".join, versions)]).encode("ascii"))

    def _remembered(self) -> tuple[int, Sequence[_Checksums] | None]:
        """Which piece is looked at next, and those of each version; None where an earlier version noted none."""
        try:
            begin, *versions = self._path.read_text(encoding="ascii").splitlines()
            return int(begin), [[line[n : n + 8] for n in range(0, len(line), 8)] for line in versions]
        except FileNotFoundError:
            return 0, None
        except ValueError:
            return 0, ()


def checksums_of(file: Path) -> _Checksums:
    """Of each piece of the file. Raises OSError."""
    checksums = _read(file, range(_count(file)))
    return [checksums[piece] for piece in range(_count(file))]


def _count(file: Path) -> int:
    return max(-(-file.stat().st_size // PIECE_BYTES), 1)


def _same(one: Path, other: Path) -> set[int]:
    """The pieces that both files have whole, and in the same blocks."""
    same: set[int] = set()
    for start, end in shared_ranges(one, other):
        same |= set(range(-(-start // PIECE_BYTES), end // PIECE_BYTES))
    return same


def _read(file: Path, pieces: Collection[int]) -> dict[int, str]:
    checksums = {}
    with file.open("rb") as opened:
        for piece in sorted(pieces):
            opened.seek(piece * PIECE_BYTES)
            checksums[piece] = f"{zlib.crc32(opened.read(PIECE_BYTES)):08x}"
    return checksums
