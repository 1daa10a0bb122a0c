"""Damaged and missing files: they are found, named wherever somebody looks, and cost no lead until
they are whole.
"""

import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.features.doctor.verify import verify
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.seen import Light
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.staging import (
    DAY,
    FETCHED_AT,
    NEXT_DAY,
    land,
    publish,
    published_leads,
)

LATER = FETCHED_AT + timedelta(hours=1)


@pytest.fixture(scope="module")
def published_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two branches with two leads each, published."""
    data = DataFolder.at(tmp_path_factory.mktemp("published") / "data")
    for branch in ("101", "102"):
        land(data, APPLICANT, [{"id": f"{branch}-{n}"} for n in (1, 2)], scope=f"branch-{branch}")
    publish(data)
    return data.folder


@pytest.fixture
def data(published_once: Path, tmp_path: Path) -> DataFolder:
    """A copy of it to damage."""
    shutil.copytree(published_once, tmp_path / "data", symlinks=True)
    return DataFolder.at(tmp_path / "data")


def raw_of(data: DataFolder, branch: str, day: date = DAY) -> Path:
    [path] = (data.folder / Place(APPLICANT, day, f"branch-{branch}").key).glob("*.parquet")
    return path


def damaged_files(data: DataFolder) -> list[str]:
    facts = Facts(settings_of(data), data, datetime.now(UTC), is_thorough=True)
    return [one.key for one in facts.damaged]


def settings_of(data: DataFolder) -> Settings:
    return Settings.from_variables(
        {"LEADS_DATA_DIR": str(data.folder), "LEADS_START_DATE": str(DAY)}
    )


def published_ids(data: DataFolder) -> list[str]:
    return sorted(published_leads(data, APPLICANT))


ALL = ["101-1", "101-2", "102-1", "102-2"]


@pytest.mark.parametrize("is_gone", [False, True])
def test_readers_keep_what_a_damaged_or_missing_raw_file_held(
    data: DataFolder, is_gone: bool
) -> None:
    path = raw_of(data, "101")
    path.unlink() if is_gone else path.write_bytes(b"rotten")
    land(data, APPLICANT, [{"id": "next"}], day=NEXT_DAY, fetched_at=LATER)
    seen = verify(Facts(settings_of(data), data, LATER))
    assert next(one.check for one in seen if one.light is Light.RED) == "files-damaged"
    publish(data, LATER)
    assert published_ids(data) == [*ALL, "next"]
    [damaged] = damaged_files(data)
    there = "raw" if is_gone else "quarantine/raw"
    assert damaged.startswith(f"{there}/applicant_leads/day={DAY}/scope=branch-101")


def test_a_file_that_is_built_anew_beside_a_damaged_raw_file_takes_its_leads_over(
    data: DataFolder,
) -> None:
    raw_of(data, "101").write_bytes(b"rotten")
    (data.folder / ".state" / "person_key").unlink()  # all people's hashes change
    assert publish(data).way == "new file"
    assert published_ids(data) == ALL
    assert damaged_files(data)[0].startswith("quarantine/raw/")


@pytest.mark.slow
def test_a_damaged_file_that_is_put_back_is_read_by_the_next_publication(data: DataFolder) -> None:
    land(data, APPLICANT, [{"id": "103-1"}], scope="branch-103")
    path = raw_of(data, "103")
    content = path.read_bytes()
    path.write_bytes(b"rotten")
    publish(data)
    assert published_ids(data) == ALL

    path.write_bytes(content)
    publish(data)
    assert published_ids(data) == [*ALL, "103-1"]


def test_a_lost_window_is_given_up_as_the_readme_says(data: DataFolder) -> None:
    raw_of(data, "101").unlink()
    (data.folder / "leads.duckdb").unlink()
    shutil.rmtree(data.folder / ".versions")
    publish(data)
    assert published_ids(data) == ["102-1", "102-2"]
    assert damaged_files(data) == []
