"""The agency of a test."""

from pathlib import Path

import pytest

from leads_pipeline_tests.features.delivery.agency import Agency


@pytest.fixture
def agency(tmp_path: Path) -> Agency:
    return Agency(tmp_path / "data")
