"""Every lead of the portal is published once, as last received, by commands and by `serve`, also
beside a branch that is refused and a file that rots.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline_tests.promises.ledger import KINDS, Lead, Portal, Version, day_interval, served
from leads_pipeline_tests.promises.machine import Clock, Machine, needs_faketime

pytestmark = [pytest.mark.slow, needs_faketime]

LONDON = ZoneInfo("Europe/London")
# The clocks are set back on the first of these days, which has 25 hours.
DAYS = (date(2025, 10, 26), date(2025, 10, 27), date(2025, 10, 28))
MORNING = datetime(2025, 10, 29, 7, tzinfo=UTC)
BRANCHES = ("101", "102")
LAST_DAY = ("backfill", "--from", str(DAYS[-1]), "--to", str(DAYS[-1]))


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


def lead(id_: str, kind: str, branch: str, created_at: datetime) -> Lead:
    return Lead(id_, kind, (Version(created_at, branch, created_at, "A"),))


def changed(lead: Lead, **changes: Any) -> Lead:
    """The lead with a newer version, from two hours after MORNING on."""
    [first] = lead.versions
    newer = replace(first, since=MORNING + timedelta(hours=2), **changes)
    return replace(lead, versions=(first, newer))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock", MORNING)


@pytest.fixture
def portal(clock: Clock) -> Portal:
    return Portal(leads(), clock.now)


@pytest.fixture
def machine(tmp_path: Path, clock: Clock, portal: Portal) -> Iterator[Machine]:
    machine = Machine(tmp_path, clock)
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


def assert_published_as_received(machine: Machine, portal: Portal) -> None:
    for kind in KINDS:
        assert machine.published(kind) == portal.received(kind)


def created_by(portal: Portal, moment: datetime) -> set[str]:
    return {one.id for one in portal.leads if one.versions[0].created_at <= moment}


def received(portal: Portal) -> set[str]:
    return {id_ for kind in KINDS for id_ in portal.received(kind)}


def test_commands_publish_every_lead_once_as_last_received(
    machine: Machine, portal: Portal
) -> None:
    backfill = ("backfill", "--from", str(DAYS[0]), "--to", str(DAYS[-1]))
    assert machine.command(*backfill) == 0
    assert received(portal) == created_by(portal, day_interval(DAYS[-1], LONDON)[1])
    assert_published_as_received(machine, portal)

    # The portal corrects a lead, moves one to another branch and one to another day, adds one, and
    # delivers two.
    first, second, third, *others = portal.leads
    late = lead("late", "appraisal", "102", datetime(2025, 10, 27, 12, tzinfo=UTC))
    pushed = lead("pushed", "applicant", "101", datetime(2025, 10, 29, 8, tzinfo=UTC))
    corrected = changed(first, text="BB")
    moved = changed(second, branch="102")
    of_another_day = changed(third, created_at=datetime(2025, 10, 28, 12, tzinfo=UTC))
    portal.leads = [corrected, moved, of_another_day, *others, late]
    machine.clock.move_to(MORNING + timedelta(hours=3))
    portal.push(pushed, machine.push)
    portal.push(corrected, machine.push)
    assert machine.command(*backfill) == 0
    assert {"late", "pushed"} <= received(portal)
    assert_published_as_received(machine, portal)

    # A backfill without news changes nothing.
    assert machine.command(*backfill) == 0
    assert_published_as_received(machine, portal)


def test_a_branch_that_the_portal_refuses_costs_no_other_branch_a_lead_and_is_pulled_again(
    machine: Machine, portal: Portal
) -> None:
    portal.refused = {"102": 403}

    assert machine.command(*LAST_DAY) == 1
    assert {branch for _, branch, _ in machine.published("applicant").values()} == {"101"}
    assert_published_as_received(machine, portal)

    portal.refused = {}
    assert machine.command(*LAST_DAY) == 0
    assert {branch for _, branch, _ in machine.published("applicant").values()} == {*BRANCHES}
    assert_published_as_received(machine, portal)


def test_a_raw_file_that_rots_is_found_and_its_leads_stay_published(
    machine: Machine, portal: Portal
) -> None:
    assert machine.command(*LAST_DAY) == 0
    [file, *_] = (machine.data / "raw" / "applicant_leads").rglob("*.parquet")
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-1])

    code, told = machine.said("verify")

    assert code == 1
    assert file.name in told
    assert_published_as_received(machine, portal)

    # The window is pulled again.
    assert machine.command(*LAST_DAY) == 0
    assert machine.command("verify") == 0
    assert_published_as_received(machine, portal)


def test_serve_alone_publishes_every_lead(machine: Machine, portal: Portal) -> None:
    # A day is enough, as each pull, staging and publication is a process of its own here.
    begin, midnight = day_interval(DAYS[-1], LONDON)
    portal.leads = [one for one in portal.leads if one.versions[0].created_at >= begin]
    machine.settings["LEADS_START_DATE"] = str(DAYS[-1])
    wanted = created_by(portal, midnight)

    with machine.serving():
        machine.wait_for(
            lambda: wanted <= {id_ for kind in KINDS for id_ in machine.published(kind)}
        )

    assert_published_as_received(machine, portal)
