"""Whether a folder that an earlier version left is read, staged, published and known by this one, with nothing lost.

`earlier_versions/` has such folders, made by that version on the simulator (made-up people) and packed: `data`,
Dagster's `home` without its runs' own logs, and `truth.json`, the simulator's own word on what the landed windows held.
Add one before a format number is raised; never change one. 2026-11-22 is commit 59a45ca: two branches and days, one
window that was refused, a push that was taken in, another that waits.
"""

import json
import os
import re
import shutil
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from unittest.mock import patch

import pytest
from dagster import DagsterInstance

from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.definitions import build_definitions, first_day
from leads_pipeline.doctor import Light, examine_home
from leads_pipeline.errors import StorageError
from leads_pipeline.housekeeping import forget_history
from leads_pipeline.lake import Lake, sealed
from leads_pipeline.partitions import Partitions
from leads_pipeline.runs import Runner
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.app import Config
from leads_pipeline.status import failed_windows, window_status
from leads_pipeline.verification import verify
from leads_pipeline.warehouse import Warehouse
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import installation
from leads_pipeline_tests.support.newcomer import free_port
from leads_pipeline_tests.support.staging import DAY, land

EARLIER = sorted((Path(__file__).parent / "earlier_versions").glob("*.tar.xz"))

# What was pushed to each of them, beside what the simulator has.
TAKEN_IN, WAITING = "pushed-and-taken-in", "pushed-and-waiting"


@dataclass(frozen=True)
class Left:
    """What the earlier version left."""

    lake: Lake
    instance: DagsterInstance
    environment: dict[str, str]
    days: tuple[date, date]
    leads: dict[str, set[str]]


@pytest.fixture(params=EARLIER, ids=lambda path: path.name.partition(".")[0])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Left]:
    with tarfile.open(request.param) as archive:
        # The argument of that name isn't in Debian 12's Python, 3.11.2.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path)  # noqa: S202 - a file of this repository
    truth = json.loads((tmp_path / "truth.json").read_text())
    first, last = map(date.fromisoformat, truth["days"])
    environment = {
        "LEADS_BASE_URL": "http://127.0.0.1:9",
        "LEADS_AUTH_URL": "http://127.0.0.1:9/token",
        "LEADS_CLIENT_ID": "made-up",
        "LEADS_CLIENT_SECRET": "made-up",
        "LEADS_SCOPES": ",".join(truth["scopes"]),
        "LEADS_TIMEZONE": "Europe/London",
        "LEADS_START_DATE": truth["first"],
        "LEADS_DATA_DIR": str(tmp_path / "data"),
        "DAGSTER_HOME": str(tmp_path / "home"),
    }
    with patch.dict(os.environ, environment), DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        leads = {kind: set(ids) for kind, ids in truth["leads"].items()}
        yield Left(Lake(tmp_path / "data"), instance, environment, (first, last), leads)


def published(lake: Lake) -> dict[str, Counter[str]]:
    with Warehouse(lake).reading() as db:
        return {
            kind.name: Counter(lead for (lead,) in db.query(f"select lead_id from {kind.table}")[1])  # noqa: S608
            for kind in LEAD_KINDS
        }


def test_what_an_earlier_version_left_is_taken_over_with_nothing_lost(left: Left) -> None:
    settings = Settings.from_variables(left.environment)
    partitions = Partitions.of(settings, first_day(settings))
    before = {path: path.read_bytes() for path in (left.lake.folder / "raw").rglob("*.parquet")}

    # Each window is known as it was, before anything is made anew and after what is old is forgotten.
    for _ in range(2):
        status = window_status(left.instance, APPLICANT, partitions.windows)
        first, last = left.days
        assert status.landed == {f"{first}|branch-101", f"{first}|branch-102", f"{last}|branch-101"}
        assert status.failed == {f"{last}|branch-102"}
        failed = failed_windows(left.instance, settings, partitions)
        forget_history(left.instance, datetime(2099, 1, 1, tzinfo=UTC), is_over=lambda: False)
    assert {window.partition_key for _, window in failed} == {f"{last}|branch-102"}

    runner = Runner(build_definitions(left.environment), left.instance)
    _, wrong = runner.take_in(last)
    assert wrong is None
    assert runner.stage(*left.days) is None
    assert runner.publish() is None
    assert {finding.check: finding.message for finding in verify(left.lake) if finding.light is Light.RED} == {}
    assert published(left.lake) == {
        APPLICANT.name: Counter(left.leads[APPLICANT.name] | {TAKEN_IN, WAITING}),
        APPRAISAL.name: Counter(left.leads[APPRAISAL.name]),
    }
    # Only the file of pushes, which has one more lead, was written again.
    assert [path.name for path, content in before.items() if path.read_bytes() != content] == ["pushed.parquet"]
    assert left.lake.quarantined() == []


def test_a_publication_without_staging_anew_takes_over_what_was_staged_and_published(left: Left) -> None:
    assert Runner(build_definitions(left.environment), left.instance).publish() is None
    assert published(left.lake) == {
        APPLICANT.name: Counter(left.leads[APPLICANT.name] | {TAKEN_IN}),
        APPRAISAL.name: Counter(left.leads[APPRAISAL.name]),
    }
    with Warehouse(left.lake).reading() as db:
        _, windows = db.query("select sum(received), sum(removed) from landed_windows where kind = 'applicant'")
    assert windows == [(len(left.leads[APPLICANT.name]), 0)]


def test_files_of_a_newer_version_are_left_as_they_are_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "data")
    with monkeypatch.context() as newer:
        newer.setattr(sealed, "SCHEMA_VERSION", "3")
        land(lake, APPLICANT, [{"id": "1"}])
    before = {path: path.read_bytes() for path in (tmp_path / "data" / "raw").rglob("*.parquet")}
    assert before
    for attempt in (
        lambda: lake.landed_windows(APPLICANT, DAY),
        lambda: lake.known_windows(APPLICANT, DAY),
        lambda: lake.lead_ids(APPLICANT, DAY),
        lambda: land(lake, APPLICANT, [{"id": "2"}]),
        lambda: list(verify(lake)),
    ):
        with pytest.raises(
            StorageError, match=r"has format 3, .* reads up to 2\. Update leads-pipeline; the file is unt"
        ):
            attempt()
        assert {path: path.read_bytes() for path in (tmp_path / "data" / "raw").rglob("*.parquet")} == before
        assert lake.quarantined() == []


@pytest.mark.parametrize("database", ["runs.db", "runs/index.db"])
def test_dagster_s_state_of_a_newer_version_is_left_as_it_is_by_every_command_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    with installation(tmp_path, Config(branches=1, leads_per_day=3), first=4) as here:
        home = Path(here.environment["DAGSTER_HOME"])
        here.pull([here.key(2)])
    monkeypatch.chdir(tmp_path)
    for name, value in here.environment.items():
        monkeypatch.setenv(name, value)
    assert run("status").exit_code == 0
    path = home / "history" / database
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update alembic_version set version_num = 'fedcba987654'")
    before = {path: path.read_bytes() for path in home.rglob("*.db")}
    for command in (
        ("status",),
        ("coverage",),
        ("backfill", "--from", here.day(2), "--to", here.day(2)),
        ("serve", "--port", free_port()),
    ):
        result = run(*command)
        assert result.exit_code != 0
        assert "in a form that this one doesn't know (fedcba987654): this is a downgrade." in result.output
    assert "this is a downgrade" in examine_home(home).message
    with pytest.raises(StorageError, match="this is a downgrade"):
        DagsterInstance.from_config(str(home))  # as Dagster's own processes open it
    assert {path: path.read_bytes() for path in home.rglob("*.db")} == before


def everything(folder: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for part in ("staged", "leads.duckdb", "raw")
        for path in [folder / part, *(folder / part).rglob("*")]
        if path.is_file()
    }


@pytest.mark.parametrize("number", ["staged", "leads.duckdb"])
@pytest.mark.slow
def test_a_downgrade_stages_and_publishes_nothing_and_says_that_it_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    with installation(tmp_path, Config(branches=1, leads_per_day=3), first=4) as here:
        with monkeypatch.context() as newer:
            where = (
                "leads_pipeline.lake.staged.STAGED_VERSION"
                if number == "staged"
                else "leads_pipeline.warehouse.publication.SCHEMA_VERSION"
            )
            newer.setattr(where, 9)
            here.pull([here.key(2)])
            assert here.runner.stage(here.day(2), here.day(2)) is None
            assert here.runner.publish() is None
        before = everything(here.lake.folder)
        says = rf"/{number} was written by a newer version .* in format 9, .* writes format \d: this is a downgrade\."
        if number == "staged":
            assert re.search(says, here.runner.stage(here.day(2), here.day(2)) or "")
        assert re.search(says, here.runner.publish() or "")
        assert everything(here.lake.folder) == before
        # What the portal will have deleted when the newer version is back lands all the same.
        assert here.pull([here.key(3)]).success
        # Whoever means it deletes what the folder remembers.
        shutil.rmtree(here.lake.folder / ".state" / "formats")
        assert here.runner.stage(here.day(3), here.day(2)) is None
        assert here.runner.publish() is None
        assert len(published(here.lake)[APPLICANT.name]) == len(here.truth(APPLICANT, [2, 3]))
