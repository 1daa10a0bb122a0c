"""`verify` reads every file, counts what is there, and says what is missing."""

import hashlib
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.features.doctor.verify import verify
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.privacy.suppression import Action
from leads_pipeline.health.seen import Light
from leads_pipeline.raw.names import Place
from leads_pipeline.warehouse.duck import connection
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, NOW, House
from leads_pipeline_tests.support.people import listed

EMAIL = "m@example.org"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two branches and days, of which midnight's lead is in both; published."""
    house = House(tmp_path_factory.mktemp("published") / "data")
    midnight = {
        "id": "midnight",
        "createdAt": f"{NEXT_DAY}T00:00:00Z",
        "contact": {"email": EMAIL},
    }
    for day in (DAY, NEXT_DAY):
        for scope in house.scopes:
            leads = [
                {"id": f"{day}-{scope}-{number}", "createdAt": f"{day}T09:00:00Z"}
                for number in range(3)
            ]
            shared = [midnight] if scope == "branch-101" else []
            house.land("applicant", [*shared, *leads], day, scope)
            house.land("appraisal", [], day, scope)
    house.publish()
    return house


@pytest.fixture
def house(tmp_path: Path, published: House) -> House:
    return published.copied(tmp_path / "data")


def found(house: House, after: timedelta = timedelta(days=1)) -> dict[str, tuple[Light, str]]:
    house.now = NOW + after
    return {one.check: (one.light, one.message) for one in verify(house.facts())}


def not_green(house: House) -> dict[str, str]:
    return {check: light for check, (light, _) in found(house).items() if light is not Light.GREEN}


def test_a_whole_folder_is_green_and_says_how_much_it_counted(house: House) -> None:
    """By hand: 3 leads of 2 branches on 2 days, and one lead of midnight that both days hold."""
    assert not_green(house) == {}
    said = {check: message for check, (_, message) in found(house).items()}
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


def test_each_flipped_byte_of_the_published_file_is_red_until_the_next_publication(
    house: House,
) -> None:
    path = house.file.resolve()
    whole = path.read_bytes()
    times = path.stat()
    path.chmod(0o600)
    for place in (len(whole) // 10, len(whole) // 2):
        content = bytearray(whole)
        content[place] ^= 1
        path.write_bytes(content)
        light, message = found(house)["leads-duckdb"]
        assert (light, "`leads-pipeline backfill --last 1d`" in message) == (Light.RED, True), place
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # bytes that rot change no time
    house.publish()
    assert not_green(house) == {}


def test_a_window_that_waits_for_a_publication_is_yellow_and_is_not_counted(
    house: House,
) -> None:
    house.land("applicant", [{"id": "late"}])
    light, message = found(house)["leads-duckdb"]
    assert light is Light.YELLOW
    assert message.startswith(f"Landed and not published yet: {DAY}.")
    assert not_green(house) == {"leads-duckdb": "yellow"}


def test_a_missing_window_is_told_whatever_its_age(house: House) -> None:
    shutil.rmtree(house.folder / Place(APPLICANT, DAY, "branch-101").key)
    light, message = found(house, after=timedelta(days=400))["files-damaged/backup"]
    assert light is Light.RED
    assert message.startswith(
        "1 raw file can't be pulled again, and is damaged or missing: "
        f"raw/applicant_leads/day={DAY}"
    )


@pytest.mark.slow
def test_a_damaged_file_of_leads_that_are_set_aside_is_red(house: House) -> None:
    """No other file has them, and publications don't read it."""
    listed(list_of(house.data), Action.RESTRICT, emails=[EMAIL], until=None)
    house.publish()
    assert not_green(house) == {}
    path = next((house.folder / "restricted").rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    light, message = found(house)["files-damaged/backup"]
    assert light is Light.RED
    assert "quarantine/restricted/applicant_leads" in message


CHANGES = {
    "1 of 13 leads in raw files are not in "
    "leads.duckdb.": "delete from applicant_leads where lead_id = 'midnight'",
    "13 leads are in leads.duckdb twice.": "insert into applicant_leads from applicant_leads",
}


@pytest.mark.parametrize("says", CHANGES)
def test_a_count_that_does_not_agree_is_red(house: House, says: str) -> None:
    path = house.file.resolve()
    path.chmod(0o600)
    with connection(house.folder, path) as db:
        db.execute(CHANGES[says])
    hash_ = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    whole = path.rename(path.with_name(f"leads-1-{hash_}.duckdb"))  # as if it had been published so
    house.file.unlink()
    house.file.symlink_to(whole)
    assert says in found(house)["applicant leads"][1]
    assert not_green(house)["applicant leads"] == "red"


def test_leads_of_erased_people_that_a_backup_brought_back_are_red(house: House) -> None:
    listed(list_of(house.data), emails=[EMAIL], leads=[(APPLICANT.name, "midnight")], until=None)
    light, message = found(house)["sweep"]
    assert (light, "Run `leads-pipeline privacy apply`" in message) == (Light.RED, True)
