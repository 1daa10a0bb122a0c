"""Tries out whether a file system does what the pipeline needs: some have no links.

Belongs here: trying it out, with a folder of its own. Doesn't: writing (raw/durable.py).
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from leads_pipeline.errors import StorageError
from leads_pipeline.raw.durable import (
    make_folder,
    replace_file,
    storing,
    want_symbolic_links,
)
from leads_pipeline.raw.room import mount_of
from leads_pipeline.raw.state import State


@dataclass(frozen=True, slots=True)
class FileSystem:
    """What a file system may lack, because the pipeline works without it."""

    has_hard_links: bool
    syncs_folders: bool


def prove_folder(folder: Path) -> FileSystem:
    """Try out the file system of a data folder. No file stays there.

    Raises StorageError if it lacks what the pipeline needs: files that replace others, locks,
    symbolic links.
    """
    place = State(folder).path / "locks"  # which backups leave out
    with storing(place):
        make_folder(place)
        with TemporaryDirectory(prefix="proof-", dir=place, ignore_cleanup_errors=True) as name:
            trial = Path(name)
            file = trial / "file"
            _want_replacing(file)
            _want_locks(trial)
            want_symbolic_links(trial / "link")
            return FileSystem(
                has_hard_links=_has_hard_links(file), syncs_folders=_syncs_folders(trial)
            )


def _want_replacing(path: Path) -> None:
    """Write the file twice. It stays for the next trial.

    Raises StorageError if the second content doesn't replace the first one.
    """
    for content in (b"first", b"second"):
        replace_file(path, content)
    if path.read_bytes() != b"second":
        raise StorageError(
            f"The file system {mount_of(path)} doesn't replace a file by renaming another one. Set "
            "LEADS_DATA_DIR to a folder on another file system."
        )


def _want_locks(folder: Path) -> None:
    state = State(folder)
    with state.lock("proof", timeout_seconds=1):
        if not state.is_held("proof"):
            raise StorageError(
                f"The file system {mount_of(folder)} gives a lock to two holders at once, so two "
                "processes would overwrite each other's files. Mount it with locks, or set "
                "LEADS_DATA_DIR to a folder on another file system."
            )


def _has_hard_links(file: Path) -> bool:
    with suppress(OSError):
        file.with_name("hard link").hardlink_to(file)
        return True
    return False


def _syncs_folders(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
