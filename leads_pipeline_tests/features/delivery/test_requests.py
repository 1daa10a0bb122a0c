"""Requests of a destination's own API, made by templates."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.ledger import VersionState, reading_ledger
from leads_pipeline.features.delivery.people import DeliveredLeads
from leads_pipeline.features.delivery.questions import counts, story
from leads_pipeline.features.delivery.sending import deliver
from leads_pipeline.portal.http_library import httpx
from leads_pipeline_tests.features.delivery.agency import (
    CREATED,
    HEAD,
    Agency,
    Api,
    Destinations,
    lead,
)
from leads_pipeline_tests.support.house import DAY
from leads_pipeline_tests.support.serving import QuietHandler, serving

UPDATED = """
[destination.updated]
method = "PATCH"
url = "https://api.example/leads/{{ data.lead_id }}"
body = '{"text": {{ data.message }}}'
"""


@pytest.fixture
def here(agency: Agency) -> Destinations:
    here = Destinations(agency, HEAD + CREATED + "done = [409]\nfinal = [422]\n")
    here.api = Api()
    return here


def states(here: Destinations) -> dict[VersionState, int]:
    with reading_ledger(here.agency.house.folder, "api") as ledger:
        assert ledger
        return {state: count for state, count in counts(ledger).items() if count}


def said(here: Destinations) -> list[tuple[str, str, Any]]:
    assert here.api
    return here.api.said


def answers(here: Destinations, status: int, **options: Any) -> None:
    here.api = Api(lambda _: httpx.Response(status, **options))


# --- what is sent ---------------------------------------------------------------------------------


def test_each_event_has_a_request_of_its_own(here: Destinations) -> None:
    here.write(HEAD + CREATED + UPDATED)
    here.agency.land(lead(1))
    here.agency.land(lead(1, "second"))
    here.deliver()

    assert said(here) == [
        ("POST", "https://api.example/leads/lead-1", {"name": "Jane Quill", "text": "first"}),
        ("PATCH", "https://api.example/leads/lead-1", {"text": "second"}),
    ]


def test_without_a_template_for_updates_none_is_sent(here: Destinations) -> None:
    for text in ("first", "second"):
        here.agency.land(lead(1, text))
        here.deliver()

    assert [method for method, _, _ in said(here)] == ["POST"]
    assert states(here) == {VersionState.DELIVERED: 1, VersionState.UNWANTED: 1}


ODD = '"}, "admin": true, "x": {"y": "\n😀 {{ 7 * 7 }} \u2028 </script>'


@pytest.mark.parametrize("written", ["data.message", "data.message | safe"])
def test_a_person_s_words_change_neither_the_body_s_form_nor_the_address(
    here: Destinations, written: str
) -> None:
    here.write(HEAD + CREATED.replace("data.message", written))
    here.agency.land(lead(1, ODD) | {"id": "../a b/ü?x=1#{{ 7 }}"})
    here.deliver()

    [(_, url, body)] = said(here)
    assert body == {"name": "Jane Quill", "text": ODD}
    assert url == "https://api.example/leads/..%2Fa%20b%2F%C3%BC%3Fx%3D1%23%7B%7B%207%20%7D%7D"


def test_an_id_that_would_lead_to_another_folder_is_not_sent(here: Destinations) -> None:
    here.agency.land(lead(1) | {"id": ".."}, lead(2))

    [sent] = here.deliver().values()

    assert (sent.delivered, sent.failed) == (1, 1)
    assert "The template makes no request of this lead (ValueError" in str(sent.trouble)


def test_a_value_that_is_missing_in_an_address_is_no_word(here: Destinations) -> None:
    here.write(HEAD + CREATED.replace("{{ data.lead_id }}", "{{ data.person }}"))
    here.agency.land({"id": "lead-1", "createdAt": f"{DAY}T10:00:00Z"})
    here.deliver()

    assert said(here) == []
    assert states(here) == {VersionState.WAITING: 1}


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ("data.message | int('x') / 0", "(TypeError;"),
        ("{'known': 1}[data.contact_email]", "(something isn't"),
    ],
)
def test_a_template_that_fails_for_a_lead_quotes_nothing_of_it(
    here: Destinations, expression: str, told: str
) -> None:
    here.write(HEAD + CREATED.replace("data.message", expression))
    here.agency.land(lead(1, "a private word"))

    [sent] = here.deliver().values()

    assert told in str(sent.trouble)
    assert not [word for word in ("private", "j1@") if word in str(sent.trouble)]


# --- the id there ---------------------------------------------------------------------------------

KEEPS_ID = CREATED.replace("/{{ data.lead_id }}", "") + 'id_there = "lead.id"\n'
BY_ID = UPDATED.replace("data.lead_id", "data.id_there")
ERASED_BY_ID = '[destination.erased]\nmethod = "DELETE"\nurl = "https://api.example/leads/{{ data.id_there }}"\n'


def id_there(here: Destinations, number: int) -> str | None:
    with reading_ledger(here.agency.house.folder, "api") as ledger:
        assert ledger
        [told, *_] = story(ledger, "applicant", f"lead-{number}")
    return told.id_there


def test_later_requests_go_to_the_id_that_the_first_answer_had(here: Destinations) -> None:
    here.write(HEAD + KEEPS_ID + BY_ID + ERASED_BY_ID)
    answers(here, 201, json={"lead": {"id": 17, "name": "Jane Quill"}})
    here.agency.land(lead(1))
    here.deliver()
    here.agency.land(lead(1, "second"))
    here.deliver()

    here.agency.house.erase(email="j1@example.org")
    DeliveredLeads(here.agency.house.data).forget(lambda _: True)
    here.deliver()

    assert [(method, url) for method, url, _ in said(here)] == [
        ("POST", "https://api.example/leads"),
        ("PATCH", "https://api.example/leads/17"),
        ("DELETE", "https://api.example/leads/17"),
    ]


@pytest.mark.parametrize("stalls", [True, False])
def test_a_lead_is_delivered_once_though_its_answer_breaks_off(
    here: Destinations, *, stalls: bool
) -> None:
    asked = []
    is_over = threading.Event()

    class Api(QuietHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.answer(201, b'{"lead": {"id": "17', cut_off=9)
            if stalls:
                is_over.wait(10)
            self.connection.close()

    with serving(Api) as address:
        here.write(HEAD + KEEPS_ID.replace("https://api.example", address))
        here.agency.land(lead(1))
        for _ in range(2):
            [destination] = here.read()
            deliver(
                here.settings,
                here.agency.house.data,
                destination,
                is_all=True,
                timeout_seconds=0.5,
            )
        is_over.set()

    assert asked == ["/leads"]
    assert states(here) == {VersionState.DELIVERED: 1}
    assert id_there(here, 1) is None


# --- what answers mean ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (409, VersionState.DELIVERED),
        (422, VersionState.DEAD),
        (400, VersionState.WAITING),
    ],
)
def test_the_file_says_which_answers_mean_done_and_which_are_final(
    here: Destinations, status: int, state: VersionState
) -> None:
    answers(here, status)
    here.agency.land(lead(1))
    here.deliver()

    assert states(here) == {state: 1}


def test_a_lead_that_is_gone_there_stops_no_other_lead(here: Destinations) -> None:
    here.write(HEAD + CREATED + UPDATED)
    here.agency.land(lead(1))
    here.deliver()
    here.api = Api(lambda request: httpx.Response(410 if request.method == "PATCH" else 201))
    here.agency.land(lead(1, "second"))
    here.deliver()

    here.agency.land(lead(1, "second"), lead(2))
    here.deliver()

    assert ("POST", "https://api.example/leads/lead-2") in [one[:2] for one in said(here)]
    assert states(here) == {VersionState.DELIVERED: 2, VersionState.WAITING: 1}


# --- who may send ---------------------------------------------------------------------------------


@pytest.fixture
def token_server() -> Iterator[tuple[str, list[bytes]]]:
    asked: list[bytes] = []

    class Server(QuietHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps(
                {"access_token": f"token-{len(asked)}", "token_type": "bearer"}
            ).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Server) as address:
        yield address, asked


def test_an_access_token_is_fetched_once_and_sent(
    here: Destinations, token_server: tuple[str, list[bytes]]
) -> None:
    address, asked = token_server
    token = f'[destination.token]\nurl = "{address}/token"\nclient_id = "me"\nclient_secret = {{env = "PASS"}}\n'
    here.variables["PASS"] = "the-client-secret"
    here.write(HEAD + token + CREATED)
    here.agency.land(*[lead(number) for number in range(6)])
    here.deliver()
    here.agency.land(lead(7))
    here.deliver()

    assert here.api
    assert {one.headers["authorization"] for one in here.api.requests} == {"Bearer token-1"}
    assert (len(here.api.requests), len(asked)) == (7, 1)
    assert "the-client-secret" not in repr(here.read())


def test_headers_are_sent_and_a_secret_one_comes_from_a_variable(here: Destinations) -> None:
    headers = '[destination.headers]\nAgencyRef = "A1"\nAuthorization = {env = "KEY"}\n'
    here.variables["KEY"] = "Bearer of-the-crm"
    here.write(HEAD + headers + CREATED)
    here.agency.land(lead(1))
    here.deliver()

    assert here.api
    sent = here.api.requests[0].headers
    assert (sent["agencyref"], sent["authorization"]) == ("A1", "Bearer of-the-crm")
    assert "of-the-crm" not in repr(here.read())


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            CREATED.replace("data.message", "data.mesage"),
            "asks for data.mesage, which no lead has. Did you",
        ),
        (CREATED.replace("{{ data.message }}", "{{ data.message "), "look at its line 1"),
        (
            CREATED.replace("https://api.example/", "https://{{ data.scope }}.example/"),
            "without a fixed host",
        ),
        (CREATED + UPDATED.replace("api.example", "other.example"), "to several hosts"),
        (
            "[destination.headers]\nX-Api-Key = '1'\n" + CREATED,
            "has its `X-Api-Key` in the file itself",
        ),
        ("outcomes = 'alto'\n" + CREATED, "has `outcomes`, which need ids"),
        (
            CREATED + "[destination.erased]\nurl = 'https://api.example/{{ data.message }}'",
            "asks for data.message",
        ),
    ],
)
def test_a_mistake_in_a_request_is_told(here: Destinations, table: str, told: str) -> None:
    here.write(HEAD + table)

    with pytest.raises(SettingsError) as error:
        here.read()

    assert told in str(error.value)
