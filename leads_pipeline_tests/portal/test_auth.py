import asyncio
import base64
import gzip
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import filelock
import httpx
import pytest

from leads_pipeline.auth import ClientCredentials, ClientCredentialsAuth, TokenStore, endpoint, tokens
from leads_pipeline.auth.endpoint import DEFAULT_LIFETIME_SECONDS, MAX_ANSWER_BYTES
from leads_pipeline.auth.flow import RENEWAL_PAUSE_SECONDS
from leads_pipeline.auth.tokens import MAX_LIFETIME_SECONDS, MAX_TOKEN_CHARACTERS, Token
from leads_pipeline.client.service import DEADLINE_SECONDS
from leads_pipeline.credentials import StaticSecret
from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    LeadsPipelineError,
    ServerError,
    SettingsError,
    StorageError,
    UnreachableError,
)
from leads_pipeline.settings import AuthMethod
from leads_pipeline_tests.support.npm import install_pinned_packages

SECRET = "canary-s3cret b:%+ c"
TOKEN = "canary-t0ken"
NOW = 1_795_000_000.0
SERVICE = "https://portal.example/api"
TOKEN_URL = "https://login.example/oauth2/token"
BODY = ClientCredentials(
    token_url=TOKEN_URL,
    client_id="id/1 ü",
    secret=StaticSecret(SECRET),
    method=AuthMethod.BODY,
    audience=SERVICE,
    scope="api/api_access",
)
BOMB = gzip.compress(json.dumps({"access_token": TOKEN}).encode())
BASIC = replace(BODY, method=AuthMethod.BASIC)

Handler = Callable[[httpx.Request], httpx.Response]


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


class Portal:
    """A token endpoint and a data service as plain callables. Every token it issued last is good, any older is not."""

    def __init__(self) -> None:
        self.token_requests: list[httpx.Request] = []
        self.sent_tokens: list[str] = []
        self.refused_tokens: set[str] = set()
        self.refusal = 401
        self.answer: Mapping[str, object] = {"token_type": "Bearer", "expires_in": 3600}

    def token(self, request: httpx.Request) -> httpx.Response:
        self.token_requests.append(request)
        return httpx.Response(200, json={"access_token": f"{TOKEN}-{len(self.token_requests)}", **self.answer})

    def data(self, request: httpx.Request) -> httpx.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        self.sent_tokens.append(token.removeprefix(f"{TOKEN}-"))
        is_good = scheme == "Bearer" and token.startswith(TOKEN) and token not in self.refused_tokens
        return httpx.Response(200 if is_good else self.refusal, json={"applicants": []})


@pytest.fixture
def portal() -> Portal:
    return Portal()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "state" / "tokens")


def make_auth(
    store: TokenStore,
    answer: Handler,
    clock: Callable[[], float] = Clock(),  # noqa: B008 - it is never changed through this name
    credentials: ClientCredentials = BODY,
) -> ClientCredentialsAuth:
    return ClientCredentialsAuth(
        credentials, store, service_url=SERVICE, clock=clock, transport=httpx.MockTransport(answer)
    )


def get(auth: httpx.Auth, portal: Portal, url: str = f"{SERVICE}/applicant-leads") -> httpx.Response:
    return fetch(auth, url, transport=httpx.MockTransport(portal.data))[0]


def fetch(auth: httpx.Auth, *urls: str, transport: httpx.AsyncBaseTransport | None = None) -> list[httpx.Response]:
    """What one client is answered to these, one after the other."""

    async def get_all() -> list[httpx.Response]:
        async with httpx.AsyncClient(auth=auth, transport=transport) as client:
            return [await client.get(url) for url in urls]

    return asyncio.run(get_all())


def ask(store: TokenStore, answer: Handler, credentials: ClientCredentials = BODY) -> LeadsPipelineError:
    """The error of a request whose token request gets this answer."""
    with pytest.raises(LeadsPipelineError) as caught:
        get(make_auth(store, answer, credentials=credentials), Portal())
    return caught.value


def only_file(store: TokenStore, ending: str = "json") -> Path:
    (path,) = store.folder.glob(f"*.{ending}")
    return path


# What is sent


def test_the_body_form_sends_the_pair_and_the_audience_in_the_body_alone(store: TokenStore, portal: Portal) -> None:
    assert get(make_auth(store, portal.token), portal).status_code == 200
    (request,) = portal.token_requests
    assert (request.method, str(request.url)) == ("POST", TOKEN_URL)
    assert "Authorization" not in request.headers
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "client_id": ["id/1 ü"],
        "client_secret": [SECRET],
        "audience": [SERVICE],
    }


def test_the_basic_form_sends_the_pair_form_encoded_in_the_header_alone(store: TokenStore, portal: Portal) -> None:
    assert get(make_auth(store, portal.token, credentials=BASIC), portal).status_code == 200
    (request,) = portal.token_requests
    scheme, _, encoded = request.headers["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(encoded)) == ("Basic", b"id%2F1+%C3%BC:canary-s3cret+b%3A%25%2B+c")
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "scope": ["api/api_access"],
    }


@pytest.mark.parametrize("credentials", [BODY, BASIC])
def test_what_is_not_set_is_not_sent(store: TokenStore, portal: Portal, credentials: ClientCredentials) -> None:
    get(make_auth(store, portal.token, credentials=replace(credentials, audience=None, scope=None)), portal)
    assert (
        not {"audience", "scope"} & parse_qs(portal.token_requests[0].content.decode(), keep_blank_values=True).keys()
    )


def test_one_token_serves_many_requests(store: TokenStore, portal: Portal) -> None:
    auth = make_auth(store, portal.token)
    before = auth.token_source
    assert before is None
    for _ in range(3):
        get(auth, portal)
    assert portal.sent_tokens == ["1", "1", "1"]
    assert (auth.requests_made, auth.token_source) == (1, "endpoint")


@pytest.mark.parametrize(
    "url",
    [
        "http://portal.example/api/x",
        "https://portal.example:8443/api/x",
        "https://portal.example.evil.example/api/x",
        "https://login.example/x",
    ],
)
def test_a_request_to_another_origin_goes_out_unsigned(store: TokenStore, portal: Portal, url: str) -> None:
    auth = make_auth(store, portal.token)
    assert get(auth, portal, url).status_code == 401

    async def get_async() -> None:
        async with httpx.AsyncClient(auth=auth, transport=httpx.MockTransport(portal.data)) as client:
            await client.get(url)

    asyncio.run(get_async())
    assert portal.sent_tokens == ["", ""]
    assert not portal.token_requests


def test_the_origin_knows_the_scheme_s_own_port_and_upper_case(store: TokenStore, portal: Portal) -> None:
    assert get(make_auth(store, portal.token), portal, "https://Portal.Example:443/x").status_code == 200


@pytest.mark.parametrize("field", ["token", "service"])
def test_an_address_that_is_none_is_refused_at_once(store: TokenStore, field: str) -> None:
    credentials = replace(BODY, token_url="http://[::1") if field == "token" else BODY
    with pytest.raises(SettingsError, match="is not an address"):
        ClientCredentialsAuth(credentials, store, service_url="http://[::1" if field == "service" else SERVICE)


# A token's life


@pytest.mark.parametrize(("lifetime", "margin"), [(3600, 60), (100, 10)])
def test_a_token_is_renewed_shortly_before_it_expires(
    store: TokenStore, portal: Portal, clock: Clock, lifetime: int, margin: int
) -> None:
    portal.answer = {"expires_in": lifetime}
    auth = make_auth(store, portal.token, clock)
    get(auth, portal)
    clock.now += lifetime - margin - 1
    get(auth, portal)
    clock.now += 1
    get(auth, portal)
    assert portal.sent_tokens == ["1", "1", "2"]


def test_a_clock_that_was_set_back_makes_the_token_absent(store: TokenStore, portal: Portal, clock: Clock) -> None:
    auth = make_auth(store, portal.token, clock)
    get(auth, portal)
    clock.now -= 86_400
    get(auth, portal)
    assert portal.sent_tokens == ["1", "2"]


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [
        ("3600", 3600),
        ("3599.5", 3599.5),
        ('"3600"', 3600),
        ("0", DEFAULT_LIFETIME_SECONDS),
        ("-5", DEFAULT_LIFETIME_SECONDS),
        ('"soon"', DEFAULT_LIFETIME_SECONDS),
        ("null", DEFAULT_LIFETIME_SECONDS),
        ("true", DEFAULT_LIFETIME_SECONDS),
        ("[3600]", DEFAULT_LIFETIME_SECONDS),
        ("NaN", DEFAULT_LIFETIME_SECONDS),
        ("-Infinity", DEFAULT_LIFETIME_SECONDS),
        ("Infinity", MAX_LIFETIME_SECONDS),
        ("1e999", MAX_LIFETIME_SECONDS),
        ("9" * 5000, MAX_LIFETIME_SECONDS),
        ("315360000", MAX_LIFETIME_SECONDS),
    ],
)
def test_a_strange_lifetime_gets_a_sound_one_and_one_request(
    store: TokenStore, expires_in: str, lifetime: float
) -> None:
    portal = Portal()

    def answer(request: httpx.Request) -> httpx.Response:
        portal.token_requests.append(request)
        return httpx.Response(200, text=f'{{"access_token": "{TOKEN}", "expires_in": {expires_in}}}')

    auth = make_auth(store, answer)
    get(auth, portal)
    get(auth, portal)
    token = store.read(only_file(store).stem)
    assert token is not None
    assert (token.lifetime_seconds, len(portal.token_requests)) == (lifetime, 1)


def test_a_missing_lifetime_gets_the_default(store: TokenStore, portal: Portal) -> None:
    portal.answer = {}
    get(make_auth(store, portal.token), portal)
    token = store.read(only_file(store).stem)
    assert token is not None
    assert token.lifetime_seconds == DEFAULT_LIFETIME_SECONDS


@pytest.mark.parametrize("token_type", ["Bearer", "bearer", "BEARER", None])
def test_a_bearer_token_may_say_so_in_any_case(store: TokenStore, portal: Portal, token_type: str | None) -> None:
    portal.answer = {"token_type": token_type}
    assert get(make_auth(store, portal.token), portal).status_code == 200


# Refused tokens


@pytest.mark.parametrize("refusal", [401, 403])
def test_a_refused_token_is_renewed_once(store: TokenStore, portal: Portal, refusal: int) -> None:
    portal.refusal = refusal
    portal.refused_tokens = {f"{TOKEN}-1"}
    auth = make_auth(store, portal.token)
    assert get(auth, portal).status_code == 200
    assert portal.sent_tokens == ["1", "2"]
    get(auth, portal)
    assert portal.sent_tokens == ["1", "2", "2"]


@pytest.mark.parametrize("refusal", [401, 403])
def test_a_second_refusal_is_the_answer(store: TokenStore, portal: Portal, refusal: int) -> None:
    portal.refusal = refusal
    portal.refused_tokens = {f"{TOKEN}-{number}" for number in range(1, 9)}
    assert get(make_auth(store, portal.token), portal).status_code == refusal
    assert portal.sent_tokens == ["1", "2"]


def test_requests_that_stay_forbidden_do_not_ask_for_a_token_each(
    store: TokenStore, portal: Portal, clock: Clock
) -> None:
    portal.refusal = 403
    portal.refused_tokens = {f"{TOKEN}-{number}" for number in range(1, 9)}
    auth = make_auth(store, portal.token, clock)
    for _ in range(5):
        assert get(auth, portal).status_code == 403
    assert len(portal.token_requests) == 2
    clock.now += RENEWAL_PAUSE_SECONDS
    get(auth, portal)
    assert len(portal.token_requests) == 3


@pytest.mark.parametrize("status", [400, 404, 429, 500])
def test_no_other_status_renews_the_token(store: TokenStore, portal: Portal, status: int) -> None:
    portal.refusal = status
    portal.refused_tokens = {f"{TOKEN}-1"}
    assert get(make_auth(store, portal.token), portal).status_code == status
    assert portal.sent_tokens == ["1"]


def test_a_token_that_another_process_renewed_is_taken_without_asking(store: TokenStore, portal: Portal) -> None:
    ours, theirs = make_auth(store, portal.token), make_auth(store, portal.token)
    get(ours, portal)
    get(theirs, portal)
    assert (theirs.requests_made, theirs.token_source) == (0, "store")
    portal.refused_tokens = {f"{TOKEN}-1"}
    assert get(theirs, portal).status_code == 200
    assert get(ours, portal).status_code == 200
    assert portal.sent_tokens == ["1", "1", "1", "2", "1", "2"]
    assert (ours.requests_made, ours.token_source) == (1, "store")


def test_a_refused_token_is_dropped_even_if_there_is_no_other(store: TokenStore, portal: Portal) -> None:
    get(make_auth(store, portal.token), portal)
    portal.refused_tokens = {f"{TOKEN}-1"}
    with pytest.raises(ServerError):
        get(make_auth(store, lambda _: httpx.Response(503)), portal)
    assert not list(store.folder.glob("*.json"))


def test_the_first_refusal_s_body_is_not_read(store: TokenStore, portal: Portal) -> None:
    chunks_read = 0

    class Endless(httpx.AsyncByteStream):
        is_closed = False

        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal chunks_read
            while chunks_read < 1000:
                chunks_read += 1
                yield b"x" * 1000

        async def aclose(self) -> None:
            self.is_closed = True

    bodies: list[Endless] = []

    def data(request: httpx.Request) -> httpx.Response:
        response = portal.data(request)
        if response.status_code == 401:
            bodies.append(Endless())
            return httpx.Response(401, headers={"Content-Encoding": "gzip"}, stream=bodies[-1])
        return response

    portal.refused_tokens = {f"{TOKEN}-1"}
    auth = make_auth(store, portal.token)
    assert fetch(auth, SERVICE, transport=httpx.MockTransport(data))[0].status_code == 200
    assert chunks_read == 0
    assert [body.is_closed for body in bodies] == [True]


# A revoked secret


def test_after_a_refusal_the_endpoint_is_not_asked_again(store: TokenStore) -> None:
    portal = Portal()

    def answer(request: httpx.Request) -> httpx.Response:
        portal.token_requests.append(request)
        return httpx.Response(401, json={"error": "invalid_client", "error_description": "private"})

    auth = make_auth(store, answer)
    messages = set()
    for _ in range(3):
        with pytest.raises(CredentialsError) as caught:
            get(auth, portal)
        messages.add(str(caught.value))
    (message,) = messages
    assert "(401, invalid_client)" in message
    assert "technical contact" in message
    assert "private" not in message
    assert auth.requests_made == len(portal.token_requests) == 1


# What a token endpoint can answer


@pytest.mark.parametrize("status", [400, 401, 403])
@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("invalid_client", "Check the client id"),
        ("invalid_grant", "Check the client id"),
        ("unauthorized_client", "client credentials grant"),
        ("access_denied", "client credentials grant"),
        ("unsupported_grant_type", "client credentials grant"),
        ("invalid_request", "authentication method"),
        ("invalid_scope", "the scope"),
        ("invalid_target", "audience"),
    ],
)
def test_an_oauth_error_is_named_with_what_to_do(store: TokenStore, status: int, code: str, advice: str) -> None:
    error = ask(store, lambda _: httpx.Response(status, json={"error": code}))
    assert type(error) is CredentialsError
    assert f"({status}, {code})" in str(error)
    assert advice in str(error)


def test_an_unknown_oauth_error_is_not_repeated(store: TokenStore) -> None:
    error = ask(store, lambda _: httpx.Response(400, json={"error": SECRET}))
    assert type(error) is CredentialsError
    assert SECRET not in str(error)


@pytest.mark.parametrize(
    ("response", "kind", "words"),
    [
        (httpx.Response(401, html="<h1>who?</h1>"), CredentialsError, r"\(401, no error code"),
        (httpx.Response(400, json={"error": "temporarily_unavailable"}), ServerError, r"fault of its own \(400\)"),
        (httpx.Response(400, html="<h1>what?</h1>"), ServerError, "answered 400, not as a token server"),
        (httpx.Response(404, json={"message": "no"}), ServerError, "check the token server's address"),
        (httpx.Response(403, json={"error": {"code": 1}}), ServerError, "answered 403"),
        (httpx.Response(429), BusyError, r"busy \(429\)"),
        (httpx.Response(500), ServerError, r"\(500\)"),
        (httpx.Response(503, html="x" * 2 * MAX_ANSWER_BYTES), ServerError, r"\(503\)"),
        (httpx.Response(302, headers={"Location": "https://evil.example/"}), ServerError, "redirected"),
        (httpx.Response(307, headers={"Location": "https://evil.example/"}), ServerError, "redirected"),
        (httpx.Response(201, json={"access_token": TOKEN}), ServerError, "answered 201"),
        (httpx.Response(204), ServerError, "answered 204"),
        (httpx.Response(200), ServerError, "without a plain JSON object"),
        (httpx.Response(200, html="<h1>Log in</h1>"), ServerError, "without a plain JSON object"),
        (
            httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx.ByteStream(BOMB)),
            ServerError,
            "plain",
        ),
        (httpx.Response(200, json=[TOKEN]), ServerError, "without a plain JSON object"),
        (httpx.Response(200, text="[" * 60_000), ServerError, "without a plain JSON object"),
        (httpx.Response(200, content=b"\xff{}"), ServerError, "without a plain JSON object"),
        (httpx.Response(200, json={"access_token": TOKEN, "x": "x" * MAX_ANSWER_BYTES}), ServerError, "at most 65536"),
        (httpx.Response(200, json={}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": None}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": 12345}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": ""}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": f"{TOKEN}\r\nX: y"}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": f"{TOKEN} b"}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": f"{TOKEN}\n"}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": f"{TOKEN}é"}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": "x" * (MAX_TOKEN_CHARACTERS + 1)}), ServerError, "without a token"),
        (httpx.Response(200, json={"access_token": TOKEN, "token_type": "DPoP"}), ServerError, "not a bearer"),
    ],
)
def test_any_other_answer_gets_its_own_words(
    store: TokenStore, response: httpx.Response, kind: type[LeadsPipelineError], words: str
) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return response

    error = ask(store, answer)
    assert type(error) is kind
    assert TOKEN_URL in str(error)
    assert re.search(words, str(error))
    assert asked == [TOKEN_URL]
    assert not list(store.folder.glob("*.json"))


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("value", "seconds"),
    [("17", 17), (time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(NOW + 90)), 90), ("x", None)],
)
def test_the_endpoint_s_wish_for_patience_is_passed_on(
    store: TokenStore, status: int, value: str, seconds: float | None
) -> None:
    error = ask(store, lambda _: httpx.Response(status, headers={"Retry-After": value}))
    assert isinstance(error, BusyError | ServerError)
    assert error.retry_after_seconds == seconds


def test_a_failure_that_passes_is_not_remembered(store: TokenStore, portal: Portal) -> None:
    answers = iter([httpx.Response(503), httpx.Response(429)])
    auth = make_auth(store, lambda request: next(answers, None) or portal.token(request))
    for kind in (ServerError, BusyError):
        with pytest.raises(kind):
            get(auth, portal)
    assert get(auth, portal).status_code == 200


def test_an_endless_answer_is_cut_off(store: TokenStore) -> None:
    chunks_read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal chunks_read
        while chunks_read < 1000:
            chunks_read += 1
            yield b" " * 10_000

    error = ask(store, lambda _: httpx.Response(200, content=endless()))
    assert isinstance(error, ServerError)
    assert chunks_read == 7


# The network


def test_no_connection_says_so(store: TokenStore) -> None:
    credentials = replace(BODY, token_url="http://127.0.0.1:9/token")
    with pytest.raises(UnreachableError, match=r"no connection .*It is tried again"):
        get(ClientCredentialsAuth(credentials, store, service_url=SERVICE), Portal())


class Server:
    """A portal on a real socket: /token answers late, and /leads takes the tokens that were issued last."""

    def __init__(self, delay_seconds: float = 0.1) -> None:
        self.token_requests = 0
        self.data_requests = 0
        self.delay_seconds = delay_seconds
        self.raw_token_answer: bytes | None = None
        self.drips = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    server.token_requests += 1
                    number = server.token_requests
                if server.raw_token_answer is not None:
                    self.wfile.write(server.raw_token_answer)
                    server.drips.wait(5)
                    self.close_connection = True
                    return
                time.sleep(server.delay_seconds)
                self.answer(200, {"access_token": f"{TOKEN}-{number}", "expires_in": 3600})

            def do_GET(self) -> None:
                with lock:
                    server.data_requests += 1
                is_good = self.headers["Authorization"] == f"Bearer {TOKEN}-{server.token_requests}"
                self.answer(200 if is_good else 401, {})

            def answer(self, status: int, body: object) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        lock = threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.credentials = replace(BODY, token_url=f"{self.url}/token")
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def stop(self) -> None:
        self.drips.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def auth(self, store: TokenStore) -> ClientCredentialsAuth:
        return ClientCredentialsAuth(self.credentials, store, service_url=self.url)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Slow: ", "within 0 seconds"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "within 0 seconds"),
    ],
)
def test_an_answer_that_never_ends_meets_the_deadline(
    server: Server, store: TokenStore, answer: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "TOKEN_DEADLINE_SECONDS", 0.2)
    server.raw_token_answer = answer
    with pytest.raises(UnreachableError, match=words):
        fetch(server.auth(store), f"{server.url}/leads")


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"])
def test_an_answer_that_breaks_off_is_told(server: Server, store: TokenStore, answer: bytes) -> None:
    server.raw_token_answer = answer
    server.drips.set()
    with pytest.raises(UnreachableError, match="the connection broke"):
        fetch(server.auth(store), f"{server.url}/leads")


# One token for all


def test_tasks_that_start_cold_make_one_token_request(server: Server, store: TokenStore) -> None:
    auth = server.auth(store)

    async def get_all() -> list[int]:
        async with httpx.AsyncClient(auth=auth) as client:
            responses = await asyncio.gather(*(client.get(f"{server.url}/leads") for _ in range(30)))
        return [response.status_code for response in responses]

    assert asyncio.run(get_all()) == [200] * 30
    assert (server.token_requests, auth.requests_made) == (1, 1)


def test_threads_that_start_cold_make_one_token_request(server: Server, store: TokenStore) -> None:
    auth = server.auth(store)
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: fetch(auth, f"{server.url}/leads"), range(32)))
    assert [response.status_code for [response] in answers] == [200] * 32
    assert server.token_requests == 1


def test_objects_of_one_process_share_a_token_too(server: Server, store: TokenStore) -> None:
    def get_alone(_: int) -> int:
        return fetch(server.auth(TokenStore(store.folder)), f"{server.url}/leads")[0].status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(get_alone, range(8))) == [200] * 8
    assert server.token_requests == 1


def test_tasks_that_are_refused_together_renew_once(server: Server, store: TokenStore) -> None:
    auth = server.auth(store)

    async def get_all() -> list[int]:
        async with httpx.AsyncClient(auth=auth) as client:
            await client.get(f"{server.url}/leads")
            server.token_requests += 1  # the issued token is the last one no more
            responses = await asyncio.gather(*(client.get(f"{server.url}/leads") for _ in range(20)))
        return [response.status_code for response in responses]

    assert asyncio.run(get_all()) == [200] * 20
    assert auth.requests_made == 2


def test_tasks_that_wait_together_fail_together(store: TokenStore) -> None:
    asked = 0

    async def answer(_: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.1)
        return httpx.Response(503)

    auth = ClientCredentialsAuth(BODY, store, service_url=SERVICE, transport=httpx.MockTransport(answer))

    async def get_all() -> list[object]:
        async with httpx.AsyncClient(auth=auth, transport=httpx.MockTransport(Portal().data)) as client:
            return list(await asyncio.gather(*(client.get(SERVICE) for _ in range(20)), return_exceptions=True))

    assert {type(result) for result in asyncio.run(get_all())} == {ServerError}
    assert asked == 1


def test_a_waiter_that_gives_up_stops_nobody_else(server: Server, store: TokenStore) -> None:
    async def get_both() -> int:
        async with httpx.AsyncClient(auth=server.auth(store)) as client:
            first = asyncio.create_task(client.get(f"{server.url}/leads"))
            second = asyncio.create_task(client.get(f"{server.url}/leads"))
            await asyncio.sleep(0.02)
            first.cancel()
            return (await second).status_code

    assert asyncio.run(get_both()) == 200
    assert server.token_requests == 1


def test_the_event_loop_runs_on_while_another_process_holds_the_lock(server: Server, store: TokenStore) -> None:
    fetch(server.auth(store), f"{server.url}/leads")
    stored = only_file(store)
    stored.unlink()

    async def count_while_waiting() -> tuple[int, int]:
        lock = filelock.FileLock(stored.with_suffix(".lock"))
        ticks = 0
        async with httpx.AsyncClient(auth=server.auth(store)) as client:
            with lock:
                task = asyncio.create_task(client.get(f"{server.url}/leads"))
                while ticks < 10:
                    await asyncio.sleep(0.01)
                    ticks += 1
                assert not task.done()
            return ticks, (await task).status_code

    assert asyncio.run(count_while_waiting()) == (10, 200)


def test_a_lock_that_is_never_released_is_an_error(
    store: TokenStore, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(make_auth(store, portal.token), portal)
    stored = only_file(store)
    stored.unlink()
    monkeypatch.setattr(tokens, "LOCK_DEADLINE_SECONDS", 0.1)
    with (
        filelock.FileLock(stored.with_suffix(".lock")),
        pytest.raises(UnreachableError, match="Another process has been getting"),
    ):
        get(make_auth(store, portal.token), portal)


def test_whoever_waits_for_the_lock_outlasts_a_token_request_and_is_told_of_a_hanging_one() -> None:
    assert endpoint.TOKEN_DEADLINE_SECONDS < tokens.LOCK_DEADLINE_SECONDS < DEADLINE_SECONDS


PROCESSES = """
import asyncio, multiprocessing, sys
from pathlib import Path
import httpx
from leads_pipeline.auth import ClientCredentials, ClientCredentialsAuth, TokenStore
from leads_pipeline.credentials import StaticSecret
from leads_pipeline.settings import AuthMethod

url, folder = sys.argv[1:]
context = multiprocessing.get_context("fork")
barrier = context.Barrier(16)

def run():
    credentials = ClientCredentials(
        token_url=url + "/token", client_id="id", secret=StaticSecret("secret"), method=AuthMethod.BODY
    )
    auth = ClientCredentialsAuth(credentials, TokenStore(Path(folder)), service_url=url)
    asyncio.run(ask(auth))

async def ask(auth):
    async with httpx.AsyncClient(auth=auth, timeout=30, verify=False) as client:  # spare the start of TLS
        barrier.wait()
        print(f"{(await client.get(url + '/leads')).status_code} {auth.requests_made}\\n", end="", flush=True)

processes = [context.Process(target=run) for _ in range(16)]
for process in processes:
    process.start()
for process in processes:
    process.join()
"""


def test_sixteen_processes_that_start_cold_make_one_token_request(server: Server, store: TokenStore) -> None:
    command = [sys.executable, "-c", PROCESSES, server.url, str(store.folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    assert sorted(result.stdout.splitlines()) == ["200 0"] * 15 + ["200 1"]
    assert (server.token_requests, server.data_requests) == (1, 16)


# The store


@pytest.fixture
def token() -> Token:
    return Token(TOKEN, NOW, 3600.0)


def test_the_store_gives_back_what_was_written(store: TokenStore, token: Token) -> None:
    assert store.read("key") is None
    with store.locked("key"):
        store.write("key", token)
        assert store.read("key") == token
        store.write("key", replace(token, fetched_at=NOW + 1))
    assert store.read("key") == replace(token, fetched_at=NOW + 1)
    assert store.read("other") is None


def test_only_this_user_can_read_the_store(store: TokenStore, token: Token) -> None:
    store.folder.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        with store.locked("key"):
            store.write("key", token)
    finally:
        os.umask(before)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in store.folder.iterdir()}
    assert modes["key.json"] == 0o600
    assert set(modes.values()) == {0o600}


def test_a_file_left_by_a_killed_process_is_no_obstacle(store: TokenStore, token: Token) -> None:
    with store.locked("key"):
        (store.folder / ".key.json.0123.tmp").write_text("half")
        store.write("key", token)
    assert store.read("key") == token
    assert {path.name for path in store.folder.iterdir()} == {"key.json", "key.lock"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_open_is_absent(store: TokenStore, token: Token, mode: int) -> None:
    with store.locked("key"):
        store.write("key", token)
    only_file(store).chmod(mode)
    assert store.read("key") is None


def test_a_file_of_another_user_is_absent(store: TokenStore, token: Token, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.locked("key"):
        store.write("key", token)
    monkeypatch.setattr(os, "geteuid", lambda: only_file(store).stat().st_uid + 1)
    assert store.read("key") is None


def test_a_link_is_absent(store: TokenStore, token: Token) -> None:
    with store.locked("key"):
        store.write("key", token)
    (store.folder / "other.json").symlink_to(only_file(store))
    assert store.read("other") is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"access_token": "a", "fetched_at": 1.0',
        b'{"access_token": "a", "fetched_at": 1.0}',
        b'{"access_token": "a", "fetched_at": "1", "lifetime_seconds": 1}',
        b'{"access_token": "a", "fetched_at": 1, "lifetime_seconds": NaN}',
        b'{"access_token": "a", "fetched_at": 1, "lifetime_seconds": 0}',
        b'{"access_token": "a", "fetched_at": 1, "lifetime_seconds": 86401}',
        b'{"access_token": "", "fetched_at": 1, "lifetime_seconds": 1}',
        b'{"access_token": "a\\r\\nb", "fetched_at": 1, "lifetime_seconds": 1}',
        b'{"access_token": 5, "fetched_at": 1, "lifetime_seconds": 1}',
    ],
)
def test_a_damaged_file_is_absent_and_replaced(store: TokenStore, portal: Portal, content: bytes) -> None:
    get(make_auth(store, portal.token), portal)
    path = only_file(store)
    path.write_bytes(content)
    assert store.read(path.stem) is None
    get(make_auth(store, portal.token), portal)
    assert portal.sent_tokens == ["1", "2"]
    assert store.read(path.stem) is not None


def test_a_folder_in_a_token_s_place_does_not_stop_the_requests(
    store: TokenStore, portal: Portal, caplog: pytest.LogCaptureFixture
) -> None:
    get(make_auth(store, portal.token), portal)
    path = only_file(store)
    path.unlink()
    path.mkdir()
    auth = make_auth(store, portal.token)
    for _ in range(3):
        assert get(auth, portal).status_code == 200
    assert auth.requests_made == 1
    assert [record.message for record in caplog.records if record.name == "leads_pipeline.auth.flow"] == [
        "Other processes will ask for tokens of their own, as this one can't be kept. "
        f"{path} can't be written: Is a directory. Check the disk and its file system, then run again. "
        "What was landed before is untouched."
    ]


def test_only_that_very_token_is_dropped(store: TokenStore, token: Token) -> None:
    with store.locked("key"):
        store.write("key", token)
        store.drop("key", replace(token, access_token="another"))
        assert store.read("key") == token
        store.drop("key", token)
        assert store.read("key") is None
        store.drop("key", token)


def test_a_store_that_can_not_be_is_an_error_before_anything_is_asked(tmp_path: Path, portal: Portal) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/tokens, can't be used \(File exists\)"):
        get(make_auth(TokenStore(tmp_path / "file" / "tokens"), portal.token), portal)
    assert not portal.token_requests


@pytest.mark.parametrize(
    "other",
    [
        replace(BODY, token_url="https://other.example/token"),
        replace(BODY, client_id="other"),
        replace(BODY, secret=StaticSecret("other")),
        replace(BODY, audience="other"),
        replace(BODY, scope="other"),
        replace(BODY, method=AuthMethod.BASIC),
        replace(BODY, client_id="", audience=f"id/1 ü{SERVICE}"),
    ],
)
def test_other_credentials_have_another_place(store: TokenStore, portal: Portal, other: ClientCredentials) -> None:
    get(make_auth(store, portal.token), portal)
    get(make_auth(store, portal.token, credentials=other), portal)
    assert portal.sent_tokens == ["1", "2"]
    assert len(list(store.folder.glob("*.json"))) == 2


def test_the_store_tells_nothing_of_the_secret(store: TokenStore, portal: Portal) -> None:
    get(make_auth(store, portal.token), portal)
    digests = [hashlib.new(name, SECRET.encode()).hexdigest() for name in ("md5", "sha1", "sha256", "sha512")]
    for path in store.folder.iterdir():
        text = path.name + path.read_text()
        assert SECRET not in text
        assert not [digest for digest in digests if digest[:8] in text]


# Nothing leaks


CANARY_ANSWERS: list[Handler] = [
    lambda _: httpx.Response(401, json={"error": "invalid_client", "error_description": SECRET}),
    lambda _: httpx.Response(400, json={"error": SECRET, "error_uri": TOKEN}),
    lambda _: httpx.Response(400, text=SECRET, headers={"X-Echo": SECRET}),
    lambda _: httpx.Response(429, text=SECRET, headers={"Retry-After": SECRET}),
    lambda _: httpx.Response(500, text=f"{SECRET} {TOKEN}"),
    lambda _: httpx.Response(302, headers={"Location": f"https://evil.example/?{TOKEN}"}),
    lambda _: httpx.Response(302, headers={"Location": f"https://[{TOKEN}"}),
    lambda _: httpx.Response(200, text=f"{SECRET} {TOKEN}"),
    lambda _: httpx.Response(200, json={"access_token": f"{TOKEN}\n{SECRET}"}),
    lambda _: httpx.Response(200, json={"access_token": TOKEN, "token_type": SECRET}),
    lambda _: httpx.Response(200, json={"access_token": TOKEN, "expires_in": SECRET}),
]


class BrokenSecret:
    def read(self) -> str:
        return StaticSecret(f"{SECRET}\n").read()


@pytest.mark.parametrize("credentials", [BODY, BASIC, replace(BODY, secret=BrokenSecret())])
@pytest.mark.parametrize("answer", [*CANARY_ANSWERS, None])
def test_no_failure_shows_the_secret_or_a_token(
    store: TokenStore,
    credentials: ClientCredentials,
    answer: Handler | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def break_off(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError(f"while sending {request.content!r} {SECRET}", request=request)

    caplog.set_level(logging.DEBUG)
    portal = Portal()
    portal.refused_tokens = {TOKEN}
    auth = make_auth(store, answer or break_off, credentials=credentials)
    shown = [repr(auth), repr(credentials), str(credentials), repr(store), repr(Token(TOKEN, NOW, 1.0))]
    try:
        response = get(auth, portal)
        shown += [repr(response), repr(response.request), repr(response.request.headers), repr(response.history)]
    except LeadsPipelineError as error:
        shown += [str(error), repr(error), error.reason, "".join(traceback.format_exception(error))]
        cause: BaseException | None = error
        while cause is not None:
            shown.append(str(cause))
            cause = cause.__cause__ or cause.__context__
    shown.append(caplog.text)
    encoded = base64.b64encode(SECRET.encode()).decode().rstrip("=")
    for canary in ("canary", "s3cret", "t0ken", encoded):
        assert not [text for text in shown if canary in text]


# A server that we didn't write


class OAuthServer:
    def __init__(self, url: str) -> None:
        self.url = url

    def auth(self, store: TokenStore, client_id: str, secret: str, method: AuthMethod) -> ClientCredentialsAuth:
        credentials = ClientCredentials(
            token_url=f"{self.url}/oauth2/token",
            client_id=client_id,
            secret=StaticSecret(secret),
            method=method,
            audience="https://portal.example",
            scope="api/api_access",
        )
        return ClientCredentialsAuth(credentials, store, service_url=self.url)


OAUTH_FOLDER = Path(__file__).parent / "oauth_server"


@pytest.fixture(scope="session")
def oauth_server() -> Iterator[OAuthServer]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not installed: no certified OAuth server to test against")
    install_pinned_packages(npm, OAUTH_FOLDER)
    process = subprocess.Popen(
        [node, "server.mjs"],
        cwd=OAUTH_FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("port "):
            break
    else:
        pytest.fail("the OAuth server did not start:\n" + "".join(lines))
    yield OAuthServer(f"http://127.0.0.1:{lines[-1].split()[1]}")
    process.communicate(timeout=10)


# As in server.mjs.
CLIENT_SECRET = "b:%+ /&=\"'\\c"
BODY_CLIENT = ("body client", CLIENT_SECRET, AuthMethod.BODY)
BASIC_CLIENT = ("basic:client/1 +%", CLIENT_SECRET, AuthMethod.BASIC)


@pytest.mark.parametrize(("client", "scope"), [(BODY_CLIENT, None), (BASIC_CLIENT, "api/api_access")])
def test_a_certified_server_takes_both_forms(
    oauth_server: OAuthServer, store: TokenStore, client: tuple[str, str, AuthMethod], scope: str | None
) -> None:
    auth = oauth_server.auth(store, *client)
    first, second = fetch(auth, f"{oauth_server.url}/leads", f"{oauth_server.url}/leads")
    assert (first.status_code, second.status_code) == (200, 200)
    assert (first.json()["client"], first.json().get("scope")) == (client[0], scope)
    assert first.json()["tokenRequests"] == second.json()["tokenRequests"]


def test_a_token_that_a_certified_server_revoked_is_renewed_once(oauth_server: OAuthServer, store: TokenStore) -> None:
    auth = oauth_server.auth(store, *BASIC_CLIENT)
    answers = fetch(auth, *(f"{oauth_server.url}/{path}" for path in ("leads", "revoke", "leads")))
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert auth.requests_made == 2


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (("body client", "wrong", AuthMethod.BODY), r"\(401, invalid_client\)"),
        (("basic:client/1 +%", "wrong", AuthMethod.BASIC), r"\(401, invalid_client\)"),
        (("unknown", CLIENT_SECRET, AuthMethod.BASIC), r"\(401, invalid_client\)"),
        (("body client", "w\u00fcrzig", AuthMethod.BODY), r"\(401, invalid_client\)"),
        (("basic:client/1 +%", "w\u00fcrzig", AuthMethod.BASIC), r"\(400, invalid_request\)"),
    ],
)
def test_a_certified_server_s_refusal_is_told(
    oauth_server: OAuthServer, store: TokenStore, client: tuple[str, str, AuthMethod], words: str
) -> None:
    auth = oauth_server.auth(store, *client)
    with pytest.raises(CredentialsError, match=words):
        fetch(auth, f"{oauth_server.url}/leads")
