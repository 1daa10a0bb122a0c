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
from leads_pipeline.contract import APPRAISAL, LEAD_KINDS, known_members
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Grid, Publication, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.staging import DAY, LONDON, NEXT_DAY, land, stage

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


# What is left to a person: what is a value here and an object there, lists of lists, and names of columns that exist.
UNDECLARABLE = {
    *("mood", "tags", "visits[].deep", "visits[].tags", "viewingTimes[].tags", "odd", "odd[].a"),
    *("day", "source", "lead_id", "position", "viewingTimes[].day", "viewingTimes[].leadId"),
}


CHANGES = "select change, field, value, first_seen_day, last_seen_day, leads from drift order by all"


def test_what_is_new_or_of_another_type_is_named_with_its_days_and_leads(house: House) -> None:
    leads: list[dict[str, Any]] = from_three_people(
        {"id": "1", "affordability": {"isReady": True, "checkedAt": "2026-11-19T10:00Z", "tags": [1]}},
        {"id": "2", "affordability": {"isReady": False}, "contact": {"age": None}},
        {"id": "3", "consumerSituation": "CONSUMER_SITUATION_MOVING_ABROAD", "intent": "APPLICANT_INTENT_BUY"},
        {"id": "4", "isOverseas": "perhaps", "viewingTimes": [{"note": "a"}, {"note": 2}, {"earliest": "soon"}]},
    )
    house.land("applicant", leads)
    house.land("applicant", leads[:3], NEXT_DAY)
    house.publish()

    assert house.query(CHANGES) == [
        ("changed type", "isOverseas", None, DAY, DAY, 3),
        ("changed type", "viewingTimes[].earliest", None, DAY, DAY, 3),
        ("new field", "affordability.checkedAt", None, DAY, NEXT_DAY, 6),
        ("new field", "affordability.isReady", None, DAY, NEXT_DAY, 9),
        ("new field", "affordability.tags", None, DAY, NEXT_DAY, 6),
        ("new field", "contact.age", None, DAY, DAY, 3),
        ("new field", "viewingTimes[].note", None, DAY, DAY, 6),
        ("new value", "consumerSituation", "CONSUMER_SITUATION_MOVING_ABROAD", DAY, DAY, 3),
    ]


def test_leads_as_declared_are_no_drift(house: House) -> None:
    house.land("appraisal", [{"id": "1", "intent": "APPRAISAL_INTENT_SELL", "enquiryType": "", "urgency": None}])
    house.publish()

    assert house.query(CHANGES) == []


def of(person: str, number: int = 0, **more: Any) -> dict[str, Any]:
    return {"id": f"{person} {number}", "contact": {"email": f"{person}@example.org"}} | more


def beside_leads(house: House) -> str:
    """Every row of every table but those of leads."""
    of_leads = {table for kind in LEAD_KINDS for table in kind.tables}
    return str({table: rows for table, (_, rows) in house.tables().items() if table not in of_leads})


def test_a_name_is_shown_once_three_people_have_sent_it_whatever_the_days(house: House) -> None:
    known = "select field, value from drift where field <> '…' and coalesce(value, '') <> '…' order by all"
    for day, person in zip((DAY, NEXT_DAY, NEXT_DAY + timedelta(days=1)), "abc", strict=True):
        house.publish()
        assert house.query(known) == []
        house.land("appraisal", [of(person, 1, newField=1), of(person, 2, urgency="URGENCY_YESTERDAY")], day)
        # One person's leads, as many as they may be, are one person's.
        house.land("appraisal", [of("A ", 3, Jane_Doe=1), of("a", 4, urgency="Jane")], day, "branch-102")
    house.publish()

    assert house.query(known) == [("newField", None), ("urgency", "URGENCY_YESTERDAY")]
    assert house.query("select distinct urgency from mart_appraisals order by all") == [
        ("unknown",), ("yesterday",), ("…",),
    ]  # fmt: skip
    assert "Jane" not in beside_leads(house)


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


def test_what_one_person_has_sent_is_shown_in_no_drift_no_mart_and_no_report(house: House) -> None:
    for kind in ("applicant", "appraisal"):
        house.land(kind, [with_the_name_everywhere(person, number) for person in PEOPLE for number in range(9)])
    house.publish()

    assert not re.search("(?i)smith", beside_leads(house))
    assert house.query("select distinct source from mart_leads_daily") == [("…",)]
    assert not re.search("(?i)ann_?smith|smith@", house.report())


def test_a_value_that_python_can_hardly_hold_costs_no_publication(house: House) -> None:
    values = ["1e400", "-1.5E+9999999999", "9" * 5000, '{"a":' * 490 + "1" + "}" * 490, '{"a":' * 900 + "1" + "}" * 900]
    members = ",".join(f'"new{number}": {value}' for number, value in enumerate(values))
    house.land("applicant", [f'{{"id":"{n}","contact":{{"email":"{n}@x.example"}},{members}}}' for n in range(3)])
    house.publish()

    assert len(house.leads("applicant")) == 3


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
