import json
import random
import shutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS, Field, FieldType, LeadKind
from leads_pipeline.duck import sweep_readers
from leads_pipeline.flatten import batches, raw, repair, statement, windows
from leads_pipeline.flatten.batches import flatten_day, flatten_days
from leads_pipeline.flatten.columns import staged_columns, staged_tables
from leads_pipeline.flatten.counts import StagedDay, UnbalancedError
from leads_pipeline.flatten.lost import LostRawError
from leads_pipeline.flatten.plain import Plain, plain_leads
from leads_pipeline.lake import Lake
from leads_pipeline.lake.sealed import seal
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import day_interval, offsets
from leads_pipeline_tests.support import statements
from leads_pipeline_tests.support.drifting import Received, drifting_leads, leads_with_one_change, lost
from leads_pipeline_tests.support.staging import (
    DAY,
    FETCHED_AT,
    LONDON,
    NEXT_DAY,
    land,
    stage,
    staged_leads,
    staged_rows,
)

PROBLEM = object()
ROOT = Path(__file__).parents[2]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def flattened(lake: Lake, *leads: str | dict[str, Any], kind: LeadKind = APPLICANT) -> list[dict[str, Any]]:
    """The leads as staged rows, in the order given. Those without an id get one."""
    with_ids = [lead if isinstance(lead, str) else {"id": f"lead-{n:04}"} | lead for n, lead in enumerate(leads)]
    land(lake, kind, with_ids)
    stage(lake, kind)
    return staged_rows(lake, kind.table)


def nested(path: str, value: str) -> str:
    """JSON of an object that holds the value, given as JSON, at the path."""
    for step in reversed(path.split(".")):
        value = f"{{{json.dumps(step)}:{value}}}"
    return value


# --- types --------------------------------------------------------------------------------------------------------

TEXT, BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT = (
    Field("message", FieldType.TEXT, ""),
    Field("isOverseas", FieldType.BOOLEAN, ""),
    Field("listingDetails.uprn", FieldType.INTEGER, ""),
    Field("searchCriteria.radius", FieldType.NUMBER, ""),
    Field("listingDetails.pricing.price", FieldType.AMOUNT, ""),
    Field("createdAt", FieldType.MOMENT, ""),
)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


EDGES: list[tuple[Field, str, object]] = [
    *[(field, "null", None) for field in (TEXT, BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT)],
    *[(field, text, PROBLEM) for field in (TEXT, BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT) for text in ("{}", "[1]")],
    *[(field, '""', PROBLEM) for field in (BOOLEAN, INTEGER, NUMBER, AMOUNT, MOMENT)],
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
    # moment
    (MOMENT, '"2026-11-19T10:20:30Z"', moment("2026-11-19T10:20:30Z")),
    (MOMENT, '"2026-11-19T10:20Z"', moment("2026-11-19T10:20:00Z")),
    (MOMENT, '"2026-11-19T10:20:30.123456Z"', moment("2026-11-19T10:20:30.123456Z")),
    (MOMENT, '"2026-11-19T10:20:30.123456789Z"', moment("2026-11-19T10:20:30.123456Z")),
    (MOMENT, '"2026-11-19T10:20:30+01:00"', moment("2026-11-19T09:20:30Z")),
    (MOMENT, '"2026-11-19T10:20:30-0530"', moment("2026-11-19T15:50:30Z")),
    (MOMENT, '"2026-11-19t10:20:30z"', moment("2026-11-19T10:20:30Z")),
    (MOMENT, '"2016-12-31T23:59:60Z"', moment("2017-01-01T00:00:00Z")),
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


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    leads = [nested(field.path, text)[1:] for field, text, _ in EDGES]
    texts = [f'{{"id":"lead-{number:04}",{lead}' for number, lead in enumerate(leads)]
    return flattened(Lake(tmp_path_factory.mktemp("edges")), *texts)


@pytest.mark.parametrize("number", range(len(EDGES)), ids=[f"{f.type.value} {text}"[:60] for f, text, _ in EDGES])
def test_a_value_is_typed_exactly_or_is_a_problem(edges: list[dict[str, Any]], number: int) -> None:
    field, _, expected = EDGES[number]
    row = edges[number]

    if expected is PROBLEM:
        assert (row[field.column], row["_problems"]) == (None, [field.path])
    else:
        assert (row[field.column], row["_problems"]) == (expected, [])
        assert type(row[field.column]) is type(expected)


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
def test_every_declared_field_reaches_its_own_column(lake: Lake, kind: LeadKind) -> None:
    sent: dict[FieldType, Any] = {
        FieldType.TEXT: lambda n: f"text {n}",
        FieldType.BOOLEAN: lambda n: n % 2 == 0,
        FieldType.INTEGER: lambda n: 2**40 + n,
        FieldType.NUMBER: lambda n: n + 0.5,
        FieldType.AMOUNT: lambda n: n + 0.25,
        FieldType.MOMENT: lambda n: f"2026-11-19T00:00:{n % 60:02}Z",
    }
    received: dict[str, Any] = {}
    for number, field in enumerate(kind.fields):
        *objects, name = field.path.split(".")
        target = received
        for step in objects:
            target = target.setdefault(step, {})
        target[name] = sent[field.type](number)

    (row,) = flattened(lake, received, kind=kind)

    expected: dict[FieldType, Callable[[Any], Any]] = {
        FieldType.AMOUNT: lambda value: Decimal(str(value)),
        FieldType.MOMENT: moment,
    }
    for number, field in enumerate(kind.fields):
        value = sent[field.type](number)
        assert row[field.column] == expected.get(field.type, lambda same: same)(value), field.path
    assert (row["_problems"], row["_extra"]) == ([], None)


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
def test_staged_files_have_the_declared_columns_even_when_nothing_was_landed(lake: Lake, kind: LeadKind) -> None:
    empty = stage(lake, kind)
    land(lake, kind, [])
    nothing = stage(lake, kind)

    assert (set(empty.rows.values()), empty.raw_rows) == ({0}, 0)
    assert {table: rows for table, rows in nothing.rows.items() if rows} == {f"{kind.name}_windows": 1}
    with duckdb.connect() as db:
        for table, columns in staged_columns(kind).items():
            described = db.execute(
                "describe from read_parquet($path, hive_partitioning = false)",
                {"path": str(lake.staged_path(table, DAY))},
            ).fetchall()
            types = [db.execute(f"select null::{column.type}").description[0][1] for column in columns]
            assert [name for name, *_ in described] == [column.name for column in columns]
            assert [type_ for _, type_, *_ in described] == [str(type_) for type_ in types]


def test_column_names_differ() -> None:
    for kind in LEAD_KINDS:
        for table, columns in staged_columns(kind).items():
            names = [column.name.casefold() for column in columns]
            assert len(set(names)) == len(names), table


# --- drift --------------------------------------------------------------------------------------------------------


def extra(row: dict[str, Any]) -> Any:
    return row["_extra"] and json.loads(row["_extra"])


def test_unknown_fields_stay_where_they_were_at_any_depth(lake: Lake) -> None:
    lead = {
        "new": {"deep": [1, {"x": None}]},
        "contact": {"firstName": "Ann", "preferences": {"method": "PHONE", "channel": "sms"}},
        "listingDetails": {"pricing": {"vat": 1}},
    }

    (row,) = flattened(lake, lead)

    assert extra(row) == {
        "new": {"deep": [1, {"x": None}]},
        "contact": {"preferences": {"channel": "sms"}},
        "listingDetails": {"pricing": {"vat": 1}},
    }
    assert (row["contact_first_name"], row["contact_preferences_method"], row["_problems"]) == ("Ann", "PHONE", [])


def test_an_unknown_value_is_kept_exactly_as_written(lake: Lake) -> None:
    lead = '{"id":"a", "price" : 250000.10, "big":123456789012345678901234567890,"e":"\\u00e9","contact":{"n": 1E5 }}'

    (row,) = flattened(lake, lead)

    assert row["_extra"] == (
        '{"price":250000.10,"big":123456789012345678901234567890,"e":"\\u00e9","contact":{"n":1E5}}'
    )


HOSTILE_NAMES = [
    "Contact", "CONTACT", "createdat", "_extra", "_problems", "lead_id", "lead_day", "scope", "select", "order by",
    "item", "keys", "doc", "body", "", " ", ".", "a.b", "contact.email", "$", "$.id", '"', "'", "''", "/", "~", "~1",
    "[0]", "*", "\\", "\n", "\x00", "é", "e\u0301", "😀", "text of message", "x" * 5000, "id\x00", "ID", "__proto__",
]  # fmt: skip


def test_hostile_field_names_are_kept_and_collide_with_nothing(lake: Lake) -> None:
    hostile = {name: {"email": 1} for name in HOSTILE_NAMES}
    inside = dict.fromkeys(HOSTILE_NAMES[4:], 2)
    lead = hostile | {"contact": inside | {"email": "a@example.org"}}

    (row,) = flattened(lake, lead)

    assert extra(row) == hostile | {"contact": inside}
    assert (row["lead_id"], row["contact_email"], row["_problems"]) == ("lead-0000", "a@example.org", [])


def test_an_unknown_value_keeps_its_line_breaks(lake: Lake) -> None:
    (row,) = flattened(lake, '{"id":"a","new":[1,\n2],"viewingTimes":[{},{"b":[\n]},{"c":1}]}')

    assert (row["_extra"], row["_problems"]) == ('{"new":[1,\n2]}', [])
    times = staged_rows(lake, "applicant_viewing_times")
    assert [(time["_extra"], time["_problems"]) for time in times] == [(None, []), ('{"b":[\n]}', []), ('{"c":1}', [])]


def test_ten_thousand_unknown_fields_are_all_kept_and_counted(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "a"} | {f"field {number}": number for number in range(10_000)}, {"id": "b"}])

    staged = stage(lake, APPLICANT)

    leads = staged_leads(lake, APPLICANT)
    assert extra(leads["a"]) == {f"field {number}": number for number in range(10_000)}
    assert extra(leads["b"]) is None
    assert staged.extra == {f"field {number}": 1 for number in range(10_000)}


def test_an_object_where_none_is_declared_and_none_where_one_is_are_problems(lake: Lake) -> None:
    rows = flattened(
        lake,
        {"contact": "Ann", "intent": {"a": 1}},
        {"contact": ["Ann"], "listingDetails": {"address": 5}},
        {"contact": {}, "listingDetails": {"address": {}}, "searchCriteria": None},
        {"listingDetails": True},
    )

    assert [row["_problems"] for row in rows] == [
        ["intent", "contact"],
        ["contact", "listingDetails.address"],
        [],
        ["listingDetails"],
    ]


def test_a_key_that_stands_twice_is_a_problem_and_the_first_counts(lake: Lake) -> None:
    rows = flattened(
        lake,
        '{"id":"a","intent":"one","intent":"two"}',
        '{"id":"b","contact":{"email":"x","email":"y","new":1,"new":1},"message":null}',
    )

    assert [(row["intent"], row["contact_email"], row["_problems"]) for row in rows] == [
        ("one", None, ["intent"]),
        (None, "x", ["contact.email", "contact.new"]),
    ]


@pytest.mark.parametrize("colon", ["\\u003a", "\\u003A"])
def test_a_colon_written_as_an_escape_makes_up_for_no_key_that_stands_twice(lake: Lake, colon: str) -> None:
    (row,) = flattened(lake, f'{{"id":"a","message":"first","message":"at 10{colon}30"}}')
    assert (row["message"], row["_problems"]) == ("first", ["message"])


def test_a_colon_written_as_an_escape_makes_up_for_no_key_that_stands_twice_in_another_lead(lake: Lake) -> None:
    rows = flattened(lake, '{"id":"a","message":"at 10\\u003a30"}', '{"id":"b","message":"first","message":"second"}')
    assert [(row["message"], row["_problems"]) for row in rows] == [("at 10:30", []), ("first", ["message"])]


@pytest.mark.parametrize("second", ['{"images":[{"original":"b","other":2}]}', '{"images":[]}', "{}", "5"])
def test_a_list_whose_owner_stands_twice_keeps_the_first_ones_elements(lake: Lake, second: str) -> None:
    first = '{"images":[{"original":"a","new":1}]}'

    (row,) = flattened(lake, f'{{"id":"a","listingDetails":{first},"listingDetails":{second}}}')

    assert row["_problems"] == ["listingDetails"]
    (image,) = staged_rows(lake, "applicant_listing_images")
    assert (image["original"], image["_problems"], image["_extra"]) == ("a", ["_extra"], None)


def test_what_is_nested_too_deep_for_a_fuller_stack_is_in_raw_alone(lake: Lake) -> None:
    """Where Python's stack ends depends on who reads: a publication in Dagster has less of it left than flattening."""

    def nested(depth: int) -> str:
        return "[" * depth + "]" * depth

    rows = flattened(
        lake,
        f'{{"id":"a","new":{nested(490)}}}',
        f'{{"id":"b","new":{nested(700)}}}',
        f'{{"id":"c","new":"{nested(700)}","listingDetails":{{"images":[{",".join(["{}"] * 700)}]}}}}',
        f'{{"id":"d","viewingTimes":[{{"new":{nested(490)}}},{{"new":{nested(700)}}}]}}',
    )

    assert [(row["_problems"], row["_extra"] is None) for row in rows[:3]] == [
        ([], False),
        (["_extra"], True),
        ([], False),
    ]
    times = staged_rows(lake, "applicant_viewing_times")
    assert [(row["_problems"], row["_extra"] is None) for row in times] == [(["_extra"], True), (["_extra"], True)]


def test_one_odd_lead_costs_its_neighbours_nothing(lake: Lake) -> None:
    deep = "[" * 50_000 + "]" * 50_000
    odd = [
        '{"id":"cut","message":"x \\ud83d","isOverseas":true,"listingDetails":{"propertyId":1.50,"uprn":7}}',
        '{"id":"tab","message":"a\tb"}',
        '{"id":"nan","searchCriteria":{"radius":NaN},"intent":"RENT"}',
        '{"id":"digits","listingDetails":{"uprn":' + "9" * 5000 + "}}",
        '{"id":"deep","message":"m","new":' + deep + "}",
        '{"id":"unfinished","message":tru}',
        '{"id":"latin","message":"caf\udce9"}',
        '{"message":"no id"}',
        '{"id":{"a":1},"message":"id is an object"}',
        "5",
        "null",
        '["a"]',
        '"text"',
    ]
    good = [{"id": f"good {number}", "message": "good"} for number in range(3)]
    land(lake, APPLICANT, [good[0], *odd, *good[1:]])

    staged = stage(lake, APPLICANT)

    leads = staged_leads(lake, APPLICANT)
    assert (staged.raw_rows, staged.rows["applicant_leads"], staged.duplicates) == (16, 16, 0)
    assert [leads[one["id"]]["message"] for one in good] == ["good"] * 3
    # what can be mended is: the columns of a lead whose message was cut in the middle of an emoji aren't lost
    cut = leads["cut"]
    assert (cut["message"], cut["is_overseas"], cut["listing_details_uprn"]) == ("x ?", True, 7)
    assert (cut["listing_details_property_id"], cut["_problems"]) == ("1.50", ["not valid JSON"])
    assert leads["tab"]["message"] == "a\tb"
    assert (leads["nan"]["intent"], leads["nan"]["_problems"]) == ("RENT", ["not valid JSON", "searchCriteria.radius"])
    assert leads["digits"]["_problems"] == ["listingDetails.uprn"]
    assert (leads["deep"]["message"], leads["deep"]["_problems"]) == ("m", ["not valid JSON", "_extra"])
    assert (leads["unfinished"]["message"], leads["unfinished"]["_problems"]) == (None, ["not valid JSON"])
    assert leads["latin"]["_problems"] == ["not UTF-8, kept as ISO 8859-1"]
    without_id = sorted((*row["_problems"], row["message"]) for id_, row in leads.items() if id_.startswith("sha256:"))
    assert without_id == [("no id", "id is an object"), ("no id", "no id"), *[("not an object", None)] * 4]
    assert staged.problems["not an object"] == 4
    assert staged.problems["no id"] == 2


# --- child tables -------------------------------------------------------------------------------------------------


def test_a_list_becomes_rows_in_order_with_problems_and_extras_of_their_own(lake: Lake) -> None:
    lead = (
        '{"id":"a","viewingTimes":[{"earliest":"2026-11-20T10:00Z","latest":"soon"},null,5,[],'
        '{"latest":"0001-01-01T00:00Z","new": 1.50 ,"earliest":null},{},{"earliest":{"a":1}},'
        '{"earliest":null,"earliest":null}],"listingDetails":{"images":[{"filename":250000.10,"cdnUrl":"u"}]}}'
    )
    land(lake, APPLICANT, [lead])

    staged = stage(lake, APPLICANT)

    times = staged_rows(lake, "applicant_viewing_times")
    assert [(row["lead_id"], row["position"]) for row in times] == [("a", position) for position in range(8)]
    assert times[0]["earliest"] == moment("2026-11-20T10:00Z")
    assert [row["_problems"] for row in times] == [
        ["latest"], ["not an object"], ["not an object"], ["not an object"], [], [], ["earliest"], ["earliest"],
    ]  # fmt: skip
    assert [row["_extra"] for row in times] == [None, None, None, None, '{"new":1.50}', None, None, None]
    (image,) = staged_rows(lake, "applicant_listing_images")
    assert (image["filename"], image["cdn_url"], image["original"]) == ("250000.10", "u", None)
    (row,) = staged_rows(lake, "applicant_leads")
    assert (row["_problems"], row["_extra"]) == ([], None)
    assert staged.extra == {"viewingTimes[].new": 1}
    assert staged.problems == {
        "viewingTimes[].latest": 1,
        "viewingTimes[].not an object": 3,
        "viewingTimes[].earliest": 2,
    }


class Counting:
    """A decoder that counts the bytes it is given."""

    def __init__(self, decoder: Any, read: list[int]) -> None:
        self._decoder = decoder
        self._read = read

    def decode(self, text: bytes) -> Any:
        self._read.append(len(text))
        return self._decoder.decode(text)


@pytest.mark.parametrize(
    "drift",
    [
        lambda number: {"viewingTimes": [{"a": at} for at in range(number)]},
        lambda number: {"listingDetails": {"images": [{"filename": 1.5, "tags": [{"a": 1}] * 12}] * number}},
        lambda number: {"listingDetails": {"images": [{"filename": 1.5}] * number}},
        lambda number: {"new": [{"a": at} for at in range(number)]},
        lambda number: {"contact": {f"new {at}": {"a": at} for at in range(number)}},
    ],
    ids=["unknown members", "unknown lists", "numbers for texts", "an unknown list", "unknown names"],
)
def test_what_is_read_of_a_lead_that_drifts_grows_as_the_lead_does(
    lake: Lake, drift: Callable[[int], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the lead once more for each element would take 3,000 times its length here."""
    read: list[int] = []
    for name in ("_MEMBERS", "_ELEMENTS", "_OBJECTS"):
        monkeypatch.setattr(repair, name, Counting(getattr(repair, name), read))

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # DuckDB counts the parameters
        def call(*arguments: Any) -> Any:
            read.extend(len(text) for text in arguments if isinstance(text, str))
            return function(*arguments)

        return call

    for name in ("unknown_members", "_extras", "_elements", "_written"):
        monkeypatch.setattr(repair, name, counted(getattr(repair, name)))
    lead = json.dumps({"id": "a"} | drift(3000))
    land(lake, APPLICANT, [lead])

    stage(lake, APPLICANT)

    assert sum(read) < 20 * len(lead)


@pytest.mark.parametrize("known", ["message", "new 7", 'a quoted " 7'])
def test_a_key_that_stands_twice_among_many_is_a_problem(lake: Lake, known: str) -> None:
    many = {f"new {number}": number for number in range(100)} | {'a quoted " 7': 1, "a quoted ": 2, "message": "m"}
    body = json.dumps({"id": "a"} | many)
    land(lake, APPLICANT, [f"{body[:-1]},{json.dumps(known)}:1}}", body.replace('"a"', '"b"', 1)])
    stage(lake, APPLICANT)

    assert [row["_problems"] for row in staged_rows(lake, "applicant_leads")] == [[known], []]


def test_a_list_that_is_none_is_a_problem_of_the_lead(lake: Lake) -> None:
    rows = flattened(
        lake,
        {"viewingTimes": "now", "listingDetails": {"images": {"a": 1}}},
        {"viewingTimes": "[1]", "listingDetails": {"images": 5}},
        {"viewingTimes": None, "listingDetails": {"images": []}},
    )

    assert [row["_problems"] for row in rows] == [["viewingTimes", "listingDetails.images"]] * 2 + [[]]
    assert staged_rows(lake, "applicant_viewing_times") == []


# --- days and duplicates ------------------------------------------------------------------------------------------


def test_the_newest_version_within_a_day_wins_then_the_highest_position_then_the_first_scope(lake: Lake) -> None:
    for scope, minutes, text in (("branch-2", 1, "newest"), ("branch-1", 0, "older"), ("branch-3", 0, "oldest")):
        land(
            lake,
            APPLICANT,
            [{"id": "a", "message": text}, {"id": "same", "message": scope}],
            scope=scope,
            fetched_at=FETCHED_AT + timedelta(minutes=minutes if text == "newest" else 0),
        )
    land(lake, APPLICANT, [{"id": "twice", "message": "1"}, {"id": "twice", "message": "2"}], scope="branch-9")
    for scope in ("branch-5", "branch-4"):
        land(lake, APPLICANT, [{"id": "tied", "message": scope}], scope=scope)

    staged = stage(lake, APPLICANT)

    leads = staged_leads(lake, APPLICANT)
    assert {id_: row["message"] for id_, row in leads.items()} == {
        "a": "newest",
        "same": "branch-2",
        "twice": "2",
        "tied": "branch-4",
    }
    assert leads["tied"]["scope"] == "branch-4"
    assert (staged.raw_rows, staged.rows["applicant_leads"], staged.duplicates) == (10, 4, 6)


def test_a_leads_day_is_the_local_day_it_was_submitted_on_whichever_window_held_it(lake: Lake) -> None:
    midnight = day_interval(DAY, LONDON)[1]
    leads = [
        {"id": "midnight", "createdAt": midnight.strftime("%Y-%m-%dT%H:%M:%SZ")},
        {"id": "before", "createdAt": (midnight - timedelta(seconds=1)).strftime("%Y-%m-%dT%H:%M:%SZ")},
        {"id": "unknown", "createdAt": "0001-01-01T00:00Z"},
        {"id": "summer", "createdAt": "2026-07-01T23:30:00Z"},
    ]
    for day in (DAY, NEXT_DAY):
        land(lake, APPLICANT, leads, day=day)
        stage(lake, APPLICANT, day)

    days = {day: {id_: str(row["lead_day"]) for id_, row in staged_leads(lake, APPLICANT, day).items()} for day in
            (DAY, NEXT_DAY)}  # fmt: skip
    known = {"midnight": "2026-11-20", "before": "2026-11-19", "summer": "2026-07-02"}
    assert days == {DAY: known | {"unknown": "2026-11-19"}, NEXT_DAY: known | {"unknown": "2026-11-20"}}


def test_a_leads_day_is_that_of_its_window_where_duckdb_knows_another_time(lake: Lake) -> None:
    """DuckDB knows this zone by its name and so for British; Python has newer data, by which it is 9 hours ahead."""
    with (files("tzdata.zoneinfo") / "Asia" / "Tokyo").open("rb") as file:
        zone = ZoneInfo.from_file(file, key="Europe/London")
    land(lake, APPLICANT, [{"id": "a", "createdAt": f"{DAY}T14:59:59Z"}, {"id": "b", "createdAt": f"{DAY}T15:00:00Z"}])
    flatten_day(lake, APPLICANT, DAY, zone)
    assert {key: row["lead_day"] for key, row in staged_leads(lake, APPLICANT).items()} == {"a": DAY, "b": NEXT_DAY}


def test_each_landed_window_has_a_row_that_says_what_was_landed(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"}])
    land(lake, APPLICANT, [], scope="branch-102", fetched_at=datetime(2026, 11, 19, 12, tzinfo=UTC))

    stage(lake, APPLICANT)

    rows = staged_rows(lake, "applicant_windows")
    assert [(row["scope"], row["window_day"], row["rows"], row["is_closed"], row["is_partial"]) for row in rows] == [
        ("branch-101", DAY, 2, True, False),
        ("branch-102", DAY, 0, False, False),
    ]
    assert (rows[0]["window_start"], rows[0]["window_end"]) == day_interval(DAY, LONDON)
    assert rows[0]["fetched_at"] == FETCHED_AT


def test_the_same_raw_files_give_the_same_bytes(lake: Lake) -> None:
    rng = random.Random(7)  # noqa: S311 - a made-up day, the same each time
    for scope in range(3):
        leads = [
            {"id": f"{rng.getrandbits(64):x}", "message": "x" * rng.randrange(300), "new": number, "isOverseas": "?",
             "viewingTimes": [{"earliest": "2026-11-20T10:00Z"}] * rng.randrange(3)} for number in range(3000)
        ]  # fmt: skip
        land(lake, APPLICANT, leads, scope=f"branch-{scope}")
    stage(lake, APPLICANT)
    paths = [lake.staged_path(table, DAY) for table in staged_tables(APPLICANT)]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    stage(lake, APPLICANT)

    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths} == before


def test_a_day_in_parts_has_the_same_bytes_and_counts_as_at_once(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        leads: list[dict[str, Any]] = [
            *(
                {"id": f"{name}-{number}", "new": 1, "viewingTimes": [{}, {"new": 2}], "createdAt": "?", "contact": 5}
                for name in "abc"
            ),
            {"id": "in each window", "message": str(number)},
            {"id": "as often as it came", "message": "same"},
        ]
        land(lake, APPLICANT, [*leads, '{"id":"mended","message":"\n"}'], scope=f"branch-{number}")
    stage(lake, APPLICANT)
    at_once = Lake(tmp_path / "at once")
    shutil.copytree(lake.folder, at_once.folder)
    expected = stage(at_once, APPLICANT)
    monkeypatch.setattr(raw, "PART_ROWS", 1)
    parts: list[int] = []

    def counted(db: duckdb.DuckDBPyConnection, kind: LeadKind, received: pa.Table) -> int:
        parts.append(len(received))
        return raw.read_part(db, kind, received)

    monkeypatch.setattr(batches, "read_part", counted)

    assert stage(lake, APPLICANT) == expected

    assert len(parts) == 4
    for table in staged_tables(APPLICANT):
        assert lake.staged_path(table, DAY).read_bytes() == at_once.staged_path(table, DAY).read_bytes()


@pytest.mark.slow
def test_a_file_of_several_row_groups_is_in_order(lake: Lake) -> None:
    for number in range(5):
        land(lake, APPRAISAL, [{"id": f"{n:05}-{number}"} for n in range(60_000)], scope=f"branch-{number}")

    stage(lake, APPRAISAL)

    ids = [row["lead_id"] for row in staged_rows(lake, "appraisal_leads")]
    assert ids == sorted(ids)


@pytest.mark.slow
def test_days_flattened_together_are_as_if_each_were_flattened_alone(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [DAY - timedelta(days=number) for number in range(7)]
    for number, day in enumerate(days):
        # One id on every day and twice in one; drift, problems and children; the last day has nothing.
        leads = [
            {
                "id": name,
                "createdAt": f"{'2026' if number % 2 else '0001'}-01-01T00:00Z",
                "new": number,
                "isOverseas": "?",
                "viewingTimes": [{}] * number,
            }
            for name in ("everywhere", "everywhere", *map(str, range(number)))
        ]
        if number < 6:
            land(lake, APPLICANT, leads, day=day)
    alone = Lake(tmp_path / "alone")
    shutil.copytree(lake.folder / "raw", alone.folder / "raw")
    monkeypatch.setattr(batches, "BATCH_LEADS", 10)

    together = dict(flatten_days(lake, APPLICANT, days, LONDON))

    assert together == {day: flatten_day(alone, APPLICANT, day, LONDON) for day in days}
    for table in staged_tables(APPLICANT):
        for day in days:
            assert lake.staged_path(table, day).read_bytes() == alone.staged_path(table, day).read_bytes()


def test_a_landing_during_the_flattening_changes_nothing_of_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, APPLICANT, [{"id": "a", "viewingTimes": [{}]}])
    read_raw = raw.read_raw

    def landing_in_between(db: duckdb.DuckDBPyConnection, files: Mapping[Path, int | None]) -> Iterator[pa.Table]:
        land(lake, APPLICANT, [{"id": "b", "viewingTimes": [{}, {}]}])
        return read_raw(db, files)

    monkeypatch.setattr(batches, "read_raw", landing_in_between)
    staged = stage(lake, APPLICANT)

    assert (staged.raw_rows, dict(staged.rows)) == (
        1,
        {"applicant_leads": 1, "applicant_viewing_times": 1, "applicant_listing_images": 0, "applicant_windows": 1},
    )
    assert [row["rows"] for row in staged_rows(lake, "applicant_windows")] == [1]


def test_nothing_is_left_behind_in_the_state_folder(lake: Lake) -> None:
    flattened(lake, {"message": "x"})

    assert list((lake.folder / ".state" / "duckdb").iterdir()) == []


def test_a_process_that_flattens_ends_without_a_word(lake: Lake) -> None:
    land(lake, APPRAISAL, [{"id": "a", "new": 1}])
    script = f"""
        from datetime import date
        from pathlib import Path
        from zoneinfo import ZoneInfo
        from leads_pipeline.contract import APPRAISAL
        from leads_pipeline.flatten.batches import flatten_day
        from leads_pipeline.lake import Lake
        flatten_day(Lake(Path({str(lake.folder)!r})), APPRAISAL, date({DAY.year}, {DAY.month}, {DAY.day}),
                    ZoneInfo("Europe/London"))
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- whatever comes -----------------------------------------------------------------------------------------------


def check_drift(lake: Lake, kind: LeadKind, sent: list[str]) -> None:
    """Rows in are rows out, and every value is in a column, a child row, `_extra`, or named in `_problems`."""
    land(lake, kind, sent)

    staged = stage(lake, kind)

    received = [Received.of(text) for text in sent]
    raw = duckdb.execute(
        "select lead_id, payload from read_parquet($files) order by position",
        {"files": [str(path) for path in [window.path for window in lake.landed_windows(kind, DAY)]]},
    ).fetchall()
    # A lead that an answer holds twice with the same text is landed once.
    assert sorted(payload for _, payload in raw) == sorted({lead.text for lead in received})
    by_text = {lead.text: lead for lead in received}
    newest = {id_: by_text[payload] for id_, payload in raw}
    assert {id_: lead.lead_id or id_ for id_, lead in newest.items()} == {id_: id_ for id_ in newest}
    rows = staged_leads(lake, kind)
    assert rows.keys() == newest.keys()
    assert staged.rows[kind.table] == len(rows) == staged.raw_rows - staged.duplicates
    assert (staged.raw_rows, staged.unexplained) == (len(raw), 0)
    children: dict[str, dict[str, list[dict[str, Any]]]] = {id_: defaultdict(list) for id_ in rows}
    for child in kind.children:
        for row in staged_rows(lake, child.name):
            children[row["lead_id"]][child.name].append(row)
    assert [said for id_, lead in newest.items() for said in lost(kind, lead, rows[id_], children[id_])] == []


# What was lost is named, so that making a failing day of fifty leads ever smaller isn't worth its minutes.
drifting = settings(
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
@settings(drifting, max_examples=10)
@given(data=st.data())
def test_whatever_comes_no_row_is_lost_and_no_value_vanishes(
    tmp_path_factory: pytest.TempPathFactory, kind: LeadKind, data: st.DataObject
) -> None:
    check_drift(Lake(tmp_path_factory.mktemp("drift")), kind, data.draw(drifting_leads(kind)))


def check_both_ways(lake: Lake, kind: LeadKind, sent: list[str]) -> None:
    """The short statement gives of plain leads what the full one gives, and so do both of a day that has others too."""
    land(lake, kind, sent)
    staged = stage(lake, kind)
    paths = [lake.staged_path(table, DAY) for table in staged_tables(kind)]
    short = [path.read_bytes() for path in paths]

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(raw, "plain_leads", lambda _: lambda texts: [None] * len(texts))
        full = stage(lake, kind)

    assert staged == full
    for path, before in zip(paths, short, strict=True):
        if path.read_bytes() != before:
            after = staged_rows(lake, path.stem)
            path.write_bytes(before)
            rows = staged_rows(lake, path.stem)
            differ = [pair for pair in zip(rows, after, strict=True) if pair[0] != pair[1]]
            assert [
                (row["lead_id"], name, row[name], other[name])
                for row, other in differ
                for name in row
                if row[name] != other[name]
            ] == []
            assert before == b"other bytes of the same rows"


# A contract whose lists hold every type of field, at their top and deeper.
EVERY_TYPE = tuple(Field(f"{owner}{type_.value}", type_, "") for owner in ("", "deep.") for type_ in FieldType)
RICHER = replace(APPLICANT, children=tuple(replace(child, fields=EVERY_TYPE) for child in APPLICANT.children))


@pytest.mark.parametrize(
    "kind", [*LEAD_KINDS, pytest.param(RICHER, marks=pytest.mark.slow)], ids=["applicant", "appraisal", "every type"]
)
def test_a_plain_lead_has_the_same_rows_by_the_short_statement_and_by_the_full_one(lake: Lake, kind: LeadKind) -> None:
    sent = leads_with_one_change(kind)
    texts = [text.encode(errors="surrogateescape") for text in sent]
    read = plain_leads(kind)
    alone = [one for text in texts for one in read([text])]
    plain = [text for text, one in zip(sent, alone, strict=True) if one]
    assert len(sent) / 10 < len(plain) < len(sent) / 2  # both ways are gone
    assert read(texts) == alone
    neighbours = [b'{"id":"a"}'] * 6
    assert [read([text, None, *neighbours]) for text in texts] == [[one, None, *[Plain()] * 6] for one in alone]

    check_both_ways(lake, kind, sent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
@settings(drifting, max_examples=100)
@given(data=st.data())
def test_thousands_of_drifting_leads_have_the_same_rows_by_either_statement(
    tmp_path_factory: pytest.TempPathFactory, kind: LeadKind, data: st.DataObject
) -> None:
    check_both_ways(Lake(tmp_path_factory.mktemp("both")), kind, data.draw(drifting_leads(kind)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
@settings(drifting, max_examples=100)
@given(data=st.data())
def test_thousands_of_drifting_leads_lose_no_row_and_no_value(
    tmp_path_factory: pytest.TempPathFactory, kind: LeadKind, data: st.DataObject
) -> None:
    check_drift(Lake(tmp_path_factory.mktemp("drift")), kind, data.draw(drifting_leads(kind)))


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
def test_the_statements_are_those_that_were_reviewed(kind: LeadKind) -> None:
    committed = (statements.FOLDER / f"{kind.name}.sql").read_text()
    assert statements.generated(kind) == committed, "renew: .venv/bin/python -m leads_pipeline_tests.support.statements"


def test_a_minus_before_nought_is_part_of_a_text(lake: Lake) -> None:
    (row,) = flattened(lake, '{"id":"a","message":-0}')
    assert (row["message"], row["_problems"]) == ("-0", [])


def test_a_number_too_small_for_a_double_is_no_nought(lake: Lake) -> None:
    (row,) = flattened(lake, '{"id":"a","listingDetails":{"uprn":1e-400,"pricing":{"price":1e-400}}}')
    assert sorted(row["_problems"]) == ["listingDetails.pricing.price", "listingDetails.uprn"]


def test_an_amount_is_read_to_the_double_nearest_to_it_and_an_integer_exactly(lake: Lake) -> None:
    (row,) = flattened(
        lake, '{"id":"a","listingDetails":{"uprn":9007199254740993.01,"pricing":{"price":0.10000000000000000555}}}'
    )
    assert row["_problems"] == ["listingDetails.uprn"]
    assert row["listing_details_pricing_price"] == Decimal("0.10")


@pytest.mark.parametrize("is_plain", [True, False], ids=["by the short statement", "by the full one"])
def test_a_key_field_that_flattening_loses_is_counted(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    leads: list[dict[str, Any]] = [
        {"id": "a", "createdAt": "2026-11-19T09:00:00Z", "contact": {"email": "a@example.com"}},
        {"id": "b", "createdAt": "0001-01-01T00:00Z", "contact": {"email": None}},
        {"id": "c", "createdAt": "yesterday"},
    ]
    land(lake, APPRAISAL, leads)
    plain = Plain() if is_plain else None
    monkeypatch.setattr(raw, "plain_leads", lambda _: lambda texts: [plain] * len(texts))
    assert flatten_day(lake, APPRAISAL, DAY, LONDON).unexplained == 0

    intact = statement.columns_of
    email = '"value of contact_email" as'
    monkeypatch.setattr(statement, "columns_of", lambda fields: intact(fields).replace(email, "null::varchar as"))
    monkeypatch.setattr(statement, "_untyped", lambda _: "null")
    monkeypatch.setattr(statement, "statements_of", statement.statements_of.__wrapped__)  # what isn't cached
    with pytest.raises(UnbalancedError, match="2 lack a key field"):  # a's address, c's moment
        flatten_day(lake, APPRAISAL, DAY, LONDON)


@pytest.mark.parametrize(
    ("name", "broken", "said"),
    [
        (
            "_LEADS",
            lambda sound: f"{sound} where lead_id <> 'b'",
            "1 are repeats, 0 leads are withheld, 2 were to be staged, with 2 diff",
        ),
        (
            "_DROPPED",
            lambda sound: sound.replace("> 1", "> 9"),
            "0 are repeats, 0 leads are withheld, 4 were to be staged, with 3 diff",
        ),
    ],
    ids=["a lead is lost", "a lead is there twice"],
)
def test_a_day_that_does_not_add_up_keeps_its_files_and_holds_up_no_other(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str, broken: Callable[[str], str], said: str
) -> None:
    days = [DAY, NEXT_DAY]
    for day in days:
        land(lake, APPRAISAL, [{"id": "a"}], day=day)
    assert len(dict(flatten_days(lake, APPRAISAL, days, LONDON))) == 2
    before = lake.staged_path("appraisal_leads", DAY).read_bytes()
    land(lake, APPRAISAL, [{"id": "b"}, {"id": "c"}])
    land(lake, APPRAISAL, [{"id": "a"}], scope="branch-102")
    land(lake, APPRAISAL, [{"id": "d"}], day=NEXT_DAY)
    monkeypatch.setattr(raw, name, broken(getattr(raw, name)))

    found = dict(flatten_days(lake, APPRAISAL, days, LONDON))

    assert isinstance(found[DAY], UnbalancedError)
    assert said in str(found[DAY])
    assert lake.staged_path("appraisal_leads", DAY).read_bytes() == before
    assert isinstance(found[NEXT_DAY], StagedDay)
    assert staged_leads(lake, APPRAISAL, NEXT_DAY).keys() == {"a", "d"}


def test_a_staged_day_accounts_for_every_row(lake: Lake) -> None:
    land(lake, APPRAISAL, [{"id": "a"}, {"id": "b"}])
    land(lake, APPRAISAL, [{"id": "b"}], scope="branch-102")

    staged = flatten_day(lake, APPRAISAL, DAY, LONDON)

    assert staged == StagedDay(
        kind="appraisal",
        day=DAY,
        raw_rows=3,
        duplicates=1,
        withheld=0,
        lead_ids=2,
        unexplained=0,
        rows={"appraisal_leads": 2, "appraisal_windows": 2},
        problems={},
        extra={},
    )


# --- what raw has lost -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_gone", [False, True])
def test_a_day_with_a_damaged_or_missing_raw_file_stays_as_it_was_staged_until_it_is_whole(
    lake: Lake, is_gone: bool
) -> None:
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"} | viewed()], scope="branch-101")
    land(lake, APPLICANT, [{"id": "c"} | viewed()], scope="branch-102")
    stage(lake, APPLICANT)
    held = {table: lake.staged_path(table, DAY).read_bytes() for table in staged_tables(APPLICANT)}
    path = lake.window_path(APPLICANT, DAY, "branch-101")
    path.unlink() if is_gone else path.write_bytes(b"rotten")
    land(lake, APPLICANT, [{"id": "d"}], scope="branch-102", fetched_at=FETCHED_AT + timedelta(hours=1))
    for _ in range(2):
        with pytest.raises(LostRawError) as told:
            stage(lake, APPLICANT)
        assert {table: lake.staged_path(table, DAY).read_bytes() for table in staged_tables(APPLICANT)} == held
    aside = lake.quarantined()
    assert len(aside) == (0 if is_gone else 1)
    assert all(str(one) in str(told.value) for one in (aside and [path, *aside]))
    assert f"applicant leads of {DAY}" in str(told.value)
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"} | viewed()], scope="branch-101")
    assert stage(lake, APPLICANT).raw_rows == 4
    assert sorted(staged_leads(lake, APPLICANT)) == ["a", "b", "c", "d"]


def test_a_lead_that_the_portal_no_longer_has_keeps_its_day_as_it_was_staged(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"}], scope="branch-101")
    stage(lake, APPLICANT)
    lake.window_path(APPLICANT, DAY, "branch-101").write_bytes(b"rotten")
    assert lake.landed_windows(APPLICANT, DAY) == []
    land(lake, APPLICANT, [{"id": "a"}], scope="branch-101")
    with pytest.raises(LostRawError, match="they lack 1 leads that are staged or published"):
        stage(lake, APPLICANT)
    assert sorted(staged_leads(lake, APPLICANT)) == ["a", "b"]


def test_what_is_left_of_a_day_is_staged_once_the_rest_is_deleted_as_the_error_says(lake: Lake) -> None:
    for branch in (101, 102):
        land(lake, APPLICANT, [{"id": f"of {branch}"}], scope=f"branch-{branch}")
    stage(lake, APPLICANT)
    Warehouse(lake).publish(Grid((), DAY, LONDON), FETCHED_AT)
    lake.window_path(APPLICANT, DAY, "branch-101").write_bytes(b"rotten")
    with pytest.raises(LostRawError) as told:
        stage(lake, APPLICANT)
    _, _, command = str(told.value).partition(": rm -r ")
    subprocess.run(f"rm -r {command.partition(' (')[0]}", shell=True, check=True)  # noqa: S602 - as a person would
    stage(lake, APPLICANT)
    assert list(staged_leads(lake, APPLICANT)) == ["of 102"]
    assert lake.quarantined() == []


def viewed() -> dict[str, Any]:
    """Members that make a row in each of the child tables."""
    made: dict[str, Any] = {}
    for child in APPLICANT.children:
        *objects, name = child.path.split(".")
        inside = made
        for step in objects:
            inside = inside.setdefault(step, {})
        inside[name] = [{}]
    return made


def test_a_newer_version_that_raw_has_lost_stays_until_raw_has_a_newer_one(lake: Lake) -> None:
    later = FETCHED_AT + timedelta(hours=1)
    land(lake, APPLICANT, [{"id": "a", "message": "old"}], scope="branch-101")
    land(lake, APPLICANT, [{"id": "a", "message": "new"} | viewed()], scope="branch-102", fetched_at=later)
    assert stage(lake, APPLICANT).duplicates == 1
    lake.window_path(APPLICANT, DAY, "branch-102").unlink()
    with pytest.raises(LostRawError):
        stage(lake, APPLICANT)
    assert [(row["message"], row["scope"]) for row in staged_rows(lake, "applicant_leads")] == [("new", "branch-102")]
    newest = later + timedelta(hours=1)
    land(lake, APPLICANT, [{"id": "a", "message": "newest"}], scope="branch-101", fetched_at=newest)
    stage(lake, APPLICANT)
    assert [row["message"] for row in staged_rows(lake, "applicant_leads")] == ["newest"]
    assert staged_rows(lake, "applicant_listing_images") == []


def test_a_lead_that_went_back_to_what_it_was_is_not_kept_in_between(lake: Lake) -> None:
    for hours, message in enumerate(("first", "second", "first")):
        # The portal answers with what it answered before, word for word.
        land(lake, APPLICANT, [{"id": "a", "message": message}], fetched_at=FETCHED_AT + timedelta(hours=hours))
        stage(lake, APPLICANT)
        assert [row["message"] for row in staged_rows(lake, "applicant_leads")] == [message]


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_day_whose_staged_file_is_damaged_as_well_is_compared_with_what_is_published(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    days = [DAY, NEXT_DAY]
    for day in days:
        land(lake, APPLICANT, [{"id": f"lost of {day}"}], scope="branch-101", day=day)
        land(lake, APPLICANT, [{"id": "there"}], scope="branch-102", day=day)
        stage(lake, APPLICANT, day)
    Warehouse(lake).publish(Grid((), DAY, LONDON), FETCHED_AT)
    for day in days:
        lake.window_path(APPLICANT, day, "branch-101").unlink()
        path = lake.staged_path("applicant_leads", day)
        path.unlink() if is_gone else path.write_bytes(path.read_bytes()[:-20])
    monkeypatch.setattr(batches, "BATCH_LEADS", 1)

    staged = dict(flatten_days(lake, APPLICANT, days, LONDON))

    assert [type(staged[day]) for day in days] == [LostRawError, LostRawError]


def test_a_broken_warehouse_keeps_no_day_from_being_staged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [DAY, NEXT_DAY]
    for day in days:
        land(lake, APPLICANT, [{"id": "a"}], day=day)
    (lake.folder / "leads.duckdb").write_bytes(b"broken")
    monkeypatch.setattr(batches, "BATCH_LEADS", 1)
    for _, staged in flatten_days(lake, APPLICANT, days, LONDON):
        assert isinstance(staged, StagedDay)
        assert staged.rows["applicant_leads"] == 1


def test_what_an_earlier_version_staged_without_numbers_is_compared_by_its_moments(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "a"}])
    stage(lake, APPLICANT)
    path = lake.staged_path("applicant_leads", DAY)
    with duckdb.connect() as db:
        db.execute(f"copy (select * exclude (sequence) from '{path}') to '{path}.x' (format parquet)")  # noqa: S608
    path.write_bytes(seal(Path(f"{path}.x").read_bytes()))
    Path(f"{path}.x").unlink()
    assert stage(lake, APPLICANT).rows["applicant_leads"] == 1
    shutil.rmtree(lake.folder / "raw")
    with pytest.raises(LostRawError):
        stage(lake, APPLICANT)


def test_what_a_killed_query_on_staged_files_left_is_swept_and_one_under_way_is_not(lake: Lake) -> None:
    scratch = lake.folder / ".state" / "duckdb"
    (scratch / "query-0123456789abcdef" / "query-spill").mkdir(parents=True)
    with windows.querying(lake):
        sweep_readers(lake)
        assert len(list(scratch.iterdir())) == 1
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("name", ["Europe/London", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata", "UTC"])
def test_local_time_is_what_the_clocks_show_before_and_after_each_change(name: str) -> None:
    zone = ZoneInfo(name)
    changes = [since for since, _ in offsets(zone)[1:]] or [datetime(2026, 6, 1, tzinfo=UTC)]
    moments = [change + timedelta(microseconds=by) for change in changes for by in (-1, 0)]
    with duckdb.connect() as db:
        statement.define_local_time(db, offsets(zone))
        moment = "(select unnest($moments::timestamptz[]) as moment)"
        shown = db.execute(f"select local_time(moment) from {moment}", {"moments": moments}).fetchall()  # noqa: S608
        assert db.execute("select local_time(null)").fetchall() == [(None,)]
    assert [at for (at,) in shown] == [moment.astimezone(zone).replace(tzinfo=None) for moment in moments]
