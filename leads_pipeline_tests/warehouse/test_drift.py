"""Drift as one select: what the portal sends and the contract doesn't know, from three people on."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from leads_pipeline.warehouse.drift import DRIFT_DAYS, FindDrift
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, NOW, House
from leads_pipeline_tests.support.publications import Folder

Row = dict[str, Any]

TODAY = NOW.date()


def drift(folder: Folder) -> list[tuple[Any, ...]]:
    """The table, after a publication."""
    replace(folder, others=FindDrift(TODAY)).publish()
    return folder.query("select * exclude (kind) from drift")


def from_people(people: str, *leads: Row) -> list[Row]:
    """Each lead once from each of these people."""
    found = []
    for number, lead in enumerate(leads):
        for person in people:
            contact = {"email": f"{person}@x.example", **lead.get("contact", {})}
            found.append({**lead, "id": f"{number} {person}", "contact": contact})
    return found


def test_what_is_new_or_does_not_fit_is_named_with_its_days_and_leads(folder: Folder) -> None:
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
    again = [lead | {"id": f"again {lead['id']}"} for lead in leads[:3]]
    folder.raw.land(*leads)
    folder.raw.land(*again, day=NEXT_DAY)

    assert drift(folder) == [
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


def test_what_two_people_have_sent_is_not_named(folder: Folder) -> None:
    times = [{"y": 1}, {"y": 2}, {"y": 3}]
    odd = {"Ann_Smith": 1, "leadSource": "ann", "contact": {"x": 1}, "viewingTimes": times}
    folder.raw.land(*from_people("ab", odd, odd, odd))

    assert drift(folder) == []


def test_what_is_declared_old_or_no_name_in_a_program_is_not_named(folder: Folder) -> None:
    """Nor what people have sent whom retention made anonymous: each is another one there."""
    declared = {"enquiryType": "", "intent": None, "contact": {"preferences": None}}
    leads = from_people("abc", {"Ann Smith": 1, "ann@x.example": 1, "ok": 1, **declared})
    for number in range(3):
        anonymous = f"00000000-0000-0000-0000-00000000000{number}@removed.invalid"
        leads.append({"id": anonymous, "contact": {"email": anonymous}, "cut": 1})
    folder.raw.land(*leads)
    old_day = TODAY - timedelta(days=DRIFT_DAYS + 1)
    folder.raw.land(*from_people("def", {"old": 1}), day=old_day)

    assert [row[1] for row in drift(folder)] == ["ok"]


def test_a_value_that_python_can_hardly_hold_costs_no_publication(house: House) -> None:
    nested = '{"a":' * 900 + "1" + "}" * 900
    values = ["1e400", "-1.5E+9999999999", "9" * 5000, nested]
    members = ",".join(f'"new{number}": {value}' for number, value in enumerate(values))
    leads = [f'{{"id":"{n}","contact":{{"email":"{n}@x.example"}},{members}}}' for n in range(3)]
    house.land("applicant", leads)
    house.publish()

    assert len(house.leads("applicant")) == 3
