"""Making a backup while everything runs.

Belongs here: copying each file in one version, and only what has changed. Doesn't: which files (parts.py), what the
target looks like (store.py).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.storage.backup.parts import DATA, PARTS, SETTINGS, Part, Roots, copy_database, identity
from leads_pipeline.storage.backup.store import FORMAT, Adding, Backup, Entry, Store
from leads_pipeline.storage.durable import reading
from leads_pipeline.storage.state import State


@dataclass(slots=True)
class BackedUp:
    """What a backup did. `damaged` are files that weren't whole: the copy has what the backup before it had of them.

    `not_forgotten` says why no older backup was removed, where one should have been and couldn't; `not_noted` why the
    data folder doesn't know of this one.
    """

    name: str = ""
    files: int = 0
    bytes: int = 0
    written: int = 0
    written_bytes: int = 0
    forgotten: int = 0
    not_forgotten: str = ""
    not_noted: str = ""
    is_first: bool = False
    damaged: list[str] = field(default_factory=list)


def back_up(roots: Roots, target: Path, settings: Mapping[str, bytes], keep: int, now: datetime) -> BackedUp:
    """Copy what the roots hold to the target, and remove all but the newest `keep` backups there.

    A backup is there once its list is, which is written last: whoever is killed before that leaves the backups as they
    were. Raises SettingsError for a target that can't be one, StorageError where a disk can't take or give its part.
    """
    _check_place(roots, target)
    if not roots[DATA].is_dir():
        raise SettingsError(f"{roots[DATA]} is not there, so there is nothing to copy. Set LEADS_DATA_DIR.")
    store, state, done = Store(target), State(roots[DATA]), BackedUp()
    owner = hashlib.sha256(b"backups of " + state.person_key()).hexdigest()
    with store.alone():
        before = _newest(store)
        if before is not None and before.owner != owner:
            raise SettingsError(
                f"{target} has backups of another data folder than {roots[DATA]}: one would push out the other's. Name "
                "a folder of its own. Nothing was changed.",
                reason="another folder's backups",
            )
        copied_before = {entry.path: entry for entry in before.files} if before else {}
        with store.adding() as adding:
            entries = [
                entry
                for part in PARTS
                if part.root in roots
                for entry in _copied(part, roots, store, adding, copied_before, done)
            ]
            entries += [adding.content(f"{SETTINGS}/{name}", content) for name, content in settings.items()]
        number = int(store.names()[-1].partition("-")[0]) + 1 if store.names() else 1
        backup = Backup(FORMAT, number, now, owner, entries)
        store.write(backup)
        done.name, done.is_first = backup.name, before is None
        done.files, done.bytes = len(entries), sum(entry.size for entry in entries)
        done.written, done.written_bytes = adding.written, adding.written_bytes
        # The new one is there, whatever fails now.
        try:
            state.note_backup(now)
        except StorageError as error:
            done.not_noted = str(error)
        try:
            done.forgotten = store.forget(keep)
        except StorageError as error:
            done.not_forgotten = str(error)
    return done


def _check_place(roots: Roots, target: Path) -> None:
    for root in roots.values():
        one, other = root.resolve(), target.resolve()
        if one == other or one in other.parents or other in one.parents:
            raise SettingsError(
                f"{target} and {root} lie in each other, so a backup there would go with what it is a copy of. Name a "
                "folder on another disk. Nothing was changed."
            )


def _newest(store: Store) -> Backup | None:
    """The newest backup whose list can be read. Without one, everything is copied anew."""
    for name in reversed(store.names()):
        try:
            return store.read(name)
        except StorageError:
            continue
    return None


def _copied(
    part: Part, roots: Roots, store: Store, adding: Adding, copied_before: Mapping[str, Entry], done: BackedUp
) -> list[Entry]:
    entries = []
    for path in part.find(roots[part.root]):
        name = f"{part.root}/{path.relative_to(roots[part.root]).as_posix()}"
        before = copied_before.get(name)
        with reading(path):
            try:
                seen = identity(path, is_database=part.is_database)
                if before is not None and before.identity == seen and adding.has(before):
                    entries.append(before)
                    continue
                if part.is_database:
                    # What is written meanwhile changes the file once more, and it is copied again the next time.
                    copy_database(path, draft := store.draft())
                    entries.append(adding.file(name, draft, seen))
                    continue
                # Files are replaced, never written to: what is read through one opening is one version.
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # moved on since: into a newer file of its window, or into quarantine. Both are copied later
        if part.is_whole is not None and not part.is_whole(path, content):
            done.damaged.append(name)
            if before is not None and adding.has(before):
                entries.append(before)
                continue
        entries.append(adding.content(name, content, seen))
    return entries
