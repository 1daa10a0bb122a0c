"""Whether `verify` counts what is there, and notices what is missing."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.doctor import Finding, Light
from leads_pipeline.duck import connection
from leads_pipeline.lake import Lake
from leads_pipeline.suppression import Action
from leads_pipeline.verification import verify
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, LONDON, NEXT_DAY, land, publish, stage

GRID = Grid((Scope.parse("branch-101"), Scope.parse("branch-102")), DAY, LONDON)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches and days, of which midnight's lead is in both; staged and published."""
    lake = Lake(tmp_path_factory.mktemp("published") / "data")
    for day in (DAY, NEXT_DAY):
        for branch in (101, 102):
            leads: list[Mapping[str, object]] = [
                {"id": "midnight", "createdAt": f"{NEXT_DAY}T00:00:00Z", "contact": {"email": "m@example.org"}},
                *({"id": f"{day}-{branch}-{n}", "createdAt": f"{day}T09:00:00Z"} for n in range(3)),
            ]
            land(lake, APPLICANT, leads[branch - 101 :], scope=f"branch-{branch}", day=day)
            land(lake, APPRAISAL, [], scope=f"branch-{branch}", day=day)
        for kind in LEAD_KINDS:
            stage(lake, kind, day)
    Warehouse(lake).publish(GRID, FETCHED_AT)
    return lake.folder


@pytest.fixture
def lake(tmp_path: Path, published: Path) -> Lake:
    # With its links, times and all, so that the published file knows what it was made from.
    moved = tmp_path / "data"
    shutil.copytree(published, moved, copy_function=shutil.copy2)
    return Lake(moved)


def red(lake: Lake) -> dict[str, str]:
    return {finding.check: finding.message for finding in verify(lake) if finding.light is Light.RED}


@pytest.mark.slow
def test_a_whole_folder_is_green_and_says_how_much_it_counted(published: Path) -> None:
    found = {finding.check: finding for finding in verify(Lake(published))}
    assert {finding.light for finding in found.values()} == {Light.GREEN}, found
    # By hand: 3 leads of 2 branches on 2 days, and one lead of midnight that both days hold.
    assert found["raw to staged, applicant leads"].message.startswith("14 leads of raw are staged")
    assert found["staged to leads.duckdb, applicant leads"].message == "13 leads of 2 days and 4 windows."
    assert found["leads.duckdb to marts, applicant leads"].message.startswith("13 leads in each of mart_leads_daily")
    assert found["raw files"] == Finding(
        "raw files", Light.GREEN, "8 windows, 0 files of pushed leads, 0 of the inventory, each whole."
    )


def test_a_damaged_raw_file_is_red(lake: Lake) -> None:
    path = next((lake.folder / "raw").rglob("leads.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    assert red(lake)["raw files"].startswith("1 files are damaged or missing: quarantine/raw/")


def test_a_damaged_delivery_is_red(lake: Lake) -> None:
    (lake.folder / "spool").mkdir()
    (lake.folder / "spool" / "one.pushed").write_text("nonsense")
    assert red(lake)["spool"].startswith("1 of 1 deliveries are damaged")


def test_a_damaged_staged_file_is_red(lake: Lake) -> None:
    path = lake.staged_path("applicant_viewing_times", DAY)
    path.write_bytes(path.read_bytes()[:-9])
    assert red(lake)["staged files of applicant leads"].startswith(f"Damaged: applicant_viewing_times of {DAY}.")


def test_a_lead_of_raw_that_is_not_staged_is_red(lake: Lake) -> None:
    land(lake, APPLICANT, [{"id": "late"}], fetched_at=FETCHED_AT.replace(hour=9))
    message = red(lake)["raw to staged, applicant leads"]
    assert f"Landed and not staged yet: {DAY}." in message
    assert f"Of {DAY}, 1 of 8 leads in raw aren't staged." in message


def test_a_folder_that_is_not_published_is_red(lake: Lake) -> None:
    Warehouse(lake).path.unlink()
    assert "is not there yet" in red(lake)["leads.duckdb"]


@pytest.mark.parametrize(
    ("change", "check", "says"),
    [
        ("delete from applicant_leads where lead_id = 'midnight'", "staged to leads.duckdb, applicant leads", "add up"),
        ("delete from landed_windows where scope = 'branch-102'", "staged to leads.duckdb, applicant leads", "2 of 4"),
        ("delete from pipeline.loaded_files", "staged to leads.duckdb, applicant leads", "0 of 2 staged days"),
        ("insert into applicant_leads from applicant_leads", "staged to leads.duckdb, applicant leads", "twice"),
        (
            "update mart_leads_daily set leads = leads + 1 where kind = 'applicant'",
            "leads.duckdb to marts, applicant leads",
            "mart_leads_daily counts",
        ),
    ],
)
def test_a_count_that_does_not_add_up_is_red(published: Path, change: str, check: str, says: str) -> None:
    lake, kept = Lake(published), published.parent / "kept.duckdb"
    path = Warehouse(lake).path
    shutil.copy2(path, kept)
    try:
        path.chmod(0o600)
        with connection(lake, "test", path) as db:
            db.execute(change)
        assert says in red(lake)[check]
    finally:
        path.unlink()
        kept.rename(path)


@pytest.mark.slow
def test_leads_that_are_set_aside_are_not_missing(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Lake(lake.folder, tmp_path / "list")
    listed(there.suppression, Action.RESTRICT, emails=["m@example.org"], until=None)
    publish(there, GRID, FETCHED_AT)
    found = {finding.check: finding for finding in verify(there)}
    assert {finding.light for finding in found.values()} == {Light.GREEN}, found
    assert found["staged to leads.duckdb, applicant leads"].message.startswith("12 leads")
    monkeypatch.setenv("LEADS_DATA_DIR", str(lake.folder))
    monkeypatch.setenv("LEADS_PRIVACY_DIR", str(tmp_path / "list"))
    result = run("verify")
    assert result.exit_code == 0, result.output


def test_leads_of_erased_people_that_a_backup_brought_back_are_red(lake: Lake) -> None:
    listed(lake.suppression, emails=["m@example.org"], leads=[(APPLICANT.name, "midnight")], until=None)
    assert (
        "isn't in line with the suppression list. Run `leads-pipeline privacy apply`"
        in (red(lake)["raw to staged, applicant leads"])
    )
