"""How a lead's JSON becomes typed columns, rows of child tables, `_problems` and `_extra`."""

import json
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from leads_pipeline_tests.support.drifting import KINDS, Received, drifting_leads, leads_with_one_change, lost
from leads_pipeline_tests.support.house import House, Lead, Quick, Row

PROBLEM = object()


def published(house: House, *leads: Lead) -> list[Row]:
    """The applicant leads as they are published, in the order given. Those without an id get one."""
    with_ids = [lead if isinstance(lead, str) else {"id": f"{n:04}", **lead} for n, lead in enumerate(leads)]
    house.land("applicant", with_ids)
    house.publish()
    return house.rows("from applicant_leads order by lead_id")


def children(house: House, table: str) -> list[Row]:
    return house.rows(f"from {table} order by lead_id, position")


def extra(row: Row) -> Any:
    return row["_extra"] and json.loads(row["_extra"])


# --- types --------------------------------------------------------------------------------------------------------

TEXT, BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT = (
    "message",
    "isOverseas",
    "listingDetails.uprn",
    "searchCriteria.radius",
    "listingDetails.pricing.price",
    "createdAt",
)
COLUMNS = {
    TEXT: "message",
    BOOLEAN: "is_overseas",
    INTEGER: "listing_details_uprn",
    NUMBER: "search_criteria_radius",
    AMOUNT: "listing_details_pricing_price",
    MOMENT: "created_at",
}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


EDGES: list[tuple[str, str, object]] = [
    *[(path, "null", None) for path in (TEXT, BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT)],
    *[(path, text, PROBLEM) for path in (TEXT, BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT) for text in ("{}", "[1]")],
    *[(path, '""', PROBLEM) for path in (BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT)],
    # text: a number or a boolean becomes its text exactly as written
    (TEXT, '""', ""),
    (TEXT, '"null"', "null"),
    (TEXT, '" a \\n"', " a \n"),
    (TEXT, '"{not json"', "{not json"),
    (TEXT, '"[1]"', "[1]"),
    (TEXT, '"{\\"a\\":1}"', '{"a":1}'),
    (TEXT, '"1.50"', "1.50"),
    (TEXT, "250000.10", "250000.10"),
    (TEXT, "1E5", "1E5"),
    (TEXT, "-0.0", "-0.0"),
    (TEXT, "0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
    (TEXT, "123456789012345678901234567890", "123456789012345678901234567890"),
    (TEXT, "1e400", "1e400"),
    (TEXT, "true", "true"),
    (TEXT, '"a\\u0000b"', "a\x00b"),
    (TEXT, '"\\ud83d\\ude00"', "😀"),
    (TEXT, '"<b>x</b>\'; drop table leads; --"', "<b>x</b>'; drop table leads; --"),
    (TEXT, "-0", "0"),
    # boolean
    (BOOLEAN, "true", True),
    (BOOLEAN, "false", False),
    (BOOLEAN, '"true"', True),
    (BOOLEAN, '"yes"', PROBLEM),
    (BOOLEAN, '"TRUE"', PROBLEM),
    (BOOLEAN, '"t"', PROBLEM),
    (BOOLEAN, "1", PROBLEM),
    (BOOLEAN, "0", PROBLEM),
    # integer
    (INTEGER, "0", 0),
    (INTEGER, "-5", -5),
    (INTEGER, "9223372036854775807", 9223372036854775807),
    (INTEGER, "-9223372036854775808", -9223372036854775808),
    (INTEGER, "9223372036854775808", PROBLEM),
    (INTEGER, "-9223372036854775809", PROBLEM),
    (INTEGER, "3.0", 3),
    (INTEGER, "1.0E7", 10_000_000),
    (INTEGER, "3.5", PROBLEM),
    (INTEGER, "5.7", PROBLEM),
    (INTEGER, "1e-1", PROBLEM),
    (INTEGER, '"12"', 12),
    (INTEGER, '" 12"', PROBLEM),
    (INTEGER, '"+12"', PROBLEM),
    (INTEGER, '"012"', PROBLEM),
    (INTEGER, '"1_000"', PROBLEM),
    (INTEGER, '"0x1F"', PROBLEM),
    (INTEGER, '"٣"', PROBLEM),
    (INTEGER, "true", PROBLEM),
    (INTEGER, "1e-400", PROBLEM),
    (INTEGER, "9007199254740993.01", PROBLEM),
    # number
    (NUMBER, "0.25", 0.25),
    (NUMBER, "3", 3.0),
    (NUMBER, "-1e-3", -0.001),
    (NUMBER, "1.7976931348623157e308", 1.7976931348623157e308),
    (NUMBER, "1e400", PROBLEM),
    (NUMBER, '"NaN"', PROBLEM),
    (NUMBER, '"inf"', PROBLEM),
    (NUMBER, '"1,5"', PROBLEM),
    (NUMBER, "false", PROBLEM),
    # amount: exact to the penny, or a problem
    (AMOUNT, "250000.10", Decimal("250000.10")),
    (AMOUNT, "250000", Decimal("250000.00")),
    (AMOUNT, "1.25E7", Decimal("12500000.00")),
    (AMOUNT, "1.500", Decimal("1.50")),
    (AMOUNT, "-0.01", Decimal("-0.01")),
    (AMOUNT, "9999999999999999.99", Decimal("9999999999999999.99")),
    (AMOUNT, "9007199254740993.01", Decimal("9007199254740993.01")),
    (AMOUNT, "10000000000000000", PROBLEM),
    (AMOUNT, "1.005", PROBLEM),
    (AMOUNT, "1e-9", PROBLEM),
    (AMOUNT, "1e30", PROBLEM),
    (AMOUNT, '"350000.5"', Decimal("350000.50")),
    (AMOUNT, '"£350,000"', PROBLEM),
    (AMOUNT, "1e-400", PROBLEM),
    (AMOUNT, "0.10000000000000000555", Decimal("0.10")),
    # moment
    (MOMENT, '"2026-11-19T10:20:30Z"', moment("2026-11-19T10:20:30Z")),
    (MOMENT, '"2026-11-19T10:20Z"', moment("2026-11-19T10:20:00Z")),
    (MOMENT, '"2026-11-19T10:20:30.123456Z"', moment("2026-11-19T10:20:30.123456Z")),
    (MOMENT, '"2026-11-19T10:20:30.123456789Z"', moment("2026-11-19T10:20:30.123456Z")),
    (MOMENT, '"2026-11-19T10:20:30+01:00"', moment("2026-11-19T09:20:30Z")),
    (MOMENT, '"2026-11-19T10:20:30-0530"', moment("2026-11-19T15:50:30Z")),
    (MOMENT, '"2026-11-19t10:20:30z"', moment("2026-11-19T10:20:30Z")),
    (MOMENT, '"2016-12-31T23:59:60Z"', PROBLEM),
    (MOMENT, '"2024-02-29T00:00:00Z"', moment("2024-02-29T00:00:00Z")),
    (MOMENT, '"0001-01-01T00:00Z"', None),
    (MOMENT, '"0001-01-01T00:00:00Z"', None),
    (MOMENT, '"0002-01-01T00:00:00Z"', PROBLEM),
    (MOMENT, '"2026-02-29T00:00:00Z"', PROBLEM),
    (MOMENT, '"2026-11-31T00:00:00Z"', PROBLEM),
    (MOMENT, '"2026-11-19T24:00:00Z"', PROBLEM),
    (MOMENT, '"2026-11-19T10:20:61Z"', PROBLEM),
    (MOMENT, '"2026-11-19T10:20:30"', PROBLEM),
    (MOMENT, '"2026-11-19 10:20:30Z"', PROBLEM),
    (MOMENT, '"2026-11-19"', PROBLEM),
    (MOMENT, '"19/11/2026"', PROBLEM),
    (MOMENT, '"infinity"', PROBLEM),
    (MOMENT, '"epoch"', PROBLEM),
    (MOMENT, "1763547630", PROBLEM),
]


def nested(path: str, value: str) -> str:
    """JSON of an object that holds the value, given as JSON, at the path."""
    for step in reversed(path.split(".")):
        value = f"{{{json.dumps(step)}:{value}}}"
    return value


def test_a_value_is_typed_exactly_or_is_a_problem(house: House) -> None:
    leads = [f'{{"id":"{number:04}",{nested(path, text)[1:]}' for number, (path, text, _) in enumerate(EDGES)]

    rows = published(house, *leads)

    for (path, text, expected), row in zip(EDGES, rows, strict=True):
        value = row[COLUMNS[path]]
        if expected is PROBLEM:
            assert (path, text, value, row["_problems"]) == (path, text, None, [path])
        else:
            assert (path, text, value, row["_problems"]) == (path, text, expected, [])
            assert type(value) is type(expected)


def test_every_declared_field_reaches_its_own_column(house: House) -> None:
    sent: dict[str, Callable[[int], Any]] = {
        "text": lambda n: f"text {n}",
        "boolean": lambda n: n % 2 == 0,
        "integer": lambda n: 2**40 + n,
        "number": lambda n: n + 0.5,
        "amount": lambda n: n + 0.25,
        "moment": lambda n: f"2026-11-19T00:00:{n % 60:02}Z",
    }
    for kind in KINDS:
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
    for kind in KINDS:
        row = house.leads(kind.name)["a"]
        assert {field.path: row[field.column] for field in kind.fields} == {
            field.path: expected.get(field.type.value, lambda same: same)(sent[field.type.value](number))
            for number, field in enumerate(kind.fields)
        }
        assert (row["_problems"], row["_extra"]) == ([], None)


# --- what nobody declared -----------------------------------------------------------------------------------------

HOSTILE_NAMES = [
    "Contact", "CONTACT", "createdat", "_extra", "_problems", "lead_id", "lead_day", "scope", "select", "order by",
    "item", "keys", "doc", "body", "", " ", ".", "a.b", "contact.email", "$", "$.id", '"', "'", "''", "/", "~", "~1",
    "[0]", "*", "\\", "\n", "\x00", "é", "e\u0301", "😀", "text of message", "x" * 5000, "id\x00", "ID", "__proto__",
]  # fmt: skip


def test_unknown_fields_stay_where_they_were_whatever_their_number_and_names(house: House) -> None:
    hostile = {name: {"email": 1} for name in HOSTILE_NAMES}
    inside = dict.fromkeys(HOSTILE_NAMES[4:], 2)
    many = {f"field {number}": number for number in range(10_000)}
    deep, names, numerous, none = published(
        house,
        {
            "new": {"deep": [1, {"x": None}]},
            "contact": {"firstName": "Ann", "preferences": {"method": "PHONE", "channel": "sms"}},
            "listingDetails": {"pricing": {"vat": 1}},
        },
        hostile | {"contact": inside | {"email": "a@example.org"}},
        many,
        {"message": "nothing new"},
    )

    assert extra(deep) == {
        "new": {"deep": [1, {"x": None}]},
        "contact": {"preferences": {"channel": "sms"}},
        "listingDetails": {"pricing": {"vat": 1}},
    }
    assert (deep["contact_first_name"], deep["contact_preferences_method"], deep["_problems"]) == ("Ann", "PHONE", [])
    assert extra(names) == hostile | {"contact": inside}
    assert (names["contact_email"], names["_problems"]) == ("a@example.org", [])
    assert extra(numerous) == many
    assert none["_extra"] is None


def test_an_unknown_value_is_kept_as_it_was_written(house: House) -> None:
    numbers, lines = published(
        house,
        '{"id":"a", "price" : 250000.10, "big":123456789012345678901234567890,"e":"\\u00e9","contact":{"n": 1E5 }}',
        '{"id":"b","new":[1,\n2],"viewingTimes":[{},{"b":[\n]},{"c":1}]}',
    )

    assert numbers["_extra"] == (
        '{"price":250000.10,"big":123456789012345678901234567890,"e":"\\u00e9","contact":{"n":1E5}}'
    )
    assert (lines["_extra"], lines["_problems"]) == ('{"new":[1,\n2]}', [])
    times = children(house, "applicant_viewing_times")
    assert [(time["_extra"], time["_problems"]) for time in times] == [(None, []), ('{"b":[\n]}', []), ('{"c":1}', [])]


def test_an_object_or_a_list_where_none_is_declared_is_a_problem_and_so_is_the_reverse(house: House) -> None:
    cases: list[tuple[Lead, list[str]]] = [
        ({"contact": "Ann", "intent": {"a": 1}}, ["intent", "contact"]),
        ({"contact": ["Ann"], "listingDetails": {"address": 5}}, ["contact", "listingDetails.address"]),
        ({"contact": {}, "listingDetails": {"address": {}}, "searchCriteria": None}, []),
        ({"listingDetails": True}, ["listingDetails"]),
        ({"viewingTimes": "now", "listingDetails": {"images": {"a": 1}}}, ["viewingTimes", "listingDetails.images"]),
        ({"viewingTimes": "[1]", "listingDetails": {"images": 5}}, ["viewingTimes", "listingDetails.images"]),
        ({"viewingTimes": None, "listingDetails": {"images": []}}, []),
    ]

    rows = published(house, *(lead for lead, _ in cases))

    assert [row["_problems"] for row in rows] == [problems for _, problems in cases]
    assert children(house, "applicant_viewing_times") == []


# --- odd leads ----------------------------------------------------------------------------------------------------


def test_one_odd_lead_costs_its_neighbours_nothing(house: House) -> None:
    odd = [
        '{"id":"cut","message":"x \\ud83d","isOverseas":true,"listingDetails":{"propertyId":1.50,"uprn":7}}',
        '{"id":"tab","message":"a\tb"}',
        '{"id":"nan","searchCriteria":{"radius":NaN},"intent":"RENT"}',
        '{"id":"digits","listingDetails":{"uprn":' + "9" * 5000 + "}}",
        '{"id":"deep","message":"m","new":' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"id":"unfinished","message":tru}',
        '{"id":"latin","message":"caf\udce9"}',
        '{"message":"no id"}',
        '{"id":{"a":1},"message":"id is an object"}',
        "5",
        "null",
        '["a"]',
        '"text"',
    ]
    good: list[Lead] = [{"id": f"good {number}", "message": "good"} for number in range(3)]
    house.land("applicant", [good[0], *odd, *good[1:]])
    house.publish()

    leads = house.leads("applicant")
    assert len(leads) == 16
    assert [leads[f"good {number}"]["message"] for number in range(3)] == ["good"] * 3
    # The columns of a lead aren't lost because its message was cut in the middle of an emoji.
    cut = leads["cut"]
    assert (cut["message"], cut["is_overseas"], cut["listing_details_uprn"]) == ("x ?", True, 7)
    assert (cut["listing_details_property_id"], cut["_problems"]) == ("1.50", ["not valid JSON"])
    assert leads["tab"]["message"] == "a\tb"
    assert (leads["nan"]["intent"], leads["nan"]["_problems"]) == ("RENT", ["not valid JSON", "searchCriteria.radius"])
    assert leads["digits"]["_problems"] == ["listingDetails.uprn"]
    assert (leads["deep"]["message"], leads["deep"]["_problems"]) == (None, ["not valid JSON"])
    assert (leads["unfinished"]["message"], leads["unfinished"]["_problems"]) == (None, ["not valid JSON"])
    assert (leads["latin"]["message"], leads["latin"]["_problems"]) == ("café", [])
    without_id = sorted((*row["_problems"], row["message"]) for id_, row in leads.items() if id_.startswith("sha256:"))
    assert without_id == [("no id", "id is an object"), ("no id", "no id"), *[("not an object", None)] * 4]


# --- lists --------------------------------------------------------------------------------------------------------


def test_a_list_becomes_rows_in_order_with_problems_and_extras_of_their_own(house: House) -> None:
    (row,) = published(
        house,
        '{"id":"a","viewingTimes":[{"earliest":"2026-11-20T10:00Z","latest":"soon"},null,5,[],'
        '{"latest":"0001-01-01T00:00Z","new": 1.50 ,"earliest":null},{},{"earliest":{"a":1}}],'
        '"listingDetails":{"images":[{"filename":250000.10,"cdnUrl":"u"}]}}',
    )

    times = children(house, "applicant_viewing_times")
    assert [(time["lead_id"], time["position"]) for time in times] == [("a", position) for position in range(7)]
    assert times[0]["earliest"] == moment("2026-11-20T10:00Z")
    assert [time["_problems"] for time in times] == [
        ["latest"], ["not an object"], ["not an object"], ["not an object"], [], [], ["earliest"],
    ]  # fmt: skip
    assert [time["_extra"] for time in times] == [None, None, None, None, '{"new":1.50}', None, None]
    (image,) = children(house, "applicant_listing_images")
    assert (image["filename"], image["cdn_url"], image["original"]) == ("250000.10", "u", None)
    assert (row["_problems"], row["_extra"]) == ([], None)


# --- whatever comes -----------------------------------------------------------------------------------------------


def assert_nothing_is_lost(house: House, kind: Any, sent: list[str]) -> None:
    """Each lead is published once, and every value is in a column, a child row or `_extra`, or named in `_problems`."""
    house.land(kind.name, sent)
    house.publish()

    received = [Received.of(text) for text in sent]
    raw = house.raw(kind.name)
    # A lead that an answer holds twice with the same text is landed once.
    assert sorted(payload for _, payload in raw) == sorted({lead.text for lead in received})
    by_text = {lead.text: lead for lead in received}
    newest = {id_: by_text[payload] for id_, payload in raw}
    assert {id_: lead.lead_id or id_ for id_, lead in newest.items()} == {id_: id_ for id_ in newest}
    rows = house.leads(kind.name)
    assert rows.keys() == newest.keys()
    found: dict[str, dict[str, list[Row]]] = {id_: defaultdict(list) for id_ in rows}
    for child in kind.children:
        for row in children(house, child.name):
            found[row["lead_id"]][child.name].append(row)
    assert [said for id_, lead in newest.items() for said in lost(kind, lead, rows[id_], found[id_])] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.slow
def test_a_lead_with_one_odd_value_loses_nothing(house: House, kind: Any) -> None:
    assert_nothing_is_lost(house, kind, leads_with_one_change(kind))


# What was lost is named, so that making a failing day of fifty leads ever smaller isn't worth its minutes.
drifting = settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@settings(drifting, max_examples=50)
@given(data=st.data())
def test_whatever_comes_no_lead_and_no_value_is_lost(
    tmp_path_factory: pytest.TempPathFactory, kind: Any, data: st.DataObject
) -> None:
    house = Quick(tmp_path_factory.mktemp("drift") / "data")
    assert_nothing_is_lost(house, kind, data.draw(drifting_leads(kind)))
