"""The table of the inventory: each item once, in its newest state.

Belongs here: the table and its rows. Doesn't: the files of searches (searches.py), typing
(warehouse/typed_rows.py).
"""

# ruff: noqa: S608 - only the contract's own names are in the statements

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

import duckdb
import pyarrow as pa

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.features.inventory.contract import INVENTORY_FIELDS
from leads_pipeline.features.inventory.searches import Inventory, Search
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.duck import Column
from leads_pipeline.warehouse.flatten import lead_columns
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.step import Draft, Step
from leads_pipeline.warehouse.tables import (
    DRIFT_COLUMNS,
    Table,
    columns_of,
    create_table,
    declared_columns,
)
from leads_pipeline.warehouse.typed_rows import read_leads

# The asset of the raw files.
RAW_INVENTORY: Final = "raw_inventory"

INVENTORY: Final = Table(
    "inventory",
    "One row per item that the inventory searches found, in its newest state",
    (
        Column(
            "item_id",
            "varchar",
            "The item's own id; sha256: and the hash of its payload if it has none",
        ),
        Column("first_seen_day", "date", "First day on which a search found the item"),
        Column("last_seen_day", "date", "Last day on which a search found the item"),
        Column(
            "fetched_at", "timestamptz", "When this version of the item was first received, UTC"
        ),
        Column("searched_address", "varchar", "Place whose search found this version"),
        *declared_columns(INVENTORY_FIELDS),
        *DRIFT_COLUMNS,
    ),
    reads=(RAW_INVENTORY,),
)

# The reader takes an item for a lead of this kind.
_ITEM: Final = LeadKind("inventory_item", "", "", INVENTORY.name, "", INVENTORY_FIELDS)


_COLUMNS: Final[dict[str, pa.DataType]] = {
    "lead_id": pa.string(),
    "first_seen_day": pa.date32(),
    "last_seen_day": pa.date32(),
    "fetched_at": pa.timestamp("us", tz="UTC"),
    "searched_address": pa.string(),
}


def steps(data: DataFolder, settings: PublicationSettings, now: datetime) -> list[Step]:  # noqa: ARG001 - as any
    """Return what the inventory adds to a publication."""
    return [LoadInventory(Inventory.of(data))]


class LoadInventory(Step):
    """Loads what the searches have found."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def updates_if(self) -> str:
        """The files of the searches."""
        return repr(self._inventory.hashes())

    def rebuilds_if(self) -> str:
        """The columns."""
        return repr(INVENTORY)

    def fill(self, draft: Draft) -> None:
        """Load it in the place of what was loaded before."""
        with draft.transaction():
            if not columns_of(draft.db, INVENTORY.name):
                create_table(draft.db, INVENTORY)
            load_inventory(draft.db, self._inventory.searches())


def load_inventory(db: duckdb.DuckDBPyConnection, searches: Iterable[Search]) -> None:
    """Fill the table `inventory` anew from the searches, which come by day."""
    rows: dict[str, dict[str, Any]] = {}
    for search in searches:
        for item in search.items:
            before = rows.get(item.item_id, {})
            is_as_before = before.get("payload") == item.payload
            rows[item.item_id] = {
                "lead_id": item.item_id,
                "first_seen_day": before.get("first_seen_day", search.day),
                "last_seen_day": search.day,
                "fetched_at": before["fetched_at"] if is_as_before else item.fetched_at,
                "searched_address": item.address,
                "payload": item.payload,
            }

    found = [row for _, row in sorted(rows.items())]
    items = read_leads(_ITEM, ((row["lead_id"], row["payload"], ()) for row in found))
    received = pa.Table.from_pylist(found, pa.schema(_COLUMNS)).append_column("lead", items)  # noqa: F841 - DuckDB finds it by its name
    db.execute("delete from inventory")
    db.execute(
        f"""
        insert into inventory by name
        select lead_id as item_id, first_seen_day, last_seen_day, fetched_at, searched_address,
            {lead_columns(_ITEM, "lead")}
        from received
        """
    )
