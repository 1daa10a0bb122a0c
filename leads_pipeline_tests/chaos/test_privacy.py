"""An erasure while the disk and the kernel are against it: the list is never behind the data, and a rerun converges.

Belongs here: faults at each system call of adding a person to the list and going through the folder; an erasure beside
a backfill. Doesn't: the injection itself (system_calls.py), what an erasure does on a good day (test_privacy_erase.py).
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
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.erase import left_by_list, sweep
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.book import LeadBook
from leads_pipeline.simulator.leads import LeadFactory
from leads_pipeline.simulator.stock import Stock
from leads_pipeline.spool import Spool
from leads_pipeline.warehouse import Warehouse
from leads_pipeline.window import Window
from leads_pipeline_tests.chaos.system_calls import Fault, needs_seccomp, run
from leads_pipeline_tests.installation import Installation, installation
from leads_pipeline_tests.people import EMAIL, lead, listed
from leads_pipeline_tests.staging import LONDON, land, stage, staged_leads
from leads_pipeline_tests.test_suppression import push

pytestmark = [pytest.mark.chaos, needs_seccomp]

BEFORE = "2026-11-19T10:00:00Z"
JANE = lead("jane", email=EMAIL, createdAt=BEFORE)
JOHN = lead("john", email="john@people.example", createdAt=BEFORE)


BESIDE = Config(branches=2, leads_per_day=12)


def lake_in(folder: Path) -> Lake:
    return Lake(folder / "data", folder / "list")


def erase(folder: Path) -> None:
    listed(lake_in(folder).suppression)
    sweep(lake_in(folder), LONDON)


def raw_rows(lake: Lake) -> dict[str, set[str]]:
    """The payloads by lead id."""
    found: dict[str, set[str]] = {}
    for path in lake.raw_lead_files():
        for row in pq.ParquetFile(path).read().to_pylist():
            found.setdefault(row["lead_id"], set()).add(row["payload"])
    return found


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches with both people, staged, and a delivery of each that waits."""
    folder = tmp_path_factory.mktemp("full")
    lake = lake_in(folder)
    land(lake, APPLICANT, [JANE, JOHN])
    land(lake, APPLICANT, [JANE | {"contact": JOHN["contact"]}, JOHN], scope="branch-102")
    stage(lake, APPLICANT)
    push(lake, JANE, JOHN)
    return folder


@pytest.mark.parametrize(("fault", "step"), [(Fault.KILL, 5), (Fault.EIO, 17), (Fault.EROFS, 17)])
def test_an_erasure_that_a_fault_stops_is_finished_by_the_next(
    tmp_path: Path, full: Path, fault: Fault, step: int
) -> None:
    johns = raw_rows(lake_in(full))["john"]
    injected = 0
    for at in count(0, step):
        folder = tmp_path / str(at)
        shutil.copytree(full, folder)
        outcome = run(erase, folder, folder=folder, fault=fault, at=at)
        if not outcome.was_injected:
            break
        injected += 1
        lake = lake_in(folder)
        rows = raw_rows(lake)
        assert rows["john"] == johns, outcome.calls[-1]
        if "jane" not in rows or len(Spool(lake).waiting()) == 0:
            assert lake.suppression.read().refusals, f"the data are ahead of the list at {outcome.calls[-1]}"
        erase(folder)
        assert raw_rows(lake) == {"john": johns}, outcome.calls[-1]
        assert left_by_list(lake) == [], outcome.calls[-1]
        assert staged_leads(lake, APPLICANT).keys() == {"john"}, outcome.calls[-1]
        assert b"jane.roe" not in b"".join(path.read_bytes() for path in Spool(lake).waiting())
        shutil.rmtree(folder)
    assert injected > 5


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
    book = LeadBook(LeadFactory(BESIDE.seed, BESIDE.leads_per_day, Stock(BESIDE.seed)))
    found: dict[str, dict[str, Any]] = {}
    for kind, name in ((APPLICANT, "applicants"), (APPRAISAL, "appraisals")):
        for days_ago in ago:
            for scope in here.settings.scopes:
                window = Window.of(here.day(days_ago), scope, here.settings.zone)
                [branch] = here.simulator.organisation.branches_of(scope.key)
                body = book.answer(kind.name, [branch], window.start, window.end, here.now)  # type: ignore[arg-type]
                found |= {one["id"]: one for one in json.loads(body)[name]}
    return found


@pytest.mark.parametrize("delay_seconds", [0.5, 6])
def test_an_erasure_beside_a_backfill_leaves_nothing_and_takes_nobody_else(
    tmp_path: Path, delay_seconds: float
) -> None:
    program = str(Path(sys.executable).with_name("leads-pipeline"))
    with installation(tmp_path, BESIDE, first=6) as here:
        leads = texts_of_days(here, [1, 2, 3, 4])
        emails = Counter(one["contact"]["email"].strip().lower() for one in leads.values())
        here.pull(here.keys([2, 3], [101, 102]), LEAD_KINDS)
        early = texts_of_days(here, [2, 3])
        email = max((one["contact"]["email"].strip().lower() for one in early.values()), key=lambda one: emails[one])
        hers = {id_ for id_, one in leads.items() if one["contact"]["email"].strip().lower() == email}
        command = [program, "backfill", "--from", str(here.day(4)), "--to", str(here.day(1))]
        with subprocess.Popen(command, cwd=tmp_path, env=os.environ, stdout=subprocess.DEVNULL) as backfill:
            time.sleep(delay_seconds)  # to meet it in one part of its work or another
            command = [program, "privacy", "erase", "--email", email, "--yes"]
            subprocess.run(command, cwd=tmp_path, env=os.environ, check=False, stdout=subprocess.DEVNULL)
            assert backfill.wait() == 0
        command = [program, "privacy", "verify", "--email", email]
        assert subprocess.run(command, cwd=tmp_path, env=os.environ, check=False).returncode == 0

        for folder in (here.lake.folder, tmp_path / "home"):
            for path, text in decoded(folder):
                assert email not in text.lower(), path
                assert not any(id_ in text for id_ in hers), path
        assert set(raw_rows(here.lake)) == leads.keys() - hers
        _, rows = Warehouse(here.lake).query(
            "select lead_id from applicant_leads union all from (select lead_id from appraisal_leads)"
        )
        assert sorted(id_ for (id_,) in rows) == sorted(leads.keys() - hers)
