"""Staged files: a day's tables replaced together, whole or not at all.

Belongs here: replacing, finding and checking them. Doesn't: what is in them (flatten/).
"""

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from leads_pipeline.durable import PRIVATE_FILE_MODE, make_folder, publish_file, reading, storing, sync
from leads_pipeline.lake.sealed import is_intact, seal
from leads_pipeline.lake.state import LOCK_TIMEOUT_SECONDS, FolderState, days_in, found_in

_STAGED: Final = "staged"

# Raised where files that an older version staged are to be staged again.
STAGED_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A published staged file. `fingerprint` changes whenever the file is replaced (size, time, inode)."""

    table: str
    day: date
    path: Path
    fingerprint: str


class StagedFiles(FolderState):
    """The folder staged/."""

    def staged_path(self, table: str, day: date) -> Path:
        """Where the day's staged file of a table lies once it is published."""
        return self._folder / _STAGED / table / f"day={day.isoformat()}" / f"{table}.parquet"

    @contextmanager
    def replacing_staged(self, tables: Sequence[str], day: date) -> Iterator[dict[str, Path]]:
        """Replace the day's files of these tables together: write a Parquet file to each path that this hands out.

        Holds the day's lock throughout, so that nobody stages the day from older raw files meanwhile. After an error
        nothing is replaced. Once all files are written and on the disk, a killed process can't leave a mix of old and
        new either: whoever comes next finishes the replacement. A file with the bytes of the published one isn't
        touched. Each is sealed, for whole_staged.
        """
        self.take_staged_format()
        writing = self._folder / _STAGED / f".writing-{day.isoformat()}"
        with self.lock(_staged_lock(day)):
            self._finish_staged(day)
            with storing(writing):
                shutil.rmtree(writing, ignore_errors=True)
                make_folder(writing)
            try:
                paths = {table: writing / f"{table}.tmp" for table in tables}
                yield paths
                for path in paths.values():
                    with storing(path):
                        path.write_bytes(seal(path.read_bytes()))
                        path.chmod(PRIVATE_FILE_MODE)
                        sync(path)
                with storing(writing):
                    sync(writing)
                    writing.replace(self._ready_folder(day))
                    sync(self._folder / _STAGED)
                self._finish_staged(day)
            finally:
                with suppress(OSError):  # rmtree doesn't ignore each of them
                    shutil.rmtree(writing, ignore_errors=True)

    def take_staged_format(self) -> None:
        """Raises StorageError where a newer version has staged here (see take_format)."""
        self.take_format(_STAGED, STAGED_VERSION)

    def staged_files(self, table: str) -> list[StagedFile]:
        """The published files of a table, by day. Finishes what a killed process had begun to publish."""
        for ready in found_in(self._folder / _STAGED, ".ready-*"):
            day = date.fromisoformat(ready.name.removeprefix(".ready-"))
            with self.lock(_staged_lock(day)):
                self._finish_staged(day)
        files = []
        for day in days_in(self._folder / _STAGED / table):
            path = self.staged_path(table, day)
            with reading(path), suppress(FileNotFoundError):
                stat = path.stat()
                files.append(StagedFile(table, day, path, f"{stat.st_size}-{stat.st_mtime_ns}-{stat.st_ino}"))
        return files

    @contextmanager
    def holding_staged(self, day: date, *, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Hold the day's staged files as they are, whole, so that files of several tables belong together."""
        with self.lock(_staged_lock(day), timeout_seconds=timeout_seconds):
            self._finish_staged(day)
            yield

    def whole_staged(self, table: str, day: date) -> Path | None:
        """The day's staged file of a table; None where it is gone, or not what was written there to the last bit.

        DuckDB writes no checksums, and takes most flipped bits for content.
        """
        path = self.staged_path(table, day)
        with reading(path):
            try:
                return path if is_intact(path.read_bytes()) else None
            except FileNotFoundError:
                return None

    def drop_damaged(self, tables: Sequence[str], day: date) -> None:
        """If a staged file of the day is damaged or gone, have the day count as not staged.

        `tables` are all of a kind, the last one that of its windows, which says what is staged.
        """
        with self.holding_staged(day):
            damaged = [table for table in tables if self.whole_staged(table, day) is None]
            for table in {*damaged, *tables[-1:]} if damaged else ():
                path = self.staged_path(table, day)
                with storing(path):
                    path.unlink(missing_ok=True)

    def _ready_folder(self, day: date) -> Path:
        return self._folder / _STAGED / f".ready-{day.isoformat()}"

    def _finish_staged(self, day: date) -> None:
        """Publish what lies complete in the day's ready folder. The day's lock is held."""
        ready = self._ready_folder(day)
        with storing(ready):
            if not ready.is_dir():
                return
            for source in sorted(ready.glob("*.tmp")):
                target = self.staged_path(source.stem, day)
                make_folder(target.parent)
                if _is_same(source, target):
                    source.unlink()
                else:
                    publish_file(source, target)
            ready.rmdir()


def _is_same(one: Path, other: Path) -> bool:
    if not other.exists() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        return hashlib.file_digest(first, "sha256").digest() == hashlib.file_digest(second, "sha256").digest()


def _staged_lock(day: date) -> str:
    return f"staged-{day.isoformat()}"
