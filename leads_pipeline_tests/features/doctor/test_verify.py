"""`verify` reads every file, counts what is there, and says what is missing."""

import hashlib
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL
from leads_pipeline.features.doctor.verify import verify
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import Light
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.duck import connection
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.staging import DAY, FETCHED_AT, NEXT_DAY, land, publish

EMAIL = "m@example.org"
FIRST = 101


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches and days, of which midnight's lead is in both; published."""
    data = DataFolder.at(tmp_path_factory.mktemp("published") / "data")
    for day in (DAY, NEXT_DAY):
        for branch in (FIRST, 102):
            midnight: dict[str, object] = {
                "id": "midnight",
                "createdAt": f"{NEXT_DAY}T00:00:00Z",
                "contact": {"email": EMAIL},
            }
            others: list[dict[str, object]] = [
                {"id": f"{day}-{branch}-{n}", "createdAt": f"{day}T09:00:00Z"} for n in range(3)
            ]
            leads: list[dict[str, object]] = [midnight, *others] if branch == FIRST else others
            land(data, APPLICANT, leads, scope=f"branch-{branch}", day=day)
            land(data, APPRAISAL, [], scope=f"branch-{branch}", day=day)
    publish(data)
    return data.folder


@pytest.fixture
def data(tmp_path: Path, published: Path) -> DataFolder:
    moved = tmp_path / "data"
    shutil.copytree(published, moved, symlinks=True)
    return DataFolder.at(moved)


def found(data: DataFolder, after: timedelta = timedelta(days=1)) -> dict[str, tuple[Light, str]]:
    settings = Settings.from_variables(
        {"LEADS_DATA_DIR": str(data.folder), "LEADS_START_DATE": str(DAY)}
    )
    return {
        one.check: (one.light, one.message)
        for one in verify(Facts(settings, data, FETCHED_AT + after))
    }


def not_green(data: DataFolder) -> dict[str, str]:
    return {check: light for check, (light, _) in found(data).items() if light is not Light.GREEN}


def test_a_whole_folder_is_green_and_says_how_much_it_counted(data: DataFolder) -> None:
    """By hand: 3 leads of 2 branches on 2 days, and one lead of midnight that both days hold."""
    assert not_green(data) == {}
    said = {check: message for check, (_, message) in found(data).items()}
    assert said.keys() == {
        "raw files",
        "published",
        "applicant leads",
        "appraisal leads",
        "marts",
        "typed tables",
    }
    assert said["raw files"] == "8 files of 8 windows are whole."
    assert said["applicant leads"] == "13, each once, in leads.duckdb."


def test_a_damaged_raw_file_is_red_and_its_leads_are_not_missed(data: DataFolder) -> None:
    path = next((data.folder / "raw").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    light, message = found(data)["files-damaged"]
    assert light is Light.RED
    assert message.startswith("Raw files of 1 app")
    assert not_green(data) == {"files-damaged": "red"}


def test_each_flipped_byte_of_the_published_file_is_red_until_the_next_publication(
    data: DataFolder,
) -> None:
    publish(data, now := datetime.now(UTC))
    path = LeadsFile(data).path.resolve()
    whole = path.read_bytes()
    times = path.stat()
    path.chmod(0o600)
    for place in (len(whole) // 10, len(whole) // 2):
        content = bytearray(whole)
        content[place] ^= 1
        path.write_bytes(content)
        light, message = found(data)["leads-duckdb"]
        assert (light, "`leads-pipeline backfill --last 1d`" in message) == (Light.RED, True), place
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # bytes that rot change no time
    publish(data, now)
    assert not_green(data) == {}


def test_a_window_that_waits_for_a_publication_is_yellow_and_is_not_counted(
    data: DataFolder,
) -> None:
    land(data, APPLICANT, [{"id": "late"}], fetched_at=FETCHED_AT.replace(hour=9))
    light, message = found(data)["leads-duckdb"]
    assert light is Light.YELLOW
    assert message.startswith(f"Landed and not published yet: {DAY}.")
    assert not_green(data) == {"leads-duckdb": "yellow"}


def test_a_missing_window_is_told_whatever_its_age(data: DataFolder) -> None:
    shutil.rmtree(data.folder / Place(APPLICANT, DAY, f"branch-{FIRST}").key)
    light, message = found(data, after=timedelta(days=400))["files-damaged/backup"]
    assert light is Light.RED
    assert message.startswith(
        "1 raw file can't be pulled again, and is damaged or missing: "
        f"raw/applicant_leads/day={DAY}"
    )


@pytest.mark.slow
def test_a_damaged_file_of_leads_that_are_set_aside_is_red(data: DataFolder) -> None:
    """No other file has them, and publications don't read it."""
    listed(list_of(data), Action.RESTRICT, emails=[EMAIL], until=None)
    publish(data)
    assert not_green(data) == {}
    path = next((data.folder / "restricted").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    light, message = found(data)["files-damaged/backup"]
    assert light is Light.RED
    assert "quarantine/restricted/applicant_leads" in message


CHANGES = {
    "1 of 13 leads in raw files are not in "
    "leads.duckdb.": "delete from applicant_leads where lead_id = 'midnight'",
    "13 leads are in leads.duckdb twice.": "insert into applicant_leads from applicant_leads",
}


@pytest.mark.parametrize("says", CHANGES)
def test_a_count_that_does_not_agree_is_red(data: DataFolder, says: str) -> None:
    path = LeadsFile(data).path.resolve()
    path.chmod(0o600)
    with connection(data.folder, path) as db:
        db.execute(CHANGES[says])
    hash_ = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    whole = path.rename(path.with_name(f"leads-1-{hash_}.duckdb"))  # as if it had been published so
    LeadsFile(data).path.unlink()
    LeadsFile(data).path.symlink_to(whole)
    assert says in found(data)["applicant leads"][1]
    assert not_green(data)["applicant leads"] == "red"


def test_leads_of_erased_people_that_a_backup_brought_back_are_red(data: DataFolder) -> None:
    listed(list_of(data), emails=[EMAIL], leads=[(APPLICANT.name, "midnight")], until=None)
    light, message = found(data)["sweep"]
    assert (light, "Run `leads-pipeline privacy apply`" in message) == (Light.RED, True)
