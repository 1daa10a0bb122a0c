"""An erasure while the disk and the kernel are against it: the list is never behind the data, and a rerun converges.

Belongs here: faults at each system call of adding a person to the list, going through the folder, publishing and
deleting what was set aside (`PRIVACY_FAULTS=all` runs each, else so many by the seed); an erasure beside a backfill.
Doesn't: the injection itself (system_calls.py), what an erasure does on a good day (privacy/test_requests.py).
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.domain.person import Person
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.finding import find
from leads_pipeline.privacy.sweeping import in_line
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.spool import Spool
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window
from leads_pipeline_tests.privacy.test_suppression import push
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.people import EMAIL, lead, left_by_list, listed
from leads_pipeline_tests.support.staging import DAY, LONDON, land, stage, staged_leads
from leads_pipeline_tests.support.system_calls import Fault, needs_seccomp, run

pytestmark = needs_seccomp

BEFORE = "2026-11-19T10:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)


GRID = Grid(scopes=tuple(map(Scope.parse, ("branch-101", "branch-102"))), first_day=DAY, zone=LONDON)
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)

BESIDE = Config(branches=2, leads_per_day=12)


def lake_in(folder: Path) -> Lake:
    return Lake(folder / "data", folder / "list")


def erase(folder: Path) -> None:
    """As the command does it, which deletes what quarantine/ shows of her."""
    lake = lake_in(folder)
    listed(lake.suppression)
    with in_line(lake, LONDON) as swept:
        Warehouse(lake).publish(GRID, NOW)
    for path in find(lake, Person.of([EMAIL])).quarantined:
        (lake.folder / path).unlink()
    if swept.failed:
        raise StorageError("some of it couldn't be done")


def raw_rows(lake: Lake) -> dict[str, set[str]]:
    """The payloads by lead id."""
    found: dict[str, set[str]] = {}
    for path in lake.raw_lead_files():
        for row in pq.ParquetFile(path).read().to_pylist():
            found.setdefault(row["lead_id"], set()).add(row["payload"])
    return found


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches with both people, staged and published, a delivery of each that waits, a file that was set aside."""
    folder = tmp_path_factory.mktemp("full")
    lake = lake_in(folder)
    land(lake, APPLICANT, [JANE, JOHN])
    land(lake, APPLICANT, [JANE | {"contact": JOHN["contact"]}, JOHN], scope="branch-102")
    stage(lake, APPLICANT)
    Warehouse(lake).publish(GRID, NOW)
    push(lake, JANE, JOHN)
    aside = lake.folder / "quarantine" / "notes.txt"
    aside.parent.mkdir()
    aside.write_text(EMAIL)
    return folder


def shows_her(lake: Lake) -> dict[str, bool]:
    """Where she is: in each place that an erasure changes."""
    with duckdb.connect(Warehouse(lake).path, read_only=True) as db:
        published = db.execute("select count(*) from applicant_leads where lead_id = 'jane'").fetchall()
    return {
        "raw": "jane" in raw_rows(lake),
        "spool": b"jane.roe" in b"".join(path.read_bytes() for path in Spool(lake).waiting()),
        "published": published != [(0,)],
        "quarantine": (lake.folder / "quarantine" / "notes.txt").exists(),
    }


def points(full: Path, tmp_path: Path, fault: Fault) -> list[int]:
    """Which system call gets the fault: `PRIVACY_FAULTS` of them by the seed, `all` or a few."""
    folder = tmp_path / "counted"
    shutil.copytree(full, folder)
    kind = Fault.EIO if fault is Fault.EIO else Fault.KILL  # which counts all calls, or those that change something
    outcome = run(erase, folder, folder=folder, fault=kind)
    assert outcome.is_done, outcome.message
    shutil.rmtree(folder)
    wanted, rng = os.environ.get("PRIVACY_FAULTS", "3"), Random(f"{os.environ['CHAOS_SEED']} {fault}")  # noqa: S311
    there = range(len(outcome.calls))
    return list(there) if wanted == "all" else sorted(rng.sample(there, min(int(wanted), len(there))))


@pytest.mark.parametrize("fault", list(Fault))
def test_an_erasure_that_a_fault_stops_is_finished_by_the_next(tmp_path: Path, full: Path, fault: Fault) -> None:
    johns = raw_rows(lake_in(full))["john"]
    for at in points(full, tmp_path, fault):
        folder = tmp_path / str(at)
        shutil.copytree(full, folder)
        outcome = run(erase, folder, folder=folder, fault=fault, at=at)
        where = f"{fault} at {at}, {outcome.calls[min(at, len(outcome.calls) - 1)]}"
        lake = lake_in(folder)
        assert raw_rows(lake)["john"] == johns, where
        if not all(shows_her(lake).values()):
            assert lake.suppression.read().erased, f"the data are ahead of the list: {where}"
        erase(folder)
        assert raw_rows(lake) == {"john": johns}, where
        assert left_by_list(lake) == [], where
        assert staged_leads(lake, APPLICANT).keys() == {"john"}, where
        assert not any(shows_her(lake).values()), where
        assert b"jane.roe" not in Warehouse(lake).path.read_bytes(), where
        shutil.rmtree(folder)


# --- beside a backfill and a publication ------------------------------------------------------------------------------


def decoded(folder: Path) -> Iterator[tuple[Path, str]]:
    """Every file as bytes, and decoded where it is Parquet, DuckDB or sqlite; none of it by the pipeline."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        yield path, content.decode("utf-8", "replace")
        if content[:4] == b"PAR1":
            yield path, repr(pq.ParquetFile(path).read().to_pylist())
            yield path, repr(pq.ParquetFile(path).metadata.to_dict())
        elif content[8:12] == b"DUCK":
            with duckdb.connect(path, read_only=True) as db:
                for schema, table in db.execute("select schema_name, table_name from duckdb_tables()").fetchall():
                    yield path, repr(db.execute(f'from "{schema}"."{table}"').fetchall())
        elif content[:16] == b"SQLite format 3\0":
            with closing(sqlite3.connect(path)) as lite:
                for (table,) in lite.execute("select name from sqlite_master where type = 'table'").fetchall():
                    yield path, repr(lite.execute(f'select * from "{table}"').fetchall())  # noqa: S608 - its own names


def texts_of_days(here: Installation, ago: list[int]) -> dict[str, dict[str, Any]]:
    """The portal's leads of those days by id."""
    book = LeadBook(BESIDE.seed, BESIDE.leads_per_day)
    found: dict[str, dict[str, Any]] = {}
    for kind, name in ((APPLICANT, "applicants"), (APPRAISAL, "appraisals")):
        for days_ago in ago:
            for scope in here.settings.scopes:
                window = Window.of(here.day(days_ago), scope, here.settings.zone)
                [branch] = here.simulator.organisation.branches_of(scope.key)
                body = book.answer(kind.name, [branch], window.start, window.end, here.now)  # type: ignore[arg-type]
                found |= {one["id"]: one for one in json.loads(body)[name]}
    return found


# Publishes at random moments until its input ends.
PUBLISHER = """
import random, select, sys
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
folder, seed, first, *scopes = sys.argv[1:]
grid = Grid([Scope.parse(one) for one in scopes], datetime.fromisoformat(first).date(), ZoneInfo("UTC"))
rng = random.Random(seed)
while not select.select([sys.stdin], [], [], rng.uniform(0, 2))[0]:
    Warehouse(Lake(Path(folder))).publish(grid, datetime.now(UTC))
"""


@pytest.mark.parametrize("number", range(int(os.environ.get("BESIDE_SEEDS", "2"))))
def test_an_erasure_beside_a_backfill_and_publications_leaves_nothing_and_takes_nobody_else(
    tmp_path: Path, number: int
) -> None:
    seed = f"{os.environ['CHAOS_SEED']} {number}"
    rng = Random(seed)  # noqa: S311 - to be repeated
    program = str(Path(sys.executable).with_name("leads-pipeline"))
    with installation(tmp_path, BESIDE, first=6) as here:
        leads = texts_of_days(here, [1, 2, 3, 4])
        emails = Counter(one["contact"]["email"].strip().lower() for one in leads.values())
        here.pull(here.keys([2, 3], [101, 102]), LEAD_KINDS)
        early = texts_of_days(here, [2, 3])
        email = max((one["contact"]["email"].strip().lower() for one in early.values()), key=lambda one: emails[one])
        hers = {id_ for id_, one in leads.items() if one["contact"]["email"].strip().lower() == email}
        command = [program, "backfill", "--from", str(here.day(4)), "--to", str(here.day(1))]
        scopes = [scope.key for scope in here.settings.scopes]
        publish = [sys.executable, "-c", PUBLISHER, str(here.lake.folder), seed, str(here.day(6)), *scopes]
        with (
            subprocess.Popen(publish, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE) as publisher,
            subprocess.Popen(command, cwd=tmp_path, env=os.environ, stdout=subprocess.DEVNULL) as backfill,
        ):
            for _ in range(rng.randrange(1, 4)):
                time.sleep(rng.uniform(0, 6))  # to meet them in one part of their work or another
                command = [program, "privacy", "erase", "--email", email, "--yes"]
                subprocess.run(command, cwd=tmp_path, env=os.environ, check=False, stdout=subprocess.DEVNULL)
            assert backfill.wait() == 0, seed
            publisher.communicate()
            assert publisher.returncode == 0, seed
        assert find(here.lake, Person.of([email])).theirs == []

        for folder in (here.lake.folder, tmp_path / "home"):
            for path, text in decoded(folder):
                assert email not in text.lower(), path
                assert not any(id_ in text for id_ in hers), path
        assert set(raw_rows(here.lake)) == leads.keys() - hers
        _, rows = Warehouse(here.lake).query(
            "select lead_id from applicant_leads union all from (select lead_id from appraisal_leads)"
        )
        assert sorted(id_ for (id_,) in rows) == sorted(leads.keys() - hers)
