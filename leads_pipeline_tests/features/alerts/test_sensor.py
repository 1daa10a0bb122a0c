"""The sensor `alert`: what it tells a real sink, and what it notes of the service."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from dagster import DefaultSensorStatus, SensorDefinition

from leads_pipeline.features.alerts.sensor import alert_sensor
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Then
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.sinks import WebSink, web_sink

TOKEN = "T0KEN"


@pytest.fixture
def web() -> Iterator[WebSink]:
    with web_sink() as sink:
        yield sink


@pytest.fixture
def here(tmp_path: Path, web: WebSink) -> Iterator[Installation]:
    variables = {
        "LEADS_ALERT_WEBHOOK": f"{web.url}/{TOKEN}/hook",
        "LEADS_HEARTBEAT_URL": f"{web.url}/{TOKEN}/beat",
    }
    with installation(
        tmp_path, Config(branches=3, leads_per_day=8), variables=variables, first=4
    ) as started:
        yield started


def test_refused_windows_are_told_and_the_heartbeat_fails(here: Installation, web: WebSink) -> None:
    """promises/test_told_once.py tells of the end, and of a second look."""
    keys = here.keys((2, 3))
    here.simulator.set_faults(here.rules(keys, Then(status=404)))
    here.pull(keys)

    result = here.tick(alert_sensor(here.settings))

    [(_, _, message), (_, heartbeat, _)] = web.requests
    assert "refuse" in json.loads(message)["title"]
    assert heartbeat == f"/{TOKEN}/beat/fail"
    assert TOKEN not in str(result)


def test_the_sensor_is_on_without_a_channel_too(here: Installation) -> None:
    for name in ("LEADS_ALERT_WEBHOOK", "LEADS_HEARTBEAT_URL"):
        del here.environment[name]
    [sensor] = [one for one in here.definitions.sensors or () if one.name == "alert"]
    assert isinstance(sensor, SensorDefinition)
    assert sensor.default_status is DefaultSensorStatus.RUNNING
    assert "Sent on: none" in str(here.tick(sensor).skip_message)


def test_a_machine_that_is_on_again_is_not_told_of(here: Installation, web: WebSink) -> None:
    """This sensor may tick before the core's one that notes the service."""
    here.data.state.note_service(here.now - timedelta(days=1), [])

    here.tick(alert_sensor(here.settings))

    noted = here.data.state.service()
    assert noted is not None
    assert noted[0] >= here.now
    assert not [body for _, _, body in web.requests if b"no sign of life" in body]


def test_a_stopped_sensor_that_notes_the_service_is_noted_by_this_one(here: Installation) -> None:
    with here.daemon() as daemon:
        location = daemon.workspace.create_request_context().get_code_location("leads_pipeline")
        [repository] = location.get_repositories().values()
        retry = repository.get_sensor("retry_failed_partitions")
        here.instance.stop_sensor(retry.get_remote_origin_id(), retry.selector_id, retry)

    here.tick(alert_sensor(here.settings))

    noted = here.data.state.service()
    assert noted is not None
    assert noted[1] == ["retry_failed_partitions"]
