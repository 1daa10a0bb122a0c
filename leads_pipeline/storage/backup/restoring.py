"""The way back from a backup.

Belongs here: putting files in place, whole or not at all. Doesn't: whether their layers agree (cli/backup.py asks).
"""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.storage.backup.parts import DATA, PRIVACY, SETTINGS, Roots
from leads_pipeline.storage.backup.store import Backup, Store, in_words
from leads_pipeline.storage.durable import PRIVATE_FOLDER_MODE, make_folder, storing, sync

# In the data folder: what is being copied; and, with the backup's name behind it, what is whole and on the disk and
# only has to be moved into its place.
_COPYING: Final = ".restoring"
_WHOLE: Final = ".restored-"

# Where the settings of the backup are put: nothing reads them there.
SETTINGS_FOLDER: Final = "settings-of-backup"

# What may lie in a folder that counts as empty: a checkout's own file, a file system's, what a killed restore left, the
# lock of a suppression list.
_NOTHING: Final = {"README.md", "lost+found", _COPYING, ".lock"}


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did. `damaged` are the files that were left out; `kept` what was there already and stays."""

    backup: str
    files: int
    damaged: tuple[str, ...]
    kept: tuple[Path, ...]


def restore(store: Store, backup: Backup, roots: Roots, *, leave_out_damaged: bool) -> Restored:
    """Put the backup's files where the roots are, which hold nothing yet.

    All of them are copied and compared with their checksums before the first is put in place. A suppression list that
    is there already stays, as it is newer than the backup's. Raises SettingsError where a root holds something,
    StorageError where a disk can't take or give its part, or a content is damaged.
    """
    data = roots[DATA]
    whole = data / f"{_WHOLE}{backup.name}"
    if whole.is_dir():  # a restore of it was killed while it moved its files into place
        _put_in_place(whole, roots)
        return Restored(backup.name, len(backup.files), (), ())
    for name, root in roots.items():
        if name != PRIVACY and (there := _holds(root)):
            raise SettingsError(
                f"{root} isn't empty (it holds {in_words(there, 3)}), and a restore overwrites nothing. Name an empty "
                "or a new folder with --to, or move this one out of the way. Nothing was changed.",
                reason="not an empty folder",
            )
    with storing(data):
        make_folder(data)
        copying = data / _COPYING
        shutil.rmtree(copying, ignore_errors=True)
        try:
            damaged = _copy_all(store, backup, copying)
            if damaged and not leave_out_damaged:
                raise StorageError(
                    f"{len(damaged)} of {len(backup.files)} files of the backup {backup.name} are damaged or gone in "
                    f"{store.target}: {in_words(damaged)}. Nothing was put in place. Restore from another copy of that "
                    "folder if there is one, or what is whole with --leave-out-damaged."
                )
            newer_lists = [roots[PRIVACY]] if PRIVACY in roots and _holds(roots[PRIVACY]) else []
            # Decided once, as a restore that is killed and finished finds there what it has moved itself.
            if newer_lists:
                shutil.rmtree(copying / PRIVACY, ignore_errors=True)
            os.sync()
            copying.replace(whole)
            sync(data)
        finally:
            shutil.rmtree(copying, ignore_errors=True)
        _put_in_place(whole, roots)
    return Restored(backup.name, len(backup.files) - len(damaged), tuple(damaged), tuple(newer_lists))


def _holds(root: Path) -> list[str]:
    try:
        return sorted({path.name for path in root.iterdir()} - _NOTHING)
    except FileNotFoundError:
        return []


def _copy_all(store: Store, backup: Backup, folder: Path) -> list[str]:
    """Copy each file to below the folder; those that can't be copied whole."""
    damaged = []
    for entry in backup.files:
        path = folder / entry.path
        if not path.resolve().is_relative_to(folder.resolve()):
            raise StorageError(
                f"The backup {backup.name} names a file outside of its folder, so it is no backup of ours."
            )
        _make_folder(path.parent)
        if not store.copy(entry, path):
            damaged.append(entry.path)
    return damaged


def _make_folder(folder: Path) -> None:
    """Like durable.make_folder, without waiting for the disk: all of it is synced at once in the end."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(PRIVATE_FOLDER_MODE)


def _put_in_place(whole: Path, roots: Roots) -> None:
    """Move what is whole to its roots."""
    roots = {**roots, SETTINGS: roots[DATA] / SETTINGS_FOLDER}
    # The data folder last: as long as it lacks its leads, it is plain that the restore isn't over.
    for name, root in sorted(roots.items(), key=lambda item: item[0] == DATA):
        if not (whole / name).is_dir():
            continue
        make_folder(root)
        for source in sorted((whole / name).iterdir()):
            _move(source, root / source.name)
        sync(root)
    shutil.rmtree(whole)


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)  # one that was killed may have copied some of it
        else:
            shutil.copy2(source, target)
        os.sync()
