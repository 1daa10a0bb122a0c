"""A folder that several machines mount, as an object store.

Belongs here: the five verbs over files. Doesn't: anything that needs a lock, which file servers are bad at.
"""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from leads_pipeline.durable import make_folder, reading, storing, sync, write_new

# What a file is called until it is whole. No key ends so.
_UNFINISHED = ".unfinished"


class FolderStore:
    """A key is a file's path below the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def address(self) -> str:
        """As LEADS_DATA_DIR has it."""
        return self._folder.as_uri()

    @property
    def options(self) -> dict[str, str]:
        """Nothing."""
        return {}

    def create(self, key: str, content: bytes) -> bool:
        """Whole or not at all, by a hard link, which is taken once: of two, one is told that it came too late."""
        path = self._folder / key
        with storing(path), _draft(path, content) as draft:
            try:
                path.hardlink_to(draft)
            except FileExistsError:
                return False
            finally:
                # Whoever was first may not have come to it.
                sync(path.parent)
        return True

    def create_once(self, key: str, content: bytes) -> bool:
        """The same, and true if the key holds this content already."""
        return self.create(key, content) or self.get(key) == content

    def get(self, key: str) -> bytes | None:
        """The file's content."""
        path = self._folder / key
        with reading(path):
            try:
                return path.read_bytes()
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> list[str]:
        """The files below, sorted."""
        folder = self._folder / prefix
        with reading(folder):
            return sorted(
                (Path(at) / name).relative_to(self._folder).as_posix()
                for at, _, names in os.walk(folder, onerror=_unless_gone)
                for name in names
                if not name.endswith(_UNFINISHED)
            )

    def delete(self, keys: Sequence[str]) -> None:
        """Folders stay: somebody may be about to use them."""
        for key in keys:
            path = self._folder / key
            with storing(path), suppress(FileNotFoundError):
                path.unlink()
                sync(path.parent)

    def created_at(self, key: str) -> datetime | None:
        """By the clock of whoever serves the folder."""
        path = self._folder / key
        with reading(path):
            try:
                return datetime.fromtimestamp(path.stat().st_mtime, UTC)
            except FileNotFoundError:
                return None


@contextmanager
def _draft(path: Path, content: bytes) -> Iterator[Path]:
    """A file beside the path, on the disk, by a name that isn't listed; it is gone afterwards. Raises OSError."""
    make_folder(path.parent)
    draft = path.with_name(f".{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        write_new(draft, content)
        sync(draft)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error
