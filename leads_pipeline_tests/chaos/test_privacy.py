"""Restrictions and nights of retention that are killed, and an erasure beside a backfill.

Kills come at any system call: `PRIVACY_FAULTS=all` tries each, else a few by the seed. An erasure
that is killed is promises/test_kills_and_full_disks.py's.
"""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random

import pytest

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import Window
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.identity import Person
from leads_pipeline.features.privacy.search import find
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.raw.names import RESTRICTED, list_places
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.newcomer import ROOT
from leads_pipeline_tests.support.people import EMAIL, everything_in, lead, listed
from leads_pipeline_tests.support.system_calls import needs_seccomp, trials

pytestmark = needs_seccomp

BEFORE = "2026-11-19T10:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)

BESIDE = Config(branches=2, leads_per_day=12)


def restrict_and_lift(folder: Path) -> None:
    """Set her leads aside and land them again."""
    house = House(folder / "data")
    entry = listed(list_of(house.data), Action.RESTRICT, until=None)
    house.publish()
    listed(list_of(house.data), Action.LIFT, emails=(), of=entry.number)
    house.publish()


def retain(folder: Path) -> None:
    """As each night does it."""
    house = House(folder / "data")
    house.later(days=40)
    house.retain(35)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches with both people, published, a delivery of each that waits, a file that was set
    aside.
    """
    folder = tmp_path_factory.mktemp("full")
    house = House(folder / "data")
    house.land("applicant", [JANE, JOHN])
    house.land("applicant", [JANE | {"contact": JOHN["contact"]}, JOHN], scope="branch-102")
    house.publish()
    house.push("applicant", JANE, JOHN)
    aside = house.folder / "quarantine" / "notes.txt"
    aside.parent.mkdir()
    aside.write_text(EMAIL)
    return folder


FAULTS = sys.maxsize if os.environ.get("PRIVACY_FAULTS") == "all" else 3


def test_no_version_is_lost_if_a_restriction_or_its_end_is_killed(
    tmp_path: Path, full: Path
) -> None:
    before = House(full / "data")
    raw = sorted({*before.raw("applicant")})
    published = before.leads("applicant").keys()
    seed = os.environ["CHAOS_SEED"]
    for folder, where in trials(restrict_and_lift, full, tmp_path, seed=seed, most=FAULTS):
        house = House(folder / "data")
        for entry in list_of(house.data).read().active:
            listed(list_of(house.data), Action.LIFT, emails=(), of=entry.number)
        house.publish()
        assert sorted({*house.raw("applicant")}) == raw, where
        assert house.leads("applicant").keys() == published, where
        assert list_places(house.data.store, RESTRICTED) == [], where


def test_a_day_whose_retention_is_killed_is_made_anonymous_by_the_next(
    tmp_path: Path, full: Path
) -> None:
    seed = os.environ["CHAOS_SEED"]
    for folder, where in trials(retain, full, tmp_path, seed=seed, most=FAULTS):
        retain(folder)
        retain(folder)  # which cuts what the first took in
        house = House(folder / "data")
        emails = [row["contact_email"] for row in house.leads("applicant").values()]
        assert all(email.endswith("@removed.invalid") for email in emails), where
        (house.folder / "quarantine" / "notes.txt").unlink()
        assert EMAIL not in everything_in(folder), where


# --- beside a backfill and a publication ----------------------------------------------------------


def emails_of_days(here: Installation, *ago: int) -> dict[str, str]:
    """The address of each lead of those days at the portal, by the lead's id."""
    book = LeadBook(BESIDE.seed, BESIDE.leads_per_day)
    found = {}
    for kind, days_ago, scope in product(LEAD_KINDS, ago, here.settings.scopes):
        window = Window.of(here.day(days_ago), scope, here.settings.zone)
        branches = here.simulator.organisation.branches_of(scope.key)
        body = book.answer(kind.name, branches, window.start, window.end, here.clock.now)
        for one in json.loads(body)[f"{kind.name}s"]:
            found[one["id"]] = one["contact"]["email"].strip().lower()
    return found


# Publishes at random moments until its input ends.
PUBLISHER = """
import random, select, sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.features.publication_steps import bring_up_to_date
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.domain.window import Scope
folder, seed, first, *scopes = sys.argv[1:]
day = datetime.fromisoformat(first).date()
settings = PublicationSettings([Scope.parse(one) for one in scopes], day, ZoneInfo("UTC"))
rng = random.Random(seed)
while not select.select([sys.stdin], [], [], rng.uniform(0, 2))[0]:
    bring_up_to_date(DataFolder.at(Path(folder)), settings, datetime.now(UTC))
"""


@pytest.mark.parametrize("number", range(int(os.environ.get("BESIDE_SEEDS", "2"))))
def test_an_erasure_beside_a_backfill_and_publications_leaves_nothing_and_takes_nobody_else(
    tmp_path: Path, number: int
) -> None:
    seed = f"{os.environ['CHAOS_SEED']} {number}"
    rng = Random(seed)  # noqa: S311 - to be repeated
    program = str(Path(sys.executable).with_name("leads-pipeline"))
    with installation(tmp_path, BESIDE, first=6) as here:
        leads = emails_of_days(here, 1, 2, 3, 4)
        here.pull(here.keys([2, 3], [101, 102]), LEAD_KINDS)
        counts = Counter(leads.values())
        email = max(emails_of_days(here, 2, 3).values(), key=lambda one: counts[one])
        hers = {id_ for id_, one in leads.items() if one == email}
        pull = [program, "backfill", "--from", str(here.day(4)), "--to", str(here.day(1))]
        erase = [program, "privacy", "erase", "--email", email, "--yes"]
        publish = [sys.executable, "-c", PUBLISHER, str(here.data.folder), seed, str(here.day(6))]
        scopes = [scope.key for scope in here.settings.scopes]
        with (
            subprocess.Popen([*publish, *scopes], cwd=ROOT, stdin=subprocess.PIPE) as publisher,
            subprocess.Popen(pull, cwd=tmp_path, stdout=subprocess.DEVNULL) as backfill,
        ):
            for _ in range(rng.randrange(1, 4)):
                time.sleep(rng.uniform(0, 6))  # to meet them in one part of their work or another
                subprocess.run(erase, cwd=tmp_path, check=False, stdout=subprocess.DEVNULL)
            assert backfill.wait() == 0, seed
            publisher.communicate()
            assert publisher.returncode == 0, seed
        assert find(here.data, Person.of([email])).theirs == []

        for folder in (here.data.folder, tmp_path / "home"):
            found = everything_in(folder)
            assert [text for text in (email, *hers) if text.lower() in found] == []
        house = House(here.data.folder)
        raw = {id_ for kind in LEAD_KINDS for id_, _ in house.raw(kind.name)}
        published = [id_ for kind in LEAD_KINDS for id_ in house.leads(kind.name)]
        assert raw == leads.keys() - hers
        assert sorted(published) == sorted(raw)
