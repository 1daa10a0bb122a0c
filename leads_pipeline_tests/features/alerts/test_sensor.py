"""The sensor `alert`: what it tells a real sink, and what it notes of the service."""

import json
from collections.abc import Iterator

import pytest
from dagster import DefaultSensorStatus, build_sensor_context

from leads_pipeline.features.alerts.sensor import alert_sensor
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.installation import home
from leads_pipeline_tests.support.sinks import WebSink, web_sink

TOKEN = "T0KEN"


@pytest.fixture
def web() -> Iterator[WebSink]:
    with web_sink() as sink:
        yield sink


def tick(house: House, web: WebSink) -> str:
    settings = house.settings(
        LEADS_ALERT_WEBHOOK=f"{web.url}/{TOKEN}/hook", LEADS_HEARTBEAT_URL=f"{web.url}/{TOKEN}/beat"
    )
    sensor = alert_sensor(settings, clock=lambda: house.now)
    assert sensor.default_status is DefaultSensorStatus.RUNNING
    with home(house.folder.parent / "home") as instance:
        context = build_sensor_context(instance, resources={"data": house.data})
        return str(sensor.evaluate_tick(context))


def test_refused_windows_are_told_and_the_heartbeat_fails(house: House, web: WebSink) -> None:
    """promises/test_told_once.py tells of the end, and of a second look."""
    house.fail("applicant")

    result = tick(house, web)

    [(_, _, message), (_, heartbeat, _)] = web.requests
    assert "refuse" in json.loads(message)["title"]
    assert heartbeat == f"/{TOKEN}/beat/fail"
    assert TOKEN not in result
