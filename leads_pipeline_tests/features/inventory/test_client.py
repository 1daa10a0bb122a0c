"""The inventory API: its pages, its client, and what its settings lack."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from leads_pipeline.errors import (
    InvalidAnswerError,
    RefusedError,
    ServerError,
    SettingsError,
    TokenRefusedError,
)
from leads_pipeline.features.inventory.client import InventoryClient
from leads_pipeline.features.inventory.contract import read_inventory_page
from leads_pipeline.features.inventory.service import InventoryService
from leads_pipeline.portal import RetryPolicy, Service
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import Settings
from leads_pipeline_tests.support.fake_timing import FakeTiming
from leads_pipeline_tests.support.good_tokens import BASE_URL, TOKEN, GoodTokens
from leads_pipeline_tests.support.raw_server import RawServer, respond

ONCE = RetryPolicy(max_attempts=1)
Handler = Callable[[httpx.Request], httpx.Response]


# --- pages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ['{"meta": {"nextToken": 7}, "items": []}', "{}", ""])
def test_a_page_without_its_list_or_a_cursor_that_can_be_followed_is_no_answer(body: str) -> None:
    with pytest.raises(InvalidAnswerError):
        read_inventory_page(body.encode())


# --- the client -----------------------------------------------------------------------------------


def inventory_client(handler: Handler) -> InventoryClient:
    service = Service(
        base_url=BASE_URL,
        tokens=GoodTokens(),
        policy=ONCE,
        transport=httpx.MockTransport(handler),
        timing=FakeTiming().as_timing(),
    )
    return InventoryClient(service, "agency-7")


def page(items: str, token: str | None) -> httpx.Response:
    meta = json.dumps({"nextToken": token})
    return httpx.Response(200, text=f'{{"meta": {meta}, "items": [{items}]}}')


def test_an_inventory_search_reads_every_page_exactly() -> None:
    asked: list[dict[str, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/inventory"
        assert request.headers["AgencyRef"] == "agency-7"
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        asked.append(dict(request.url.params))
        pages = {
            "": page('{"id": "1", "price": 1.10}', "a b+c/="),
            "a b+c/=": page("", "next"),
            "next": page("17", None),
        }
        return pages[request.url.params.get("nextToken", "")]

    items = inventory_client(handler).search("High Street & Co")

    assert [item.payload for item in items] == ['{"id": "1", "price": 1.10}', "17"]
    first = {"address": "High Street & Co", "maxResults": "250"}
    assert asked == [first, first | {"nextToken": "a b+c/="}, first | {"nextToken": "next"}]


def test_a_failing_page_fails_the_search() -> None:
    answers = iter([page("1", "next"), httpx.Response(404)])
    with pytest.raises(RefusedError, match=r"GET /inventory for page 2 was answered 404"):
        inventory_client(lambda _: next(answers)).search("Leeds")


def test_a_wrong_agency_is_told_from_a_refused_token() -> None:
    with pytest.raises(RefusedError, match="INVENTORY_AGENCY_REF"):
        inventory_client(lambda _: httpx.Response(403)).search("Leeds")
    with pytest.raises(TokenRefusedError, match="INVENTORY_CLIENT_ID"):
        inventory_client(lambda _: httpx.Response(401)).search("Leeds")


def test_the_address_stays_out_of_logs_and_messages(
    raw_server: RawServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = Service(base_url=raw_server.url, tokens=GoodTokens(), policy=ONCE)
    searching = InventoryClient(service, "agency-7")
    raw_server.script = respond(b'{"items": []}')
    searching.search("Zanzibar Villas")
    raw_server.script = respond(b'{"items": "Zanzibar"}', status=500)
    with pytest.raises(ServerError) as caught:
        searching.search("Zanzibar Villas")
    assert b"Zanzibar" in raw_server.requests[0]
    assert "Zanzibar" not in caplog.text + str(caught.value)


# --- the service ----------------------------------------------------------------------------------


def test_what_the_inventory_misses_is_named(tmp_path: Path) -> None:
    account = {
        "INVENTORY_BASE_URL": "https://inventory.example",
        "INVENTORY_CLIENT_ID": "client",
        "INVENTORY_CLIENT_SECRET": "s3cr3t-s3cr3t",
        "INVENTORY_AGENCY_REF": "agency",
    }
    for name in account:
        settings = Settings.from_variables({**account, name: ""})
        with pytest.raises(SettingsError, match=f"^{name} is not set"):
            InventoryService.of(settings, DataFolder.at(tmp_path)).connect()
