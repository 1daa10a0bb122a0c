"""The way back: a snapshot, or any copy of a data folder, is put into an empty data folder.

Belongs here: putting files in place. Doesn't: which of two suppression lists stays
(raw/gatekeeper.py), the publication that has to follow, which takes out who was erased since
(orchestration/).
"""

import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.backup.copying import copy_once
from leads_pipeline.features.backup.snapshots import (
    LIST,
    STORED,
    hash_in,
    made_at,
    own_keys,
    snapshots,
)
from leads_pipeline.raw.data_folder import RESTORING, DataFolder
from leads_pipeline.raw.durable import make_folder, publish_file, storing
from leads_pipeline.raw.names import RAW
from leads_pipeline.raw.room import is_full
from leads_pipeline.raw.store import FolderStore

# Names that a folder may hold and still counts as empty. `privacy` is a suppression list that was
# put there before.
_NOTHING: Final = {
    "README.md",
    "lost+found",
    ".dagster",
    ".env",
    "privacy",
    ".state",
    ".state/locks",
    ".state/tokens",
    ".state/duckdb",
}

# Waiting for the disk is most of writing a small file, and files needn't wait for each other.
_WRITERS: Final = 8


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore. `damaged` files are left out."""

    source: Path
    files: int
    damaged: list[str]


def restore(source: Path, data: DataFolder, now: datetime) -> Restored:
    """Copy a snapshot into an empty data folder.

    `source` is the snapshot, or a target: then its newest snapshot counts. Of two suppression lists
    the longer one stays. A restore that was killed is finished by another one, until `end_restore`
    is called, once the folder is published. Raises SettingsError if there is no backup or the
    folder isn't empty, StorageError if a disk can't be read or written.
    """
    data.want_format()
    source = _snapshot_in(source, now)
    DataFolder.at(source).want_format()
    under_way = data.folder / RESTORING

    if not under_way.exists():
        _want_empty(data)

    with storing(under_way):
        shutil.rmtree(under_way, ignore_errors=True)
        make_folder(under_way)

    data.state.note_swept(0)  # one that was killed while it published may have swept
    keys = [*_keys(source)]

    try:
        with ThreadPoolExecutor(_WRITERS) as pool:
            done = [*pool.map(partial(_put, data, source, under_way), keys)]
    except StorageError as error:
        if not is_full(error.__cause__):
            raise
        needed = sum(
            (source / key).stat().st_size
            for key in keys
            if not (data.bucket and key.startswith(STORED))
        )
        raise StorageError(
            f"The disk of {data.folder} is full: the backup needs about {needed / 1e6:.1f} MB "
            "there, and publishing needs more. Free some space, then run the same command again. "
            "Or set LEADS_DATA_DIR to a larger disk."
        ) from error

    data.gate.take_over(under_way)
    versions = data.folder / ".versions"

    with storing(versions):
        if versions.exists():
            versions.chmod(0o750)  # readable by the owner's group, as analysts are

    if moment := made_at(source):
        data.state.note_backup(moment)

    damaged = [key for key, is_whole in done if not is_whole]
    return Restored(source, len(done) - len(damaged), damaged)


def end_restore(data: DataFolder) -> None:
    """Have the folder count as restored: from now on no restore puts anything into it."""
    with storing(data.folder / RESTORING):
        shutil.rmtree(data.folder / RESTORING)


def _snapshot_in(source: Path, now: datetime) -> Path:
    if newest := next(reversed(snapshots(source, now)), None):
        source = newest
    if (source / ".state").is_dir():
        return source
    raise SettingsError(
        f"{source} holds no backup. Name a folder that `leads-pipeline backup` was given."
    )


def _keys(folder: Path) -> Iterator[str]:
    yield from own_keys(folder)
    for prefix in (LIST, *STORED):
        yield from FolderStore(folder).list(prefix)


def _want_empty(data: DataFolder) -> None:
    folder = data.folder
    paths = [*data.folder.glob("*"), *data.folder.glob(".state/*")]
    there = {path.relative_to(folder).as_posix() for path in paths} - _NOTHING
    there.update(data.bucket.list(f"{RAW}/")[:1] if data.bucket else ())

    if there:
        named = ", ".join(sorted(there, reverse=True)[:3])
        raise SettingsError(
            f"{folder} isn't empty (it holds {named}), and a restore overwrites nothing. Set "
            "LEADS_DATA_DIR to an empty or a new folder, or move this one out of the way. Nothing "
            "was changed.",
            reason="not an empty folder",
        )


def _put(data: DataFolder, source: Path, under_way: Path, key: str) -> tuple[str, bool]:
    """Put a file in its place. One that is there is replaced.

    Return its key, and whether it is as it was written. If not, it is left out.
    """
    path = (under_way if key.startswith(LIST) else data.folder) / key
    draft = under_way / secrets.token_hex(8)
    with storing(path):
        try:
            opened = (source / key).open("rb")
        except OSError:
            return key, False
        with opened:
            if not copy_once(opened, draft, hash_in(key)):
                return key, False
        if data.bucket and key.startswith(STORED):
            data.store.create(key, draft.read_bytes())
            draft.unlink()
        else:
            make_folder(path.parent)
            publish_file(draft, path)

    return key, True
