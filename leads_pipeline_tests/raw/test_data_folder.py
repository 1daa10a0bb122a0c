"""The parts of a data folder together, made from the settings."""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.service.alone import alone
from leads_pipeline.raw.data_folder import DataFolder, move_demo
from leads_pipeline_tests.support.one_window import HERS, ids, land
from leads_pipeline_tests.support.sample_answers import CLOSED_AT


def test_the_demos_data_stays_while_a_service_works_with_it(tmp_path: Path) -> None:
    """Also if DAGSTER_HOME lies elsewhere."""
    data = DataFolder.at(tmp_path / "data")
    home = tmp_path / "home"
    land(data, HERS)
    home.mkdir()
    with alone(home, "its address"), pytest.raises(SettingsError, match="is in use"):
        move_demo(data, home, CLOSED_AT)
    assert ids(data) == {"hers"}
    assert ids(DataFolder.at(move_demo(data, home, CLOSED_AT))) == {"hers"}
