"""Files that were replaced or deleted and that a program still has open: on Linux, as far as this user may look.

Belongs here: finding them among the open files of all processes. Doesn't: what is in them (places.py).
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROCESSES: Final = Path("/proc")
_DELETED: Final = " (deleted)"


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file without a name. `path` is where it was, `file` leads to it as long as the process has it open."""

    path: Path
    file: Path
    process: int


def held_files(roots: Sequence[Path]) -> Iterator[HeldFile]:
    """Those that were below one of the folders, each once, by the first process that has it.

    Not seen: processes of other users, unless this one is root; of other machines and containers; other systems'.
    """
    seen: set[tuple[int, int]] = set()
    for process in _numbers(_PROCESSES):
        folder = _PROCESSES / process / "fd"
        for number in _numbers(folder):
            file = folder / number
            # What ends or is closed meanwhile holds nothing any more.
            with suppress(OSError):
                target = str(file.readlink())
                if not target.endswith(_DELETED):
                    continue
                path, status = Path(target.removesuffix(_DELETED)), file.stat()
                # A file whose second name is gone has another one yet, by which it is found.
                if status.st_nlink or not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                    continue
                if any(path.is_relative_to(root) for root in roots):
                    seen.add((status.st_dev, status.st_ino))
                    yield HeldFile(path, file, int(process))


def _numbers(folder: Path) -> list[str]:
    with suppress(OSError):
        return sorted(filter(str.isdigit, os.listdir(folder)), key=int)  # noqa: PTH208 - as names, by the thousand
    return []
