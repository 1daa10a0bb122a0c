import base64
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import filelock
import pytest

from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    LeadsPipelineError,
    ServerError,
    StorageError,
    UnreachableError,
)
from leads_pipeline.portal import ClientCredentials, Tokens
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.requests import DEADLINE_SECONDS, Requests, RequestSpec, Service
from leads_pipeline.portal.tokens import (
    DEFAULT_LIFETIME_SECONDS,
    LEAST_AGE_TO_REPLACE_SECONDS,
    LOCK_DEADLINE_SECONDS,
    MAX_LIFETIME_SECONDS,
    TOKEN_DEADLINE_SECONDS,
    Token,
)
from leads_pipeline.settings import AuthMethod, Secret
from leads_pipeline_tests.support.fake_timing import FakeTiming
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS
from leads_pipeline_tests.support.npm import install_pinned_packages
from leads_pipeline_tests.support.raw_server import RawServer, respond

SECRET = "canary-s3cret b:%+ c"
TOKEN = "canary-t0ken"
NOW = 1_795_000_000.0
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
BASIC = replace(BODY, method=AuthMethod.BASIC)
SPEC = RequestSpec(path="/leads", parameters={}, about="a test", advice={})

Handler = Callable[[httpx.Request], httpx.Response]


class Portal:
    """A token endpoint and a data service as plain callables."""

    def __init__(self) -> None:
        self.now = NOW
        self.token_requests: list[httpx.Request] = []
        self.sent_tokens: list[str] = []
        self.refused_tokens: set[str] = set()
        self.refusal = 401
        self.answer: Mapping[str, object] = {"token_type": "Bearer", "expires_in": 3600}

    def token(self, request: httpx.Request) -> httpx.Response:
        self.token_requests.append(request)
        return httpx.Response(200, json={"access_token": f"{TOKEN}-{len(self.token_requests)}", **self.answer})

    def data(self, request: httpx.Request) -> httpx.Response:
        token = request.headers["Authorization"].removeprefix(f"Bearer {TOKEN}-")
        self.sent_tokens.append(token)
        return httpx.Response(self.refusal if token in self.refused_tokens else 200, content=b"{}")

    def get(self, tokens: Tokens) -> str:
        """Why one data request with these tokens failed, empty if it didn't."""
        transport, timing = httpx.MockTransport(self.data), FakeTiming().as_timing()
        service = Service(base_url=SERVICE, tokens=tokens, transport=transport, timing=timing)
        try:
            Requests(service).fetch(SPEC, bytes)
        except LeadsPipelineError as error:
            return error.reason
        return ""


@pytest.fixture
def portal() -> Portal:
    return Portal()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "tokens"


def tokens_of(folder: Path, portal: Portal, answer: Handler | None = None, **credentials: Any) -> Tokens:
    return Tokens(
        replace(BODY, **credentials),
        folder,
        clock=lambda: portal.now,
        transport=httpx.MockTransport(answer or portal.token),
    )


def refusal_of(folder: Path, answer: Handler) -> LeadsPipelineError:
    with pytest.raises(LeadsPipelineError) as caught:
        tokens_of(folder, Portal(), answer).get()
    return caught.value


def number_of(token: Token) -> str:
    return token.access_token.removeprefix(f"{TOKEN}-")


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*.json")
    return path


# --- what is sent -----------------------------------------------------------------------------------------------------


def test_the_body_form_sends_the_pair_and_the_audience_in_the_body_alone(folder: Path, portal: Portal) -> None:
    tokens_of(folder, portal).get()
    (request,) = portal.token_requests
    assert (request.method, str(request.url)) == ("POST", TOKEN_URL)
    assert "Authorization" not in request.headers
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "client_id": ["id/1 ü"],
        "client_secret": [SECRET],
        "audience": [SERVICE],
    }


def test_the_basic_form_sends_the_pair_form_encoded_in_the_header_alone(folder: Path, portal: Portal) -> None:
    tokens_of(folder, portal, method=AuthMethod.BASIC).get()
    (request,) = portal.token_requests
    scheme, _, encoded = request.headers["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(encoded)) == ("Basic", b"id%2F1+%C3%BC:canary-s3cret+b%3A%25%2B+c")
    assert parse_qs(request.content.decode(), strict_parsing=True) == {
        "grant_type": ["client_credentials"],
        "scope": ["api/api_access"],
    }


@pytest.mark.parametrize("method", AuthMethod)
def test_what_is_not_set_is_not_sent(folder: Path, portal: Portal, method: AuthMethod) -> None:
    tokens_of(folder, portal, method=method, audience=None, scope=None).get()
    sent = parse_qs(portal.token_requests[0].content.decode(), keep_blank_values=True)
    assert not {"audience", "scope"} & sent.keys()


# --- a token's life ---------------------------------------------------------------------------------------------------


def test_one_token_serves_many_requests(folder: Path, portal: Portal) -> None:
    tokens = tokens_of(folder, portal)
    assert [portal.get(tokens) for _ in range(3)] == [""] * 3
    assert portal.sent_tokens == ["1", "1", "1"]
    assert tokens.requests_made == 1


@pytest.mark.parametrize(("lifetime", "margin"), [(3600, 60), (100, 10)])
def test_a_token_is_renewed_shortly_before_it_expires(folder: Path, portal: Portal, lifetime: int, margin: int) -> None:
    portal.answer = {"expires_in": lifetime}
    tokens = tokens_of(folder, portal)
    found = [number_of(tokens.get())]
    for seconds in (lifetime - margin - 1, 1):
        portal.now += seconds
        found.append(number_of(tokens.get()))
    assert found == ["1", "1", "2"]


def test_a_clock_that_was_set_back_makes_the_token_absent(folder: Path, portal: Portal) -> None:
    tokens = tokens_of(folder, portal)
    tokens.get()
    portal.now -= 86_400
    assert number_of(tokens.get()) == "2"


@pytest.mark.parametrize(
    ("expires_in", "lifetime"),
    [
        ("3600", 3600),
        ('"3599.5"', 3599.5),
        ("9" * 5000, MAX_LIFETIME_SECONDS),
        ("1e999", MAX_LIFETIME_SECONDS),
        *((text, DEFAULT_LIFETIME_SECONDS) for text in ("0", "-5", '"soon"', "true", "NaN")),
    ],
)
def test_a_strange_lifetime_gets_a_sound_one(folder: Path, expires_in: str, lifetime: float) -> None:
    body = f'{{"access_token": "{TOKEN}", "expires_in": {expires_in}}}'
    tokens = tokens_of(folder, Portal(), lambda _: httpx.Response(200, text=body))
    assert {tokens.get().lifetime_seconds, tokens.get().lifetime_seconds} == {lifetime}
    assert tokens.requests_made == 1


# --- refused tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", [401, 403])
def test_an_old_token_that_is_refused_is_replaced_once(folder: Path, portal: Portal, refusal: int) -> None:
    portal.refusal, portal.refused_tokens = refusal, {"1"}
    tokens = tokens_of(folder, portal)
    tokens.get()
    portal.now += LEAST_AGE_TO_REPLACE_SECONDS
    assert [portal.get(tokens), portal.get(tokens)] == ["", ""]
    assert portal.sent_tokens == ["1", "2", "2"]


@pytest.mark.parametrize("refusal", [401, 403])
def test_requests_that_stay_refused_cost_one_token_a_minute(folder: Path, portal: Portal, refusal: int) -> None:
    portal.refusal, portal.refused_tokens = refusal, set("123456789")
    tokens = tokens_of(folder, portal)
    for _ in range(5):
        assert f"refused ({refusal})" in portal.get(tokens)
    assert len(portal.token_requests) == 1
    portal.now += LEAST_AGE_TO_REPLACE_SECONDS
    for _ in range(5):
        assert f"refused ({refusal})" in portal.get(tokens)
    assert len(portal.token_requests) == 2


@pytest.mark.parametrize("status", [400, 404])
def test_no_other_status_renews_the_token(folder: Path, portal: Portal, status: int) -> None:
    portal.refusal, portal.refused_tokens = status, {"1"}
    assert portal.get(tokens_of(folder, portal)) == f"refused ({status})"
    assert portal.sent_tokens == ["1"]


def test_a_token_that_another_process_replaced_is_taken_without_asking(folder: Path, portal: Portal) -> None:
    ours, theirs = tokens_of(folder, portal), tokens_of(folder, portal)
    portal.get(ours)
    portal.get(theirs)
    assert theirs.requests_made == 0
    portal.refused_tokens = {"1"}
    portal.now += LEAST_AGE_TO_REPLACE_SECONDS
    assert [portal.get(theirs), portal.get(ours)] == ["", ""]
    assert portal.sent_tokens == ["1", "1", "1", "2", "1", "2"]
    assert ours.requests_made == 1


def test_a_refused_token_is_dropped_even_if_there_is_no_other(folder: Path, portal: Portal) -> None:
    portal.get(tokens_of(folder, portal))
    portal.refused_tokens = {"1"}
    portal.now += LEAST_AGE_TO_REPLACE_SECONDS
    portal.get(tokens_of(folder, portal, lambda _: httpx.Response(401)))
    assert not list(folder.glob("*.json"))


# --- what a token endpoint can answer ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("invalid_client", "Check the client id"),
        ("unauthorized_client", "client credentials grant"),
        ("access_denied", "client credentials grant"),
        ("invalid_request", "authentication method"),
        ("invalid_scope", "the scope"),
        ("invalid_target", "audience"),
    ],
)
def test_an_oauth_error_is_named_with_what_to_do(folder: Path, code: str, advice: str) -> None:
    error = refusal_of(folder, lambda _: httpx.Response(400, json={"error": code}))
    assert type(error) is CredentialsError
    assert TOKEN_URL in str(error)
    assert f"(400, {code})" in str(error)
    assert advice in str(error)


def test_after_a_refusal_the_endpoint_is_not_asked_again(folder: Path, portal: Portal) -> None:
    tokens = tokens_of(folder, portal, lambda _: httpx.Response(401, json={"error": "invalid_client"}))
    for _ in range(3):
        with pytest.raises(CredentialsError, match="technical contact"):
            tokens.get()
    assert tokens.requests_made == 1


def test_a_failure_that_passes_is_not_remembered(folder: Path, portal: Portal) -> None:
    answers = iter([httpx.Response(503), httpx.Response(429)])
    tokens = tokens_of(folder, portal, lambda request: next(answers, None) or portal.token(request))
    for kind in (ServerError, BusyError):
        with pytest.raises(kind):
            tokens.get()
    assert number_of(tokens.get()) == "1"


@pytest.mark.parametrize("status", [429, 503])
def test_the_endpoint_s_wish_for_patience_is_passed_on(folder: Path, status: int) -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(NOW + 90))
    for value, seconds in {"17": 17, date: 90, "x": None}.items():
        error = refusal_of(folder, lambda _, value=value: httpx.Response(status, headers={"Retry-After": value}))  # type: ignore[misc]
        assert isinstance(error, BusyError | ServerError)
        assert error.retry_after_seconds == seconds


# --- the network ------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[RawServer]:
    server = RawServer()
    yield server
    server.close()


def test_no_connection_says_so(folder: Path) -> None:
    tokens = Tokens(replace(BODY, token_url="http://127.0.0.1:9/token"), folder)
    with pytest.raises(UnreachableError, match=r"found no connection: .*Check the network.*This can pass"):
        tokens.get()


# --- one token for all ------------------------------------------------------------------------------------------------


def test_threads_that_are_refused_together_renew_once(folder: Path, portal: Portal) -> None:
    tokens = tokens_of(folder, portal)
    refused = tokens.get()
    portal.now += LEAST_AGE_TO_REPLACE_SECONDS
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: number_of(tokens.get(refused=refused)), range(8)))
    assert found == ["2"] * 8
    assert tokens.requests_made == 2


def test_threads_that_wait_together_fail_together(folder: Path, portal: Portal) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        time.sleep(0.1)
        return httpx.Response(503)

    tokens = tokens_of(folder, portal, answer)

    def error_of(_: int) -> type[Exception]:
        with pytest.raises(ServerError) as caught:
            tokens.get()
        return caught.type

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(error_of, range(8))) == [ServerError] * 8
    assert tokens.requests_made < 8


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


def test_eight_processes_that_start_cold_make_one_token_request(server: RawServer, folder: Path) -> None:
    server.script = respond(b'{"access_token": "t"}', "Connection: close")
    command = [sys.executable, "-c", PROCESSES, server.url, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert result.stderr == ""
    assert sorted(result.stdout.splitlines()) == ["t 0"] * 7 + ["t 1"]


def test_a_lock_that_is_never_released_is_an_error(folder: Path, portal: Portal) -> None:
    tokens_of(folder, portal).get()
    stored = only_file(folder)
    stored.unlink()
    late = Tokens(BODY, folder, transport=httpx.MockTransport(portal.token), lock_deadline_seconds=0.1)
    with (
        filelock.FileLock(stored.with_suffix(".lock")),
        pytest.raises(UnreachableError, match="Another process has been getting"),
    ):
        late.get()


def test_whoever_waits_for_the_lock_outlasts_a_token_request_and_is_told_of_a_hanging_one() -> None:
    assert TOKEN_DEADLINE_SECONDS < LOCK_DEADLINE_SECONDS < DEADLINE_SECONDS


# --- the folder -------------------------------------------------------------------------------------------------------


def test_only_this_user_can_read_tokens(folder: Path, portal: Portal) -> None:
    folder.mkdir(parents=True, mode=0o755)
    before = os.umask(0)
    try:
        tokens_of(folder, portal).get()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_file_left_by_a_killed_process_is_no_obstacle(folder: Path, portal: Portal) -> None:
    tokens_of(folder, portal).get()
    stored = only_file(folder)
    stored.unlink()
    stored.with_name(f".{stored.name}.0123.tmp").write_text("half")
    tokens_of(folder, portal).get()
    assert {path.suffix for path in folder.iterdir()} == {".json", ".lock"}


def spoil_mode(path: Path) -> None:
    path.chmod(0o640)


def spoil_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_mode,
        spoil_by_link,
        *(
            lambda path, content=content: path.write_bytes(content)
            for content in (
                b"[" * 100_000,
                b'{"access_token": "a", "fetched_at": 1.0}',
                b'{"access_token": "a", "fetched_at": 1, "lifetime_seconds": 86401}',
                b'{"access_token": "a\\r\\nb", "fetched_at": 1, "lifetime_seconds": 1}',
            )
        ),
    ],
)
def test_a_file_that_others_can_open_or_that_is_damaged_is_absent_and_replaced(
    folder: Path, portal: Portal, spoil: Callable[[Path], object]
) -> None:
    tokens_of(folder, portal).get()
    spoil(only_file(folder))
    assert number_of(tokens_of(folder, portal).get()) == "2"
    assert number_of(tokens_of(folder, portal).get()) == "2"


def test_a_token_file_of_another_user_is_not_used(
    folder: Path, portal: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens_of(folder, portal).get()
    assert number_of(tokens_of(folder, portal).get()) == "1"
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert number_of(tokens_of(folder, portal).get()) == "2"


def test_a_folder_in_a_token_s_place_does_not_stop_the_requests(
    folder: Path, portal: Portal, caplog: pytest.LogCaptureFixture
) -> None:
    tokens_of(folder, portal).get()
    path = only_file(folder)
    path.unlink()
    path.mkdir()
    tokens = tokens_of(folder, portal)
    assert [portal.get(tokens) for _ in range(3)] == [""] * 3
    assert tokens.requests_made == 1
    assert "This token can't be kept" in caplog.text


def test_a_folder_that_can_not_be_is_an_error_before_anything_is_asked(tmp_path: Path, portal: Portal) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"file/tokens, can't be used \(File exists\)"):
        tokens_of(tmp_path / "file" / "tokens", portal).get()
    assert not portal.token_requests


@pytest.mark.parametrize(
    "other",
    [
        {"token_url": "https://other.example/token"},
        {"client_id": "other"},
        {"secret": Secret("A_SECRET", "other")},
        {"audience": "other"},
        {"scope": "other"},
        {"method": AuthMethod.BASIC},
        {"client_id": "", "audience": f"id/1 ü{SERVICE}"},
    ],
)
def test_other_credentials_have_another_place(folder: Path, portal: Portal, other: dict[str, Any]) -> None:
    tokens_of(folder, portal).get()
    assert number_of(tokens_of(folder, portal, **other).get()) == "2"
    assert len(list(folder.glob("*.json"))) == 2


def test_the_folder_tells_nothing_of_the_secret(folder: Path, portal: Portal) -> None:
    tokens_of(folder, portal).get()
    digests = [hashlib.new(name, SECRET.encode()).hexdigest() for name in ("md5", "sha1", "sha256", "sha512")]
    for path in folder.iterdir():
        text = path.name + path.read_text()
        assert SECRET not in text
        assert not [digest for digest in digests if digest[:8] in text]


# --- nothing leaks ----------------------------------------------------------------------------------------------------

CANARY_ANSWERS: list[Handler] = [
    lambda _: httpx.Response(401, json={"error": "invalid_client", "error_description": SECRET}),
    lambda _: httpx.Response(400, json={"error": SECRET, "error_uri": TOKEN}),
    lambda _: httpx.Response(400, text=SECRET, headers={"X-Echo": SECRET}),
    lambda _: httpx.Response(429, text=SECRET, headers={"Retry-After": SECRET}),
    lambda _: httpx.Response(500, text=f"{SECRET} {TOKEN}"),
    lambda _: httpx.Response(302, headers={"Location": f"https://[{TOKEN}"}),
    lambda _: httpx.Response(200, text=f"{SECRET} {TOKEN}"),
    lambda _: httpx.Response(200, json={"access_token": f"{TOKEN}\n{SECRET}"}),
    lambda _: httpx.Response(200, json={"access_token": TOKEN, "token_type": SECRET}),
    lambda _: httpx.Response(200, json={"access_token": TOKEN, "expires_in": SECRET}),
]


@pytest.mark.parametrize(
    ("answer", "credentials"),
    [
        *zip([*CANARY_ANSWERS, None], cycle([{}, {"method": AuthMethod.BASIC}]), strict=False),
        (None, {"secret": Secret("A_SECRET", f"{SECRET}\n")}),
    ],
)
def test_no_failure_shows_the_secret_or_a_token(
    folder: Path, credentials: dict[str, Any], answer: Handler | None, caplog: pytest.LogCaptureFixture
) -> None:
    def break_off(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError(f"while sending {request.content!r} {SECRET}", request=request)

    caplog.set_level(logging.DEBUG)
    tokens = tokens_of(folder, Portal(), answer or break_off, **credentials)
    shown = [repr(tokens), repr(replace(BODY, **credentials)), repr(Token(TOKEN, NOW, 1.0))]
    try:
        tokens.get()
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


# --- a certified OpenID provider --------------------------------------------------------------------------------------

OAUTH_FOLDER = Path(__file__).parent / "oauth_server"
CERTIFIED_SECRET = """b:%+ /&="'\\c"""  # the server has it too
BODY_CLIENT = ("body client", CERTIFIED_SECRET, AuthMethod.BODY)
BASIC_CLIENT = ("basic:client/1 +%", CERTIFIED_SECRET, AuthMethod.BASIC)


@pytest.fixture(scope="session")
def oauth_server() -> Iterator[str]:
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
    yield f"http://127.0.0.1:{lines[-1].split()[1]}"
    process.communicate(timeout=PATIENCE_SECONDS)


def certified(url: str, folder: Path, client: tuple[str, str, AuthMethod]) -> Tokens:
    client_id, secret, method = client
    credentials = ClientCredentials(
        token_url=f"{url}/oauth2/token",
        client_id=client_id,
        secret=Secret("A_SECRET", secret),
        method=method,
        audience="https://portal.example",
        scope="api/api_access",
    )
    return Tokens(credentials, folder)


def ask(url: str, tokens: Tokens) -> dict[str, Any]:
    with closing(Requests(Service(base_url=url, tokens=tokens))) as run:
        return dict(run.fetch(SPEC, json.loads).value)


@pytest.mark.parametrize(("client", "scope"), [(BODY_CLIENT, None), (BASIC_CLIENT, "api/api_access")])
def test_a_certified_server_takes_both_forms(
    oauth_server: str, folder: Path, client: tuple[str, str, AuthMethod], scope: str | None
) -> None:
    tokens = certified(oauth_server, folder, client)
    first, second = ask(oauth_server, tokens), ask(oauth_server, tokens)
    assert (first["client"], first.get("scope")) == (client[0], scope)
    assert first["tokenRequests"] == second["tokenRequests"]
