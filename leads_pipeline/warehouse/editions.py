"""Editions of leads.duckdb: which one readers meet, and how a new one takes its place.

Belongs here: files and the link. Doesn't: what is in them (publication.py).

`leads.duckdb` is a relative link to `.versions/leads-<number>-<hash>.duckdb`, where the hash is the
beginning of the SHA-256 of the bytes. The edition before stays until the next one comes, because a
reader may have resolved the link just before. DuckDB from 1.5 on resolves it first.
"""

import errno
import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from leads_pipeline.errors import StorageError
from leads_pipeline.raw.durable import publish_file, reading, storing, sync, want_symbolic_links
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE

# Readable by the owner's group, as analysts are. Nobody may write: one writer would lock out every
# reader.
FOLDER_MODE: Final = 0o750
_FILE_MODE: Final = 0o440

# An earlier release wrote no hash.
_HASH: Final = re.compile(r"leads-\d+-([0-9a-f]{16})\.duckdb")


class Editions:
    """The editions in a data folder. The caller holds the lock of publications."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / WAREHOUSE_FILE
        self._editions = folder / ".versions"
        self._link = self._editions / "draft-link"

    @contextmanager
    def drafting(self) -> Iterator[None]:
        """Delete drafts before the block, those of killed publications too, and after it.

        Raises StorageError.
        """
        with storing(self._editions):
            self._editions.mkdir(mode=FOLDER_MODE, exist_ok=True)
            self._remove_drafts()
            # DuckDB would apply a log that somebody else's writing left.
            for log in (*self._editions.glob("*.wal"), *self.folder.glob(f"{WAREHOUSE_FILE}.wal")):
                log.unlink()

        want_symbolic_links(self._link)  # before a file is made that nobody could be led to
        try:
            yield
        finally:
            with suppress(OSError):  # what went wrong before says more
                self._remove_drafts()

    def _remove_drafts(self) -> None:
        for draft in self._editions.glob("draft*"):
            if draft.is_dir() and not draft.is_symlink():
                remove_folder(draft)
            else:
                draft.unlink(missing_ok=True)

    def draft(self, name: str) -> Path:
        """Return the path of a file that isn't published yet."""
        return self._editions / f"draft-{name}.duckdb"

    def current(self) -> Path | None:
        """Return the file that readers meet, or the newest edition if the link is gone.

        None if there is neither. An earlier release published a file in the link's place.
        """
        if self.path.exists():
            return self.path.resolve()
        return max(self._files(), default=None, key=number_of)

    def is_as_published(self) -> bool:
        """Whether nobody has replaced the file or written to it, by the times of link and file.

        Bytes that rot change no time: `has_its_hash` reads them.
        """
        with suppress(FileNotFoundError):
            return (
                self.path.is_symlink()
                and self.path.stat().st_mtime_ns <= self.path.lstat().st_mtime_ns
            )
        return False

    def has_its_hash(self) -> bool:
        """Whether the current file has the bytes that were published, if its name tells.

        Raises StorageError.
        """
        current = self.current()
        name = _HASH.fullmatch(current.name) if current else None
        return current is None or name is None or name[1] == _hash_of(current)

    def next_edition_number(self, at: datetime) -> int:
        """Return the next edition's number: seconds since 1970, above those of all editions here.

        So the numbers go on growing when these editions are lost, or older ones are restored.
        """
        names = [
            *self._editions.iterdir(),
            *([self.path.readlink()] if self.path.is_symlink() else []),
        ]
        newest = max(map(number_of, names), default=0)
        return max(newest + 1, int(at.timestamp()))

    def published_at(self) -> datetime | None:
        """Return when the publication of the current file began, by its number.

        None if there is no file. Times of files don't tell: the first publication of a day may end
        on the next one.
        """
        current = self.current()
        return datetime.fromtimestamp(number_of(current), UTC) if current else None

    def swap_in(self, draft: Path, edition_number: int) -> None:
        """Publish the draft. The edition before stays too. Raises StorageError."""
        if draft.with_name(f"{draft.name}.wal").exists():
            raise StorageError(
                f"DuckDB couldn't finish {draft}. What was published before is untouched. Run "
                "again."
            )

        edition = self._editions / f"leads-{edition_number}-{_hash_of(draft)}.duckdb"
        with storing(self.path):
            draft.chmod(_FILE_MODE)
            try:
                publish_file(draft, edition)
                self._link.symlink_to(edition.relative_to(self.folder))
                self._link.replace(self.path)
            except (OSError, StorageError):
                with suppress(OSError):
                    edition.unlink()  # or one more would stay after each failure
                raise
            sync(self.folder)

        self.remove_older(count_to_keep=1)

    def older(self) -> list[Path]:
        """Return the editions but the current one, newest first."""
        current = self.current()
        others = [file for file in self._files() if current and file.name != current.name]
        return sorted(others, key=number_of, reverse=True)

    def remove_older(self, *, count_to_keep: int) -> None:
        """Remove all editions but the current one and the newest of the others.

        Raises StorageError.
        """
        with storing(self._editions):
            for file in self.older()[count_to_keep:]:
                file.unlink()

    def set_aside(self, damaged: Path) -> Path:
        """Move a damaged edition, which isn't published any more, to quarantine/.

        Return its path there. An edition that was moved there before is replaced. Raises
        StorageError.
        """
        aside = self.folder / "quarantine" / WAREHOUSE_FILE
        with storing(aside):
            aside.parent.mkdir(mode=0o700, exist_ok=True)
            damaged.replace(aside)
        return aside

    def _files(self) -> list[Path]:
        return [*self._editions.glob("leads-*.duckdb")]


def number_of(path: Path) -> int:
    """Return the number in the name of an edition, or of a tree of typed tables. 0 without one."""
    found = re.search(r"-(\d+)", path.name)
    return int(found[1]) if found else 0


def remove_folder(folder: Path) -> None:
    """Remove a folder that another process may still write to, or remove. Raises OSError.

    It may still be there afterwards, if another process holds or writes something in it. The next
    publication removes it.
    """
    while folder.exists():
        try:
            # First, because somebody's leads are in them.
            for file in [path for path in folder.rglob("*") if not path.is_dir()]:
                file.unlink()
            shutil.rmtree(folder)
        except FileNotFoundError:
            continue
        except OSError as error:
            # On NFS, what another process still has open gets another name, and goes when it is
            # closed.
            if error.errno in (errno.ENOTEMPTY, errno.EBUSY):
                return
            raise


def _hash_of(file: Path) -> str:
    with reading(file), file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:16]
