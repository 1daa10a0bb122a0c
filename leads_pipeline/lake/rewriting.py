"""Raw files whose leads lose something for good, and the warehouse that has to be written anew after that.

Belongs here: replacing what was received, under a file's lock. Doesn't: what goes, and when (privacy/).
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from leads_pipeline.contract import LeadKind
from leads_pipeline.durable import reading, replace_file, storing, sweep
from leads_pipeline.lake.quarantine import raw_lock
from leads_pipeline.lake.raw import RawLeads
from leads_pipeline.lake.rows import RAW_SCHEMA, sequence_of
from leads_pipeline.lake.sealed import open_parquet, parquet, rows_of
from leads_pipeline.lake.state import found_in

# What the footer of a raw file says once nobody is named in it. A landing writes a footer without it.
_CUT: Final = "personal_fields"
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

    def is_cut(self, path: Path) -> bool:
        """Whether the file's personal fields are cut out. A missing file has none; a damaged one is set aside."""
        opened = self._inspect(path, self._open_leads)
        return opened is None or _CUT in opened[1]

    def cut_raw(self, path: Path, cut: Callable[[str, str], str | None]) -> int:
        """Replace each payload by what `cut` makes of lead id and payload; how many rows were replaced.

        Where it makes None, the row stays and the file doesn't count as cut. Whole or not at all. The file keeps its
        time and all that it says of its window, but for the hash of the answer, which would prove a guess right.
        """
        with self.lock(raw_lock(path)):
            sweep(path)
            opened = self._read_or_quarantine(path, self._open_leads)
            if opened is None:
                return 0
            file, facts = opened
            rows = rows_of(file)
            payloads = [cut(row["lead_id"], row["payload"]) for row in rows]
            facts = {name: value for name, value in facts.items() if name not in (_CUT, "ARROW:schema")}
            if None not in payloads:
                facts[_CUT] = "cut"
            if "window_start" in facts:
                facts["body_sha256"] = ""
                facts.setdefault("leads", str(len({row["lead_id"] for row in rows})))
                facts.setdefault("looked_at", facts["fetched_at"])
                facts.setdefault("sequence", str(sequence_of(None, datetime.fromisoformat(facts["fetched_at"]))))
            changed = [
                row if payload is None else row | {"payload": payload}
                for row, payload in zip(rows, payloads, strict=True)
            ]
            with reading(path):
                modified = path.stat().st_mtime_ns
            replace_file(path, parquet(changed, RAW_SCHEMA, facts), modified_ns=modified)
        return sum(payload is not None for payload in payloads)

    def _open_leads(self, path: Path) -> tuple[pq.ParquetFile, dict[str, str]]:
        return open_parquet(path, RAW_SCHEMA, self._relative(path))

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
