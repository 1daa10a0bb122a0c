"""The checks of sql/checks/, each seen passing and failing on published leads."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
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
    """Seven to thirteen leads, as many on each Monday and so on.

    An appraisal never says its source.
    """
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
    """Both branches' leads of that day and kind come, as the next night brings them; changed ones
    an hour later.
    """
    day = TODAY - timedelta(days=ago)
    next_night = datetime.combine(day, time(2), UTC) + timedelta(days=1)
    house.now = next_night + timedelta(hours=1) if changes else next_night
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


def test_usual_days_pass_also_with_an_empty_field_and_a_new_member(house: House) -> None:
    """Fault 87: the member is a hint, and no check warns of it."""
    land(house, 1)
    house.land("appraisal", usual_leads("branch-101", 1, urgency="URGENCY_TODAY"), YESTERDAY)

    assert failing(house) == {}
    assert house.query("select change, value from drift") == [("new member", "URGENCY_TODAY")]


def test_a_field_that_is_suddenly_empty_fails_whatever_odd_dates_there_are(house: House) -> None:
    for ago in (3, 2, 1):
        land(house, ago, contact={"phoneNumber": "07700 900123"})
    house.land("appraisal", [{"id": "odd", "createdAt": "2027-11-18T10:00:00Z"}], YESTERDAY)

    found = failing(house)

    assert found.keys() == {f"{kind}_leads: key_fields_are_filled_as_usual" for kind in KINDS}
    assert all("contact_email: empty in 4" in said for said in found.values())


def test_a_branch_that_suddenly_has_none_or_many_times_its_leads_fails(house: House) -> None:
    house.now = NOW
    house.land("applicant", [{"id": str(n)} for n in range(45)], YESTERDAY, "branch-101")
    house.land("applicant", [], YESTERDAY, "branch-102")
    for scope in house.scopes:
        house.land("appraisal", usual_leads(scope, 1), YESTERDAY, scope)

    said = failing(house)["mart_leads_daily: volumes_are_as_usual"]

    assert "applicant 2026-11-20|branch-101: 45 leads" in said
    assert "applicant 2026-11-20|branch-102: 0 leads" in said
    assert "appraisal" not in said


def test_a_lead_that_is_there_twice_is_an_error(house: House) -> None:
    file = house.file.resolve()
    file.chmod(0o600)
    with duckdb.connect(file) as db:
        db.execute("insert into appraisal_leads from appraisal_leads limit 1")

    assert "appraisal_leads: lead_ids_are_unique" in house.failing_checks()
    errors = {(check.name, check.table) for check in checks() if check.is_error}
    assert errors == {("lead_ids_are_unique", f"{kind}_leads") for kind in KINDS}


def test_a_branch_whose_newest_day_is_older_than_two_days_fails(house: House) -> None:
    house.later(days=1)

    assert failing(house).keys() == {"mart_coverage: every_branch_is_fresh"}
