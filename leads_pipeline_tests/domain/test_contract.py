import hashlib
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from leads_pipeline.domain.bodies import cut_leads
from leads_pipeline.domain.contract import (
    APPLICANT,
    APPRAISAL,
    ENUMERATIONS,
    LEAD_KINDS,
    FieldType,
    LeadKind,
    member_in_words,
    window_parameters,
)
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import InvalidAnswerError

OPENAPI: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "support" / "openapi.yaml").read_text()
)
SCHEMAS = OPENAPI["components"]["schemas"]


def applicants(*elements: bytes) -> bytes:
    return b'{"applicants": [' + b", ".join(elements) + b"]}"


def payloads(body: bytes) -> list[str]:
    return [lead.payload for lead in cut_leads(APPLICANT, body).leads]


# --- whole bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b'\xef\xbb\xbf{"applicants": []}',
        b' \r\n{"meta": {"applicants": [1]}, "applicants": []}\n',
    ],
)
def test_an_empty_list_means_no_leads(body: bytes) -> None:
    assert cut_leads(APPLICANT, body).leads == ()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"<html><body>Please log in</body></html>", "not a JSON object"),
        (b'{"appraisals": []}', "list missing"),
        (b'{"applicants": [', "broken JSON"),
        (b'{"applicants": []}<!-- proxy -->', "broken JSON"),
    ],
)
def test_anything_else_is_no_answer(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidAnswerError) as caught:
        cut_leads(APPLICANT, body)

    assert caught.value.reason == reason
    assert "log in" not in str(caught.value)  # it could be a person's text


@given(cut=st.integers(0, 2**16))
def test_a_body_cut_off_anywhere_is_no_answer(cut: int) -> None:
    body = applicants(
        b'{"id": "a", "message": "says \\"hi\\" [", "x": [1, {"y": null}]}', b'{"id": "b"}'
    )
    with pytest.raises(InvalidAnswerError):
        cut_leads(APPLICANT, body[: cut % len(body)])


def test_a_list_that_stands_twice_gives_both() -> None:
    assert payloads(b'{"applicants": [{"id": "a"}], "applicants": [{"id": "b"}]}') == [
        '{"id": "a"}',
        '{"id": "b"}',
    ]


@pytest.mark.parametrize(
    ("beside", "members"),
    [
        ('"total": 2, "hasMore": false', {"total/number", "hasMore/boolean"}),
        (
            '"links": {"next": {"href": "/2"}}',
            {"links/object", "links.next/object", "links.next.…/text"},
        ),
        (
            '"Jane Roe": 1, "07700900123": [], "listing": {"Jane": ""}',
            {"…/number", "…/list", "…/object", "….…/text"},
        ),
        (
            '"nextOfKinJane": "", "total07700900123": 1, "count 2": 1',
            {"next…/text", "total…/number", "count…/number"},
        ),
    ],
)
def test_an_unknown_member_beside_the_list_is_named_unless_its_name_could_be_a_persons(
    beside: str, members: set[str]
) -> None:
    body = f'{{{beside}, "applicants": []}}'.encode()
    assert cut_leads(APPLICANT, body).unknown_members == members


# --- elements -------------------------------------------------------------------------------------

ODD: dict[str, tuple[bytes, str | None]] = {
    # element, its id (None: the hash of its payload)
    "number text is kept": (
        b'{"id": "x", "p": 250000.10, "q": 1e2, "big": 12345678901234567890}',
        "x",
    ),
    "NaN": (b'{"id": "x", "radius": NaN}', "x"),
    "lone surrogate": (b'{"id": "x", "m": "\\ud800"}', "x"),
    "duplicate keys": (b'{"id": "y", "id": "x", "m": 1, "m": 2}', "x"),
    "deep nesting": (b'{"id": "x", "d": ' + b"[" * 5000 + b"]" * 5000 + b"}", "x"),
    "invalid UTF-8": (b'{"id": "x", "m": "\xe9t\xe9"}', "x"),
    "number as id": (b'{"id": 12345678901234567890123}', "12345678901234567890123"),
    "blank id": (b'{"id": "  "}', None),
    "no id": (b'{"contact": {"id": "inner"}}', None),
    "text": (b'"a lead?"', None),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_lead_is_kept_as_received_and_costs_no_neighbour(name: str) -> None:
    element, lead_id = ODD[name]

    first, odd, last = cut_leads(
        APPLICANT, applicants(b'{"id": "first"}', element, b'{"id": "last"}')
    ).leads

    assert first == ("first", '{"id": "first"}')
    assert last == ("last", '{"id": "last"}')
    encoding = "latin-1" if name == "invalid UTF-8" else "utf-8"
    assert odd.payload.encode(encoding) == element
    assert odd.lead_id == (lead_id or f"sha256:{hashlib.sha256(element).hexdigest()}")


# --- requests -------------------------------------------------------------------------------------


def test_a_window_asks_for_one_day_of_one_scope() -> None:
    def asked(scope: str) -> dict[str, str]:
        window = Window.of(date(2026, 7, 1), Scope.parse(scope), ZoneInfo("Europe/London"))
        return window_parameters(window)

    day = {"from-time": "2026-06-30T23:00:00Z", "to-time": "2026-07-01T23:00:00Z"}
    assert asked("all") == day
    assert asked("branch-101") == {**day, "branch-id": "101"}
    documented = OPENAPI["paths"]["/applicant-leads"]["get"]["parameters"]
    assert {*day, "branch-id"} <= {parameter["name"] for parameter in documented}


# --- declared fields ------------------------------------------------------------------------------

SCHEMA_OF = {APPLICANT.name: "Applicant", APPRAISAL.name: "Appraisal"}
MOMENT = SCHEMAS["Timestamp"]


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    return SCHEMAS[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema


def leaves(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Path and schema of everything that is no object, depth first."""
    for name, part in resolved(schema)["properties"].items():
        inner = resolved(part)
        inner_path = f"{path}{name}"
        if "properties" in inner:
            yield from leaves(inner, f"{inner_path}.")
        else:
            yield inner_path, inner


FITS = {
    "boolean": {FieldType.BOOLEAN},
    "integer": {FieldType.INTEGER},
    "number": {FieldType.NUMBER, FieldType.AMOUNT},
    "string": {FieldType.TEXT},
}


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
def test_every_property_of_the_schema_is_declared_once_with_a_type_that_fits(
    kind: LeadKind,
) -> None:
    expected = dict(leaves(SCHEMAS[SCHEMA_OF[kind.name]]))
    del expected["id"]
    declared = {field.path: field.type for field in kind.fields}
    for child in kind.children:
        elements = expected.pop(child.path)["items"]
        expected |= dict(leaves(elements, f"{child.path}[]."))
        declared |= {f"{child.path}[].{field.path}": field.type for field in child.fields}

    assert declared.keys() == expected.keys()
    for path, schema in expected.items():
        if schema is MOMENT:
            fitting = {FieldType.MOMENT}
        elif path.endswith(("branchId", "propertyId")):  # text, however it comes
            fitting = {FieldType.TEXT}
        else:
            fitting = FITS[schema["type"]]
        assert declared[path] in fitting, path


def test_what_identifies_a_person_is_marked() -> None:
    marks = re.compile(
        r"(firstName|lastName|phoneNumber|[eE]mail|message|consumerPostcode|latitude|longitude|line[123])$"
    )
    for kind in LEAD_KINDS:
        for field in kind.fields:
            if marks.search(field.path):
                assert field.is_personal, field.path


# --- enumerated fields: fault 87 ------------------------------------------------------------------

# What the portal publishes of them, in November 2026.
PROPERTY_TYPES = """
    UNSPECIFIED FLAT DETACHED SEMI_DETACHED TERRACED END_TERRACE DETACHED_BUNGALOW BUNGALOW STUDIO MAISONETTE TOWN_HOUSE
    COTTAGE SEMI_DETACHED_BUNGALOW LAND PARK_HOME LINK_DETACHED BARN_CONVERSION MEWS CHALET VILLA FARMHOUSE
    COUNTRY_HOUSE TERRACED_BUNGALOW PARKING BLOCK_OF_FLATS EQUESTRIAN LODGE HOUSEBOAT FARM CHATEAU FARM_BARN FINCA HOTEL
    INDUSTRIAL JUNK LEISURE LIGHT_INDUSTRIAL LONGERE OFFICE PUB_BAR RESTAURANT RETAIL RIAD WAREHOUSE MID_TERRACE
"""


def test_the_contract_knows_all_45_published_property_types_wherever_they_stand() -> None:
    published = {f"PROPERTY_TYPE_{name}" for name in PROPERTY_TYPES.split()}
    paths = [path for path in ENUMERATIONS if path.endswith("propertyType")]

    assert len(published) == 45
    assert len(paths) == 3
    for path in paths:
        assert set(ENUMERATIONS[path]) == published


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("PROPERTY_TYPE_END_TERRACE", "end terrace"),
        ("PROPERTY_TYPE_UNSPECIFIED", "unknown"),
        ("APPLICANT_SOURCE_NEVER_HEARD_OF", "never heard of"),
        (f"URGENCY_{'A' * 61}", None),
        ("URGENCY_Ann Smith", None),
        ("URGENCY_ANN\n", None),
        ("ANN_SMITH", None),
    ],
)
def test_a_member_in_the_form_of_the_portal_reads_in_words_and_no_other_text_does(
    value: str, words: str | None
) -> None:
    assert member_in_words(value) == words
