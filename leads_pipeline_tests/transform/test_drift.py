import json
import re
import shutil
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline import contract
from leads_pipeline.assets.published import drift_check
from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS, known_members
from leads_pipeline.lake import Lake
from leads_pipeline.report.page import write_report
from leads_pipeline.warehouse import Grid, Publication, Warehouse, marts
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, LONDON, NEXT_DAY, land, stage

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "data")


def publish(lake: Lake) -> Publication:
    return Warehouse(lake).publish(Grid((Scope.parse("branch-101"),), DAY, LONDON), NOW)


def drift(lake: Lake) -> list[tuple[Any, ...]]:
    return Warehouse(lake).query("select * exclude (kind) from drift order by change, field, value")[1]


def from_three_people(*leads: dict[str, Any]) -> list[dict[str, Any]]:
    """Each lead three times, from three people: as many as it takes for a new name to be shown."""
    return [
        lead | {"id": f"{lead['id']}-{person}", "contact": {"email": f"{person}@example.org"} | lead.get("contact", {})}
        for lead in leads
        for person in "abc"
    ]


@pytest.mark.parametrize("bytes_at_once", [16_000_000, 20], ids=["whole", "in parts"])
def test_what_is_new_is_counted_with_its_days_and_the_line_that_takes_it_in(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int
) -> None:
    monkeypatch.setattr("leads_pipeline.drift._VECTOR_BYTES", bytes_at_once)
    leads: list[dict[str, Any]] = from_three_people(
        {"id": "1", "affordability": {"isReady": True, "checkedAt": "2026-11-19T10:00Z", "tags": [1], "sum": 1}},
        {"id": "2", "affordability": {"isReady": False, "sum": 1.5}, "contact": {"age": None}},
        {"id": "3", "consumerSituation": "CONSUMER_SITUATION_MOVING_ABROAD", "intent": "APPLICANT_INTENT_BUY"},
        {"id": "4", "isOverseas": "perhaps", "viewingTimes": [{"note": "a"}, {"note": 2}, {"earliest": "soon"}]},
    )
    for day in (DAY, NEXT_DAY):
        land(lake, APPLICANT, leads[: 12 if day is DAY else 3], day=day)
        stage(lake, APPLICANT, day)
    publish(lake)

    assert drift(lake) == [
        ("changed type", "isOverseas", None, DAY, DAY, 3, None),
        ("changed type", "viewingTimes[].earliest", None, DAY, DAY, 3, None),
        ("new field", "affordability.checkedAt", None, DAY, NEXT_DAY, 6, 'Field("affordability.checkedAt", _M, "…")'),
        ("new field", "affordability.isReady", None, DAY, NEXT_DAY, 9, 'Field("affordability.isReady", _B, "…")'),
        ("new field", "affordability.sum", None, DAY, NEXT_DAY, 9, 'Field("affordability.sum", _N, "…")'),
        (
            "new field",
            "affordability.tags",
            None,
            DAY,
            NEXT_DAY,
            6,
            None,
        ),
        ("new field", "contact.age", None, DAY, DAY, 3, 'Field("contact.age", _T, "…")'),
        ("new field", "viewingTimes[].note", None, DAY, DAY, 6, 'Field("note", _T, "…")'),
        (
            "new value",
            "consumerSituation",
            "CONSUMER_SITUATION_MOVING_ABROAD",
            DAY,
            DAY,
            3,
            'Members("consumerSituation", "", "CONSUMER_SITUATION_MOVING_ABROAD")',
        ),
    ]
    check = drift_check(Warehouse(lake))
    assert (check.passed, check.metadata["changes"].value) == (False, 9)
    assert '- applicant: `Field("note", _T, "…")`' in (check.description or "").splitlines()


# What is left to a person: what is a value here and an object there, lists of lists, and names of columns that exist.
UNDECLARABLE = {
    *("mood", "tags", "visits[].deep", "visits[].tags", "viewingTimes[].tags", "odd", "odd[].a"),
    *("day", "source", "lead_id", "position", "viewingTimes[].day", "viewingTimes[].leadId"),
}


@pytest.mark.slow
def test_the_suggested_lines_take_in_what_is_new(lake: Lake, tmp_path: Path) -> None:
    leads = from_three_people(
        {"id": "1", "mood": "good", "offer": {"sum": 1.5, "until": "2026-11-19T10:00Z", "by": {"phone": True}}},
        {"id": "2", "mood": {"level": 3}, "tags": ["plain"], "urgency": "URGENCY_YESTERDAY", "odd": [{"a": 1}]},
        {"id": "3", "mood": None, "visits": [{"atTime": "2026-11-19T10:00Z", "guest": {"age": 7}}, {"isShort": True}]},
        {"id": "4", "visits": [{"tags": [{"a": 1}], "deep": 1}, {"deep": {"er": 2}}], "odd": "none"},
        {"id": "5", "viewingTimes": [{"note": "a", "tags": [1]}], "listingDetails": {"newImages": [{"size": 2}]}},
        {"id": "6", "intent": "APPLICANT_INTENT_SWAP", "consumerSituation": "CONSUMER_SITUATION_MOVING_ABROAD"},
        {"id": "7", "intent": "APPLICANT_INTENT_GIVE"},
        # Names that the flattening statement has for its own, and two that are columns already.
        {"id": "8", "day": "Monday", "body": "b", "item": 1, "keys": 2, "extra": True, "payload": "p", "staged": 1},
        {"id": "9", "source": "s", "lead_id": "l", "position": 1, "rows": 2, "lead": 3, "value": 1, "raw": "r"},
        {"id": "10", "viewingTimes": [{"day": "Monday", "body": "b", "item": 1, "leadId": 3, "extra": "e"}]},
    )
    for kind in LEAD_KINDS:
        land(lake, kind, leads)
        stage(lake, kind)
    publish(lake)
    suggested = Warehouse(lake).query("select kind, field, declaration from drift where declaration is not null")[1]
    copy = tmp_path / "changed"
    shutil.copytree(Path(contract.__file__).parent, copy / "leads_pipeline")
    declare(copy / "leads_pipeline" / "contract.py", suggested)

    script = f"""
        from datetime import UTC, date, datetime
        from pathlib import Path
        from zoneinfo import ZoneInfo
        from leads_pipeline.contract import LEAD_KINDS
        from leads_pipeline.flatten.batches import flatten_days
        from leads_pipeline.lake import Lake
        from leads_pipeline.warehouse import Grid, Warehouse
        from leads_pipeline.window import Scope
        lake, zone, day = Lake(Path({str(lake.folder)!r})), ZoneInfo("Europe/London"), date.fromisoformat("{DAY}")
        for kind in LEAD_KINDS:
            print(*flatten_days(lake, kind, [day], zone))
        Warehouse(lake).publish(Grid((Scope.parse("branch-101"),), day, zone), datetime(2026, 11, 21, 12, tzinfo=UTC))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=copy, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout

    left = {row[0] for row in Warehouse(lake).query("select field from drift where change <> 'changed type'")[1]}
    assert left <= UNDECLARABLE
    typed = Warehouse(lake).query(
        "select column_name, data_type from duckdb_columns() where table_name in "
        "('applicant_leads', 'applicant_visits', 'applicant_listing_details_new_images', 'applicant_viewing_times')"
    )[1]
    assert {
        ("mood_level", "BIGINT"),
        ("offer_sum", "DOUBLE"),
        ("offer_until", "TIMESTAMP WITH TIME ZONE"),
        ("offer_by_phone", "BOOLEAN"),
        ("at_time", "TIMESTAMP WITH TIME ZONE"),
        ("guest_age", "BIGINT"),
        ("is_short", "BOOLEAN"),
        ("deep_er", "BIGINT"),
        ("note", "VARCHAR"),
        ("size", "BIGINT"),
    } <= set(typed)
    ages = "select count(*), sum(guest_age), count(is_short) from applicant_visits"
    assert Warehouse(lake).query(ages)[1] == [(12, 21, 3)]
    for table in ("applicant_leads", "appraisal_leads"):
        values = Warehouse(lake).query(f"select body, item, keys, extra, value, raw from {table}")[1]  # noqa: S608 - ours
        assert {("b", 1, 2, True, None, None), (None, None, None, None, 1, "r")} < set(values)
    values = Warehouse(lake).query("select body, item, extra from applicant_viewing_times")[1]
    assert ("b", 1, "e") in values


def declare(file: Path, suggested: list[tuple[Any, ...]]) -> None:
    """Write each line where the table drift says that it goes."""
    text = file.read_text()
    for kind, field, line in suggested:
        before, after = text.split(f'\n    name="{kind}",\n')
        if line.startswith("Members("):
            text = text.replace("_MEMBERS: Final = (\n", f"_MEMBERS: Final = (\n    {line},\n")
            continue
        if line.startswith("ChildTable("):
            if kind == "appraisal" and "children=(" not in after:
                after = after.replace("    fields=(", "    children=(\n    ),\n    fields=(", 1)
            place = "    children=(\n"
        elif "[]" in field:
            place = f'            path="{field.partition("[]")[0]}",\n            fields=(\n'
        else:
            place = "    fields=(\n"
        assert place in after
        after = after.replace(place, f"{place}{line},\n", 1)
        text = f'{before}\n    name="{kind}",\n{after}'
    file.write_text(text)


def of(person: str, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": f"{person} {number}", "contact": {"email": f"{person}@example.org"}} | more


@pytest.mark.slow
def test_a_name_is_shown_once_three_people_have_sent_it_whatever_the_days(lake: Lake) -> None:
    days = [DAY, NEXT_DAY, NEXT_DAY + timedelta(days=1)]
    shown = []
    for day, person in zip(days, "abc", strict=True):
        land(lake, APPRAISAL, [of(person, 1, newField=1), of(person, 2, urgency="URGENCY_YESTERDAY")], day=day)
        # One person's leads, as many as they may be, are one person's.
        land(lake, APPRAISAL, [of("A ", 3, Jane_Doe=1), of("a", 4, urgency="Jane")], day=day, scope="branch-102")
        stage(lake, APPRAISAL, day)
        publish(lake)
        shown.append([row[1:3] for row in drift(lake)])
        assert "Jane" not in str([Warehouse(lake).query(f"from {table}") for table in beside_leads(lake)])

    hidden = [("…", None), ("urgency", "…")]
    assert shown == [
        hidden,
        hidden,
        [("newField", None), ("…", None), ("urgency", "URGENCY_YESTERDAY"), ("urgency", "…")],
    ]
    urgencies = Warehouse(lake).query("select distinct urgency from mart_appraisals order by all")[1]
    assert urgencies == [("unknown",), ("yesterday",), ("…",)]

    land(lake, APPRAISAL, [of("b")], day=NEXT_DAY, fetched_at=FETCHED_AT + timedelta(hours=1))
    before = Warehouse(lake).query("from drift")
    Warehouse(lake).path.unlink()
    assert publish(lake).is_rebuilt
    assert Warehouse(lake).query("from drift") == before


def test_a_name_of_three_among_many_people_is_counted_as_exactly_as_one_of_all(lake: Lake) -> None:
    people = [f"person-{number:03}" for number in range(80)]
    leads = [of(person, common=1) | ({"rare": 1} if person >= "person-077" else {}) for person in people]
    # Names that are hidden as one count their lead once, and a list is one whatever is in it.
    hidden = of("person-001", 3, **{"a b": 1, "c d": 2})
    lists = [of(f"person-00{number}", 4, mixed=mixed) for number, mixed in enumerate([[], [1], [{"a": 1}]])]
    rare = [of("person-079", 2, rare=1), of("person-000", 2, unshown=1, common="a")]
    land(lake, APPRAISAL, [*leads, *rare, hidden, *lists])
    stage(lake, APPRAISAL)
    publish(lake)

    assert [(row[1], row[5], row[6]) for row in drift(lake)] == [
        ("common", 81, 'Field("common", _T, "…")'),
        ("mixed", 3, None),
        ("rare", 4, 'Field("rare", _I, "…")'),
        ("…", 3, None),
    ]


def beside_leads(lake: Lake) -> list[str]:
    _, found = Warehouse(lake).query("select schema_name || '.' || table_name, table_name from duckdb_tables()")
    return [name for name, table in found if table not in {table for kind in LEAD_KINDS for table in kind.tables}]


def test_a_contract_that_knows_everything_passes_the_check(lake: Lake) -> None:
    lead = {"id": "1", "intent": "APPRAISAL_INTENT_SELL", "enquiryType": "", "urgency": None}
    land(lake, APPRAISAL, [lead])
    stage(lake, APPRAISAL)
    publish(lake)

    assert drift(lake) == []
    assert drift_check(Warehouse(lake)).passed


@pytest.mark.slow
def test_only_changed_days_are_counted_again(lake: Lake) -> None:
    for day in (DAY, NEXT_DAY):
        land(lake, APPLICANT, [{"id": str(day), "new": 1}], day=day)
        stage(lake, APPLICANT, day)
    publish(lake)
    land(lake, APPLICANT, [{"id": "b", "new": 1}], day=NEXT_DAY, fetched_at=FETCHED_AT + timedelta(hours=1))
    stage(lake, APPLICANT, NEXT_DAY)

    publication = publish(lake)

    assert (publication.days_changed, publication.is_rebuilt) == (1, False)
    assert [row[3:6] for row in drift(lake)] == [(DAY, NEXT_DAY, 3)]


PEOPLE = ("Ann Smith, 07700 900123", "Ann_Smith", "ANN_SMITH", "Smith", "smith@example.org")


def with_the_name_everywhere(person: str, number: int) -> str:
    """A lead that has it as the name of fields, once and twice, at every depth, and as its enumerations' members."""
    odd: dict[str, Any] = {"intent": person, "consumerSituation": person, "leadSource": person, "urgency": person}
    details = f'{{"id":"1","{person}":[1],"propertyType":"{person}","pricing":{{"rentFrequency":"{person}"}}}}'
    contact = {"email": "ann@example.org", person: {person: 1}}
    return (
        json.dumps({"id": f"{PEOPLE.index(person)}-{number}", **odd, "contact": contact})[:-1]
        + f',"{person}":1,"{person}":2,"listingDetails":{details},"propertyDetails":{details}'
        + f',"viewingTimes":[{{"{person}":{{"a":1}}}},{{"{person}":1,"{person}":2}}]}}'
    )


@pytest.mark.slow
def test_what_may_be_a_persons_name_is_not_shown(lake: Lake) -> None:
    for kind in LEAD_KINDS:
        land(lake, kind, [with_the_name_everywhere(person, number) for person in PEOPLE for number in range(9)])
        staged = stage(lake, kind)
        assert not re.search("(?i)smith", str(staged.problems))
    publish(lake)

    changes = {row[1] if row[2] is None else (row[1], row[2]) for row in drift(lake)}
    assert {"…", "contact.…", "viewingTimes[].…", "listingDetails.…"} <= changes
    assert {("intent", "…"), ("consumerSituation", "…"), ("leadSource", "…"), ("urgency", "…")} <= changes
    store = Warehouse(lake)
    assert {f"main.{mart.name}" for mart in marts()} < set(beside_leads(lake))
    for table in beside_leads(lake):
        assert not re.search("(?i)smith", str(store.query(f"from {table}")[1])), table
    assert store.query("select distinct source from mart_leads_daily")[1] == [("…",)]
    assert not re.search("(?i)smith", str(drift_check(store)))
    write_report(store, lake)
    assert not re.search("(?i)ann_?smith|smith@", (lake.folder / "reports" / "leads.html").read_text())


def test_a_member_that_the_contract_learns_is_no_drift_any_more(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land(lake, APPRAISAL, [{"id": "1", "urgency": "URGENCY_YESTERDAY"}])
    stage(lake, APPRAISAL)
    publish(lake)
    assert len(drift(lake)) == 1
    monkeypatch.setitem(contract.ENUMERATIONS, "urgency", ("URGENCY_YESTERDAY",))

    assert publish(lake).is_rebuilt

    assert drift(lake) == []


def test_every_enumeration_is_of_a_declared_field() -> None:
    declared = {field.path for kind in LEAD_KINDS for field in kind.fields}
    assert contract.ENUMERATIONS.keys() <= declared
    assert known_members("consumerSituation") is not None
    assert known_members("message") is None


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ("1e400", ("new", 'Field("new", _N, "…")')),
        ("-1.5E+9999999999", ("new", 'Field("new", _N, "…")')),
        ("9" * 5000, ("new", 'Field("new", _I, "…")')),
        ('{"a":' * 490 + "1" + "}" * 490, (f"new.{'a.' * 30}a", None)),
        ('{"a":' * 900 + "1" + "}" * 900, ("_extra", None)),
    ],
    ids=["1e400", "an endless exponent", "5,000 digits", "490 objects deep", "900 objects deep"],
)
def test_a_value_that_python_can_hardly_hold_costs_no_publication(
    lake: Lake, value: str, change: tuple[str, str | None]
) -> None:
    land(lake, APPLICANT, [f'{{"id": "{n}", "contact": {{"email": "{n}"}}, "new": {value}}}' for n in range(3)])
    stage(lake, APPLICANT)
    publish(lake)

    assert [(row[1], row[-1]) for row in drift(lake)] == [change]
