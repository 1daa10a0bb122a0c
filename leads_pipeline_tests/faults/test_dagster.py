"""Open faults that Dagster's users and its daemon meet. See the package for how the marks are used."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dagster import Definitions, SensorDefinition, TableColumn, TableSchema

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.orchestration.service_note import note_service
from leads_pipeline.simulator.faults import Then
from leads_pipeline_tests.faults import command, fault
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.raw_server import RawServer, respond


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.chdir(tmp_path)
    with installation(tmp_path, first=2) as started:
        yield started


def sensor_of(here: Installation, name: str) -> SensorDefinition:
    [sensor] = [one for one in here.definitions.sensors or () if one.name == name]
    assert isinstance(sensor, SensorDefinition)
    return sensor


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
    assert {"stopped/retry_failed_partitions", "stopped/publish_changes"} <= keys


@fault(19, "the path goes behind the query")
def test_a_heartbeat_address_keeps_its_query(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = here.keys([1])
    here.simulator.set_faults(here.rules(keys, Then(status=403)))
    nightly = {"dagster/schedule_name": "pull_daily"}
    config = {"ops": {"raw_applicant_leads": {"config": {"partition_keys": sorted(keys)}}}}
    assert not here.execute(tags=nightly, kinds=[APPLICANT], run_config=config).success
    with closing(RawServer()) as server:
        server.script = respond(b"", "Connection: close")
        here.environment["LEADS_HEARTBEAT_URL"] = f"{server.url}/beat?key=1"
        monkeypatch.setenv("LEADS_HEARTBEAT_URL", here.environment["LEADS_HEARTBEAT_URL"])
        here.tick(sensor_of(here, "tell_people"))
    [request] = server.requests
    assert request.split()[1] == b"/beat/fail?key=1"


def schemas(definitions: Definitions) -> dict[str, list[TableColumn]]:
    found = {}
    for spec in definitions.resolve_all_asset_specs():
        schema = spec.metadata.get("dagster/column_schema")
        if isinstance(schema, TableSchema):
            found[spec.key.to_user_string()] = list(schema.columns)
    return found


@fault(31, "columns of marts have no type")
def test_each_column_of_a_published_table_shows_its_type(here: Installation) -> None:
    columns = schemas(here.definitions)
    assert columns
    untyped = {table for table, listed in columns.items() if not all(column.type for column in listed)}
    assert untyped == set()
