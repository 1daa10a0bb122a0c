"""Raw files of the inventory: the newest whole search of a day counts."""

from pathlib import Path

from leads_pipeline.features.inventory.searches import FoundItem, Inventory
from leads_pipeline_tests.support.house import House

ONE = {"id": "1"}
TWO = {"id": "2"}


def found(house: House) -> list[FoundItem]:
    """The items that count, day by day."""
    items: list[FoundItem] = []
    for search in Inventory.of(house.data).searches():
        items += search.items
    return items


def files(house: House) -> list[Path]:
    return sorted(house.folder.glob("raw/inventory/*/*.parquet"))


def test_the_newest_search_of_a_day_counts_and_older_ones_are_deleted(house: House) -> None:
    house.land_inventory({"York": [ONE, TWO]})
    house.land_inventory({"York": [TWO], "Hull": [{"id": "3"}]})

    assert [(one.item_id, one.address) for one in found(house)] == [("2", "York"), ("3", "Hull")]
    assert len(files(house)) == 1


def test_an_item_that_is_found_again_keeps_the_moment_when_its_text_was_first_received(
    house: House,
) -> None:
    first = house.now
    house.land_inventory({"York": [ONE, TWO]})
    second = house.now
    house.land_inventory({"York": [ONE, TWO | {"price": 1}]})

    assert [one.fetched_at for one in found(house)] == [first, second]


def test_a_search_that_finds_the_same_writes_nothing(house: House) -> None:
    house.land_inventory({"York": [ONE]})
    before = files(house)

    house.land_inventory({"York": [ONE]})

    assert files(house) == before


def test_an_item_that_two_places_have_counts_once(house: House) -> None:
    house.land_inventory({"York": [ONE, TWO], "YO1": [ONE]})

    assert [(one.item_id, one.address) for one in found(house)] == [("1", "YO1"), ("2", "York")]


def test_a_damaged_file_is_set_aside_and_the_other_days_are_read(house: House) -> None:
    house.land_inventory({"York": [ONE]})
    house.later(days=1)
    house.land_inventory({"York": [TWO]})
    damaged, _ = files(house)
    damaged.write_bytes(b"rotten")

    assert [one.item_id for one in found(house)] == ["2"]
    assert not damaged.exists()
    assert len([*house.folder.glob("quarantine/raw/inventory/*/*")]) == 1
