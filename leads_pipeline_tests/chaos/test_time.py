"""Leads at awkward moments, from the portal's answers to an analyst's query: each is there once, on
its day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from pathlib import Path

import pytest

from leads_pipeline_tests.support.house import DAY, LONDON, House

ONE_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Lead:
    """A lead that the portal got at `moment` and gives out with `created_at`, as its text."""

    moment: datetime
    created_at: str

    @property
    def id(self) -> str:
        return f"{self.created_at} at {self.moment.isoformat()}"


# What an analyst finds: the lead's day and moment, by its id.
Found = dict[str, tuple[date, datetime | None]]


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), LONDON).astimezone(UTC)


def published(house: House, leads: Sequence[Lead], day: date) -> Found:
    """Publish that day, the one before and the one after; every lead that an analyst finds.

    The portal answers a window with the leads from its first to its last moment, both included.
    """
    house.first_day = day - ONE_DAY
    house.now = midnight(day + 2 * ONE_DAY) + timedelta(hours=6)
    for one in (day - ONE_DAY, day, day + ONE_DAY):
        answer = [
            {"id": lead.id, "createdAt": lead.created_at}
            for lead in leads
            if midnight(one) <= lead.moment <= midnight(one + ONE_DAY)
        ]
        house.land("applicant", answer, one)
    house.publish()
    found = house.leads("applicant")
    assert house.query("select sum(leads)::bigint from mart_leads_daily") == [(len(found),)]
    return {id_: (lead["lead_day"], lead["created_at"]) for id_, lead in found.items()}


FRACTIONS = [timedelta(), timedelta(microseconds=1), timedelta(seconds=1)]


@pytest.mark.parametrize(
    ("day", "hours"),
    [(DAY, 24), (date(2026, 3, 29), 23), (date(2026, 10, 25), 25)],
    ids=["winter", "spring forward", "fall back"],
)
def test_each_lead_of_a_day_is_there_once_and_on_its_day_to_the_microsecond(
    house: House, day: date, hours: int
) -> None:
    start = midnight(day)
    end = midnight(day + ONE_DAY)
    assert end - start == timedelta(hours=hours)
    moments = {start + timedelta(minutes=30 * number) for number in range(2 * hours)}
    for edge, fraction in product((start, end), FRACTIONS):
        moments |= {edge - fraction, edge + fraction}
    leads = [Lead(moment, moment.isoformat().replace("+00:00", "Z")) for moment in sorted(moments)]

    found = published(house, leads, day)

    for lead in leads:
        assert found.pop(lead.id) == (lead.moment.astimezone(LONDON).date(), lead.moment)
    assert found == {}


def test_an_unknown_moment_at_midnight_is_one_lead_on_either_of_the_two_days(house: House) -> None:
    found = published(house, [Lead(midnight(DAY), "0001-01-01T00:00Z")], DAY)

    ((lead_day, created_at),) = found.values()
    assert lead_day in (DAY - ONE_DAY, DAY)
    assert created_at is None


def test_a_clock_that_was_a_year_ahead_for_an_hour_leaves_no_trace(tmp_path: Path) -> None:
    """A pull, a failure and a publication happen in that hour.

    Afterwards all is as if the clock had been right.
    """
    right = House(tmp_path / "right")
    wrong = House(tmp_path / "wrong")
    for house in (right, wrong):
        house.land("applicant", [{"id": "known", "message": "first"}])
        house.publish()
        house.later(hours=1)
        if house is wrong:
            house.later(days=365)
        house.land("applicant", [{"id": "known", "message": "second"}, {"id": "new"}])
        house.fail("appraisal")
        house.publish()
        if house is wrong:
            house.later(days=-365)
        house.later(hours=1)
        house.land("applicant", [{"id": "known", "message": "third"}])
        house.land("appraisal", [{"id": "late"}])
        house.publish()
    assert wrong.leads("applicant")["known"]["message"] == "third"
    assert wrong.tables() == right.tables()
