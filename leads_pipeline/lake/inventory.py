"""The inventory's raw files, one per day.

Belongs here: landing what searches found. Doesn't: the search (portal/), leads (raw.py).
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path

import pyarrow.parquet as pq

from leads_pipeline.contract import InventoryItem
from leads_pipeline.durable import sweep
from leads_pipeline.lake.quarantine import INVENTORY, RAW, raw_lock
from leads_pipeline.lake.rows import RAW_INVENTORY_SCHEMA, inventory_rows, merge, sequence_of
from leads_pipeline.lake.sealed import open_parquet, rows_of
from leads_pipeline.lake.shared import SharedFiles
from leads_pipeline.lake.state import days_in


class Inventory(SharedFiles):
    """The folder raw/inventory/."""

    def land_inventory(
        self,
        day: date,
        answers: Mapping[str, Sequence[InventoryItem]],
        fetched_at: datetime,
        run_id: str,
        sequence: int | None = None,
    ) -> int:
        """Merge the searches' answers (address searched → all its items) into the day's file; its items afterwards.

        Every version of each item id, as with leads, or of the payload's hash where an item has none.
        """
        path = self._inventory_path(day)
        with self.lock(raw_lock(path)):
            sweep(path)
            before = self._read_or_quarantine(path, self._read_inventory)
            rows = inventory_rows(day, answers, sequence_of(sequence, fetched_at), fetched_at, run_id)
            merged = merge(rows_of(before) if before else [], rows, "item_id")
            self.write_raw(path, merged.rows, RAW_INVENTORY_SCHEMA, {})
        self._keep_sequence_above(merged.highest)
        return merged.ids

    def inventory_files(self) -> list[Path]:
        """The readable inventory files, one per day, sorted; unreadable ones are set aside like raw files."""
        paths = (self._inventory_path(day) for day in days_in(self._folder / RAW / INVENTORY))
        return [path for path in paths if self._inspect(path, self._read_inventory) is not None]

    def _inventory_path(self, day: date) -> Path:
        return self._folder / RAW / INVENTORY / f"day={day.isoformat()}" / "items.parquet"

    def _read_inventory(self, path: Path) -> pq.ParquetFile:
        return open_parquet(path, RAW_INVENTORY_SCHEMA, self._relative(path))[0]
