"""Damaged and missing files: they are found, named wherever somebody looks, and cost no lead until
they are whole.
"""

import shutil
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.features.doctor.verify import verify
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import Light
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Two branches with a lead each, published."""
    house = House(tmp_path_factory.mktemp("published") / "data")
    house.land("applicant", [{"id": "101"}], scope="branch-101")
    house.land("applicant", [{"id": "102"}], scope="branch-102")
    house.publish()
    return house


@pytest.fixture
def house(published: House, tmp_path: Path) -> House:
    """A copy of it to damage."""
    return published.copied(tmp_path / "data")


def raw_of(house: House, scope: str) -> Path:
    [path] = house.folder.glob(f"raw/applicant_leads/*/scope={scope}/*.parquet")
    return path


def facts_of(house: House) -> Facts:
    variables = {"LEADS_DATA_DIR": str(house.folder), "LEADS_START_DATE": str(DAY)}
    return Facts(Settings.from_variables(variables), house.data, house.now, is_thorough=True)


@pytest.mark.parametrize("is_gone", [False, True])
def test_readers_keep_what_a_damaged_or_missing_raw_file_held(house: House, is_gone: bool) -> None:
    path = raw_of(house, "branch-101")
    path.unlink() if is_gone else path.write_bytes(b"rotten")
    house.land("applicant", [{"id": "next"}], NEXT_DAY)

    red = {one.check for one in verify(facts_of(house)) if one.light is Light.RED}
    house.publish()

    assert red == {"files-damaged"}
    assert house.leads("applicant").keys() == {"101", "102", "next"}
    [damaged] = facts_of(house).damaged
    there = "raw" if is_gone else "quarantine/raw"
    assert damaged.key.startswith(f"{there}/applicant_leads/day={DAY}/scope=branch-101")


def test_a_file_that_is_built_anew_beside_a_damaged_raw_file_takes_its_leads_over(
    house: House,
) -> None:
    raw_of(house, "branch-101").write_bytes(b"rotten")
    house.zone = ZoneInfo("UTC")  # which has it built anew

    house.publish()

    assert house.leads("applicant").keys() == {"101", "102"}
    assert len(facts_of(house).damaged) == 1


@pytest.mark.slow
def test_a_damaged_file_that_is_put_back_is_read_by_the_next_publication(house: House) -> None:
    house.land("applicant", [{"id": "103"}], scope="branch-103")
    path = raw_of(house, "branch-103")
    content = path.read_bytes()
    path.write_bytes(b"rotten")
    house.publish()
    assert house.leads("applicant").keys() == {"101", "102"}

    path.write_bytes(content)
    house.publish()
    assert house.leads("applicant").keys() == {"101", "102", "103"}


def test_a_lost_window_is_given_up_as_the_readme_says(house: House) -> None:
    raw_of(house, "branch-101").unlink()
    house.file.unlink()
    shutil.rmtree(house.folder / ".versions")

    house.publish()

    assert house.leads("applicant").keys() == {"102"}
    assert facts_of(house).damaged == []
