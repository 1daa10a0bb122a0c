"""Who may read the files of an installation."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.features.inventory.today import INVENTORY_JOB
from leads_pipeline.orchestration.names import PUBLISH_JOB
from leads_pipeline_tests.support.installation import installation


def open_to_others(folder: Path) -> dict[str, str]:
    """What others than the owner may read, write or enter, with its mode.

    An empty folder doesn't count.
    """
    found = {}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        is_empty = path.is_dir() and not any(path.iterdir())
        if mode & 0o077 and not is_empty:
            found[str(path.relative_to(folder))] = f"{mode:o}"
    return found


@pytest.fixture
def umask() -> Iterator[None]:
    """A shell that lets everybody read and write what is made in it, unless its maker says
    otherwise.
    """
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.slow
def test_a_whole_installation_is_for_its_owner_alone(tmp_path: Path) -> None:
    with installation(tmp_path, first=4) as here:
        here.pull(here.keys([1, 2]), LEAD_KINDS)
        next(here.data.folder.glob("raw/applicant_leads/*/*/*.parquet")).write_bytes(b"no Parquet")
        here.pull(here.keys([1, 2]), LEAD_KINDS)
        assert here.execute(INVENTORY_JOB, tags={"dagster/partition": str(here.day(0))}).success
        assert here.execute(PUBLISH_JOB).success

        folder = here.data.folder
        there = {path.name for path in folder.iterdir()}
        assert there >= {"raw", "quarantine", "reports", "leads.duckdb", "tables", ".state"}
        assert list((folder / ".state" / "tokens").glob("*.json"))
        # Analysts are let in by their group; docs/reference/files.md says how.
        found = open_to_others(folder)
        of_analysts = {".versions", "leads.duckdb", "tables", "reports"}
        assert {path.split("/")[0] for path in found} == of_analysts
        modes = {mode for path, mode in found.items() if not (folder / path).is_symlink()}
        assert modes == {"750", "440"}
        assert stat.S_IMODE(folder.with_name("home").stat().st_mode) == 0o700
