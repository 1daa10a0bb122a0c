"""Versions of leads.duckdb: which one readers meet, and how a new one takes its place.

Belongs here: files and the link. Doesn't: what is in them (publish.py).

`leads.duckdb` is a relative link to `.versions/leads-<number>.duckdb`. The version before stays until the next one
comes, because a reader may have resolved the link just before. DuckDB from 1.5 on resolves it first.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from leads_pipeline.storage.durable import publish_file, storing, sync
from leads_pipeline.transform.duck import WAREHOUSE_FILE, link_or_copy

# Readable by the owner's group, as analysts are. Nobody may write: one writer would lock out every reader.
_FOLDER_MODE: Final = 0o750
_FILE_MODE: Final = 0o440


class Versions:
    """The versions in a data folder. The caller holds the lock of publications."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / WAREHOUSE_FILE
        self._versions = folder / ".versions"

    @contextmanager
    def drafting(self) -> Iterator[None]:
        """Have no drafts at first, killed publications' among them, and none afterwards. Raises StorageError."""
        with storing(self._versions):
            self._versions.mkdir(mode=_FOLDER_MODE, exist_ok=True)
            self._remove_drafts()
        try:
            yield
        finally:
            with suppress(OSError):  # what went wrong before says more
                self._remove_drafts()

    def _remove_drafts(self) -> None:
        for draft in self._versions.glob("draft*"):
            draft.unlink()

    def draft(self, name: str) -> Path:
        """The path of a file that isn't published yet."""
        return self._versions / f"draft-{name}.duckdb"

    def current(self) -> Path | None:
        """The file that readers meet, or the newest version if the link is gone; None if there is none.

        An earlier release published a file in the link's place.
        """
        if self.path.exists():
            return self.path.resolve()
        number = self.next_number() - 1
        return self._file(number) if number else None

    def second_name(self) -> Path | None:
        """The same file under a name of its own. A process that has a file open can't open it in another way."""
        if current := self.current():
            link_or_copy(current, self.draft("before"))
        return current and self.draft("before")

    def next_number(self) -> int:
        """The number of the next version, from 1."""
        return max(self._numbers(), default=0) + 1

    def swap_in(self, draft: Path, *, is_alone: bool) -> None:
        """Publish the draft. It and the version before stay, or it alone. Raises StorageError."""
        version = self._file(self.next_number())
        with storing(self.path):
            draft.chmod(_FILE_MODE)
            publish_file(draft, version)
            # A log that somebody else's writing left would be applied to the new version.
            for log in (*self._versions.glob("*.wal"), *self.folder.glob(f"{WAREHOUSE_FILE}.wal")):
                log.unlink()
            link = self._versions / "draft-link"
            link.symlink_to(version.relative_to(self.folder))
            link.replace(self.path)
            sync(self.folder)
        self.remove_older(0 if is_alone else 1)

    def remove_older(self, but: int) -> None:
        """Remove all versions but the current one and so many others, the newest. Raises StorageError."""
        current = self.current()
        others = [file for file in map(self._file, sorted(self._numbers())) if current and file.name != current.name]
        with storing(self._versions):
            for file in others[: len(others) - but]:
                file.unlink()

    def set_aside(self) -> Path:
        """Move the current file, which is damaged, to quarantine/. Return its path there. Raises StorageError.

        It replaces one that was moved there before.
        """
        aside = self.folder / "quarantine" / WAREHOUSE_FILE
        with storing(aside):
            aside.parent.mkdir(mode=0o700, exist_ok=True)
            self.path.resolve().replace(aside)
        return aside

    def _file(self, number: int) -> Path:
        return self._versions / f"leads-{number}.duckdb"

    def _numbers(self) -> list[int]:
        names = (re.fullmatch(r"leads-(\d+)\.duckdb", path.name) for path in self._versions.iterdir())
        return [int(name[1]) for name in names if name]
