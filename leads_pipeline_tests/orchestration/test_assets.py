"""What the assets publish and say, in real runs against the simulator."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.orchestration.names import PUBLISH_JOB
from leads_pipeline_tests.support.installation import Installation, installation

pytestmark = pytest.mark.slow


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, first=10) as started:
        yield started


def materializations(here: Installation, asset: str) -> dict[str | None, dict[str, Any]]:
    """The newest metadata of each partition of an asset."""
    found = {}
    records = here.instance.fetch_materializations(AssetKey(asset), 1000, ascending=True).records
    for record in records:
        assert record.asset_materialization
        metadata = record.asset_materialization.metadata
        found[record.partition_key] = {name: value.value for name, value in metadata.items()}
    return found


# --- published ------------------------------------------------------------------------------------


def test_published_tables_say_how_many_rows_they_hold_and_what_the_publication_did(
    here: Installation,
) -> None:
    here.pull(here.keys([2, 3]), [APPLICANT])
    leads = len(here.truth(APPLICANT, here.keys([2, 3])))

    here.execute(PUBLISH_JOB, tags={})

    [said] = materializations(here, "mart_leads_daily").values()
    assert (said["way"], said["windows_changed"], said["leads_changed"]) == ("new file", 6, leads)

    here.execute(PUBLISH_JOB, tags={})

    [said] = materializations(here, "applicant_leads").values()
    assert (said["way"], said["leads_changed"]) == ("unchanged", 0)
    assert said["dagster/row_count"] == leads


def test_a_run_records_each_own_table_that_it_made_also_of_files_that_came_after_the_start(
    here: Installation,
) -> None:
    folder = here.data.folder.with_name("marts")
    folder.mkdir()
    (folder / "names.csv").write_text("name\nAnn\nBen\n")
    here.environment["LEADS_MARTS_DIR"] = str(folder)
    assert AssetKey("names") in here.definitions.resolve_asset_graph().external_asset_keys
    (folder / "later.csv").write_text("name\nAnn\n")
    (folder / "wrong.sql").write_text("select 1")

    assert here.execute(PUBLISH_JOB).success

    assert [*materializations(here, "names").values()] == [{"dagster/row_count": 2}]
    assert [*materializations(here, "later").values()] == [{"dagster/row_count": 1}]
    assert materializations(here, "wrong") == {}
