"""Leads at awkward moments, from the portal's socket to an analyst's query: the area "time".

Belongs here: that each is in the warehouse once, on its day. Doesn't: windows by themselves (test_window.py), how one
moment is read (test_flatten.py).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.client import LeadsClient, Timing
from leads_pipeline.contract import APPLICANT, LEAD_KINDS, Answer, LeadKind
from leads_pipeline.lake import Lake
from leads_pipeline.resources import DataFolder, LeadsService
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window, day_interval, days
from leads_pipeline_tests.support.small_portal import CLIENT_ID, SmallPortal, served
from leads_pipeline_tests.support.staging import DAY, LONDON, stage

BRANCH = Scope.parse("branch-101")
SECOND = timedelta(seconds=1)


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


class Portal(SmallPortal):
    """Answers a request for a window with the leads from its first to its last moment, both included."""

    def __init__(self, leads: Sequence[Lead]) -> None:
        super().__init__("secret", self._answer)
        self.windows: set[tuple[datetime, datetime]] = set()
        self.given_out: list[str] = []
        self._leads = leads

    def _answer(self, path: str, parameters: dict[str, str]) -> tuple[int, bytes]:
        start, end = (datetime.fromisoformat(parameters[name]) for name in ("from-time", "to-time"))
        answered = [lead for lead in self._leads if start <= lead.moment <= end]
        self.windows.add((start, end))
        self.given_out += [lead.id for lead in answered]
        body = [{"id": lead.id, "createdAt": lead.created_at} for lead in answered]
        return 200, json.dumps({path.strip("/").removesuffix("-leads") + "s": body}).encode()


def whole_way(portal: Portal, folder: Path, day: date, kind: LeadKind = APPLICANT) -> Found:
    """Pull, land, flatten and publish that day, the one before and the one after; every lead that an analyst finds."""
    pulled = list(days(day - timedelta(days=1), day + timedelta(days=1)))
    windows = [Window.of(one, BRANCH, LONDON) for one in pulled]
    now = windows[-1].end + timedelta(hours=6)
    data = DataFolder(path=str(folder))
    service = LeadsService(
        data=data,
        base_url=portal.base_url,
        auth_url=portal.base_url,
        client_id=CLIENT_ID,
        client_secret="secret",
        audience=portal.base_url,
    )
    client = LeadsClient(portal.base_url, service.auth(), max_concurrency=2, timing=Timing(now=lambda: now))
    lake = Lake(folder)
    for window, answer in client.fetch_windows(kind, windows):
        assert isinstance(answer, Answer), answer
        assert lake.land(answer, "run").path.parts[-3] == f"day={window.day}"
    for one in pulled:
        stage(lake, kind, one)
    warehouse = Warehouse(lake)
    warehouse.publish(Grid((BRANCH,), pulled[0], LONDON), now)
    _, rows = warehouse.query(f"select lead_id, lead_day, created_at from {kind.table}")  # noqa: S608 - our own name
    found = {lead_id: (lead_day, created_at) for lead_id, lead_day, created_at in rows}
    assert len(found) == len(rows)
    _, by_day = warehouse.query("select lead_day, sum(leads)::bigint from mart_leads_daily group by lead_day")
    assert sum(leads for _, leads in by_day) == len(rows)
    return found


FRACTIONS = [timedelta(), timedelta(microseconds=1), timedelta(milliseconds=1), timedelta(seconds=1)]


@pytest.mark.parametrize("kind", LEAD_KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("day", "hours"),
    [
        pytest.param(DAY, 24, id="winter"),
        pytest.param(date(2026, 7, 15), 24, id="summer"),
        pytest.param(date(2026, 3, 29), 23, id="spring forward"),
        pytest.param(date(2026, 10, 25), 25, id="fall back"),
    ],
)
def test_each_lead_of_a_day_is_there_once_and_on_its_day_to_the_microsecond(
    tmp_path: Path, day: date, hours: int, kind: LeadKind
) -> None:
    start, end = day_interval(day, LONDON)
    assert end - start == timedelta(hours=hours)
    around = [edge + sign * fraction for edge in (start, end) for fraction in FRACTIONS for sign in (-1, 1)]
    within = [start + timedelta(minutes=30 * number) for number in range(2 * hours)]
    moments = sorted({*around, *within})
    leads = [Lead(moment, moment.isoformat().replace("+00:00", "Z")) for moment in moments]
    with served(Portal(leads)) as portal:
        assert isinstance(portal, Portal)
        found = whole_way(portal, tmp_path / "data", day, kind)

    assert found == {lead.id: (lead.moment.astimezone(LONDON).date(), lead.moment) for lead in leads}
    assert sum(lead_day == day for lead_day, _ in found.values()) == 2 * hours + 6
    assert (start, end) in portal.windows
    assert len(portal.given_out) == len(leads) + 2, "at each midnight one lead is in two answers"


# Leads of the days around DAY: createdAt, when the portal got them, and the moment that createdAt means. Their day is
# that of the moment, or that of the window if createdAt means none.
MIDNIGHT = datetime(2026, 11, 19, tzinfo=UTC)
WRITTEN = [
    ("2026-11-18T23:59:60Z", MIDNIGHT, MIDNIGHT),
    ("2026-11-18T23:59:60Z", MIDNIGHT - SECOND, MIDNIGHT),
    ("2026-11-18T23:59:60.5Z", MIDNIGHT + SECOND / 2, MIDNIGHT + SECOND / 2),
    ("2026-11-19T23:59:60Z", MIDNIGHT + timedelta(days=1), MIDNIGHT + timedelta(days=1)),
    ("2026-11-19T00:00Z", MIDNIGHT, MIDNIGHT),
    ("2026-11-18T23:59Z", MIDNIGHT - 60 * SECOND, MIDNIGHT - 60 * SECOND),
    ("2026-11-18T23:59Z", MIDNIGHT - SECOND, MIDNIGHT - 60 * SECOND),
    ("0001-01-01T00:00Z", MIDNIGHT + 60 * SECOND, None),
    ("0001-01-01T00:00:00Z", MIDNIGHT - 60 * SECOND, None),
    ("2026-11-19T00:00:00+00:00", MIDNIGHT, MIDNIGHT),
    ("2026-11-19T00:30:00+01:00", MIDNIGHT - 1800 * SECOND, MIDNIGHT - 1800 * SECOND),
    ("2026-11-18T23:30:00-01:00", MIDNIGHT + 1800 * SECOND, MIDNIGHT + 1800 * SECOND),
    ("2026-11-19T05:30:00+0530", MIDNIGHT, MIDNIGHT),
    ("2026-11-19T13:59:59.999+14:00", MIDNIGHT - SECOND / 1000, MIDNIGHT - SECOND / 1000),
    ("2026-11-18T23:59:59.999999999Z", MIDNIGHT - SECOND / 10**6, MIDNIGHT - SECOND / 10**6),
]


def test_a_moment_however_written_puts_its_lead_on_its_day_once(tmp_path: Path) -> None:
    leads = {Lead(moment, text): meant for text, moment, meant in WRITTEN}
    with served(Portal(list(leads))) as portal:
        assert isinstance(portal, Portal)
        found = whole_way(portal, tmp_path / "data", DAY)

    assert found == {lead.id: ((meant or lead.moment).date(), meant) for lead, meant in leads.items()}
    assert set(portal.given_out) == set(found)


def test_an_unknown_moment_at_midnight_is_one_lead_on_either_of_the_two_days(tmp_path: Path) -> None:
    lead = Lead(MIDNIGHT, "0001-01-01T00:00Z")
    with served(Portal([lead])) as portal:
        assert isinstance(portal, Portal)
        found = whole_way(portal, tmp_path / "data", DAY)

    assert portal.given_out == [lead.id] * 2
    ((lead_day, created_at),) = found.values()
    assert lead_day in (DAY - timedelta(days=1), DAY)
    assert created_at is None
