"""Raw files whose leads lose something for good, and the warehouse that has to be written anew after that.

Belongs here: replacing what was received, under a file's lock. Doesn't: what goes, and when (privacy/).
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leads_pipeline.contract import LeadKind
from leads_pipeline.durable import reading, replace_file, storing, sweep
from leads_pipeline.lake.gate import ANONYMOUS, CUT
from leads_pipeline.lake.quarantine import raw_lock
from leads_pipeline.lake.raw import RawLeads
from leads_pipeline.lake.rows import Row
from leads_pipeline.lake.sealed import rows_of
from leads_pipeline.lake.state import found_in

_RETENTION_LOCK: Final = "retention"


class RawRewriting(RawLeads):
    """What retention does to raw files."""

    @contextmanager
    def retaining(self) -> Iterator[None]:
        """Hold the lock by which retention goes on once at a time."""
        with self.lock(_RETENTION_LOCK):
            yield

    def raw_files(self, kind: LeadKind, day: date) -> list[Path]:
        """The day's raw files of leads, pulled and pushed."""
        return found_in(self._day_folder(kind, day), "scope=*/*.parquet")

    def is_anonymous(self, path: Path) -> bool:
        """Whether nobody is named in the file. A missing file names nobody; a damaged one is set aside."""
        opened = self._inspect(path, self._open_leads)
        return opened is None or opened[1].get(CUT) == ANONYMOUS

    def make_anonymous(self, path: Path, cut: Callable[[str], str]) -> None:
        """Replace each payload of the file by what `cut` makes of it."""

        def rewritten(file: pq.ParquetFile, facts: dict[str, str]) -> list[Row]:
            facts[CUT] = ANONYMOUS
            return [row | {"payload": cut(row["payload"])} for row in rows_of(file)]

        with self.lock(raw_lock(path)):
            sweep(path)
            self._rewrite(path, rewritten)

    # --- the warehouse, which keeps deleted rows in blocks until they are written over ------------------------------

    def want_rebuild(self) -> None:
        """Have the next publication write the warehouse's file anew, without what was deleted."""
        replace_file(self._rebuild, secrets.token_hex(8).encode())

    def rebuild_wanted(self) -> str | None:
        """Which rebuild is wanted, None where none is. To be asked before the publication looks at any file.

        While retention goes on, it isn't wanted yet: what it has still to delete would be written once more.
        """
        with reading(self._rebuild):
            if self._is_held(_RETENTION_LOCK) or not self._rebuild.exists():
                return None
            return self._rebuild.read_text(encoding="ascii")

    def rebuilt(self, wanted: str) -> None:
        """Forget the rebuild that is done, unless another was wanted meanwhile."""
        with storing(self._rebuild):
            if self.rebuild_wanted() == wanted:
                self._rebuild.unlink()

    @property
    def _rebuild(self) -> Path:
        return self._state / "rebuild-warehouse"
