"""How a lead's text becomes a nested row: types, `_problems`, `_extra`, and odd texts."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from leads_pipeline.domain.bodies import cut_leads as cut
from leads_pipeline.domain.contract import APPLICANT, LeadKind
from leads_pipeline.warehouse.typed_rows import read_leads

Row = dict[str, Any]


def read(*texts: str, kind: LeadKind = APPLICANT) -> list[Row]:
    """The rows of leads as the portal sends them, in order."""
    body = f'{{"{kind.list_key}":[{",".join(texts)}]}}'.encode(errors="surrogateescape")
    leads = list(cut(kind, body).leads)
    return rows([(lead.lead_id, lead.payload) for lead in leads], kind)


def rows(leads: Sequence[tuple[str, str]], kind: LeadKind = APPLICANT) -> list[Row]:
    found: list[Any] = read_leads(kind, [(*lead, ()) for lead in leads]).to_pylist()
    return found


def value(row: Row, path: str) -> Any:
    for step in path.split("."):
        row = row[step]
    return row


# --- types ----------------------------------------------------------------------------------------

PROBLEM = object()
TEXT = "message"
BOOLEAN = "isOverseas"
INTEGER = "listingDetails.uprn"
NUMBER = "searchCriteria.radius"
AMOUNT = "listingDetails.pricing.price"
MOMENT = "createdAt"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


EVERYTHING = (TEXT, BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT)

# A field, the value as JSON, and what it becomes.
EDGES: list[tuple[str, str, object]] = [
    *((path, "null", None) for path in EVERYTHING),
    *((path, "{}", PROBLEM) for path in EVERYTHING),
    *((path, '""', PROBLEM) for path in EVERYTHING if path != TEXT),
    # text: a number or a boolean becomes its text exactly as written
    (TEXT, '" a \\n"', " a \n"),
    (TEXT, "250000.10", "250000.10"),
    (TEXT, "true", "true"),
    (TEXT, '"a\\u0000b"', "a\x00b"),
    (BOOLEAN, '"true"', True),
    (BOOLEAN, '"yes"', PROBLEM),
    (BOOLEAN, "1", PROBLEM),
    (INTEGER, "9223372036854775807", 9223372036854775807),
    (INTEGER, "9223372036854775808", PROBLEM),
    (INTEGER, "3.0", 3),
    (INTEGER, "3.5", PROBLEM),
    (INTEGER, '"12"', 12),
    (INTEGER, '"1_000"', PROBLEM),
    (INTEGER, "1e-400", PROBLEM),
    (NUMBER, "1.7976931348623157e308", 1.7976931348623157e308),
    (NUMBER, "1e400", PROBLEM),
    (NUMBER, '"NaN"', PROBLEM),
    # amount: exact to the penny, or a problem
    (AMOUNT, "1.25E7", Decimal("12500000.00")),
    (AMOUNT, "9007199254740993.01", Decimal("9007199254740993.01")),
    (AMOUNT, "10000000000000000", PROBLEM),
    (AMOUNT, "1.005", PROBLEM),
    (AMOUNT, '"£350,000"', PROBLEM),
    (AMOUNT, "0.10000000000000000555", Decimal("0.10")),
    (MOMENT, '"2026-11-19T10:20:30.123456789Z"', moment("2026-11-19T10:20:30.123456Z")),
    (MOMENT, '"2026-11-19T10:20:30-0530"', moment("2026-11-19T15:50:30Z")),
    (MOMENT, '"2016-12-31T23:59:60Z"', PROBLEM),
    (MOMENT, '"0001-01-01T00:00Z"', None),
    (MOMENT, '"2026-02-29T00:00:00Z"', PROBLEM),
    (MOMENT, '"2026-11-19T10:20:30"', PROBLEM),
    (MOMENT, "1763547630", PROBLEM),
]


def nested(path: str, value: str) -> str:
    """JSON of an object that holds the value, given as JSON, at the path."""
    for step in reversed(path.split(".")):
        value = f"{{{json.dumps(step)}:{value}}}"
    return value


@pytest.mark.parametrize("more", ["", ',"new":1'], ids=["at once", "in pieces"])
def test_a_value_is_typed_exactly_or_is_a_problem(more: str) -> None:
    found = read(*(f'{{"id":"a"{more},{nested(path, text)[1:]}' for path, text, _ in EDGES))

    for (path, text, expected), row in zip(EDGES, found, strict=True):
        typed = value(row, path)
        is_problem = expected is PROBLEM
        assert (path, text, typed) == (path, text, None if is_problem else expected)
        assert row["_problems"] == ([path] if is_problem else [])
        assert is_problem or type(typed) is type(expected)


def test_an_object_or_a_list_where_none_is_declared_is_a_problem_and_so_is_the_reverse() -> None:
    odd: Row = {
        "contact": "Ann",
        "intent": {"a": 1},
        "viewingTimes": "now",
        "listingDetails": {"images": {"a": 1}},
    }
    empty: Row = {"contact": {}, "listingDetails": {"images": []}, "searchCriteria": None}
    first, second = read(json.dumps({"id": "a", **odd}), json.dumps({"id": "b", **empty}))

    problems = {"contact", "intent", "viewingTimes", "listingDetails.images"}
    assert set(first["_problems"]) == problems
    assert first["viewingTimes"] == []
    assert second["_problems"] == []


# --- what nobody declared -------------------------------------------------------------------------


def test_an_unknown_member_is_kept_where_it_was_and_as_it_was_written() -> None:
    [row] = read(
        '{"id":{"a":1}, "price" : 250000.10, "contact":{"id":7,"email":"x","preferences":{"n": 1E5 }},"e":"\\u00e9",'
        '"viewingTimes":[{"id":"a","latest":"soon"},{"earliest":"2026-11-20T10:00Z"},null],"b":[1,\n2]}'
    )

    assert (
        row["_extra"]
        == '{"price":250000.10,"contact":{"id":7,"preferences":{"n":1E5}},"e":"\\u00e9","b":[1,\n2]}'
    )
    assert row["contact"]["email"] == "x"
    assert row["_problems"] == ["no id"]
    times = row["viewingTimes"]
    assert [time["_extra"] for time in times] == ['{"id":"a"}', None, None]
    assert [time["_problems"] for time in times] == [["latest"], [], ["not an object"]]


def test_of_a_key_that_stands_twice_the_last_value_counts() -> None:
    contact = '"contact":{"email":"a"},"intent":"one","contact":{"firstName":"b"}'
    [row] = read(f'{{"id":"a",{contact},"\\u0069ntent":"two","new":1,"new":2}}')

    assert row["intent"] == "two"
    assert row["contact"]["email"] is None
    assert row["_problems"] == []
    assert row["_extra"] == '{"new":2}'


# --- odd texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "problems"),
    [
        ('{"id":"a","message":"x \\ud83d"}', "x ?", ["not valid JSON"]),
        (
            '{"id":"a","message":"m","searchCriteria":{"radius":NaN}}',
            "m",
            ["not valid JSON", "searchCriteria.radius"],
        ),
        (
            '{"id":"a","message":"m","listingDetails":{"uprn":' + "9" * 5000 + "}}",
            "m",
            ["listingDetails.uprn"],
        ),
        ('{"id":"a","message":tru}', None, ["not valid JSON"]),
        # It wasn't UTF-8, and is read as ISO 8859-1.
        ('{"id":"a","message":"caf\udce9"}', "café", []),
        ('{"message":"caf\udce9"}', "café", ["no id"]),
        ('["a"]', None, ["not an object"]),
    ],
)
def test_an_odd_lead_is_read_as_far_as_it_can_be(
    text: str, message: str | None, problems: list[str]
) -> None:
    [row] = read(text)

    assert row["message"] == message
    assert row["_problems"] == problems


@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")], ids=["lists", "objects"])
def test_what_nests_too_deep_is_not_read_however_much_stack_is_left(
    opening: str, closing: str
) -> None:
    for levels, is_read in ((599, True), (600, False), (100_000, False)):
        [row] = read(f'{{"id":"a","message":"[[","new":{opening * levels}1{closing * levels}}}')

        assert row["message"] == ("[[" if is_read else None)
        assert row["_problems"] == ([] if is_read else ["not valid JSON"])


def test_a_lead_without_an_id_is_told_by_its_hash_alone() -> None:
    """The raw row needs no column for it."""
    [lead] = cut(APPLICANT, b'{"applicants":[{"message":"m"}]}').leads

    [without, other] = rows([(lead.lead_id, lead.payload), ("sha256:" + "0" * 64, lead.payload)])

    assert (without["_problems"], other["_problems"]) == (["no id"], [])
