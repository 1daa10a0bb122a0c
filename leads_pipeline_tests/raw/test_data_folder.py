"""The parts of a data folder together, made from the settings."""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.service.alone import alone
from leads_pipeline.raw.data_folder import move_demo
from leads_pipeline_tests.support.house import House


def test_the_demos_data_stays_while_a_service_works_with_it(house: House, tmp_path: Path) -> None:
    """Also if DAGSTER_HOME lies elsewhere."""
    home = tmp_path / "home"
    home.mkdir()
    house.land("applicant", [{"id": "a"}])
    leads = house.raw("applicant")

    with alone(home, "its address"), pytest.raises(SettingsError, match="is in use"):
        move_demo(house.data, home, house.now)
    assert house.raw("applicant") == leads

    aside = House(move_demo(house.data, home, house.now))
    assert house.raw("applicant") == []
    assert aside.raw("applicant") == leads
