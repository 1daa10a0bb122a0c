"""Whether a folder that an earlier version left is read, published and known by this one, with nothing lost.

`earlier_versions/` has such folders, made by that version on the simulator (made-up people) and packed: `data`,
Dagster's `home` without its runs' own logs, and `truth.json`, the simulator's own word on what the landed windows held.
Add one before a format number is raised; never change one. 2026-11-22 is commit 59a45ca: two branches and days, one
window that was refused, a push that was taken in, another that waits.
"""

import json
import os
import shutil
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from dagster import DagsterInstance

from leads_pipeline.cli.session import opened
from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.domain.window import Window
from leads_pipeline.errors import StorageError
from leads_pipeline.observe.doctor import Light, examine_home
from leads_pipeline.observe.verification import verify
from leads_pipeline.orchestration.pulling import PUBLISH_JOB
from leads_pipeline.orchestration.runs import run_job
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.app import Config
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.windows import WindowState, window_table
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import installation
from leads_pipeline_tests.support.newcomer import free_port

EARLIER = sorted((Path(__file__).parent / "earlier_versions").glob("*.tar.xz"))

# What was pushed to each of them, beside what the simulator has.
TAKEN_IN, WAITING = "pushed-and-taken-in", "pushed-and-waiting"


@dataclass(frozen=True)
class Left:
    """What the earlier version left."""

    data: DataFolder
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
        yield Left(DataFolder.at(tmp_path / "data"), instance, environment, (first, last), leads)


def published(data: DataFolder) -> dict[str, Counter[str]]:
    with LeadsFile(data).reading() as db:
        return {
            kind.name: Counter(lead for (lead,) in db.query(f"select lead_id from {kind.table}")[1])  # noqa: S608
            for kind in LEAD_KINDS
        }


def test_what_an_earlier_version_left_is_taken_over_with_nothing_lost(left: Left) -> None:
    settings = Settings.from_variables(left.environment)
    data = opened(settings)

    first, last = left.days
    windows = [Window.of(day, scope, settings.zone) for day in left.days for scope in settings.scopes]
    rows = window_table(data.store, APPLICANT, windows, datetime.combine(last + timedelta(days=3), time(), UTC))
    assert {row.window.partition_key: row.state for row in rows} == {
        f"{first}|branch-101": WindowState.LANDED,
        f"{first}|branch-102": WindowState.LANDED,
        f"{last}|branch-101": WindowState.LANDED,
        f"{last}|branch-102": WindowState.MISSING,  # the portal refused it
    }

    assert run_job(build_definitions(left.environment), left.instance, PUBLISH_JOB) is None
    assert {finding.check: finding.message for finding in verify(data) if finding.light is Light.RED} == {}
    assert published(data) == {
        APPLICANT.name: Counter(left.leads[APPLICANT.name] | {TAKEN_IN, WAITING}),
        APPRAISAL.name: Counter(left.leads[APPRAISAL.name]),
    }
    assert data.quarantine.files() == []
    assert list((data.folder / "spool").iterdir()) == []


def test_leads_that_only_the_published_file_has_are_taken_over(left: Left) -> None:
    for kind in LEAD_KINDS:
        shutil.rmtree(left.data.folder / "raw" / kind.table)
    opened(Settings.from_variables(left.environment))
    assert run_job(build_definitions(left.environment), left.instance, PUBLISH_JOB) is None
    assert published(left.data) == {
        APPLICANT.name: Counter(left.leads[APPLICANT.name] | {TAKEN_IN, WAITING}),
        APPRAISAL.name: Counter(left.leads[APPRAISAL.name]),
    }
    assert not any((left.data.folder / name).exists() for name in ("staged", "delta"))


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
        assert "A newer Dagster than" in result.output
        assert "fedcba987654" in result.output
    assert "A newer Dagster than" in examine_home(home).message
    with pytest.raises(StorageError, match="A newer Dagster than"):
        DagsterInstance.from_config(str(home))  # as Dagster's own processes open it
    assert {path: path.read_bytes() for path in home.rglob("*.db")} == before
