"""Room on a disk: which file system is full, and how much the pipeline needs.

Belongs here: telling a full disk from other errors, for this package's writes, SQLite's and
DuckDB's.
"""

import errno
import os
import resource
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeGuard

# A publication writes a second leads.duckdb, and spills to a third place while it does.
_NEEDED_BYTES: Final = 100_000_000
_NEEDED_FACTOR: Final = 3

# A database is opened with its journal, and Dagster opens several.
_FEW_FILES: Final = 16

# Databases say "I/O error" if a write finds no room. It counts as a full disk if no more than this
# is free.
_TIGHT_BYTES: Final = 5_000_000


def full_disk_message(path: Path, published_bytes: int = 0) -> str:
    """Say which file system is full and what to do. `published_bytes` is leads.duckdb's size."""
    usage = shutil.disk_usage(_existing(path))
    return (
        f"The file system {mount_of(path)} is full: {usage.free / 1e6:.1f} of "
        f"{usage.total / 1e6:.0f} MB are free. Free at least {_needed(published_bytes) / 1e6:.0f} "
        "MB, then run again."
    )


def has_room(path: Path, published_bytes: int) -> bool:
    """Whether a leads.duckdb of that size can be published, with as much room left for others."""
    return shutil.disk_usage(_existing(path)).free >= 2 * _needed(published_bytes)


def _needed(published_bytes: int) -> int:
    return max(_NEEDED_BYTES, _NEEDED_FACTOR * published_bytes)


def mount_of(path: Path) -> Path:
    """Return where the file system is mounted that holds the path, or would hold it."""
    folder = _existing(path)
    return next(one for one in (folder, *folder.parents) if one.is_mount())


def is_tight(path: Path) -> bool:
    """Whether the file system has so little room that a database can't write."""
    return shutil.disk_usage(_existing(path)).free <= _TIGHT_BYTES


def says_full(text: str) -> bool:
    """Whether the text of a database's error is about room."""
    return any(words in text for words in ("No space left", "disk is full", "Disk quota exceeded"))


def says_too_many_files(text: str) -> bool:
    """Whether the text of a database's error is about a process that may open no more files."""
    return os.strerror(errno.EMFILE) in text


def is_full(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether an operating system's error is about room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def tightest_of(error: BaseException, folders: Iterable[Path]) -> Path | None:
    """Return the folder with the least room if the error or its cause is about room, else None."""
    tightest = min(folders, key=lambda folder: shutil.disk_usage(_existing(folder)).free)
    for one in _causes(error):
        if is_full(one):
            return Path(one.filename) if isinstance(one.filename, str) else tightest
        if isinstance(one, sqlite3.Error) and (says_full(str(one)) or is_tight(tightest)):
            return tightest
    return None


def is_short_of_files() -> bool:
    """Whether this process may open only a few more files. SQLite's errors don't tell."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return False
    try:
        open_files = len([*Path("/dev/fd").iterdir()])
    except OSError as error:
        return error.errno == errno.EMFILE
    return open_files + _FEW_FILES > soft


def sqlite_error(error: BaseException) -> sqlite3.Error | None:
    """Return the error of SQLite that led to this one. Only Dagster's databases are SQLite's."""
    return next((one for one in _causes(error) if isinstance(one, sqlite3.Error)), None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _existing(path: Path) -> Path:
    path = path.resolve()
    return next(one for one in (path, *path.parents) if one.exists())
