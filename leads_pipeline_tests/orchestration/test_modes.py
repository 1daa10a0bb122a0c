"""Who may read the files of an installation."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS, ReceivedLead
from leads_pipeline.domain.window import Window
from leads_pipeline.features.inventory.today import INVENTORY_JOB
from leads_pipeline.features.pushes.placement import Placement
from leads_pipeline.orchestration.names import PUBLISH_JOB
from leads_pipeline.raw.names import place_of
from leads_pipeline_tests.support.installation import installation


def open_to_others(folder: Path) -> dict[str, str]:
    """What others than the owner may read, write or enter, with its mode.

    An empty folder doesn't count.
    """
    return {
        str(path.relative_to(folder)): f"{mode:o}"
        for path in sorted(folder.rglob("*"))
        if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077
        and (path.is_file() or any(path.iterdir()))
    }


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
        place = place_of(APPLICANT, Window.from_partition_key(here.key(2), here.settings.zone))
        next((here.data.folder / place.key).glob("*.parquet")).write_bytes(b"no Parquet")
        here.pull(here.keys([2]), LEAD_KINDS)
        assert here.execute(INVENTORY_JOB, tags={"dagster/partition": str(here.day(0))}).success
        pushed = ReceivedLead("a", '{"id":"a"}')
        place = Placement(here.settings.scopes, here.settings.zone).of(APPLICANT, pushed, here.now)
        here.data.raw.add(place, [pushed], here.now)
        assert here.execute(PUBLISH_JOB, tags={}).success

        folder = here.data.folder
        there = {path.name for path in folder.iterdir()}
        assert there >= {"raw", "quarantine", "reports", "leads.duckdb", "tables", ".state"}
        assert list((folder / ".state" / "tokens").glob("*.json"))
        # Analysts are let in by their group; docs/reference/files.md says how.
        of_analysts = (".versions", "leads.duckdb", "tables", "reports")
        found = open_to_others(folder)
        assert {path.split("/")[0] for path in found} == set(of_analysts)
        assert {mode for path, mode in found.items() if not (folder / path).is_symlink()} == {
            "750",
            "440",
        }
        home = Path(here.environment["DAGSTER_HOME"])
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
