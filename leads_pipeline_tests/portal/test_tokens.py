import base64
import hashlib
import logging
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from leads_pipeline.errors import CredentialsError, LeadsPipelineError
from leads_pipeline.portal import ClientCredentials, Tokens
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.tokens import Token
from leads_pipeline.settings import AuthMethod, Secret
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

Handler = Callable[[httpx.Request], httpx.Response]


class TokenServer:
    """A token endpoint that numbers its tokens, and the folder that processes keep them in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = NOW
        self.requests: list[httpx.Request] = []

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        token = f"{TOKEN}-{len(self.requests)}"
        return httpx.Response(200, json={"access_token": token, "expires_in": LIFETIME_SECONDS})

    def tokens(self, answer: Handler | None = None, **credentials: Any) -> Tokens:
        """The tokens of a process. The endpoint answers as `answer` says, if it is given."""
        return Tokens(
            replace(BODY, **credentials),
            self.folder,
            clock=lambda: self.now,
            transport=httpx.MockTransport(answer or self.answer),
        )


@pytest.fixture
def server(tmp_path: Path) -> TokenServer:
    return TokenServer(tmp_path / "state" / "tokens")


def number_of(token: Token) -> str:
    return token.access_token.removeprefix(f"{TOKEN}-")


def error_of(tokens: Tokens) -> LeadsPipelineError:
    with pytest.raises(LeadsPipelineError) as caught:
        tokens.get()
    return caught.value


# --- requests for a token -------------------------------------------------------------------------


def test_the_body_form_sends_the_pair_and_the_audience_in_the_body_alone(
    server: TokenServer,
) -> None:
    server.tokens().get()

    [request] = server.requests
    assert request.method == "POST"
    assert str(request.url) == TOKEN_URL
    assert "Authorization" not in request.headers
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "client_id": ["id/1 ü"],
        "client_secret": [SECRET],
        "audience": [SERVICE],
    }


def test_the_basic_form_sends_the_pair_form_encoded_in_the_header_alone(
    server: TokenServer,
) -> None:
    server.tokens(method=AuthMethod.BASIC).get()

    [request] = server.requests
    scheme, _, encoded = request.headers["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(encoded) == b"id%2F1+%C3%BC:canary-s3cret+b%3A%25%2B+c"
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "scope": ["api/api_access"],
    }


# --- a token's life -------------------------------------------------------------------------------


def test_a_token_is_renewed_shortly_before_it_expires(server: TokenServer) -> None:
    tokens = server.tokens()
    tokens.get()

    server.now += LIFETIME_SECONDS - 61
    assert number_of(tokens.get()) == "1"
    server.now += 1
    assert number_of(tokens.get()) == "2"


def test_a_clock_that_was_set_back_makes_the_token_absent(server: TokenServer) -> None:
    tokens = server.tokens()
    tokens.get()
    server.now -= 86_400

    assert number_of(tokens.get()) == "2"


# --- answers of a token endpoint; test_answers_in_the_wild.py has more ----------------------------


def test_after_a_refusal_the_endpoint_is_not_asked_again(server: TokenServer) -> None:
    tokens = server.tokens(lambda _: httpx.Response(401, json={"error": "invalid_client"}))

    assert isinstance(error_of(tokens), CredentialsError)
    assert isinstance(error_of(tokens), CredentialsError)
    assert tokens.requests_made == 1


def test_the_endpoint_s_wish_for_patience_is_passed_on(server: TokenServer) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(NOW + 90))
    tokens = server.tokens(lambda _: httpx.Response(503, headers={"Retry-After": date}))

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


def test_eight_processes_that_start_cold_make_one_token_request(raw_server: RawServer) -> None:
    raw_server.script = respond(b'{"access_token": "t"}', "Connection: close")
    command = [sys.executable, "-c", PROCESSES, raw_server.url, "tokens"]

    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)

    assert result.stderr == ""
    assert sorted(result.stdout.splitlines()) == ["t 0"] * 7 + ["t 1"]


# --- the folder -----------------------------------------------------------------------------------


def test_only_this_user_can_read_tokens(server: TokenServer) -> None:
    server.folder.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        server.tokens().get()
    finally:
        os.umask(before)

    assert server.folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in server.folder.iterdir()} == {0o600}


def open_for_others(path: Path) -> None:
    path.chmod(0o640)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def nest_deeply(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


@pytest.mark.parametrize("spoil", [open_for_others, link, nest_deeply])
def test_a_file_that_others_can_open_or_that_is_damaged_is_replaced(
    server: TokenServer, spoil: Callable[[Path], None]
) -> None:
    server.tokens().get()
    [stored] = server.folder.glob("*.json")
    spoil(stored)

    assert number_of(server.tokens().get()) == "2"
    assert number_of(server.tokens().get()) == "2"


@pytest.mark.parametrize(
    "other",
    [
        {"token_url": "https://other.example/token"},
        {"secret": Secret("A_SECRET", "other")},
        {"client_id": "", "audience": f"id/1 ü{SERVICE}"},
    ],
)
def test_other_credentials_have_another_place(server: TokenServer, other: dict[str, Any]) -> None:
    server.tokens().get()

    assert number_of(server.tokens(**other).get()) == "2"
    assert number_of(server.tokens().get()) == "1"


def test_the_folder_tells_nothing_of_the_secret(server: TokenServer) -> None:
    server.tokens().get()

    told = "".join(path.name + path.read_text() for path in server.folder.iterdir())
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
    server: TokenServer,
    answer: Handler,
    credentials: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens = server.tokens(answer, **credentials)
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
