"""The parts of a data folder together, made from the settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.service.alone import alone
from leads_pipeline.raw.data_folder import DataFolder, move_demo
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.rows import merged, newest_payloads
from leads_pipeline_tests.support.people import EMAIL, lead
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


def test_the_demos_data_stays_while_a_service_works_with_it(tmp_path: Path) -> None:
    """Also if DAGSTER_HOME lies elsewhere."""
    data, home = DataFolder.at(tmp_path / "data"), tmp_path / "home"
    land(data, HERS)
    home.mkdir()
    with alone(home, "its address"), pytest.raises(SettingsError, match="is in use"):
        move_demo(data, home, CLOSED_AT)
    assert ids(data) == {"hers"}
    assert ids(DataFolder.at(move_demo(data, home, CLOSED_AT))) == {"hers"}
