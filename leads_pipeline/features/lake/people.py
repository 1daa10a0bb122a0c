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
        return [
            f"{TABLES}/{table} in the bucket holds an erased person. Run `leads-pipeline privacy "
            "apply` on the machine that has LEADS_TABLES=delta."
            for kind in LEAD_KINDS
            for table in kind.tables
            if self._has(kind, table, is_meant)
        ]

    def _has(self, kind: LeadKind, table: str, is_meant: IsMeant) -> bool:
        try:
            ids = {
                lead_id
                for key in self.data.store.list(f"{TABLES}/{table}/")
                for lead_id in self._ids_in(key)
            }
        except (pa.ArrowException, KeyError):
            return True
        return any(is_meant((kind.name, lead_id)) for lead_id in ids)

    def _ids_in(self, key: str) -> Iterator[str]:
        """The ids of a table's file, also of one that no edition needs any more."""
        if (
            key.endswith(".parquet")
            and "/_delta_log/" not in key
            and (content := self.data.store.get(key)) is not None
        ):
            ids = parquet_of(content).read(["lead_id"], use_threads=False)["lead_id"]
            yield from map(str, ids.to_pylist())
