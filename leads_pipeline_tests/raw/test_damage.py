"""Damaged and missing files: they are found, named wherever somebody looks, and cost no lead until
they are whole.
"""

import shutil
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.features.doctor.verify import verify
from leads_pipeline.health.seen import Light
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """Three branches with a lead each, published."""
    house = House(tmp_path_factory.mktemp("published") / "data")
    for branch in ("101", "102", "103"):
        house.land("applicant", [{"id": branch}], scope=f"branch-{branch}")
    house.publish()
    return house


@pytest.fixture
def house(published: House, tmp_path: Path) -> House:
    return published.copied(tmp_path / "data")


def raw_of(house: House, scope: str) -> Path:
    [path] = house.folder.glob(f"raw/applicant_leads/*/scope={scope}/*.parquet")
    return path


def test_readers_keep_what_damaged_and_missing_raw_files_held(house: House) -> None:
    raw_of(house, "branch-101").unlink()
    raw_of(house, "branch-102").write_bytes(b"rotten")
    house.land("applicant", [{"id": "next"}], NEXT_DAY)

    not_green = {one.check for one in verify(house.facts()) if one.light is not Light.GREEN}
    house.publish()

    assert not_green == {"files-damaged", "leads-duckdb"}  # the next day waits for a publication
    assert house.leads("applicant").keys() == {"101", "102", "103", "next"}
    window = f"raw/applicant_leads/day={DAY}/scope=branch"
    missing, damaged = sorted((one.key for one in house.facts().damaged), reverse=True)
    assert missing.startswith(f"{window}-101")
    assert damaged.startswith(f"quarantine/{window}-102")


def test_a_file_that_is_built_anew_beside_a_damaged_raw_file_takes_its_leads_over(
    house: House,
) -> None:
    raw_of(house, "branch-101").write_bytes(b"rotten")
    house.zone = ZoneInfo("UTC")  # which has it built anew

    house.publish()

    assert house.leads("applicant").keys() == {"101", "102", "103"}
    assert len(house.facts().damaged) == 1


@pytest.mark.slow
def test_a_damaged_file_that_is_put_back_is_read_by_the_next_publication(house: House) -> None:
    house.land("applicant", [{"id": "104"}], scope="branch-104")
    path = raw_of(house, "branch-104")
    content = path.read_bytes()
    path.write_bytes(b"rotten")
    house.publish()
    assert "104" not in house.leads("applicant")

    path.write_bytes(content)
    house.publish()
    assert house.leads("applicant").keys() == {"101", "102", "103", "104"}


def test_a_lost_window_is_given_up_as_the_readme_says(house: House) -> None:
    raw_of(house, "branch-101").unlink()
    house.file.unlink()
    shutil.rmtree(house.folder / ".versions")

    house.publish()

    assert house.leads("applicant").keys() == {"102", "103"}
    assert house.facts().damaged == []
