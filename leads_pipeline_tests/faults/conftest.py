"""A new installation for each test: an empty folder and the variables that name a portal of the test's own."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from leads_pipeline_tests.promises.portal import variables

Install = Callable[..., Path]


def installed(patch: pytest.MonkeyPatch, folder: Path, address: str, **others: str) -> Path:
    """Work in `folder` with the variables of a portal's address, and others by name. Give the data folder."""
    given = {name: value for name, value in variables(address, "data").items() if name.startswith("LEADS_")}
    for name, value in {**given, "LEADS_BRANCH_IDS": "101", "DAGSTER_HOME": "home", **others}.items():
        patch.setenv(name, value)
    patch.chdir(folder)
    return folder / "data"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Set up an installation in the test's own folder, which is empty."""
    return partial(installed, monkeypatch, tmp_path)
