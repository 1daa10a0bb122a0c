"""Figures of days whose leads were removed: a file a removal, which says which days are gone for good.

Belongs here: these files, and what follows for whoever asks which days there are. Doesn't: which days go (privacy/),
the figures (warehouse/frozen.py).

Once the file is there, its days are removed, whatever of their leads still lies somewhere: nobody stages or publishes
them any more, and the next run deletes them. So a day has its leads or its figures, never both and never neither.
"""

import re
from collections.abc import Collection
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.durable import reading, replace_file
from leads_pipeline.errors import StorageError
from leads_pipeline.lake.sealed import is_intact, seal
from leads_pipeline.lake.state import FolderState, found_in

# What the file's footer has the days under.
DAYS_FACT: Final = "days"

_FROZEN: Final = "frozen/"

_KEY: Final = re.compile(rf"{_FROZEN}\d{{4}}-\d{{2}}-\d{{2}}\.parquet", re.ASCII)

_KNOWN_FILES: Final = 4096


class FrozenFigures(FolderState):
    """The folder frozen/."""

    def frozen_files(self) -> dict[date, Path]:
        """The files of frozen figures by the last of their days, which no other file has."""
        return {date.fromisoformat(path.stem): path for path in found_in(self._folder / _FROZEN, "????-??-??.parquet")}

    def removed_days(self) -> frozenset[date]:
        """The days whose leads were removed. Raises StorageError where a file of figures is damaged."""
        days: set[date] = set()
        for path in self.frozen_files().values():
            with reading(path):
                stat = path.stat()
            days |= _days_of(path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino))
        return frozenset(days)

    def freeze(self, days: Collection[date], figures: bytes) -> None:
        """Keep the figures, and count these days as removed from then on, all at once."""
        content = seal(figures)
        if self.store is not None and not self.store.create(f"{_FROZEN}{max(days)}.parquet", content):
            raise StorageError(
                f"Another machine has removed days up to {max(days)} meanwhile. Run again; nothing was changed here."
            )
        replace_file(self._folder / _FROZEN / f"{max(days)}.parquet", content)

    def refresh_frozen(self) -> None:
        """Have here what the store has, and there what this folder has."""
        if self.store is None:
            return
        here = {f"{_FROZEN}{path.name}": path for path in self.frozen_files().values()}
        there = {key for key in self.store.list(_FROZEN) if _KEY.fullmatch(key)}
        for key in there - here.keys():
            if content := self.store.get(key):
                replace_file(self._folder / key, content)
        for key in here.keys() - there:
            with reading(here[key]):
                self.store.create(key, here[key].read_bytes())


@lru_cache(maxsize=_KNOWN_FILES)
def _days_of(path: Path, _: tuple[int, ...]) -> frozenset[date]:
    with reading(path):
        content = path.read_bytes()
    if not is_intact(content):
        raise StorageError(
            f"{path} is damaged. It holds figures of days whose leads were removed, which nothing else can be made "
            "from: put it back from a backup. Until then nothing is staged or published; leads.duckdb still has the "
            "figures."
        )
    facts = pq.ParquetFile(pa.BufferReader(content)).metadata.metadata or {}
    return frozenset(date.fromisoformat(day) for day in facts[DAYS_FACT.encode()].decode().split())
