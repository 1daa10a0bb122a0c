"""The pages of Dagster as `serve` serves them: they obey their own pages and programs, and nobody
else.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from leads_pipeline.features.service.pages import (
    NOT_JSON,
    OTHER_ORIGIN,
    QUERY_BY_GET,
    UNKNOWN_HOST,
    PageRefusal,
    refusal,
)
from leads_pipeline_tests.support.newcomer import FIRST_SIX, PATIENCE_SECONDS, Newcomer, wait_for
from leads_pipeline_tests.support.serving import free_port

# Nobody answers there, so no lead comes.
NOBODY = dict.fromkeys(FIRST_SIX, "http://127.0.0.1:9") | {
    "LEADS_BRANCH_IDS": "101",
    "LEADS_TIMEZONE": "UTC",
}

REPOSITORY = (
    'repositoryName: "__repository__", repositoryLocationName: "leads_pipeline.definitions"'
)
SELECTOR = f'{REPOSITORY}, scheduleName: "pull_hourly"'
START = f"mutation {{ startSchedule(scheduleSelector: {{{SELECTOR}}}) {{ __typename }} }}"
STATUS = f"{{ scheduleOrError(scheduleSelector: {{{SELECTOR}}}) {{ ... on Schedule {{ scheduleState {{ status }} }} }} }}"

JSON = "application/json"
OTHER_SITE = "https://evil.example"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """`serve` in a new folder, with two names for its pages. Its port and its log."""
    me = Newcomer(
        tmp_path_factory.mktemp("agency"),
        NOBODY,
        exported={"LEADS_UI_HOSTS": "Leads.example, pages"},
    )
    me.fill_in()
    number = free_port()
    with me.running("leads-pipeline", "serve", "--port", str(number)) as log:
        wait_for(lambda: "Dagster UI: http" in log.read_text())
        yield number, log


@pytest.fixture
def port(served: tuple[int, Path]) -> int:
    return served[0]


def send(
    port: int, method: str, path: str, *, body: bytes | None = None, **headers: str
) -> httpx.Response:
    """Send a request of a browser or a program.

    An underscore in the name of a header stands for a hyphen.
    """
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.Client(trust_env=False, timeout=PATIENCE_SECONDS) as client:
        return client.request(method, f"http://127.0.0.1:{port}{path}", content=body, headers=named)


def order(port: int, query: str = START, **headers: str) -> httpx.Response:
    """Post a GraphQL document as the pages do."""
    body = httpx.Request("POST", "http://x", json={"query": query}).content
    return send(port, "POST", "/graphql", body=body, **{"Content_Type": JSON, **headers})


def is_started(port: int) -> bool:
    """Whether the schedule runs, as the pages show it."""
    answer = order(port, STATUS).json()
    return bool(answer["data"]["scheduleOrError"]["scheduleState"]["status"] == "RUNNING")


@contextmanager
def live(port: int, host: str, origin: str | None) -> Iterator[None]:
    """A websocket of the pages that is acknowledged, opened by a page of that origin under that
    name.
    """
    with (
        socket.create_connection(("127.0.0.1", port)) as connection,
        connect(
            f"ws://{host}/graphql",
            sock=connection,
            origin=Origin(origin) if origin else None,
            subprotocols=[Subprotocol("graphql-ws")],
            proxy=None,
        ) as opened,
    ):
        opened.send('{"type": "connection_init"}')
        assert opened.recv(timeout=PATIENCE_SECONDS) == '{"type":"connection_ack"}'
        yield


# --- which requests are refused -------------------------------------------------------------------


def asked(
    method: str = "POST", path: str = "/graphql", question: str = "", **headers: str
) -> PageRefusal | None:
    """What the guard says to a request.

    An underscore in the name of a header stands for a hyphen.
    """
    given = {"Host": "127.0.0.1:3000", "Content_Type": JSON, **headers}
    scope = {
        "type": "websocket" if method == "websocket" else "http",
        "method": method,
        "path": path,
        "query_string": question.encode(),
        "headers": [
            (name.lower().replace("_", "-").encode(), value.encode())
            for name, value in given.items()
        ],
    }
    return refusal(scope, {"leads.example", "localhost"})


@pytest.mark.parametrize(
    "host",
    ["evil.example:3000", "leads.example.evil.example", "localhost@evil.example", ""],
)
def test_the_pages_are_known_under_no_other_name(host: str) -> None:
    assert asked("GET", "/assets", Host=host) == UNKNOWN_HOST
    assert asked("websocket", Host=host) == UNKNOWN_HOST


@pytest.mark.parametrize(
    "origin",
    [
        "https://leads.example:8443",
        "https://leads.example.evil.example",
        "https://leads.example@evil.example",
        "null",
    ],
)
def test_any_other_origin_is_refused(origin: str) -> None:
    assert asked(Host="leads.example", Origin=origin) == OTHER_ORIGIN
    assert asked("websocket", Host="leads.example", Origin=origin) == OTHER_ORIGIN
    # A link on another website may lead to the pages.
    assert asked("GET", "/assets", Host="leads.example", Origin=origin) is None


def test_only_json_is_taken() -> None:
    assert asked(Content_Type="") == NOT_JSON
    assert asked("DELETE", "/anything", Content_Type="text/plain; application/json") == NOT_JSON
    assert asked(Content_Type="Application/JSON;charset=utf-8") is None


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
@pytest.mark.parametrize("path", ["/graphql", "/graphql\n", "/below/graphql"])
def test_no_query_in_an_address_is_obeyed(method: str, path: str) -> None:
    assert asked(method, path, "query=mutation") == QUERY_BY_GET
    assert asked(method, path) is None
    assert asked(method, "/assets/graphql_requests", "view=overview") is None


# --- another site ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_site_starts_nothing_and_fills_no_log(served: tuple[int, Path]) -> None:
    """By its own name, or by one that was pointed at this machine."""
    port, log = served
    evil = f"evil.example:{port}"
    form = {"Content_Type": "application/x-www-form-urlencoded", "Origin": OTHER_SITE}
    question = urlencode({"query": START})

    refused = [
        send(port, "POST", f"/graphql?{question}", body=b"a=b", **form),
        order(port, Origin=OTHER_SITE),
        order(port, Origin="null"),
        order(port, Host=evil, Origin=f"http://{evil}"),
        send(port, "GET", "/logs/run/step.err", Host=evil),
    ]
    for host, origin in ((f"127.0.0.1:{port}", OTHER_SITE), (evil, f"http://{evil}")):
        with pytest.raises(InvalidStatus), live(port, host, origin):
            pass

    assert [answer.status_code for answer in refused] == [403, 403, 403, 421, 421]
    assert "LEADS_UI_HOSTS" in refused[-1].text
    assert not is_started(port)
    sentence = "The Dagster UI refused a request (403). This request comes from another website"
    wait_for(lambda: sentence in log.read_text())
    assert log.read_text().count(sentence) == 1
    assert "ASGI" not in log.read_text()


# --- the pages themselves, and programs -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["[::1]:3000", "PAGES.:8443"])
def test_the_pages_work_under_each_name_of_theirs(port: int, name: str) -> None:
    assert send(port, "GET", "/assets", Host=name).status_code == 200
    # A proxy with TLS.
    assert order(port, STATUS, Host=name, Origin=f"https://{name}").status_code == 200
    with live(port, name, f"http://{name}"):
        pass


@pytest.mark.slow
def test_programs_work_without_an_origin(port: int) -> None:
    assert order(port, STATUS, Content_Type=f"{JSON}; charset=utf-8").status_code == 200
    with live(port, f"127.0.0.1:{port}", None):
        pass
    report = "/report_asset_observation/raw_inventory"
    answer = send(port, "POST", report, body=b'{"description": "seen"}', Content_Type=JSON)
    assert answer.status_code == 200


@pytest.mark.slow
def test_a_probe_is_answered_under_any_name(port: int) -> None:
    assert send(port, "GET", "/server_info", Host="evil.example").status_code == 200
