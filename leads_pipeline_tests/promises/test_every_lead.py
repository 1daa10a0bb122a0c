"""Every lead of the portal is published once, as last received: by commands, by Dagster's loops,
and by `serve`.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline_tests.promises.ledger import KINDS, Lead, Portal, Version, day_interval, served
from leads_pipeline_tests.promises.machine import Clock, Machine, needs_faketime

pytestmark = [pytest.mark.slow, needs_faketime]

LONDON = ZoneInfo("Europe/London")
# The clocks are set back on the first of these days, which has 25 hours.
DAYS = (date(2025, 10, 26), date(2025, 10, 27), date(2025, 10, 28))
MORNING = datetime(2025, 10, 29, 7, tzinfo=UTC)
BRANCHES = ("101", "102")


def leads() -> list[Lead]:
    """Of both kinds, for each branch and day: one of midnight and one of each sixth hour."""
    return [
        lead(
            f"{kind}-{branch}-{day:%d}-{hours}",
            kind,
            branch,
            day_interval(day, LONDON)[0] + timedelta(hours=hours),
        )
        for kind in KINDS
        for branch in BRANCHES
        for day in (*DAYS, MORNING.date())
        for hours in range(0, 24, 6)
    ]


def lead(id_: str, kind: str, branch: str, created_at: datetime, *pushed_at: datetime) -> Lead:
    return Lead(id_, kind, (Version(created_at, branch, created_at, "A"),), pushed_at)


def changed(
    lead: Lead, *, text: str = "A", branch: str | None = None, created_at: datetime | None = None
) -> Lead:
    """The lead with a newer version, from two hours after MORNING on."""
    first = lead.versions[0]
    newer = Version(
        MORNING + timedelta(hours=2), branch or first.branch, created_at or first.created_at, text
    )
    return replace(lead, versions=(first, newer))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock", MORNING)


@pytest.fixture
def portal(clock: Clock) -> Portal:
    return Portal(leads(), clock.now)


@pytest.fixture
def machine(tmp_path: Path, clock: Clock, portal: Portal) -> Iterator[Machine]:
    machine = Machine(tmp_path, clock, {})
    with served(portal) as address:
        machine.configure(
            address,
            portal.secret,
            LEADS_BRANCH_IDS=",".join(BRANCHES),
            LEADS_TIMEZONE=LONDON.key,
            LEADS_START_DATE=str(DAYS[0]),
        )
        yield machine
        machine.stop()


def published(machine: Machine, kind: str) -> dict[str, tuple[str, str, datetime]]:
    """What an analyst finds of the kind: each lead once."""
    if not (machine.data / "leads.duckdb").exists():
        return {}
    with duckdb.connect(str(machine.data / "leads.duckdb"), read_only=True) as db:
        db.execute("set TimeZone = 'UTC'")
        rows = db.sql(
            f"select lead_id, message, portal_branch_id, created_at from {kind}_leads"  # noqa: S608
        ).fetchall()
    found = {id_: tuple(version) for id_, *version in rows}
    assert len(found) == len(rows)
    return found


def assert_published_as_received(machine: Machine, portal: Portal) -> None:
    for kind in KINDS:
        assert published(machine, kind) == portal.received(kind)


def test_commands_publish_every_lead_once_as_last_received(
    machine: Machine, portal: Portal
) -> None:
    closed = ["--from", str(DAYS[0]), "--to", str(DAYS[-1])]
    assert machine.command("backfill", *closed) == 0
    in_days = {
        one.id
        for one in portal.leads
        if one.versions[0].created_at <= day_interval(DAYS[-1], LONDON)[1]
    }
    assert in_days == {id_ for kind in KINDS for id_ in portal.received(kind)}
    assert_published_as_received(machine, portal)

    # The portal corrects a lead, moves one to another branch and one to another day, adds one, and
    # delivers two.
    first, second, third, *others = portal.leads
    late = lead("late", "appraisal", "102", datetime(2025, 10, 27, 12, tzinfo=UTC))
    pushed = lead("pushed", "applicant", "101", datetime(2025, 10, 29, 8, tzinfo=UTC))
    portal.leads = [
        changed(first, text="BB"),
        changed(second, branch="102"),
        changed(third, created_at=datetime(2025, 10, 28, 12, tzinfo=UTC)),
        *others,
        late,
    ]
    machine.clock.move_to(MORNING + timedelta(hours=3))
    for one in (pushed, portal.leads[0]):
        portal.push(one, machine.push)
    assert machine.command("backfill", *closed) == 0
    assert {"late", "pushed"} <= portal.received("appraisal").keys() | portal.received(
        "applicant"
    ).keys()
    assert_published_as_received(machine, portal)

    # A backfill without news changes nothing.
    assert machine.command("backfill", *closed) == 0
    assert_published_as_received(machine, portal)


def all_are_published(machine: Machine, portal: Portal, until: datetime, *branches: str) -> bool:
    """Whether each lead that was made by then, and is of one of the branches, is there."""
    wanted = {
        (one.kind, one.id)
        for one in portal.leads
        if (now := one.versions[-1]).created_at <= until and now.branch in branches
    }
    return wanted <= {(kind, id_) for kind in KINDS for id_ in published(machine, kind)}


def test_the_daemon_publishes_every_lead_and_retries_what_failed(
    machine: Machine, portal: Portal
) -> None:
    midnight = day_interval(DAYS[-1], LONDON)[1]
    portal.refused["102"] = 500
    machine.tick()
    assert all_are_published(machine, portal, midnight, "101")
    assert not any(
        branch == "102" for kind in KINDS for _, branch, _ in published(machine, kind).values()
    )

    portal.refused.clear()
    machine.work_for(timedelta(minutes=20))
    assert all_are_published(machine, portal, midnight, *BRANCHES)
    assert_published_as_received(machine, portal)

    # The day under way is pulled after its end.
    midnight = day_interval(MORNING.date(), LONDON)[1]
    machine.clock.move_to(midnight + timedelta(hours=1, minutes=16))
    machine.tick()
    assert all_are_published(machine, portal, midnight, *BRANCHES)
    assert_published_as_received(machine, portal)


def test_serve_alone_publishes_every_lead(machine: Machine, portal: Portal) -> None:
    # A day is enough, as each pull, staging and publication is a process of its own here.
    begin, midnight = day_interval(DAYS[-1], LONDON)
    portal.leads = [one for one in portal.leads if one.versions[0].created_at >= begin]
    machine.settings["LEADS_START_DATE"] = str(DAYS[-1])
    with machine.serving():
        machine.wait_for(lambda: all_are_published(machine, portal, midnight, *BRANCHES))
    assert_published_as_received(machine, portal)
