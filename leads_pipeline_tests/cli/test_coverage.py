"""`coverage`: which windows have landed, and what of the others can still be had."""

import json
import os
import shutil
from datetime import date, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import lead_kind
from leads_pipeline.raw.names import Place
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import AT_NOON, House

NOW = datetime.now(AT_NOON)
BRANCHES = ("branch-101", "branch-102", "branch-103")


def day(days_ago: int) -> date:
    return NOW.date() - timedelta(days_ago)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A data folder of three branches, whose first day was four days ago."""
    os.environ.update(
        LEADS_BRANCH_IDS="101,102,103", LEADS_TIMEZONE=AT_NOON.key, LEADS_START_DATE=str(day(4))
    )
    house = House(tmp_path / "data")
    house.zone = AT_NOON
    house.scopes = BRANCHES
    house.first_day = day(4)
    house.now = NOW - timedelta(hours=1)
    return house


def land(house: House, *days: date) -> None:
    """Land the windows of both kinds and all branches."""
    for one, kind, branch in product(days, ("applicant", "appraisal"), BRANCHES):
        house.land(kind, [{"id": f"{kind}-{one}-{branch}"}], one, branch)


def remove(house: House, kind: str, one: date) -> None:
    shutil.rmtree(house.folder / Place(lead_kind(kind), one, "branch-102").key)


def test_each_window_that_has_not_landed_is_named_with_its_branch_and_what_to_do(
    house: House, tmp_path: Path
) -> None:
    (tmp_path / "branches.csv").write_text("id,name\n102,York\n")
    os.environ["LEADS_BRANCHES_FILE"] = str(tmp_path / "branches.csv")
    land(house, day(1), day(2), day(3), day(4))
    remove(house, "appraisal", day(4))
    for kind in ("applicant", "appraisal"):
        remove(house, kind, day(3))
        house.fail(kind, day(3), "branch-102")

    result = run("coverage", "--days", 4)
    told = json.loads(run("coverage", "--days", 4, "--json").output)

    assert result.exit_code == 1
    missing, failed = result.output.split("\n\n")[1:3]
    assert failed.startswith("2 windows failed: refused\n  The portal refused it.")
    assert f"\n  branch-102 (York): 2 applicant and appraisal windows, {day(3)}" in failed
    assert missing.startswith("1 window missing\n  The portal begins to delete its leads on ")
    assert f"`leads-pipeline backfill --from {day(4)} --to {day(3)}" in result.output
    refused = [one["partition"] for one in told["not_landed"] if one["is_refused"]]
    assert refused == [f"{day(3)}|branch-102"] * 2


def test_days_that_have_landed_and_are_not_published_are_told(house: House) -> None:
    land(house, day(1), day(2))

    result = run("coverage", "--days", 2)

    assert result.exit_code == 1
    assert f"Landed and not published yet: {day(2)}, {day(1)}." in result.output


def test_windows_that_the_portal_deletes_or_had_begun_to_delete_are_told(house: House) -> None:
    os.environ["LEADS_START_DATE"] = str(day(30))
    land(house, day(1))
    before = run("coverage", "--days", 30)
    land(house, day(30))
    after = run("coverage", "--days", 30)

    assert "\n  The portal is already deleting their leads.\n" in before.output
    deleted = "The portal had begun to delete their leads before the pull."
    assert f"6 windows partial\n  {deleted}\n" in after.output


def test_branches_that_are_not_configured_are_named(house: House) -> None:
    land(house, day(1))
    os.environ["LEADS_BRANCH_IDS"] = "101"

    said = run("coverage").output

    assert "Not in LEADS_BRANCH_IDS, so not counted: branch-102, branch-103" in said
