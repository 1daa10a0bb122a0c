"""Each declared field has a column of its own in leads.duckdb, and each element of a list a row."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline_tests.support.house import House, Row


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def test_every_declared_field_reaches_its_own_column(house: House) -> None:
    sent: dict[str, Callable[[int], Any]] = {
        "text": lambda n: f"text {n}",
        "boolean": lambda n: n % 2 == 0,
        "integer": lambda n: 2**40 + n,
        "number": lambda n: n + 0.5,
        "amount": lambda n: n + 0.25,
        "moment": lambda n: f"2026-11-19T00:00:{n % 60:02}Z",
    }
    for kind in LEAD_KINDS:
        lead: Row = {"id": "a"}
        for number, field in enumerate(kind.fields):
            *objects, name = field.path.split(".")
            target = lead
            for step in objects:
                target = target.setdefault(step, {})
            target[name] = sent[field.type.value](number)
        house.land(kind.name, [lead])
    house.publish()

    expected: dict[str, Callable[[Any], Any]] = {"amount": lambda value: Decimal(str(value)), "moment": moment}
    for kind in LEAD_KINDS:
        row = house.leads(kind.name)["a"]
        for number, field in enumerate(kind.fields):
            meant = expected.get(field.type.value, lambda same: same)(sent[field.type.value](number))
            value = row[field.column]
            assert (field.path, value, type(value)) == (field.path, meant, type(meant))
        assert (row["_problems"], row["_extra"]) == ([], None)


def test_a_list_becomes_rows_in_order_with_problems_and_extras_of_their_own(house: House) -> None:
    house.land(
        "applicant",
        [
            '{"id":"a","viewingTimes":[{"earliest":"2026-11-20T10:00Z","latest":"soon"},null,5,[],'
            '{"latest":"0001-01-01T00:00Z","new": 1.50 ,"earliest":null},{},{"earliest":{"a":1}}],'
            '"listingDetails":{"images":[{"filename":250000.10,"cdnUrl":"u"}]}}'
        ],
    )
    house.publish()

    times = house.rows("from applicant_viewing_times order by position")
    assert [(time["lead_id"], time["position"]) for time in times] == [("a", position) for position in range(7)]
    assert times[0]["earliest"] == moment("2026-11-20T10:00Z")
    assert [time["_problems"] for time in times] == [
        ["latest"], ["not an object"], ["not an object"], ["not an object"], [], [], ["earliest"],
    ]  # fmt: skip
    assert [time["_extra"] for time in times] == [None, None, None, None, '{"new":1.50}', None, None]
    (image,) = house.rows("from applicant_listing_images")
    assert (image["filename"], image["cdn_url"], image["original"]) == ("250000.10", "u", None)
    assert (house.leads("applicant")["a"]["_problems"], house.leads("applicant")["a"]["_extra"]) == ([], None)
