import base64
import hashlib
import logging
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from leads_pipeline.errors import CredentialsError, LeadsPipelineError
from leads_pipeline.portal import ClientCredentials, Tokens
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.run import Requests, RequestSpec, Service
from leads_pipeline.portal.tokens import LEAST_AGE_TO_REPLACE_SECONDS, Token
from leads_pipeline.settings import AuthMethod, Secret
from leads_pipeline_tests.support.fake_timing import FakeTiming
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS
from leads_pipeline_tests.support.raw_server import RawServer, respond

SECRET = "canary-s3cret b:%+ c"
TOKEN = "canary-t0ken"
NOW = 1_795_000_000.0
LIFETIME_SECONDS = 3600
SERVICE = "https://portal.example/api"
TOKEN_URL = "https://login.example/oauth2/token"
BODY = ClientCredentials(
    token_url=TOKEN_URL,
    client_id="id/1 ü",
    secret=Secret("A_SECRET", SECRET),
    method=AuthMethod.BODY,
    audience=SERVICE,
    scope="api/api_access",
)
SPEC = RequestSpec(path="/leads", parameters={}, about="a test", advice={})

Handler = Callable[[httpx.Request], httpx.Response]


class Portal:
    """A token endpoint that numbers its tokens, and a data service that refuses some of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = NOW
        self.token_requests: list[httpx.Request] = []
        self.sent_tokens: list[str] = []
        self.refused_tokens: set[str] = set()
        self.refusal = 401

    def token(self, request: httpx.Request) -> httpx.Response:
        self.token_requests.append(request)
        token = f"{TOKEN}-{len(self.token_requests)}"
        return httpx.Response(200, json={"access_token": token, "expires_in": LIFETIME_SECONDS})

    def data(self, request: httpx.Request) -> httpx.Response:
        token = request.headers["Authorization"].removeprefix(f"Bearer {TOKEN}-")
        self.sent_tokens.append(token)
        return httpx.Response(self.refusal if token in self.refused_tokens else 200, content=b"{}")

    def tokens(self, answer: Handler | None = None, **credentials: Any) -> Tokens:
        """The tokens of a process. The endpoint answers as `answer` says, if it is given."""
        return Tokens(
            replace(BODY, **credentials),
            self.folder,
            clock=lambda: self.now,
            transport=httpx.MockTransport(answer or self.token),
        )

    def ask(self, tokens: Tokens) -> str:
        """Make a data request with these tokens. Return the reason if it failed."""
        service = Service(
            base_url=SERVICE,
            tokens=tokens,
            transport=httpx.MockTransport(self.data),
            timing=FakeTiming().as_timing(),
        )
        try:
            Requests(service).fetch(SPEC, bytes)
        except LeadsPipelineError as error:
            return error.reason
        return ""


@pytest.fixture
def portal(tmp_path: Path) -> Portal:
    return Portal(tmp_path / "state" / "tokens")


def number_of(token: Token) -> str:
    return token.access_token.removeprefix(f"{TOKEN}-")


def error_of(tokens: Tokens) -> LeadsPipelineError:
    with pytest.raises(LeadsPipelineError) as caught:
        tokens.get()
    return caught.value


# --- requests for a token -------------------------------------------------------------------------


def test_the_body_form_sends_the_pair_and_the_audience_in_the_body_alone(portal: Portal) -> None:
    portal.tokens().get()

    [request] = portal.token_requests
    assert request.method == "POST"
    assert str(request.url) == TOKEN_URL
    assert "Authorization" not in request.headers
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "client_id": ["id/1 ü"],
        "client_secret": [SECRET],
        "audience": [SERVICE],
    }


def test_the_basic_form_sends_the_pair_form_encoded_in_the_header_alone(portal: Portal) -> None:
    portal.tokens(method=AuthMethod.BASIC).get()

    [request] = portal.token_requests
    scheme, _, encoded = request.headers["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(encoded) == b"id%2F1+%C3%BC:canary-s3cret+b%3A%25%2B+c"
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "scope": ["api/api_access"],
    }


def test_a_scope_that_is_not_set_is_not_sent(portal: Portal) -> None:
    portal.tokens(method=AuthMethod.BASIC, scope=None).get()

    sent = parse_qs(portal.token_requests[0].content.decode(), keep_blank_values=True)
    assert sent == {"grant_type": ["client_credentials"]}


# --- a token's life -------------------------------------------------------------------------------


def test_a_token_is_renewed_shortly_before_it_expires(portal: Portal) -> None:
    tokens = portal.tokens()
    tokens.get()

    portal.now += LIFETIME_SECONDS - 61
    assert number_of(tokens.get()) == "1"
    portal.now += 1
    assert number_of(tokens.get()) == "2"


def test_a_clock_that_was_set_back_makes_the_token_absent(portal: Portal) -> None:
    tokens = portal.tokens()
    tokens.get()
    portal.now -= 86_400

    assert number_of(tokens.get()) == "2"


# --- refused tokens; test_refused_tokens.py has more ----------------------------------------------


@pytest.mark.parametrize("refusal", [401, 403])
def test_an_old_token_that_is_refused_is_replaced_once(portal: Portal, refusal: int) -> None:
    portal.refusal = refusal
    portal.refused_tokens = {"1"}
    tokens = portal.tokens()
    tokens.get()
    portal.now += LEAST_AGE_TO_REPLACE_SECONDS

    assert portal.ask(tokens) == ""
    assert portal.ask(tokens) == ""
    assert portal.sent_tokens == ["1", "2", "2"]


# --- answers of a token endpoint; test_answers_in_the_wild.py has more ----------------------------


def test_after_a_refusal_the_endpoint_is_not_asked_again(portal: Portal) -> None:
    tokens = portal.tokens(lambda _: httpx.Response(401, json={"error": "invalid_client"}))

    assert isinstance(error_of(tokens), CredentialsError)
    assert isinstance(error_of(tokens), CredentialsError)
    assert tokens.requests_made == 1


def test_the_endpoint_s_wish_for_patience_is_passed_on(portal: Portal) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(NOW + 90))
    tokens = portal.tokens(lambda _: httpx.Response(503, headers={"Retry-After": date}))

    assert error_of(tokens).retry_after_seconds == 90


# --- one token for all ----------------------------------------------------------------------------


PROCESSES = """
import multiprocessing, sys
from pathlib import Path
from leads_pipeline.portal import ClientCredentials, Tokens
from leads_pipeline.settings import AuthMethod, Secret

url, folder = sys.argv[1:]
context = multiprocessing.get_context("fork")
barrier = context.Barrier(8)

def run():
    credentials = ClientCredentials(
        token_url=url + "/token", client_id="id", secret=Secret("A_SECRET", "secret"), method=AuthMethod.BODY
    )
    tokens = Tokens(credentials, Path(folder))
    barrier.wait()
    print(f"{tokens.get().access_token} {tokens.requests_made}\\n", end="", flush=True)

processes = [context.Process(target=run) for _ in range(8)]
for process in processes:
    process.start()
for process in processes:
    process.join()
"""


def test_eight_processes_that_start_cold_make_one_token_request(portal: Portal) -> None:
    with closing(RawServer()) as server:
        server.script = respond(b'{"access_token": "t"}', "Connection: close")
        command = [sys.executable, "-c", PROCESSES, server.url, str(portal.folder)]

        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)

    assert result.stderr == ""
    assert sorted(result.stdout.splitlines()) == ["t 0"] * 7 + ["t 1"]


# --- the folder -----------------------------------------------------------------------------------


def test_only_this_user_can_read_tokens(portal: Portal) -> None:
    portal.folder.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        portal.tokens().get()
    finally:
        os.umask(before)

    assert portal.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in portal.folder.iterdir()} == {0o600}


def open_for_others(path: Path) -> None:
    path.chmod(0o640)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def nest_deeply(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


@pytest.mark.parametrize("spoil", [open_for_others, link, nest_deeply])
def test_a_file_that_others_can_open_or_that_is_damaged_is_replaced(
    portal: Portal, spoil: Callable[[Path], None]
) -> None:
    portal.tokens().get()
    [stored] = portal.folder.glob("*.json")
    spoil(stored)

    assert number_of(portal.tokens().get()) == "2"
    assert number_of(portal.tokens().get()) == "2"


@pytest.mark.parametrize(
    "other",
    [
        {"token_url": "https://other.example/token"},
        {"secret": Secret("A_SECRET", "other")},
        {"client_id": "", "audience": f"id/1 ü{SERVICE}"},
    ],
)
def test_other_credentials_have_another_place(portal: Portal, other: dict[str, Any]) -> None:
    portal.tokens().get()

    assert number_of(portal.tokens(**other).get()) == "2"
    assert number_of(portal.tokens().get()) == "1"


def test_the_folder_tells_nothing_of_the_secret(portal: Portal) -> None:
    portal.tokens().get()

    told = "".join(path.name + path.read_text() for path in portal.folder.iterdir())
    assert SECRET not in told
    for algorithm in ("md5", "sha1", "sha256", "sha512"):
        assert hashlib.new(algorithm, SECRET.encode()).hexdigest()[:8] not in told


# --- nothing leaks --------------------------------------------------------------------------------


def break_off(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError(f"while sending {request.content!r} {SECRET}", request=request)


@pytest.mark.parametrize(
    ("answer", "credentials"),
    [
        (lambda _: httpx.Response(400, json={"error": SECRET, "error_uri": TOKEN}), {}),
        (
            lambda _: httpx.Response(200, json={"access_token": f"{TOKEN}\n{SECRET}"}),
            {"method": AuthMethod.BASIC},
        ),
        (break_off, {"secret": Secret("A_SECRET", f"{SECRET}\n")}),
    ],
)
def test_no_failure_shows_the_secret_or_a_token(
    portal: Portal, answer: Handler, credentials: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = portal.tokens(answer, **credentials)
    shown = f"{tokens!r} {replace(BODY, **credentials)!r} {Token(TOKEN, NOW, 1.0)!r}"

    try:
        tokens.get()
    except LeadsPipelineError as error:
        shown += f"{error} {error!r} {error.reason}" + "".join(traceback.format_exception(error))
        link: BaseException | None = error
        while link is not None:  # also what `from None` hides from a traceback
            shown += repr(link)
            link = link.__cause__ or link.__context__
    shown += caplog.text

    encoded = base64.b64encode(SECRET.encode()).decode().rstrip("=")
    for canary in ("canary", "s3cret", "t0ken", encoded):
        assert canary not in shown
