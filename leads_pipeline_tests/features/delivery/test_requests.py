"""Requests of a destination's own API, made by templates."""

from typing import Any

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.ledger import VersionState
from leads_pipeline.features.delivery.people import DeliveredLeads
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


def said(here: Destinations) -> list[tuple[str, str, Any]]:
    assert here.api
    return here.api.said


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


def test_a_template_that_fails_for_a_lead_quotes_nothing_of_it(here: Destinations) -> None:
    here.write(HEAD + CREATED.replace("data.message", "{'known': 1}[data.contact_email]"))
    here.agency.land(lead(1))

    [sent] = here.deliver().values()

    assert "(something isn't" in str(sent.trouble)
    assert "j1@" not in str(sent.trouble)


# --- the id there ---------------------------------------------------------------------------------

KEEPS_ID = CREATED.replace("/{{ data.lead_id }}", "") + 'id_there = "lead.id"\n'
BY_ID = UPDATED.replace("data.lead_id", "data.id_there")
ERASED_BY_ID = '[destination.erased]\nmethod = "DELETE"\nurl = "https://api.example/leads/{{ data.id_there }}"\n'


def test_later_requests_go_to_the_id_that_the_first_answer_had(here: Destinations) -> None:
    here.write(HEAD + KEEPS_ID + BY_ID + ERASED_BY_ID)
    here.api = Api(lambda _: httpx.Response(201, json={"lead": {"id": 17, "name": "Jane Quill"}}))
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


def test_a_lead_is_delivered_once_though_its_answer_breaks_off(here: Destinations) -> None:
    asked = []

    class Api(QuietHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.answer(201, b'{"lead": {"id": "17', cut_off=9)
            self.connection.close()

    with serving(Api) as address:
        here.write(HEAD + KEEPS_ID.replace("https://api.example", address))
        here.agency.land(lead(1))
        for _ in range(2):
            [destination] = here.read()
            deliver(here.settings, here.agency.house.data, destination, is_all=True)

    assert asked == ["/leads"]
    assert here.agency.states("api") == {VersionState.DELIVERED: 1}


# --- what answers mean ----------------------------------------------------------------------------


def test_a_lead_that_is_gone_there_stops_no_other_lead(here: Destinations) -> None:
    here.write(HEAD + CREATED + UPDATED)
    here.agency.land(lead(1))
    here.deliver()
    here.api = Api(lambda request: httpx.Response(410 if request.method == "PATCH" else 201))
    here.agency.land(lead(1, "second"))
    here.deliver()

    here.agency.land(lead(2))
    here.deliver()

    assert here.agency.states("api") == {VersionState.DELIVERED: 2, VersionState.WAITING: 1}


# --- who may send ---------------------------------------------------------------------------------


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
        (CREATED.replace("message", "mesage"), "asks for data.mesage, .* Did you mean data.mess"),
        (CREATED.replace("api.example", "{{ data.scope }}.example"), "without a fixed host"),
        ("[destination.headers]\nX-Key = '1'\n" + CREATED, "has its `X-Key` in the file itself"),
    ],
)
def test_a_mistake_in_a_request_is_told(here: Destinations, table: str, told: str) -> None:
    here.write(HEAD + table)

    with pytest.raises(SettingsError, match=told):
        here.read()
