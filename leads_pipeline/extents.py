"""Which parts of two files are one and the same blocks on the disk, as copying without writing leaves them.

Belongs here: asking the file system. Doesn't: copying (durable.py), what follows for a file's content.
"""

import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# https://docs.kernel.org/filesystems/fiemap.html: the request, `struct fiemap` and `struct fiemap_extent`.
_FIEMAP: Final = 0xC020660B
_REQUEST: Final = struct.Struct("=QQLLLL")
_EXTENT: Final = struct.Struct("=QQQ16xL12x")
_SYNC: Final = 0x1
_LAST: Final = 0x1
_SHARED: Final = 0x2000

_EXTENTS_AT_ONCE: Final = 1024

# Where it begins in the file, where it ends, and how far from there it lies on the disk.
_Extent = tuple[int, int, int]


def shared_ranges(one: Path, other: Path) -> list[tuple[int, int]]:
    """The ranges of bytes, in order, that both files have at the same place in the same blocks: they can't differ.

    Nobody writes to either. None where the file system shares no blocks or doesn't say which, as on ext4; XFS and btrfs
    do. Raises OSError where a file can't be opened.
    """
    ranges: list[tuple[int, int]] = []
    ours, theirs = _shared_extents(one), _shared_extents(other)
    mine, its = next(ours, None), next(theirs, None)
    while mine and its:
        start, end = max(mine[0], its[0]), min(mine[1], its[1])
        if start < end and mine[2] == its[2]:
            if ranges and ranges[-1][1] == start:
                ranges[-1] = ranges[-1][0], end
            else:
                ranges.append((start, end))
        if mine[1] <= its[1]:
            mine = next(ours, None)
        else:
            its = next(theirs, None)
    return ranges


def _shared_extents(path: Path) -> Iterator[_Extent]:
    """The extents that another file has as well, in order. One that is compressed, say, has no place of its own."""
    if sys.platform != "linux":
        return
    import fcntl

    with path.open("rb") as file:
        at, size, flags = 0, os.fstat(file.fileno()).st_size, 0
        while at < size and not flags & _LAST:
            answer = bytearray(_REQUEST.size + _EXTENTS_AT_ONCE * _EXTENT.size)
            _REQUEST.pack_into(answer, 0, at, size - at, _SYNC, 0, _EXTENTS_AT_ONCE, 0)
            try:
                fcntl.ioctl(file.fileno(), _FIEMAP, answer)
            except OSError:  # a file system without, or a container's rules
                return
            count = _REQUEST.unpack_from(answer)[3]
            if not count:
                return
            for place in range(_REQUEST.size, _REQUEST.size + count * _EXTENT.size, _EXTENT.size):
                start, on_disk, length, flags = _EXTENT.unpack_from(answer, place)
                at = start + length
                if flags & ~_LAST == _SHARED:
                    yield start, at, on_disk - start
