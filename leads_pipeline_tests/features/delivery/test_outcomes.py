"""Outcomes: what Alto says came of delivered leads, against a stand-in of its public description."""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from leads_pipeline.features.delivery.ledger import ledger_path, writing_ledger
from leads_pipeline.features.delivery.outcomes import ask, work_of_night
from leads_pipeline.features.delivery.people import DeliveredLeads
from leads_pipeline.features.delivery.sending import deliver
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.findings import find
from leads_pipeline.orchestration.night import Night
from leads_pipeline_tests.features.delivery.agency import Agency, Destinations, SweptHouse, lead
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import DAY
from leads_pipeline_tests.support.serving import QuietHandler, serving

TABLE = """
name = "alto"
from = {day}
outcomes = "alto"
[destination.token]
url = "{address}/token"
client_id = "me"
client_secret = {{env = "PASS"}}
[destination.headers]
AgencyRef = "the-agency"
[destination.created]
url = "{address}/leads"
done = [409]
id_there = "id"
body = '{{"sourceIdentifier": {{{{ data.lead_id }}}}}}'
[destination.erased]
method = "DELETE"
url = "{address}/leads/{{{{ data.id_there }}}}"
"""


IS_LEAD_1 = ("applicant", "lead-1").__eq__


@dataclass
class Alto:
    """The decided leads of an Alto, by their ids there: `lead-1` is 100. A page has one lead.

    `broken` takes the place of all answers to GET.
    """

    leads: dict[str, dict[str, str]] = field(default_factory=dict)
    erased: list[str] = field(default_factory=list)
    broken: tuple[int, bytes] | None = None

    def decide(self, id_there: str, status: str, at: datetime) -> None:
        """A negotiator accepts or rejects a lead."""
        self.leads[id_there] = {
            "id": id_there,
            "leadStatus": status,
            "modifiedDate": f"{at:%Y-%m-%dT%H:%M:%S}.0000000+00:00",
        }

    def page(self, asked: dict[str, str]) -> dict[str, Any]:
        assert asked["enquiry-from"] <= f"{DAY}T00:00:00Z" < asked["enquiry-to"]
        person = {"surname": "Quill", "email": "canary@example.org"}
        found = [
            {**one, "enquirerDetails": person}
            for one in self.leads.values()
            if one["leadStatus"] == asked["lead-status"]
            and one["modifiedDate"] >= asked["modified-from"]
        ]
        first = int(asked.get("next-token", 0))
        has_more = first + 1 < len(found)
        return {
            "meta": {"nextToken": str(first + 1) if has_more else None},
            "items": found[first : first + 1],
        }


@dataclass
class Here:
    agency: Agency
    alto: Alto
    destinations: Destinations

    @property
    def house(self) -> SweptHouse:
        return self.agency.house

    def deliver(self, *leads: dict[str, Any]) -> None:
        """Land these leads, and deliver them."""
        self.agency.land(*leads)
        [destination] = self.destinations.read()
        settings = self.destinations.settings
        deliver(settings, self.house.data, destination, clock=lambda: self.house.now)

    def ask(self) -> int:
        [destination] = self.destinations.read()
        return ask(self.house.data, destination, self.house.now)

    def accept(self, *ids_there: str) -> None:
        """Negotiators accept leads, and Alto is asked."""
        for id_there in ids_there:
            self.alto.decide(id_there, "Accepted", self.house.now)
        self.ask()

    def night(self) -> Night:
        night = Night()
        work_of_night(self.house.data, self.destinations.settings, self.house.now, night)
        return night

    def published(self) -> list[tuple[Any, ...]]:
        """The outcomes that analysts see."""
        self.house.publish_tables()
        return self.house.query("select lead_id, outcome from outcomes order by all")

    @property
    def found(self) -> dict[str, str]:
        facts = Facts(self.destinations.settings, self.house.data, self.house.now)
        return {one.key: one.message for one in find(facts) if one.key.startswith("outcomes")}

    @property
    def file(self) -> str:
        path = self.house.folder / "outcomes" / "alto.csv"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def here(agency: Agency) -> Iterator[Here]:
    alto = Alto()

    class Server(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/token":
                self.answer(200, b'{"access_token": "of-alto", "token_type": "Bearer"}')
                return
            number = int(json.loads(body)["sourceIdentifier"].removeprefix("lead-"))
            self.answer(201, b'{"id": "%d", "enquirerDetails": "Quill"}' % (99 + number))

        def do_GET(self) -> None:
            if self.headers["authorization"] != "Bearer of-alto":
                self.answer(401, b"")
                return
            assert self.headers["agencyref"] == "the-agency"
            asked = dict(parse_qsl(urlsplit(self.path).query))
            status, answer = alto.broken or (200, json.dumps(alto.page(asked)).encode())
            self.answer(status, answer)

        def do_DELETE(self) -> None:
            alto.erased.append(self.path)
            self.answer(204, b"")

    with serving(Server) as address:
        table = TABLE.format(address=address, day=DAY)
        yield Here(agency, alto, Destinations(agency, table, PASS="the-client-secret"))


def test_outcomes_of_all_pages_and_both_statuses_are_published(here: Here) -> None:
    here.deliver(lead(1), lead(2), lead(3), lead(4))
    here.alto.decide("100", "Accepted", here.house.now)
    here.alto.decide("101", "Rejected", here.house.now)
    here.alto.decide("102", "Accepted", here.house.now)

    assert here.ask() == 3

    assert here.published() == [
        ("lead-1", "accepted"),
        ("lead-2", "rejected"),
        ("lead-3", "accepted"),
    ]
    [figures] = here.house.query("select leads, rejected from mart_outcomes")
    assert figures == (4, 1)


def test_an_erased_lead_is_in_no_file_and_alto_was_told_its_id(here: Here) -> None:
    here.deliver(lead(1), lead(2))
    here.accept("100", "101")

    here.house.erase(email="j1@example.org")
    here.house.publish_tables()
    assert here.house.query("select lead_id from pipeline.outcomes") == [("lead-2",)]
    holder = DeliveredLeads(here.house.data)
    holder.forget(IS_LEAD_1)
    here.ask()  # Alto still has it
    here.deliver()
    holder.forget_confirmed(IS_LEAD_1)

    assert here.alto.erased == ["/leads/100"]
    assert "lead-1" not in here.file
    assert here.published() == [("lead-2", "accepted")]
    assert b"lead-1" not in ledger_path(here.house.folder, "alto").read_bytes()


def test_a_person_who_asks_for_their_data_gets_the_outcomes(here: Here) -> None:
    here.deliver(lead(1), lead(2))
    here.accept("100", "101")

    notes = DeliveredLeads(here.house.data).notes_on(IS_LEAD_1)

    assert notes == [
        f"alto (127.0.0.1): applicant/lead-1 was accepted on {here.house.now:%Y-%m-%d}."
    ]


def test_a_failure_keeps_the_outcomes_of_before_and_is_a_finding_after_two_days(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    here.deliver(lead(1))
    here.accept("100")

    here.alto.broken = 200, b"<html>Quill</html>"
    here.house.later(hours=47)
    night = here.night()
    assert here.found == {}
    here.house.later(hours=2)
    told = here.found["outcomes/alto"]

    assert "was answered with no page of leads" in told
    assert "lead-1,accepted," in here.file
    shown = caplog.text + told + str(night)
    for word in ("Quill", "canary", "of-alto", "the-client-secret"):
        assert word not in shown


def test_a_file_whose_ledger_is_lost_goes_because_no_erasure_would_reach_it(here: Here) -> None:
    here.deliver(lead(1))
    here.accept("100")
    ledger_path(here.house.folder, "alto").unlink()

    here.night()

    assert here.file == ""


def test_an_outcome_outlives_the_ledger_s_lead_and_an_erasure_finds_it(here: Here) -> None:
    here.deliver(lead(1), lead(2))
    here.accept("100", "101")
    with writing_ledger(here.house.folder, "alto") as ledger:
        ledger.forget_before(DAY + timedelta(days=2))

    DeliveredLeads(here.house.data).forget(IS_LEAD_1)

    assert "lead-1" not in here.file
    assert "lead-2,accepted" in here.file
    assert b"lead-1" not in ledger_path(here.house.folder, "alto").read_bytes()


def test_the_command_asks_and_says_what_failed(here: Here) -> None:
    os.environ.update(here.destinations.variables, LEADS_DATA_DIR=str(here.house.folder))
    here.deliver(lead(1))
    here.alto.decide("100", "Accepted", here.house.now)

    asked = run("deliver", "outcomes")
    log = run("deliver", "log", "applicant/lead-1")
    here.alto.broken = 503, b""
    failed = run("deliver", "outcomes")

    assert asked.stdout == "alto (127.0.0.1): 1 outcome. The next publication has them.\n"
    assert ", there 100\n" in log.stdout
    assert failed.exit_code == 1
    assert "was answered 503" in failed.stderr
