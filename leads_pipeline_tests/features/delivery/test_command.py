"""The command `deliver`, against an endpoint on a socket."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from leads_pipeline_tests.features.delivery.agency import lead
from leads_pipeline_tests.support import crm
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import DAY, House

Applied = dict[str, dict[str, Any]]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    house = House(tmp_path / "data")
    house.land("applicant", [lead(1), lead(2)])
    monkeypatch.chdir(tmp_path)
    for name, value in {"LEADS_DATA_DIR": str(house.folder), "LEADS_DELIVERY_FROM": str(DAY)}.items():
        monkeypatch.setenv(name, value)
    return house


@pytest.fixture
def applied(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Applied]:  # noqa: ARG001 - it sets variables
    with crm.running() as (address, found):
        monkeypatch.setenv("LEADS_DELIVERY_URL", address)
        monkeypatch.setenv("LEADS_DELIVERY_SECRET", crm.SECRET)
        yield found


def ended(result: Result) -> tuple[int, str]:
    return result.exit_code, result.stdout.strip()


def test_leads_are_delivered_and_the_command_ends_well(applied: Applied) -> None:
    assert run("deliver", "status").stdout == "Nothing was ever delivered from this folder.\n"
    assert ended(run("deliver")) == (0, "Delivered to 127.0.0.1: 2. Left: 0.")
    assert ended(run("deliver", "--now")) == (0, "Delivered to 127.0.0.1: 0. Left: 0.")
    assert sorted(one["data"]["lead_id"] for one in applied.values()) == ["lead-1", "lead-2"]
    assert "delivered  2, last 20" in run("deliver", "status").stdout


def test_what_is_left_is_told_and_listed_with_its_reason(applied: Applied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_DELIVERY_URL", "http://127.0.0.1:9/nobody")
    result = run("deliver")
    assert ended(result) == (1, "Delivered to 127.0.0.1: 0. Left: 2.")
    assert "can't be reached" in result.stderr
    said = run("deliver", "status").stdout
    assert "waiting    2" in said
    assert f"waiting: applicant lead lead-1 of {DAY}, 1 attempt, the last can't be reached: Connection refused." in said
    assert json.loads(run("deliver", "status", "--json").stdout)["default"]["waiting"] == 2
    assert not applied


@pytest.mark.usefixtures("applied")
def test_an_id_with_control_characters_is_listed_in_one_harmless_line(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.land("applicant", [lead(1) | {"id": "lead\x1b[31m\nwaiting: none"}])
    monkeypatch.setenv("LEADS_DELIVERY_URL", "http://127.0.0.1:9/nobody")
    run("deliver")
    said = run("deliver", "status").stdout
    assert r"waiting: applicant lead lead\x1b[31m\nwaiting: none of" in said


def test_a_replay_is_sent_again(applied: Applied) -> None:
    run("deliver")
    applied.clear()
    assert "2 versions of leads wait again." in run("deliver", "replay", "--from", DAY, "--to", DAY).stdout
    assert ended(run("deliver")) == (0, "Delivered to 127.0.0.1: 2. Left: 0.")
    assert len(applied) == 2
    assert "Nothing waits, and nothing was changed." in run("deliver", "retry").stdout


@pytest.mark.usefixtures("house")
def test_without_an_endpoint_the_command_says_what_to_set() -> None:
    result = run("deliver")
    assert result.exit_code == 2
    assert "LEADS_DELIVERY_URL is not set" in result.stderr
