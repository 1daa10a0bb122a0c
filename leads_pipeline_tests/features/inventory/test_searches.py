"""Raw files of the inventory: the newest whole search of a day counts."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.features.inventory.contract import InventoryItem
from leads_pipeline.features.inventory.searches import FoundItem, Inventory, Search
from leads_pipeline.raw.store import FolderStore

DAY = date(2026, 11, 19)
AT = datetime(2026, 11, 19, 8, tzinfo=UTC)
LATER = AT + timedelta(hours=1)


def item(number: int, text: str = "first") -> InventoryItem:
    return InventoryItem(str(number), f'{{"id":{number},"text":"{text}"}}')


class Searches:
    def __init__(self, folder: Path) -> None:
        self.store = FolderStore(folder)
        self.now = AT + timedelta(days=1)
        self.landed = 0
        self.inventory = Inventory(self.store, lambda: self.now, self.note_landed)

    def note_landed(self) -> None:
        self.landed += 1

    def ids(self) -> dict[date, list[str]]:
        return {one.day: [item.item_id for item in one.items] for one in self.inventory.searches()}


@pytest.fixture
def searches(tmp_path: Path) -> Searches:
    return Searches(tmp_path)


def test_the_newest_search_of_a_day_counts_and_older_ones_are_deleted(searches: Searches) -> None:
    searches.inventory.land(DAY, {"York": [item(1), item(2)]}, AT)
    assert (
        searches.inventory.land(DAY, {"York": [item(2, "second")], "Hull": [item(3)]}, LATER) == 2
    )
    searches.inventory.land(DAY + timedelta(days=1), {"York": []}, LATER + timedelta(days=1))

    first, second = searches.inventory.searches()
    assert first == Search(
        DAY,
        [
            FoundItem("2", "York", item(2, "second").payload, LATER),
            FoundItem("3", "Hull", item(3).payload, LATER),
        ],
    )
    assert (second.day, second.items) == (DAY + timedelta(days=1), [])
    assert len(searches.store.list("raw/inventory/")) == 2
    assert searches.landed == 3


def test_an_item_that_is_found_again_keeps_the_moment_when_its_text_was_first_received(
    searches: Searches,
) -> None:
    searches.inventory.land(DAY, {"York": [item(1), item(2)]}, AT)
    searches.inventory.land(DAY, {"York": [item(1), item(2, "second"), item(3)]}, LATER)
    searches.inventory.land(
        DAY, {"York": [item(1), item(2, "second"), item(3)]}, LATER + timedelta(hours=1)
    )
    [search] = searches.inventory.searches()
    assert [found.fetched_at for found in search.items] == [AT, LATER, LATER]
    assert searches.landed == 2, "a search that finds the same writes nothing"


def test_an_item_that_two_places_have_counts_once(searches: Searches) -> None:
    assert searches.inventory.land(DAY, {"York": [item(1), item(2)], "YO1": [item(1)]}, AT) == 2
    [search] = searches.inventory.searches()
    assert [(one.item_id, one.address) for one in search.items] == [("1", "YO1"), ("2", "York")]


def test_a_damaged_file_is_set_aside_and_the_other_days_are_read(searches: Searches) -> None:
    searches.inventory.land(DAY, {"York": [item(1)]}, AT)
    searches.inventory.land(DAY + timedelta(days=1), {"York": [item(2)]}, LATER)
    before = searches.inventory.hashes()
    newer, damaged = before
    searches.store.create(damaged, searches.store.get(newer) or b"")
    assert searches.ids() == {DAY + timedelta(days=1): ["2"]}
    [aside] = searches.store.list("quarantine/")
    assert aside.startswith(f"quarantine/{damaged}.2026")
    assert searches.inventory.hashes() == [key for key in before if key != damaged]
