"""Drift as one select: what the portal sends and the contract doesn't know, from three people on."""

import json
import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import duckdb
import pytest

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.raw.rows import Row as RawRow
from leads_pipeline.raw.rows import landed_versions
from leads_pipeline.warehouse.current_leads import WindowLeads
from leads_pipeline.warehouse.drift import DRIFT_DAYS, make_drift
from leads_pipeline.warehouse.duck import set_person_key
from leads_pipeline.warehouse.flatten import flatten
from leads_pipeline.warehouse.tables import create_table, lead_tables
from leads_pipeline_tests.support.house import DAY, LONDON, NEXT_DAY, House

Row = dict[str, Any]


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory with the tables of leads."""
    with duckdb.connect() as db:
        set_person_key(db, b"key")
        for table in lead_tables():
            create_table(db, table)
        yield db


def load(db: duckdb.DuckDBPyConnection, *leads: Row, day: date = DAY) -> None:
    """Bring the leads of a window into the tables."""
    rows = [RawRow(lead["id"], 1, json.dumps(lead)) for lead in leads]
    window = WindowLeads(APPLICANT, day, "branch-101", landed_versions(rows), "hash")
    flatten(db, [window], LONDON, publication=1)


def drift(db: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    make_drift(db, NEXT_DAY)
    return db.execute("select * exclude (kind) from drift").fetchall()


def from_people(people: str, *leads: Row) -> list[Row]:
    """Each lead once from each of these people."""
    found = []
    for number, lead in enumerate(leads):
        for person in people:
            contact = {"email": f"{person}@x.example", **lead.get("contact", {})}
            found.append({**lead, "id": f"{number} {person}", "contact": contact})
    return found


def test_what_is_new_or_does_not_fit_is_named_with_its_days_and_leads(
    db: duckdb.DuckDBPyConnection,
) -> None:
    leads = from_people(
        "abc",
        {"affordability": {"isReady": True}, "contact": {"age": None, "preferences": {"deep": 1}}},
        {"consumerSituation": "CONSUMER_SITUATION_MOVING_ABROAD", "intent": "MOVE"},
        {
            "isOverseas": "perhaps",
            "viewingTimes": [{"note": "a"}, {"note": 2}, {"earliest": "soon"}],
        },
        {"listingDetails": {"pricing": "a lot", "images": [{"alt": 1}]}},
    )
    load(db, *leads)
    load(db, *({**lead, "id": f"again {lead['id']}"} for lead in leads[:3]), day=NEXT_DAY)

    assert drift(db) == [
        ("changed type", "isOverseas", None, DAY, DAY, 3),
        ("changed type", "listingDetails.pricing", None, DAY, DAY, 3),
        ("changed type", "viewingTimes[].earliest", None, DAY, DAY, 3),
        ("new field", "affordability", None, DAY, NEXT_DAY, 6),
        ("new field", "contact.age", None, DAY, NEXT_DAY, 6),
        ("new field", "contact.preferences.deep", None, DAY, NEXT_DAY, 6),
        ("new field", "listingDetails.images[].alt", None, DAY, DAY, 3),
        ("new field", "viewingTimes[].note", None, DAY, DAY, 6),
        ("new member", "consumerSituation", "CONSUMER_SITUATION_MOVING_ABROAD", DAY, DAY, 3),
        ("new value", "intent", "MOVE", DAY, DAY, 3),
    ]


def test_what_two_people_have_sent_is_not_named(db: duckdb.DuckDBPyConnection) -> None:
    times = [{"y": 1}, {"y": 2}, {"y": 3}]
    odd = {"Ann_Smith": 1, "leadSource": "ann", "contact": {"x": 1}, "viewingTimes": times}
    load(db, *from_people("ab", odd, odd, odd))

    assert drift(db) == []


def test_what_is_declared_old_or_no_name_in_a_program_is_not_named(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Nor what people have sent whom retention made anonymous: each is another one there."""
    declared = {"enquiryType": "", "intent": None, "contact": {"preferences": None}}
    load(db, *from_people("abc", {"Ann Smith": 1, "ann@x.example": 1, "ok": 1, **declared}))
    load(db, *from_people("abc", {"old": 1}), day=NEXT_DAY - timedelta(days=DRIFT_DAYS + 1))
    for number in range(3):
        anonymous = f"00000000-0000-0000-0000-00000000000{number}@removed.invalid"
        load(db, {"id": anonymous, "contact": {"email": anonymous}, "cut": 1})

    assert [row[1] for row in drift(db)] == ["ok"]


def test_a_member_is_told_from_another_value(db: duckdb.DuckDBPyConnection) -> None:
    """Fault 87: an unknown member in the portal's form is a hint, a value in another form is a
    warning.
    """
    for people, value in (("abc", "PROPERTY_TYPE_NEW_1"), ("def", "PROPERTY_TYPE_new")):
        odd = {"intent": value, "listingDetails": {"propertyType": value}}
        load(db, *from_people(people, odd))

    found = {(change, field) for change, field, value, *_ in drift(db) if value}

    assert found == {
        ("new member", "intent"),
        ("new value", "intent"),
        ("new member", "listingDetails.propertyType"),
        ("new value", "listingDetails.propertyType"),
    }


# --- in the published file ------------------------------------------------------------------------


PEOPLE = ("Ann Smith, 07700 900123", "ANN_SMITH", "smith@example.org", "URGENCY_Smith")


def with_the_name_everywhere(person: str, number: int) -> str:
    """A lead that has it as the name of fields, once and twice, at every depth, and as its
    enumerations' members.
    """
    odd: Row = {
        "intent": person,
        "consumerSituation": person,
        "leadSource": person,
        "urgency": person,
    }
    details = f'{{"id":"1","{person}":[1],"propertyType":"{person}","pricing":{{"rentFrequency":"{person}"}}}}'
    contact = {"email": "ann@example.org", person: {person: 1}}
    return (
        json.dumps({"id": f"{PEOPLE.index(person)}-{number}", **odd, "contact": contact})[:-1]
        + f',"{person}":1,"{person}":2,"listingDetails":{details},"propertyDetails":{details}'
        + f',"viewingTimes":[{{"{person}":{{"a":1}}}},{{"{person}":1,"{person}":2}}]}}'
    )


def test_what_one_person_has_sent_is_shown_in_no_drift_no_mart_and_no_report(house: House) -> None:
    for kind in ("applicant", "appraisal"):
        house.land(
            kind,
            [with_the_name_everywhere(person, number) for person in PEOPLE for number in range(9)],
        )
    house.publish()

    of_leads = {table for kind in LEAD_KINDS for table in kind.tables}
    others = {table: rows for table, rows in house.tables().items() if table not in of_leads}
    assert not re.search("(?i)smith", str(others))
    assert house.query("select distinct source from mart_leads_daily") == [("…",)]
    assert not re.search("(?i)ann_?smith|smith@", house.report())


def test_a_value_that_python_can_hardly_hold_costs_no_publication(house: House) -> None:
    nested = '{"a":' * 900 + "1" + "}" * 900
    values = ["1e400", "-1.5E+9999999999", "9" * 5000, nested]
    members = ",".join(f'"new{number}": {value}' for number, value in enumerate(values))
    leads = [f'{{"id":"{n}","contact":{{"email":"{n}@x.example"}},{members}}}' for n in range(3)]
    house.land("applicant", leads)
    house.publish()

    assert len(house.leads("applicant")) == 3
