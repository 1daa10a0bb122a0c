"""The table of the inventory: each item once, typed as leads are, in its newest state."""

from leads_pipeline_tests.support.house import House


def test_an_item_is_there_once_as_last_found_with_its_first_and_last_day(house: House) -> None:
    day = house.today
    house.land_inventory({"York": [{"id": "1"}, {"id": "2"}]})
    house.later(days=1)
    next_day = house.today
    house.land_inventory({"Hull": [{"id": "1", "status": "SOLD"}], "York": [{"id": "3"}]})
    house.publish()

    columns = "item_id, first_seen_day, last_seen_day, searched_address"
    assert house.query(f"select {columns} from inventory order by item_id") == [  # noqa: S608
        ("1", day, next_day, "Hull"),
        ("2", day, day, "York"),
        ("3", next_day, next_day, "York"),
    ]


def test_items_are_typed_as_leads_are_and_an_odd_one_costs_its_neighbours_nothing(
    house: House,
) -> None:
    items = [
        '{"id":"1","address":{"nameNo":"14","street":"High Street","town":"York"}}',
        '{"id":2,"address":{"nameNo":14,"street":{"name":"High Street"},"uprn":7},"price":1.50}',
        '{"id":"3","address":"York"}',
        '{"id":"4","address":{"town":true},"seen":NaN}',
        '{"address":{"town":"York"}}',
        "[1]",
    ]
    house.land_inventory({"York": items})
    house.publish()

    columns = "item_id, address_name_no, address_town, _problems, _extra"
    found = house.query(f"select {columns} from inventory order by item_id")  # noqa: S608
    assert found[:4] == [
        ("1", "14", "York", [], None),
        ("2", "14", None, ["address.street"], '{"address":{"uprn":7},"price":1.50}'),
        ("3", None, None, ["address"], None),
        ("4", None, "true", ["not valid JSON"], '{"seen":"NaN"}'),
    ]
    # Items without an id have their hash.
    assert sorted(row[3] for row in found[4:]) == [["no id"], ["not an object"]]
