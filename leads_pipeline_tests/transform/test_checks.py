"""The checks of what is usual, each seen passing and failing on published leads."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline_tests.support.house import House, Quick

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
            "intent": "INTENT",
            "enquiryType": "ENQUIRY_TYPE_SALES",
            **changes,
        }


def land(house: House, ago: int, **changes: Any) -> None:
    """Both branches' leads of that day and kind come, as the night after the day brings them."""
    day = TODAY - timedelta(days=ago)
    house.now = datetime(day.year, day.month, day.day, 2, tzinfo=UTC) + timedelta(days=1)
    for kind in KINDS:
        for scope in house.scopes:
            house.land(kind, usual_leads(scope, ago, **changes), day, scope)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    """Nine weeks of two branches and both kinds, up to the day before yesterday."""
    house = Quick(tmp_path_factory.mktemp("usual") / "data")
    house.first_day = TODAY - timedelta(days=63)
    for ago in range(63, 1, -1):
        land(house, ago)
    house.now = NOW
    house.publish()
    return house


@pytest.fixture
def house(usual: Quick, tmp_path: Path) -> Quick:
    """The usual days, to go on from."""
    return usual.copied(tmp_path / "data")


def failing(house: Quick) -> dict[str, str]:
    house.now = max(NOW, house.now)
    house.publish()
    return house.failing_checks()


def test_usual_days_pass_also_with_a_field_that_is_always_empty(house: Quick) -> None:
    land(house, 1)

    assert failing(house) == {}


def test_an_empty_folder_passes_all_but_freshness(tmp_path: Path) -> None:
    empty = Quick(tmp_path / "data")
    empty.first_day = TODAY - timedelta(days=63)

    assert list(failing(empty)) == ["mart_coverage: every_branch_is_fresh"]


def test_a_field_that_is_suddenly_empty_fails_whatever_odd_dates_there_are(house: Quick) -> None:
    for ago in (3, 2, 1):
        land(house, ago, contact={"phoneNumber": "07700 900123"})
    house.land("appraisal", [{"id": "odd", "createdAt": "2027-11-18T10:00:00Z"}], YESTERDAY)

    found = failing(house)

    assert found.keys() == {f"{kind}_leads: key_fields_are_filled_as_usual" for kind in KINDS}
    assert all("contact_email: empty in 4" in said for said in found.values())


def test_a_branch_that_suddenly_has_none_or_many_times_its_leads_fails(house: Quick) -> None:
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


def test_a_branch_whose_newest_day_is_older_than_two_days_fails(house: Quick) -> None:
    assert failing(house) == {}

    house.later(days=1)

    [(check, said)] = failing(house).items()
    assert check == "mart_coverage: every_branch_is_fresh"
    assert said.count("2026-11-19") == 4
