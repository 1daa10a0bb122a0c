"""The command `deliver`, against an endpoint on a socket."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from leads_pipeline.features.delivery.ledger import LEDGER
from leads_pipeline_tests.features.delivery.agency import lead
from leads_pipeline_tests.support import crm
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import DAY, House
from leads_pipeline_tests.support.serving import QuietHandler, serving

Applied = dict[str, dict[str, Any]]


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path / "data")
    house.land("applicant", [lead(1), lead(2)])
    os.environ.update(
        LEADS_DATA_DIR=str(house.folder),
        LEADS_DELIVERY_FROM=str(DAY),
        LEADS_DELIVERY_SECRET=crm.SECRET,
    )
    return house


@pytest.fixture
def applied(house: House) -> Iterator[Applied]:  # noqa: ARG001 - it sets variables
    with crm.running() as (address, found):
        os.environ["LEADS_DELIVERY_URL"] = address
        yield found


def ended(result: Result) -> tuple[int, str]:
    return result.exit_code, result.stdout.strip()


def test_leads_are_delivered_and_the_command_ends_well(applied: Applied) -> None:
    assert run("deliver", "status").stdout == "Nothing was ever delivered from this folder.\n"
    assert ended(run("deliver")) == (0, "Delivered to 127.0.0.1: 2. Left: 0.")
    assert ended(run("deliver", "--now")) == (0, "Delivered to 127.0.0.1: 0. Left: 0.")
    assert sorted(one["data"]["lead_id"] for one in applied.values()) == ["lead-1", "lead-2"]
    assert "delivered  2, last 20" in run("deliver", "status").stdout


@pytest.mark.usefixtures("house")
def test_what_is_left_is_told_and_listed_with_its_reason() -> None:
    os.environ["LEADS_DELIVERY_URL"] = "http://127.0.0.1:9/nobody"

    result = run("deliver")
    assert ended(result) == (1, "Delivered to 127.0.0.1: 0. Left: 2.")
    assert "can't be reached" in result.stderr

    said = run("deliver", "status").stdout
    assert f"waiting: applicant lead lead-1 of {DAY}, 1 attempt, the last can't be reached" in said
    assert json.loads(run("deliver", "status", "--json").stdout)["default"]["waiting"] == 2


@pytest.mark.parametrize(
    ("chosen", "ids"),
    [
        (["--lead", "applicant/lead-1"], {"lead-1"}),
        (["--branch", "branch-102"], {"lead-3"}),
        (["--kind", "appraisal", "--from", DAY, "--destination", "default"], {"lead-4"}),
    ],
    ids=["lead", "branch", "kind"],
)
def test_a_replay_is_of_a_lead_a_branch_or_a_kind(
    house: House, applied: Applied, chosen: list[object], ids: set[str]
) -> None:
    house.land("applicant", [lead(3)], scope="branch-102")
    house.land("appraisal", [lead(4)])
    run("deliver")
    applied.clear()

    run("deliver", "replay", *chosen)
    run("deliver")

    assert {one["data"]["lead_id"] for one in applied.values()} == ids


def test_a_retry_says_what_it_did(house: House) -> None:
    """Fault 113."""

    class Gone(QuietHandler):
        def do_POST(self) -> None:
            self.send_response(410)
            self.end_headers()

    with serving(Gone) as address:
        os.environ["LEADS_DELIVERY_URL"] = address
        run("deliver")
        said = run("deliver", "retry").stdout
    assert "answered 410, and is asked again. 2 waiting versions of leads are sent at once." in said

    with crm.running() as (address, _):
        os.environ["LEADS_DELIVERY_URL"] = address
        run("deliver")
    house.land("applicant", [lead(1, email="")])
    run("deliver")
    said = run("deliver", "retry").stdout
    assert "1 version of leads that were held or given up wait again." in said


REFUSED = b'{"errors": [{"code": "DUPLICATE_VALUE", "message": "Jane Quill is here"}]}'


def test_the_story_of_a_lead_says_when_it_was_sent_and_what_was_answered(house: House) -> None:
    """Fault 116."""

    class Api(QuietHandler):
        def do_POST(self) -> None:
            self.send_response(422)
            self.send_header("content-type", "application/json; name=Quill")
            self.send_header("content-length", str(len(REFUSED)))
            self.end_headers()
            self.wfile.write(REFUSED)

    with serving(Api) as address:
        os.environ["LEADS_DELIVERY_URL"] = address
        run("deliver")
    with crm.running() as (address, _):
        os.environ["LEADS_DELIVERY_URL"] = address
        run("deliver", "--now")

    said = run("deliver", "log", "applicant/lead-1").stdout
    assert re.fullmatch(
        rf"default: version \w{{8}} of {DAY} delivered 20.* UTC\n"
        r"    20.* UTC  422 application/json DUPLICATE_VALUE\n    20.* UTC  204\n",
        said,
    )
    ledger = (house.folder / LEDGER).read_bytes()
    assert not [word for word in (b"Quill", b"j1@example.org", b"900123") if word in ledger]


def test_a_dry_run_sends_nothing_and_masks_what_it_shows(house: House, applied: Applied) -> None:
    house.land("applicant", [lead(1), lead(2), lead(3) | {"Quill's": 1}])

    said = run("deliver", "--dry-run").stdout

    assert "127.0.0.1: 3 messages would be sent first." in said
    assert "created applicant lead lead-1: POST to 127.0.0.1" in said
    assert '"contact_email": "x0@xxxxxxx.xxx"' in said
    assert not [word for word in ("Quill", "07700", "j1@") if word in said]
    assert not applied
    assert run("deliver", "status").stdout == "Nothing was ever delivered from this folder.\n"
