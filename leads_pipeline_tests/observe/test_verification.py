"""Whether `verify` counts what is there, and notices what is missing."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL
from leads_pipeline.observe.doctor import Finding, Light
from leads_pipeline.observe.verification import verify
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.suppression import Action
from leads_pipeline.transform.duck import connection
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, NEXT_DAY, land, publish


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches and days, of which midnight's lead is in both; published."""
    data = DataFolder.at(tmp_path_factory.mktemp("published") / "data")
    for day in (DAY, NEXT_DAY):
        for branch in (101, 102):
            leads: list[Mapping[str, object]] = [
                {"id": "midnight", "createdAt": f"{NEXT_DAY}T00:00:00Z", "contact": {"email": "m@example.org"}},
                *({"id": f"{day}-{branch}-{n}", "createdAt": f"{day}T09:00:00Z"} for n in range(3)),
            ]
            land(data, APPLICANT, leads[branch - 101 :], scope=f"branch-{branch}", day=day)
            land(data, APPRAISAL, [], scope=f"branch-{branch}", day=day)
    publish(data)
    return data.folder


@pytest.fixture
def data(tmp_path: Path, published: Path) -> DataFolder:
    moved = tmp_path / "data"
    shutil.copytree(published, moved, symlinks=True)
    return DataFolder.at(moved)


def red(data: DataFolder) -> dict[str, str]:
    return {finding.check: finding.message for finding in verify(data) if finding.light is Light.RED}


def test_a_whole_folder_is_green_and_says_how_much_it_counted(published: Path) -> None:
    found = {finding.check: finding for finding in verify(DataFolder.at(published))}
    assert {finding.light for finding in found.values()} == {Light.GREEN}, found
    # By hand: 3 leads of 2 branches on 2 days, and one lead of midnight that both days hold.
    assert found["leads.duckdb, applicant leads"].message == "13 leads, each once."
    assert found["leads.duckdb to marts, applicant leads"].message.startswith("13 leads in each of mart_leads_daily")
    assert found["raw files"] == Finding(
        "raw files", Light.GREEN, "8 files of 8 windows, 0 of the inventory, each whole."
    )


def test_a_copied_folder_is_green_and_its_next_publication_reads_nothing_again(data: DataFolder) -> None:
    assert red(data) == {}
    assert publish(data).publication is None


def test_a_damaged_raw_file_is_red(data: DataFolder) -> None:
    path = next((data.folder / "raw").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    assert red(data)["raw files"].startswith("1 files are damaged or missing: quarantine/raw/")


def test_a_landed_lead_that_is_not_published_is_red(data: DataFolder) -> None:
    land(data, APPLICANT, [{"id": "late"}], fetched_at=FETCHED_AT.replace(hour=9))
    found = red(data)
    assert f"Landed and not published yet: {DAY}." in found["raw to leads.duckdb"]
    assert "1 of 14 leads in raw aren't published." in found["leads.duckdb, applicant leads"]


def test_a_lead_that_only_the_published_file_has_is_green_and_told(data: DataFolder) -> None:
    shutil.rmtree(data.folder / "raw" / "applicant_leads" / f"day={DAY}" / "scope=branch-101")
    found = {finding.check: finding for finding in verify(data)}
    assert found["leads.duckdb, applicant leads"] == Finding(
        "leads.duckdb, applicant leads", Light.GREEN, "13 leads, each once. Of 3 raw has no file any more."
    )


def test_a_folder_that_is_not_published_is_red(data: DataFolder) -> None:
    LeadsFile(data).path.unlink()
    assert "is not there yet" in red(data)["leads.duckdb"]


@pytest.mark.parametrize(
    ("change", "check", "says"),
    [
        ("delete from applicant_leads where lead_id = 'midnight'", "leads.duckdb, applicant leads", "1 of 13 leads"),
        ("delete from pipeline.windows where scope = 'branch-102'", "raw to leads.duckdb", f"{DAY}, {NEXT_DAY}"),
        ("insert into applicant_leads from applicant_leads", "leads.duckdb, applicant leads", "twice"),
        (
            "update mart_leads_daily set leads = leads + 1 where kind = 'applicant'",
            "leads.duckdb to marts, applicant leads",
            "mart_leads_daily counts",
        ),
    ],
)
def test_a_count_that_does_not_add_up_is_red(data: DataFolder, change: str, check: str, says: str) -> None:
    path = LeadsFile(data).path.resolve()
    path.chmod(0o600)
    with connection(data, "test", path) as db:
        db.execute(change)
    assert says in red(data)[check]


def test_leads_that_are_set_aside_are_not_missing(
    data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = DataFolder.at(data.folder, tmp_path / "list")
    listed(there.gate.entries, Action.RESTRICT, emails=["m@example.org"], until=None)
    publish(there)
    found = {finding.check: finding for finding in verify(there)}
    assert {finding.light for finding in found.values()} == {Light.GREEN}, found
    assert found["leads.duckdb, applicant leads"].message.startswith("12 leads")
    monkeypatch.setenv("LEADS_DATA_DIR", str(data.folder))
    monkeypatch.setenv("LEADS_PRIVACY_DIR", str(tmp_path / "list"))
    result = run("verify")
    assert result.exit_code == 0, result.output


def test_leads_of_erased_people_that_a_backup_brought_back_are_red(data: DataFolder) -> None:
    listed(data.gate.entries, emails=["m@example.org"], leads=[(APPLICANT.name, "midnight")], until=None)
    assert (
        "isn't in line with the suppression list. Run `leads-pipeline privacy apply`"
        in red(data)["raw to leads.duckdb"]
    )
