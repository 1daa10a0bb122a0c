"""Requests of a destination's own API, made by templates."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.ledger import VersionState, ledger_path, reading_ledger
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


@pytest.mark.parametrize(
    "written", ["data.message", "data.message | tojson", "data.message | safe"]
)
def test_a_person_s_words_change_neither_the_body_s_form_nor_the_address(
    here: Destinations, written: str
) -> None:
    here.write(HEAD + CREATED.replace("data.message", written))
    here.agency.land(lead(1, ODD) | {"id": "../a b/ü?x=1#{{ 7 }}"})
    here.deliver()

    [(_, url, body)] = said(here)
    assert body == {"name": "Jane Quill", "text": ODD}
    assert url == "https://api.example/leads/..%2Fa%20b%2F%C3%BC%3Fx%3D1%23%7B%7B%207%20%7D%7D"


def test_a_form_has_each_value_encoded(here: Destinations) -> None:
    form = '[destination.headers]\ncontent-type = "application/x-www-form-urlencoded"\n'
    created = (
        CREATED.partition("body")[0]
        + "body = 'text={{ data.message }}&none={{ data.lead_source }}'\n"
    )
    here.write(HEAD + form + created)
    here.agency.land(lead(1, "a&b=c d"))
    here.deliver()

    assert here.api
    assert here.api.requests[0].content == b"text=a%26b%3Dc+d&none="


def test_numbers_and_lists_are_written_as_json(here: Destinations) -> None:
    body = '\'{"price": {{ data.listing_details_pricing_price }}, "times": {{ data.applicant_viewing_times }}}\''
    here.write(HEAD + CREATED.partition("body")[0] + f"body = {body}\n")
    here.agency.land(
        lead(1) | {"listingDetails": {"pricing": {"price": 250000}}, "viewingTimes": []}
    )
    here.deliver()

    assert here.api
    assert here.api.requests[0].content == b'{"price": 250000, "times": []}'


@pytest.mark.parametrize("odd_id", ["..", "."])
def test_an_id_that_would_lead_to_another_folder_is_not_sent(
    here: Destinations, odd_id: str
) -> None:
    here.agency.land(lead(1) | {"id": odd_id}, lead(2))

    [sent] = here.deliver().values()

    assert (sent.delivered, sent.failed) == (1, 1)
    assert "The template makes no request of this lead (ValueError" in str(sent.trouble)


def test_a_value_that_is_missing_in_an_address_is_no_word(here: Destinations) -> None:
    here.write(HEAD + CREATED.replace("{{ data.lead_id }}", "{{ data.person }}"))
    here.agency.land({"id": "lead-1", "createdAt": f"{DAY}T10:00:00Z"})
    here.deliver()

    assert said(here) == []
    assert states(here) == {VersionState.WAITING: 1}


def test_a_template_that_fails_for_a_lead_quotes_nothing_of_it(here: Destinations) -> None:
    here.write(HEAD + CREATED.replace("{{ data.message }}", "{{ data.message | int('x') / 0 }}"))
    here.agency.land(lead(1, "a private word"))

    [sent] = here.deliver().values()

    assert "(TypeError;" in str(sent.trouble)
    assert "private" not in str(sent.trouble)


@pytest.mark.parametrize(
    ("key", "told"), [("scope", "(branch-101 isn't there"), ("contact_email", "(something isn't")]
)
def test_a_table_in_a_template_that_lacks_a_value_names_no_person(
    here: Destinations, key: str, told: str
) -> None:
    here.write(HEAD + CREATED.replace("{{ data.message }}", "{{ {'known': 1}[data." + key + "] }}"))
    here.agency.land(lead(1))

    [sent] = here.deliver().values()

    assert told in str(sent.trouble)
    assert "j1@" not in str(sent.trouble)


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


def test_a_lead_without_an_id_there_waits_with_a_clear_trouble(here: Destinations) -> None:
    here.write(HEAD + KEEPS_ID + "done = [409]\n" + BY_ID)
    answers(here, 409, json={"lead": {"id": "of-an-error"}})
    here.agency.land(lead(1))
    here.deliver()
    here.agency.land(lead(1, "second"))
    [sent] = here.deliver().values()

    assert id_there(here, 1) is None
    assert "data.id_there isn't known, because no answer had it" in str(sent.trouble)
    assert states(here) == {VersionState.DELIVERED: 1, VersionState.WAITING: 1}


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


def test_a_ledger_of_before_keeps_ids_from_now_on(here: Destinations) -> None:
    here.write(HEAD + KEEPS_ID)
    here.agency.land(lead(1))
    here.deliver()
    with closing(sqlite3.connect(ledger_path(here.agency.house.folder, "api"))) as db, db:
        db.executescript("drop table ids_there; drop table outcomes;")
    assert id_there(here, 1) is None

    answers(here, 201, json={"lead": {"id": "18"}})
    here.agency.land(lead(1), lead(2))
    here.deliver()

    assert (id_there(here, 1), id_there(here, 2)) == (None, "18")


# --- what answers mean ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (409, VersionState.DELIVERED),
        (422, VersionState.DEAD),
        (207, VersionState.WAITING),
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


def test_without_a_token_nothing_is_asked_and_the_leads_wait(here: Destinations) -> None:
    token = '[destination.token]\nurl = "http://127.0.0.1:9/t"\nclient_id = "me"\nclient_secret = {env = "PASS"}\n'
    here.variables["PASS"] = "the-client-secret"
    here.write(HEAD + token + CREATED)
    here.agency.land(lead(1))

    [sent] = here.deliver().values()

    assert said(here) == []
    assert (sent.left, "the-client-secret" in str(sent.trouble)) == (1, False)


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
        (CREATED.replace("data.message", "data.mesage"), "asks for data.mesage, which no lead has. "
            "Did you"),
        (CREATED.replace("{{ data.message }}", "{{ data.message "), "`body` is no Jinja template: "
            "look at its line 1"),
        (CREATED.replace("https://api.example/", "https://{{ data.scope }}.example/"), "without a "
            "fixed host"),
        (CREATED.replace("https", "http"), "begins with http://"),
        (CREATED.replace("[destination.created]", "[destination.created]\nmethod = 'GET'"), "has "
            "the method 'GET'"),
        (CREATED.replace("[destination.created]", "[destination.created]\nbdy = ''"), "unknown key "
            "`bdy`"),
        (CREATED + UPDATED.replace("api.example", "other.example"), "to several hosts"),
        ("[destination.headers]\nX-Api-Key = '1'\n" + CREATED, "has its `X-Api-Key` in the file "
            "itself"),
        ("[destination.headers]\nHost = 'x'\n" + CREATED, "can't be set"),
        ("[destination.headers]\ncontent-type = 'text/plain'\n" + CREATED, "another type than "
            "JSON"),
        (CREATED + "done = ['409']\n", "has other things than statuses in `done`"),
        ("[destination.token]\nurl = 'https://x.example'\n" + CREATED, "has no `client_secret`"),
        (CREATED.replace("data.message", "data.id_there"), "asks for data.id_there"),
        (CREATED + "id_there = 'lead..id'\n", "has an `id_there` that is no path"),
        (CREATED + UPDATED + "id_there = 'id'\n", "unknown key `id_there`"),
        ("outcomes = 'hubspot'\n" + CREATED, "has the `outcomes` 'hubspot'. It knows alto."),
        ("outcomes = 'alto'\n" + CREATED, "has `outcomes`, which need ids"),
        ("outcomes = 'alto'\n" + CREATED + "id_there = 'id'\n", "has a template in `url`"),
        (CREATED + "[destination.erased]\nurl = 'https://api.example/{{ data.message }}'", "asks "
            "for data.message"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_request_is_told(here: Destinations, table: str, told: str) -> None:
    here.write(HEAD + table)

    with pytest.raises(SettingsError) as error:
        here.read()

    assert told in str(error.value)
