"""Whom the Delta tables in a bucket hold."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.features.lake.parquet_tables import TABLES
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.people import HoldsPeople, IsMeant
from leads_pipeline.raw.rows import parquet_of


@dataclass(frozen=True, slots=True)
class LeadsInDelta(HoldsPeople):
    """The leads of Delta tables in a bucket, which may be another machine's (see HoldsPeople).

    Tables of this machine's folder are made anew by each publication that takes somebody out.
    """

    data: DataFolder

    def left(self, is_meant: IsMeant) -> list[str]:
        """Return the tables that still have such leads, or that can't be read."""
        if self.data.bucket is None:
            return []

        left = list[str]()
        for kind in LEAD_KINDS:
            for table in kind.tables:
                left += self._left_in(kind, table, is_meant)
        return left

    def _left_in(self, kind: LeadKind, table: str, is_meant: IsMeant) -> Iterator[str]:
        """Yield a sentence if the table still has such a lead, or can't be read."""
        what_to_do = (
            "Run `leads-pipeline privacy apply` on the machine that has LEADS_TABLES=delta."
        )
        try:
            for key in self.data.store.list(f"{TABLES}/{table}/"):
                if any(is_meant((kind.name, lead_id)) for lead_id in self._ids_in(key)):
                    yield f"{TABLES}/{table} in the bucket holds an erased person. {what_to_do}"
                    return
        except (pa.ArrowException, KeyError):
            yield (
                f"{TABLES}/{table} in the bucket may hold an erased person, because a file of it "
                f"can't be read. {what_to_do}"
            )

    def _ids_in(self, key: str) -> Iterator[str]:
        """Yield the ids in a table's file, also in one that its newest version doesn't need."""
        has_rows = key.endswith(".parquet") and "/_delta_log/" not in key
        content = self.data.store.get(key) if has_rows else None
        if content is None:
            return

        ids = parquet_of(content).read(["lead_id"], use_threads=False)["lead_id"]
        yield from map(str, ids.to_pylist())
