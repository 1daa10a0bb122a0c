"""The table of the inventory: each item once, typed as leads are, in its newest state."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.features.inventory.contract import read_inventory_page
from leads_pipeline.features.inventory.searches import FoundItem, Inventory, Search
from leads_pipeline.features.inventory.table import INVENTORY, load_inventory
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.warehouse.tables import create_table

DAY = date(2026, 11, 19)
AT = datetime(2026, 11, 19, 8, tzinfo=UTC)
NEXT_DAY = DAY + timedelta(days=1)
NEXT_AT = AT + timedelta(days=1)


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        create_table(db, INVENTORY)
        yield db


def found(item_id: str, at: datetime = AT, address: str = "York", **members: Any) -> FoundItem:
    return FoundItem(item_id, address, json.dumps({"id": item_id, **members}), at)


def rows(db: duckdb.DuckDBPyConnection, columns: str) -> list[tuple[Any, ...]]:
    return db.execute(f"select {columns} from inventory order by item_id").fetchall()  # noqa: S608 - our own names


def test_an_item_is_there_once_as_last_found_with_its_first_and_last_day(
    db: duckdb.DuckDBPyConnection,
) -> None:
    searches = [
        Search(DAY, [found("1", status="NEW"), found("2", status="NEW")]),
        Search(NEXT_DAY, [found("1", NEXT_AT, "Hull", status="SOLD"), found("3", NEXT_AT)]),
    ]
    load_inventory(db, searches)
    assert rows(db, "item_id, first_seen_day, last_seen_day, fetched_at, searched_address") == [
        ("1", DAY, NEXT_DAY, NEXT_AT, "Hull"),
        ("2", DAY, DAY, AT, "York"),
        ("3", NEXT_DAY, NEXT_DAY, NEXT_AT, "York"),
    ]
    load_inventory(db, searches[:1])
    assert rows(db, "item_id") == [("1",), ("2",)]
    load_inventory(db, [])
    assert rows(db, "item_id") == []


TEXTS = [
    '{"id":"1","address":{"nameNo":"14","street":"High Street","town":"York","postcode":"YO1 1AA","countryCode":"GB"}}',
    '{"id":2,"address":{"nameNo":14,"subDwelling":null,"street":{"name":"High Street"},"uprn":7},"price":1.50}',
    '{"id":"3","address":"York"}',
    '{"id":"4","address":{"town":true},"seen":NaN}',
    '{"address":{"town":"York"}}',
    "[1]",
]


def test_items_are_typed_as_leads_are_and_an_odd_one_costs_its_neighbours_nothing(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    items = read_inventory_page(f'{{"items":[{",".join(TEXTS)}]}}'.encode()).items
    inventory = Inventory(FolderStore(tmp_path / "data"))
    inventory.land(DAY, {"York": items}, AT)

    load_inventory(db, inventory.searches())

    found = rows(db, "item_id, address_name_no, address_town, _problems, _extra")
    assert [row for row in found if not row[0].startswith("sha256:")] == [
        ("1", "14", "York", [], None),
        ("2", "14", None, ["address.street"], '{"address":{"uprn":7},"price":1.50}'),
        ("3", None, None, ["address"], None),
        ("4", None, "true", ["not valid JSON"], '{"seen":"NaN"}'),
    ]
    assert sorted((row[1:4] for row in found if row[0].startswith("sha256:")), key=repr) == [
        (None, "York", ["no id"]),
        (None, None, ["not an object"]),
    ]
