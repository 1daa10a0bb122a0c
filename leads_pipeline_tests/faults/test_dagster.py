"""Open faults that Dagster's users and its daemon meet. See the package for how the marks are used."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dagster import Definitions, TableColumn, TableSchema

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.orchestration.alerting import note_service
from leads_pipeline_tests.faults import command
from leads_pipeline_tests.support.installation import Installation, installation


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.chdir(tmp_path)
    with installation(tmp_path, first=2) as started:
        yield started


def test_a_queued_run_does_not_ask_for_a_branch_that_was_removed(here: Installation) -> None:
    here.environment["LEADS_BRANCH_IDS"] = "101,102"
    keys = {"partition_keys": sorted(here.keys([1], (102, 103)))}
    here.execute(tags={}, kinds=[APPLICANT], run_config={"ops": {"raw_applicant_leads": {"config": keys}}})
    assert set(here.asked()) == {here.key(1, 102)}


def test_status_tells_of_a_sensor_that_somebody_stopped(here: Installation) -> None:
    with here.daemon() as daemon:
        location = daemon.workspace.create_request_context().get_code_location("leads_pipeline")
        [repository] = location.get_repositories().values()
        for sensor in repository.get_sensors():
            here.instance.stop_sensor(sensor.get_remote_origin_id(), sensor.selector_id, sensor)
    note_service(here.instance, here.definitions.get_repository_def(), here.data.state, datetime.now(UTC))
    keys = {one["key"] for one in command("status", "--json").json["findings"]}
    assert {"service/retry_failed_partitions", "service/publish_changes"} <= keys


def schemas(definitions: Definitions) -> dict[str, list[TableColumn]]:
    found = {}
    for spec in definitions.resolve_all_asset_specs():
        schema = spec.metadata.get("dagster/column_schema")
        if isinstance(schema, TableSchema):
            found[spec.key.to_user_string()] = list(schema.columns)
    return found


def test_each_column_of_a_published_table_shows_its_type(here: Installation) -> None:
    columns = schemas(here.definitions)
    assert columns
    untyped = {table for table, listed in columns.items() if not all(column.type for column in listed)}
    assert untyped == set()
