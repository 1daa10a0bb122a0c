"""Where files are kept: the verbs of a store, and a folder as a store.

Belongs here: the verbs. Doesn't: a bucket as a store (features/bucket), which files are kept, and
how they merge (landing.py).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from leads_pipeline.raw.durable import (
    DRAFT,
    drafted,
    lacks_links,
    locked,
    make_folder,
    reading,
    replace_file,
    storing,
    sync,
)

# Held while a key is created once on a file system without hard links. It is no key.
_TURNS: Final = ".create-once.lock"
_TURN_SECONDS: Final = 60.0

# A listing of more names isn't one moment (measured).
_MOST_NAMES_AT_ONE_MOMENT: Final = 350


class Store(Protocol):
    """Files by key. Many processes may use a store at once. Keys are relative paths with slashes.

    `address` is for a person and for deltalake, and `options` are deltalake's for writing there.
    Every verb raises StorageError if the store can't be reached or refuses.
    """

    address: str
    options: dict[str, str]

    def create(self, key: str, content: bytes) -> None:
        """Keep the content under the key.

        It is whole and durable when this returns. A file of that key is replaced.
        """

    def create_once(self, key: str, content: bytes) -> bool:
        """Keep the content under the key if that is free. False if it holds another content."""

    def get(self, key: str) -> bytes | None:
        """Return the content, None if there is no such key."""

    def list(self, prefix: str) -> list[str]:
        """Return the keys below a prefix, sorted. The prefix is empty or ends with a slash.

        A key that is there from the beginning to the end of the call is listed, under its old or
        its new name. (If it is renamed twice within the call, it can be missed.)
        """

    def rename(self, key: str, new_key: str) -> bool:
        """Give the file another key, durably. False if there is no such key."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the keys, durably. Missing keys are no error."""

    def modified_at(self, key: str) -> datetime | None:
        """Return when the file was written, by the store's clock, in UTC.

        None if there is no such key.
        """

    def delete_drafts(self, prefix: str) -> None:
        """Delete what killed writers left unfinished below the prefix."""


class FolderStore:
    """A key is a file's path below the folder."""

    def __init__(self, folder: Path) -> None:
        self.address = str(folder.absolute())
        self.options: dict[str, str] = {}
        self._folder = folder

    def create(self, key: str, content: bytes) -> None:
        """Write beside, sync, rename, sync the folder.

        After a power cut the file is there whole, or not at all.
        """
        replace_file(self._folder / key, content)

    def create_once(self, key: str, content: bytes) -> bool:
        """The same by a hard link, which only one writer can make."""
        path = self._folder / key
        with storing(path):
            while True:
                with suppress(FileNotFoundError), drafted(path, content) as draft:
                    self._name_once(draft, path)
                    break
            sync(path.parent)
            return path.read_bytes() == content

    def _name_once(self, draft: Path, path: Path) -> None:
        """Give the draft its name, unless another file has it. Raises OSError."""
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            return
        except OSError as error:
            if not lacks_links(error):
                raise
            # The lock stands in for the link. An exclusive creation would leave half a file after a
            # kill.
            with locked(self._folder / _TURNS, _TURN_SECONDS):
                if not path.exists():
                    draft.rename(path)

    def get(self, key: str) -> bytes | None:
        """Read the file."""
        path = self._folder / key
        with reading(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """List each folder below, a long folder twice."""
        folder = self._folder / prefix
        with reading(folder):
            return sorted(_below(f"{folder}/", prefix))

    def rename(self, key: str, new_key: str) -> bool:
        """Rename and sync the folders."""
        path = self._folder / key
        new_path = self._folder / new_key
        with storing(new_path):
            make_folder(new_path.parent)
            try:
                path.rename(new_path)
            except FileNotFoundError:
                return False
            for folder in {new_path.parent, path.parent}:
                sync(folder)

        return True

    def delete(self, keys: Sequence[str]) -> None:
        """Folders stay: another process may be about to use them."""
        folders = set()
        for key in keys:
            path = self._folder / key
            with storing(path), suppress(FileNotFoundError):
                path.unlink()
                folders.add(path.parent)

        for folder in folders:
            with storing(folder):
                sync(folder)

    def modified_at(self, key: str) -> datetime | None:
        """By the clock of the file system."""
        path = self._folder / key
        with reading(path):
            try:
                return datetime.fromtimestamp(path.stat().st_mtime, UTC)
            except FileNotFoundError:
                return None

    def delete_drafts(self, prefix: str) -> None:
        """A writer that is alive writes its draft again."""
        folder = self._folder / prefix
        with storing(folder):
            for at, _, names in os.walk(folder):
                for name in names:
                    if name.startswith(".") and name.endswith(DRAFT):
                        (Path(at) / name).unlink(missing_ok=True)


def _below(folder: str, prefix: str) -> Iterator[str]:
    for name, is_folder in _entries(folder).items():
        if is_folder:
            yield from _below(f"{folder}{name}/", f"{prefix}{name}/")
        elif not name.endswith(DRAFT) and name != _TURNS:
            yield prefix + name


def _entries(folder: str) -> dict[str, bool]:
    """Return the names in a folder, and whether each is a folder.

    A link that leads nowhere isn't there. Raises OSError.
    """
    entries: dict[str, bool] = {}
    with suppress(FileNotFoundError):
        for _ in range(2):
            with os.scandir(folder) as found:
                entries.update(
                    {
                        entry.name: entry.is_dir()
                        for entry in found
                        if entry.is_dir() or entry.is_file()
                    }
                )
            if len(entries) <= _MOST_NAMES_AT_ONE_MOMENT:
                break
            # Once more, because a file that was renamed meanwhile can be missing.
    return entries
