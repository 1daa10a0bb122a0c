"""Machines with one bucket have the same leads, list and keys, and refuse another version's."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.rows import FORMAT
from leads_pipeline.raw.store import Store
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.buckets import new_bucket
from leads_pipeline_tests.support.command_line import FOR_ANY_COMMAND, run
from leads_pipeline_tests.support.people import EMAIL, lead, listed
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, DAY, WINDOW

PLACE = place_of(APPLICANT, WINDOW)
HERS = lead("hers", email=EMAIL, createdAt="2026-11-19T10:00:00Z")
OTHERS = lead("others", email="john@people.example", createdAt="2026-11-19T10:00:00Z")


def land(data: DataFolder, *leads: dict[str, Any]) -> None:
    """Pull the window. The portal answers with these leads."""
    received = [ReceivedLead(one["id"], json.dumps(one)) for one in leads]
    data.raw.land(APPLICANT, WINDOW, received, CLOSED_AT, json.dumps(leads), "run-1")


def ids(data: DataFolder) -> set[str]:
    """The ids in the window."""
    return {row.lead_id for row in data.raw.read(PLACE).rows}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with settings for all commands. The working directory is beside it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    os.environ.update(FOR_ANY_COMMAND)
    return tmp_path / "work"


@pytest.fixture
def settings(moto: str, folder: Path) -> Settings:
    """The settings of a machine with a new bucket, which works in that folder."""
    os.environ.update(LEADS_DATA_DIR=new_bucket(moto), LEADS_WORK_DIR=str(folder))
    return Settings.from_variables(os.environ)


def test_a_folder_moves_into_a_bucket_and_back_as_the_guide_says(moto: str, tmp_path: Path) -> None:
    """Raw files are copied by hand. Keys, the first day and the list follow by themselves."""
    address = new_bucket(moto)
    alone = DataFolder.at(tmp_path / "data")
    alone.state.remember_start_date(DAY)
    land(alone, HERS, OTHERS)
    listed(list_of(alone))
    key = alone.state.person_key()
    number = alone.gate.newest_entry

    def in_the_bucket(work: str) -> DataFolder:
        variables = {"LEADS_DATA_DIR": address, "LEADS_WORK_DIR": str(tmp_path / work)}
        return DataFolder.of(Settings.from_variables({**variables, "AWS_ENDPOINT_URL": moto}))

    def copy(source: Store, target: Store) -> None:
        for name in source.list("raw/"):
            target.create(name, source.get(name) or b"")

    moved = in_the_bucket("data")
    copy(alone.store, moved.store)
    moved.exchange_with_bucket()
    other = in_the_bucket("other")
    other.exchange_with_bucket()
    assert (other.state.person_key(), other.gate.newest_entry) == (key, number)
    assert other.state.start_date() == DAY
    assert ids(other) == {"hers", "others"}  # until it is swept
    land(other, HERS, OTHERS, lead("new"))
    assert ids(moved) == {"others", "new"}

    back = DataFolder.at(tmp_path / "data")
    back.store.delete(back.store.list("raw/"))
    copy(moved.store, back.store)
    assert (back.state.person_key(), back.gate.newest_entry) == (key, number)
    assert ids(back) == {"others", "new"}


@pytest.mark.parametrize(
    "files",
    [
        {"state/raw_format": f"{FORMAT + 1}\n"},
        {f"{PLACE.key}leads-{32 * '0'}.parquet": "PAR1"},
    ],
)
def test_a_bucket_of_another_version_is_refused_and_stays_as_it_is(
    settings: Settings, folder: Path, files: dict[str, str]
) -> None:
    bucket: Any = DataFolder.of(settings).bucket
    for key, content in files.items():
        bucket.create(key, content.encode())

    for command in ("status", "backfill --last 1d", "receive --port 0"):
        done = run(*command.split())
        assert done.exit_code == 2
        assert f"{settings.store} has " in done.output

    assert {key: bucket.get(key).decode() for key in bucket.list("")} == files
    assert not folder.exists()
