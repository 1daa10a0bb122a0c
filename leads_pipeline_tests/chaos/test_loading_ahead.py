"""Helpers, pulls and publications that are killed: rows are as without a helper.

`AHEAD_KILLS=50` kills at so many system calls, and `AHEAD_ROUNDS=20` tries so many moments of real
processes.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from random import Random

import pytest

from leads_pipeline.simulator.app import Config
from leads_pipeline_tests.support.ahead import (
    all_tables,
    draft_of,
    helpers_of,
    published_plainly,
)
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.installation import installation
from leads_pipeline_tests.support.newcomer import BIN, ROOT, wait_for
from leads_pipeline_tests.support.people import lead
from leads_pipeline_tests.support.system_calls import needs_seccomp, trials

KILLS = int(os.environ.get("AHEAD_KILLS", "4"))
ROUNDS = int(os.environ.get("AHEAD_ROUNDS", "2"))


# --- killed at a system call ----------------------------------------------------------------------


def land(house: House, text: str, scope: str = "branch-101", day: date = DAY) -> None:
    person = lead(f"of {scope}", email=f"{scope}@people.example", message=text)
    house.land("applicant", [person], day, scope)


def load_ahead(folder: Path) -> None:
    """A pull and its helper, in one process."""
    house = House(folder / "data")
    house.later(minutes=30)
    house.load_ahead(
        partial(land, house, "second", "branch-102"),
        partial(land, house, "third", "branch-102", NEXT_DAY),
        partial(land, house, "third"),
    )


def publish(folder: Path) -> None:
    house = House(folder / "data")
    house.later(hours=1)
    house.publish()


@pytest.fixture(scope="module", params=["first", "update"])
def before(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder before a pull: with nothing published, or with an edition."""
    folder = tmp_path_factory.mktemp(request.param)
    house = House(folder / "data")
    house.data.state.person_key()
    if request.param == "update":
        land(house, "first")
        house.publish()
    return folder


@needs_seccomp
def test_whatever_a_killed_helper_leaves_the_next_publication_is_as_any(
    before: Path, tmp_path: Path
) -> None:
    seed = os.environ["CHAOS_SEED"]
    for folder, where in trials(load_ahead, before, tmp_path, seed=seed, most=KILLS):
        house = House(folder / "data")
        house.later(hours=1)
        plainly = published_plainly(house, folder / "plain")
        house.publish()

        assert all_tables(house) == plainly, where
        assert [*draft_of(house).parent.glob("*ahead*")] == [], where


@needs_seccomp
def test_after_a_publication_that_is_killed_while_it_adopts_the_next_one_has_all_rows(
    before: Path, tmp_path: Path
) -> None:
    loaded = tmp_path / "loaded"
    shutil.copytree(before, loaded, symlinks=True)
    load_ahead(loaded)
    plain = House(loaded / "data")
    plain.later(hours=1)
    plainly = published_plainly(plain, tmp_path / "plain")

    seed = os.environ["CHAOS_SEED"]
    for folder, where in trials(publish, loaded, tmp_path, seed=seed, most=KILLS):
        publish(folder)

        house = House(folder / "data")
        assert all_tables(house) == plainly, where
        assert [*draft_of(house).parent.glob("*ahead*")] == [], where


# --- real helpers ---------------------------------------------------------------------------------


@pytest.fixture
def here(house: House) -> House:
    """A house of today, because a helper knows no other clock."""
    house.now = datetime.now(UTC)
    house.first_day = house.today
    return house


# Lands a lot while a helper runs, until it is killed.
PULL = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from leads_pipeline.features.loading_ahead.pull import WINDOWS_MIN, loading_ahead
from leads_pipeline_tests.support.ahead import land_many
from leads_pipeline_tests.support.house import House
house = House(Path(sys.argv[1]))
house.now = datetime.now(UTC)
with loading_ahead(house.settings(), WINDOWS_MIN):
    for number in range(1000):
        land_many(house, number % 4)
        print(number, flush=True)
"""


@pytest.mark.parametrize("who", ["pull", "helper"])
def test_a_helper_ends_with_its_pull_and_a_pull_goes_on_without_its_helper(
    here: House, tmp_path: Path, who: str
) -> None:
    here.data.state.person_key()
    dice = Random(f"{os.environ['CHAOS_SEED']} {who}")  # noqa: S311 - to be repeated
    for number in range(ROUNDS):
        command = [sys.executable, "-c", PULL, str(here.folder)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as pull:
            wait_for(lambda: len(helpers_of(here)) == 1)
            time.sleep(dice.uniform(0, 6))
            if who == "helper":
                os.kill(helpers_of(here)[0], signal.SIGKILL)
                assert pull.stdout
                for _ in range(3):
                    assert pull.stdout.readline()
            pull.kill()
        wait_for(lambda: helpers_of(here) == [])

        here.now = datetime.now(UTC)
        plainly = published_plainly(here, tmp_path / f"plain-{number}")
        here.publish()
        assert all_tables(here) == plainly
        assert not draft_of(here).exists()


def test_a_backfill_of_many_windows_has_a_helper_and_publishes_every_lead(tmp_path: Path) -> None:
    config = Config(branches=12, leads_per_day=3)
    with installation(tmp_path, config, first=27) as there:
        house = House(there.data.folder)
        days = ["--from", str(there.day(27)), "--to", str(there.day(1))]
        command = [str(BIN / "leads-pipeline"), "backfill", "--kind", "applicant", *days]
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as backfill:
            wait_for(lambda: helpers_of(house) != [] or backfill.poll() is not None)
            assert len(helpers_of(house)) == 1
            assert backfill.wait() == 0

        assert helpers_of(house) == []
        assert not draft_of(house).exists()
        assert house.leads("applicant").keys() == {lead_id for lead_id, _ in house.raw("applicant")}
