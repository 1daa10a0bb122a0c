"""The checks of sql/checks/, each seen passing and failing on published leads."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.warehouse.checks import checks
from leads_pipeline_tests.support.house import House

TODAY = date(2026, 11, 21)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
YESTERDAY = TODAY - timedelta(days=1)
KINDS = ("applicant", "appraisal")


def usual_leads(scope: str, ago: int, **changes: Any) -> Iterator[dict[str, Any]]:
    """Seven to thirteen leads, as many on each Monday and so on. An appraisal never says its source."""
    day = TODAY - timedelta(days=ago)
    for number in range(7 + ago * 5 % 7):
        yield {
            "id": f"{scope} {day} {number}",
            "createdAt": f"{day}T10:00:00Z",
            "contact": {"email": f"{number}@example.org", "phoneNumber": "07700 900123"},
            "intent": "APPLICANT_INTENT_BUY",
            "enquiryType": "ENQUIRY_TYPE_SALES",
            **changes,
        }


def land(house: House, ago: int, **changes: Any) -> None:
    """Both branches' leads of that day and kind come, as the next night brings them; changed ones an hour later."""
    day = TODAY - timedelta(days=ago)
    house.now = datetime(day.year, day.month, day.day, 3 if changes else 2, tzinfo=UTC) + timedelta(days=1)
    for kind in KINDS:
        for scope in house.scopes:
            house.land(kind, usual_leads(scope, ago, **changes), day, scope)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Nine weeks of two branches and both kinds, up to the day before yesterday."""
    house = House(tmp_path_factory.mktemp("usual") / "data")
    house.first_day = TODAY - timedelta(days=63)
    for ago in range(63, 1, -1):
        land(house, ago)
    house.now = NOW
    house.publish()
    return house


@pytest.fixture
def house(usual: House, tmp_path: Path) -> House:
    """The usual days, to go on from."""
    return usual.copied(tmp_path / "data")


def failing(house: House) -> dict[str, str]:
    house.now = max(NOW, house.now)
    house.publish()
    return house.failing_checks()


def test_usual_days_pass_also_with_a_field_that_is_always_empty(house: House) -> None:
    land(house, 1)

    assert failing(house) == {}


def test_an_empty_folder_passes_all_but_freshness(tmp_path: Path) -> None:
    empty = House(tmp_path / "data")
    empty.first_day = TODAY - timedelta(days=63)

    assert list(failing(empty)) == ["mart_coverage: every_branch_is_fresh"]


def test_a_field_that_is_suddenly_empty_fails_whatever_odd_dates_there_are(house: House) -> None:
    for ago in (3, 2, 1):
        land(house, ago, contact={"phoneNumber": "07700 900123"})
    house.land("appraisal", [{"id": "odd", "createdAt": "2027-11-18T10:00:00Z"}], YESTERDAY)

    found = failing(house)

    assert found.keys() == {f"{kind}_leads: key_fields_are_filled_as_usual" for kind in KINDS}
    assert all("contact_email: empty in 4" in said for said in found.values())


def test_a_branch_that_suddenly_has_none_or_many_times_its_leads_fails(house: House) -> None:
    house.now = NOW
    for scope, count in (("branch-101", 45), ("branch-102", 0)):
        house.land("applicant", [{"id": str(n)} for n in range(count)], YESTERDAY, scope)
        house.land("appraisal", usual_leads(scope, 1), YESTERDAY, scope)

    said = failing(house)["mart_leads_daily: volumes_are_as_usual"]

    assert {("branch-101", "45 leads"), ("branch-102", "0 leads")} == {
        (scope, leads)
        for line in said.splitlines()
        for scope in house.scopes
        for leads in ("45 leads", "0 leads")
        if "applicant" in line and scope in line and leads in line
    }
    assert "appraisal" not in said


def test_a_volume_is_compared_with_the_same_weekday_alone(tmp_path: Path) -> None:
    """A branch that has forty leads a day and none on Fridays; the newest day is one."""
    house = House(tmp_path / "data")
    house.first_day = TODAY - timedelta(days=63)
    for ago in range(63, 0, -1):
        day = TODAY - timedelta(days=ago)
        house.now = datetime(day.year, day.month, day.day, 2, tzinfo=UTC) + timedelta(days=1)
        for kind in KINDS:
            count = 40 if day.isoweekday() != 5 or (ago == 1 and kind == "appraisal") else 6 + ago % 2
            leads = [{"id": f"{ago} {number}", "createdAt": f"{day}T10:00:00Z"} for number in range(count)]
            for scope in house.scopes:
                house.land(kind, leads if scope == "branch-101" else [], day, scope)

    assert failing(house) == {
        "mart_leads_daily: volumes_are_as_usual": "appraisal 2026-11-20|branch-101: 40 leads, usually 6 on that weekday"
    }


def harmed(house: House, *statements: str) -> dict[str, str]:
    """What the checks say of a file to which this was done."""
    assert failing(house) == {}
    file = house.file.resolve()
    file.chmod(0o600)
    with duckdb.connect(file) as db:
        for statement in statements:
            db.execute(statement)
    return house.failing_checks()


def test_a_lead_that_is_there_twice_is_an_error(house: House) -> None:
    land(house, 1)
    found = harmed(house, "insert into appraisal_leads from appraisal_leads limit 1")

    assert {name: said for name, said in found.items() if "unique" in name} == {
        "appraisal_leads: lead_ids_are_unique": "1261 rows hold 1260 leads"
    }
    assert {(check.name, check.table) for check in checks() if check.is_error} == {
        ("lead_ids_are_unique", f"{kind}_leads") for kind in KINDS
    }


def test_a_mart_that_could_not_be_made_is_named(house: House) -> None:
    land(house, 1)

    assert harmed(house, "insert into pipeline.mart_problems values ('mart_people', 'Why.')") == {
        "lead_facts: marts_are_made": "mart_people: Why."
    }


def test_changes_at_the_portal_are_named_once_three_people_sent_them(house: House) -> None:
    land(house, 1)
    more = [{"id": str(n), "contact": {"email": f"{n}@x.example", "phoneNumber": "1"}, "mood": n} for n in range(3)]
    house.land("applicant", more, TODAY)

    assert failing(house)["drift: contract_knows_what_comes"] == "applicant: new field mood, 3 leads since 2026-11-21"


def test_a_new_member_of_an_enumeration_fails_no_check(house: House) -> None:
    """Fault 87: it is a hint, and no check warns of it."""
    land(house, 1)
    more = [
        {"id": str(n), "contact": {"email": f"{n}@x.example", "phoneNumber": "1"}, "urgency": "URGENCY_TODAY"}
        for n in range(3)
    ]
    house.land("appraisal", more, TODAY)

    assert "drift: contract_knows_what_comes" not in failing(house)
    assert house.query("select change, value, leads from drift") == [("new member", "URGENCY_TODAY", 3)]


def test_answers_that_do_not_count_are_counted_by_what_is_wrong(house: House) -> None:
    land(house, 1)
    house.answers([("nobody", "2026-11-20T10:00Z"), ("", "2026-11-20T10:00Z"), ("somebody", "2026-11-20T10:00Z")])

    assert failing(house) == {"answers: answers_count": "2 rows: no such lead\n1 rows: no lead id"}


def test_a_branch_whose_newest_day_is_older_than_two_days_fails(house: House) -> None:
    assert failing(house) == {}

    house.later(days=1)

    [(check, said)] = failing(house).items()
    assert check == "mart_coverage: every_branch_is_fresh"
    assert said.count("2026-11-19") == 4
