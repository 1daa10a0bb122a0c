"""The parts of a data folder together, made from the settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.features.service.alone import alone
from leads_pipeline.raw.data_folder import DataFolder, move_demo
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.rows import merged, newest_payloads
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.people import EMAIL, lead, listed
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, WINDOW

PLACE = place_of(APPLICANT, WINDOW)
HERS = lead("hers", email=EMAIL, createdAt="2026-11-19T10:00:00Z")
OTHERS = lead("others", email="john@people.example", createdAt="2026-11-19T10:00:00Z")


def received(*leads: dict[str, Any]) -> list[ReceivedLead]:
    return [ReceivedLead(str(one["id"]), json.dumps(one)) for one in leads]


def ids(data: DataFolder) -> set[str]:
    return set(newest_payloads(merged(data.raw.read(PLACE).rows)))


def land(data: DataFolder, *leads: dict[str, Any]) -> None:
    data.raw.land(APPLICANT, WINDOW, received(*leads), CLOSED_AT, json.dumps(leads), "run-1")


def test_making_one_touches_nothing(tmp_path: Path) -> None:
    DataFolder.at(tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_the_settings_name_folder_list_and_retention(tmp_path: Path) -> None:
    variables = {
        "LEADS_DATA_DIR": str(tmp_path / "data"),
        "LEADS_PRIVACY_DIR": str(tmp_path / "privacy"),
        "LEADS_KEEP_PERSONAL_DAYS": "35",
    }
    data = DataFolder.of(Settings.from_variables(variables))
    listed(list_of(data))
    land(data, HERS, OTHERS)
    assert ids(data) == {"others"}
    assert (tmp_path / "privacy" / "list").is_dir()
    assert (tmp_path / "data" / ".state" / "landed").exists()
    assert data.is_behind
    data.state.note_swept(data.gate.newest_entry)
    assert not data.is_behind


def test_the_demos_data_stays_while_a_service_works_with_it(tmp_path: Path) -> None:
    """Also if DAGSTER_HOME lies elsewhere."""
    data, home = DataFolder.at(tmp_path / "data"), tmp_path / "home"
    land(data, HERS)
    home.mkdir()
    with alone(home, "its address"), pytest.raises(SettingsError, match="is in use"):
        move_demo(data, home, CLOSED_AT)
    assert ids(data) == {"hers"}
    assert ids(DataFolder.at(move_demo(data, home, CLOSED_AT))) == {"hers"}
