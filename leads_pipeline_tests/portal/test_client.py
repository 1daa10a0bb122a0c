import errno
import hashlib
import json
import logging
import os
import re
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.domain.contract import APPLICANT, Answer, LeadKind
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    RetentionError,
    ServerError,
    SettingsError,
    UnreachableError,
)
from leads_pipeline.portal import LeadsClient, RetryPolicy, Service, Timing, Tokens
from leads_pipeline.portal.http import answer_to, server_time
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.run import MAX_BODY_BYTES, MAX_FAILURES_IN_A_ROW
from leads_pipeline_tests.support.fake_timing import NOW, FakeTiming
from leads_pipeline_tests.support.good_tokens import BASE_URL, CREDENTIALS, TOKEN, GoodTokens
from leads_pipeline_tests.support.raw_server import (
    HEAD,
    RawServer,
    drip,
    raw,
    respond,
)

NO_SUCH_HOST = "http://portal.invalid"
BODY = b'{"applicants": [{"id": "a", "price": 250000.10}]}'
HOUR = timedelta(hours=1)
YESTERDAY = date(2026, 11, 19)
ONCE = RetryPolicy(max_attempts=1)
# Real waiting, but always on the day after the windows' day. A month later the portal would have
# deleted them.
THAT_DAY = Timing(now=lambda: NOW)

Handler = Callable[[httpx.Request], httpx.Response]
Outcome = Answer | LeadsPipelineError


def leads_client(
    handler: Handler,
    tokens: Tokens | None = None,
    *,
    max_concurrency: int = 4,
    keep_unreadable: Callable[[LeadKind, Window, bytes], None] | None = None,
    timing: Timing | None = None,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    max_body_bytes: int = MAX_BODY_BYTES,
) -> LeadsClient:
    """A client of a portal that `handler` plays. Only its waits move its clock."""
    service = Service(
        base_url=BASE_URL,
        tokens=tokens or GoodTokens(),
        transport=httpx.MockTransport(handler),
        timing=timing or FakeTiming().as_timing(),
        policy=policy,
        max_body_bytes=max_body_bytes,
    )
    return LeadsClient(service, max_concurrency=max_concurrency, keep_unreadable=keep_unreadable)


def socket_service(url: str, **options: Any) -> Service:
    """A service over real sockets, which is asked once."""
    return Service(base_url=url, tokens=GoodTokens(), policy=ONCE, timing=THAT_DAY, **options)


def socket_client(url: str) -> LeadsClient:
    return LeadsClient(socket_service(url), max_concurrency=1)


def window_of(branch_id: int, day: date = YESTERDAY) -> Window:
    return Window.of(day, Scope.parse(f"branch-{branch_id}"), ZoneInfo("UTC"))


def pull(client: LeadsClient, windows: list[Window]) -> dict[Window, Outcome]:
    return dict(client.fetch_windows(APPLICANT, windows, lambda answer: answer))


def outcomes(client: LeadsClient, count: int) -> list[Outcome]:
    """The outcomes for the windows of so many branches."""
    return list(pull(client, [window_of(n) for n in range(1, count + 1)]).values())


def answer_of(client: LeadsClient) -> Answer:
    [outcome] = outcomes(client, 1)
    assert isinstance(outcome, Answer), outcome
    return outcome


def error_of(client: LeadsClient) -> LeadsPipelineError:
    [outcome] = outcomes(client, 1)
    assert isinstance(outcome, LeadsPipelineError), outcome
    return outcome


def ids(answer: Answer) -> list[str]:
    return [lead.lead_id for lead in answer.leads]


def branch(request: httpx.Request) -> int:
    return int(request.url.params["branch-id"])


def interval(request: httpx.Request) -> tuple[datetime, datetime]:
    start = datetime.fromisoformat(request.url.params["from-time"])
    end = datetime.fromisoformat(request.url.params["to-time"])
    return start, end


def good(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, content=BODY)


def always(status: int, **headers: str) -> Handler:
    return lambda _: httpx.Response(status, headers=headers)


# --- answers --------------------------------------------------------------------------------------


def test_an_answer_says_how_it_was_had() -> None:
    timing = FakeTiming()
    asked: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        timing.seconds += 2  # leads that arrive during the request may or may not be in it
        return httpx.Response(200, content=BODY)

    service = Service(
        base_url=f"{BASE_URL}/prefix/",
        tokens=GoodTokens(),
        transport=httpx.MockTransport(handler),
        timing=timing.as_timing(),
    )
    answer = answer_of(LeadsClient(service, max_concurrency=1))

    [request] = asked
    assert request.url.raw_path == (
        b"/prefix/applicant-leads?from-time=2026-11-19T00%3A00%3A00Z"
        b"&to-time=2026-11-20T00%3A00%3A00Z&branch-id=1"
    )
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert [lead.payload for lead in answer.leads] == ['{"id": "a", "price": 250000.10}']
    assert answer.fetched_at == NOW
    assert answer.body_sha256 == hashlib.sha256(BODY).hexdigest()
    assert answer.duration_seconds == 2.0


# --- side by side ---------------------------------------------------------------------------------


def test_never_more_windows_are_asked_for_at_once_than_allowed() -> None:
    under_way: list[int] = []
    most_at_once: list[int] = []
    first_three = threading.Barrier(3, timeout=30)

    def handler(request: httpx.Request) -> httpx.Response:
        under_way.append(branch(request))
        most_at_once.append(len(under_way))
        if len(most_at_once) <= 3:
            first_three.wait()
        under_way.remove(branch(request))
        return httpx.Response(200, content=BODY)

    outcomes(leads_client(handler, max_concurrency=3), 40)

    assert max(most_at_once) == 3
    assert len(most_at_once) == 40


# --- verdicts; test_answers_in_the_wild.py has more -----------------------------------------------


@pytest.mark.parametrize(
    ("error", "named"),
    [
        ({"code": "not_found", "message": "Ann Smith"}, "not_found"),
        ({"code": "ann_smith"}, "a code that is not known"),
        ({"code": 447700}, "a code that is not known"),
    ],
)
def test_a_refusal_names_its_code_and_never_its_text(error: dict[str, object], named: str) -> None:
    answer = httpx.Response(400, json={"errors": [error]})

    said = str(error_of(leads_client(lambda _: answer)))

    assert f"was answered 400 Bad Request ({named}" in said
    assert not re.search("ann|447700", said, re.IGNORECASE)


def test_a_window_past_retention_is_refused_unasked() -> None:
    day_of_the_horizon = (NOW - timedelta(days=30)).date()
    half_deleted = window_of(1, day_of_the_horizon)
    deleted = window_of(1, day_of_the_horizon - timedelta(days=1))
    client = leads_client(good)

    results = pull(client, [deleted, half_deleted])

    assert isinstance(results[deleted], RetentionError)
    assert deleted.partition_key in str(results[deleted])
    assert isinstance(results[half_deleted], Answer)
    assert client.requests_made == 1


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx.LocalProtocolError(f"Illegal header value b'Bearer {TOKEN}'"), SettingsError),
        (httpx.ReadError(TOKEN), UnreachableError),
    ],
)
def test_an_error_carries_neither_token_nor_the_exception_that_quotes_it(
    failure: httpx.TransportError, kind: type[LeadsPipelineError]
) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise failure

    error = error_of(leads_client(handler, policy=ONCE))

    assert type(error) is kind
    assert error.__cause__ is None
    assert error.__context__ is None
    assert error.__traceback__ is None
    assert TOKEN not in "".join(traceback.format_exception(error)) + repr(error)


# --- retries --------------------------------------------------------------------------------------


def test_a_service_that_is_down_is_not_hammered() -> None:
    client = leads_client(always(500))

    errors = outcomes(client, 200)

    assert {type(error) for error in errors} == {ServerError}
    assert "was not sent, because another request's failure holds" in str(errors[-1])
    windows_asked_for = MAX_FAILURES_IN_A_ROW + 8  # threads ask for some at once
    assert client.requests_made <= windows_asked_for * RetryPolicy().max_attempts


def test_two_branches_that_always_fail_do_not_end_the_run_of_the_others() -> None:
    days = [YESTERDAY - timedelta(days=ago) for ago in range(15)]
    windows = [window_of(n, day) for n in (1, 2, 3, 4) for day in days]  # the bad ones first

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503 if branch(request) <= 2 else 200, content=BODY)

    results = pull(leads_client(handler, max_concurrency=1), windows)

    answered = [
        window.scope.id for window, outcome in results.items() if isinstance(outcome, Answer)
    ]
    assert sorted(answered) == ["3"] * 15 + ["4"] * 15


def test_a_hard_rate_limit_costs_time_and_no_window() -> None:
    timing = FakeTiming()
    served_at: list[float] = []

    def handler(_: httpx.Request) -> httpx.Response:
        """Answer two requests a second, and the others with 429 without Retry-After."""
        timing.seconds += 0.01
        if served_at and timing.seconds - served_at[-1] < 0.5:
            return httpx.Response(429)
        served_at.append(timing.seconds)
        return httpx.Response(200, content=BODY)

    client = leads_client(handler, max_concurrency=8, timing=timing.as_timing())
    results = outcomes(client, 200)

    assert all(isinstance(outcome, Answer) for outcome in results)
    assert client.requests_made < 300
    assert timing.seconds < 200  # 100 s at the limit


def test_a_wish_for_patience_holds_for_every_request_of_the_run() -> None:
    timing = FakeTiming()
    asked_at: list[float] = []

    def handler(_: httpx.Request) -> httpx.Response:
        asked_at.append(timing.seconds)
        if len(asked_at) == 1:
            return httpx.Response(429, headers={"Retry-After": "30"})
        return httpx.Response(200, content=BODY)

    client = leads_client(handler, max_concurrency=1, timing=timing.as_timing())
    results = outcomes(client, 10)

    assert all(isinstance(outcome, Answer) for outcome in results)
    assert min(asked_at[1:]) >= 30


def test_a_refused_credential_ends_the_run_instead_of_asking_for_every_window() -> None:
    tokens = GoodTokens(CredentialsError("the token server refuses the pair"))

    results = outcomes(leads_client(good, tokens, max_concurrency=1), 30)

    assert {type(result) for result in results} == {CredentialsError}
    assert tokens.asked == 1


def test_a_busy_token_server_is_waited_for() -> None:
    timing = FakeTiming()
    tokens = GoodTokens(BusyError("the token server is busy", retry_after_seconds=9))

    answer = answer_of(leads_client(good, tokens, timing=timing.as_timing()))

    assert answer.attempts == 2
    assert timing.seconds >= 9


# --- windows that can't be had in one -------------------------------------------------------------


class Book:
    """A portal with a lead every seven minutes of a window.

    It refuses to answer for more than an hour at once.
    """

    def __init__(self, window: Window, refusal: httpx.Response) -> None:
        apart = timedelta(minutes=7)
        count = (window.end - window.start) // apart + 1
        self.moments = [window.start + number * apart for number in range(count)]
        self.refusal = refusal
        self.asked: list[timedelta] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        start, end = interval(request)
        self.asked.append(end - start)
        if end - start > HOUR:
            return self.refusal
        leads = [{"id": moment.isoformat()} for moment in self.moments if start <= moment <= end]
        body = json.dumps({"applicants": leads})
        # As content it would be read already.
        return httpx.Response(200, stream=httpx.ByteStream(body.encode()))

    @property
    def ids(self) -> list[str]:
        return [moment.isoformat() for moment in self.moments]


@pytest.mark.parametrize(
    ("refusal", "day", "hours"),
    [
        (httpx.Response(413), date(2026, 11, 19), 24),
        (httpx.Response(200, content=b"x" * 70_000), date(2026, 10, 25), 25),
    ],
    ids=["413", "too large"],
)
def test_a_window_that_is_too_much_is_had_hour_by_hour(
    refusal: httpx.Response, day: date, hours: int
) -> None:
    window = Window.of(day, Scope.parse("branch-1"), ZoneInfo("Europe/London"))
    book = Book(window, refusal)
    timing = Timing(now=lambda: window.end + HOUR, wait=lambda *_: None)

    answer = pull(leads_client(book, timing=timing, max_body_bytes=65_536), [window])[window]

    assert isinstance(answer, Answer)
    assert answer.failure is None
    assert ids(answer) == book.ids, "the moments at the turns of hours are in two answers"
    assert book.asked.count(HOUR) == hours


@pytest.mark.slow
def test_headers_that_come_byte_by_byte_do_not_hold_a_run_for_ever(raw_server: RawServer) -> None:
    raw_server.script = drip(b"a" * 60, head=HEAD + b"X-Slow: ", pause_seconds=0.01)
    service = socket_service(raw_server.url, deadline_seconds=0.05)
    client = LeadsClient(service, max_concurrency=1, standstill_seconds=0.2)

    with pytest.raises(UnreachableError, match="stood still"):
        outcomes(client, 1)


def test_an_unexpected_exception_reaches_the_consumer() -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        outcomes(leads_client(handler), 5)


def test_a_netrc_file_never_replaces_the_token(raw_server: RawServer, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    os.environ["NETRC"] = str(netrc)
    raw_server.script = respond(BODY)

    answer_of(socket_client(raw_server.url))

    assert f"authorization: bearer {TOKEN}".encode() in raw_server.requests[0].lower()


def test_of_a_lead_in_two_hours_the_later_answer_is_the_newest() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        start, end = interval(request)
        if end - start > HOUR:
            return httpx.Response(413)
        lead = b'{"id": "a", "hour": %d}' % (start.hour % 2)
        return httpx.Response(200, content=b'{"applicants": [%s]}' % lead)

    answer = answer_of(leads_client(handler))

    assert [lead.payload for lead in answer.leads] == [
        '{"id": "a", "hour": 0}',
        '{"id": "a", "hour": 1}',
    ]


def test_an_hour_that_always_fails_fails_its_window_and_costs_no_other_hour() -> None:
    book = Book(window_of(1), httpx.Response(413))

    def handler(request: httpx.Request) -> httpx.Response:
        start, _ = interval(request)
        return httpx.Response(500) if start.hour == 3 else book(request)

    answer = answer_of(leads_client(handler))

    missing = set(book.ids) - set(ids(answer))
    assert {moment[11:13] for moment in missing} == {"03"}
    assert answer.failure
    assert answer.failure.is_transient
    assert "03:00 to 04:00 UTC" in str(answer.failure)


def test_an_answer_that_cannot_be_read_is_handed_over_as_received() -> None:
    kept: list[tuple[str, Window, bytes]] = []
    client = leads_client(
        lambda _: httpx.Response(200, content=b"<html>Maintenance</html>"),
        policy=ONCE,
        keep_unreadable=lambda kind, window, body: kept.append((kind.name, window, body)),
    )

    assert isinstance(error_of(client), InvalidAnswerError)
    assert kept == [("applicant", window_of(1), b"<html>Maintenance</html>")]


# --- bodies and connections, over real sockets ----------------------------------------------------


def test_headers_that_come_byte_by_byte_hold_neither_an_alert_nor_the_night(
    raw_server: RawServer,
) -> None:
    raw_server.script = drip(b"a" * 1000, head=HEAD + b"X-Slow: ", pause_seconds=0.05)

    with pytest.raises(httpx.ReadTimeout):
        answer_to("GET", raw_server.url, 0.3)


# --- the environment ------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["fd07:b51a:cc66:f0::/64", "[::1]"])
def test_an_entry_of_no_proxy_that_httpx_cannot_read_changes_nothing(
    entry: str, raw_server: RawServer
) -> None:
    """Fault 79: OrbStack sets such a network, and each request failed. So it did for `[::1]`."""
    os.environ.update(
        HTTP_PROXY=raw_server.url, NO_PROXY=f"{entry},{urlsplit(raw_server.url).hostname}"
    )
    raw_server.script = respond(BODY)

    assert answer_of(socket_client(NO_SUCH_HOST))
    assert answer_to("GET", f"{raw_server.url}/hook", 10).status_code == 200

    through_proxy, past_proxy = raw_server.requests
    assert through_proxy.startswith(b"GET http://portal.invalid/applicant-leads?")
    assert past_proxy.startswith(b"GET /hook ")


def test_too_few_descriptors_are_not_taken_for_a_fault_of_the_network() -> None:
    """Fault 85: the process may open no more sockets."""

    def handler(_: httpx.Request) -> httpx.Response:
        cause = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        raise httpx.ConnectError("no connection") from cause

    error = error_of(leads_client(handler, policy=ONCE))

    assert isinstance(error, UnreachableError)
    assert "Too many open files. Raise the limit of open files (ulimit -n" in str(error)
    assert "Check the network" not in str(error)


@pytest.mark.parametrize(
    "proxy",
    [
        "http://agent:hunter2@127.0.0.1:noport",
        "http://agent:hunter2/x@127.0.0.1:1",
        "socks5://agent:hunter2@127.0.0.1:1",
        "http://agent:hunter2@127.0.0.1:1",
    ],
)
def test_nothing_of_a_proxys_password_is_in_an_error(
    proxy: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    os.environ["ALL_PROXY"] = proxy
    portal = "https://127.0.0.1:1"
    tokens = Tokens(replace(CREDENTIALS, token_url=portal), tmp_path / "tokens")

    errors = [
        error_of(socket_client(portal)),
        raised_by(lambda: server_time(portal)),
        raised_by(tokens.get),
    ]

    shown = caplog.text
    for error in errors:
        assert isinstance(error, SettingsError | UnreachableError)
        shown += "".join(traceback.format_exception(error))
        link: BaseException | None = error
        while link is not None:  # also what `from None` hides from a traceback
            shown += repr(link)
            link = link.__context__
    assert not re.search("hun|ter2|agent", shown)


def raised_by(ask: Callable[[], object]) -> LeadsPipelineError:
    with pytest.raises(LeadsPipelineError) as caught:
        ask()
    return caught.value


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_proxy_that_wants_another_password_is_told_without_its_words(
    scheme: str, raw_server: RawServer
) -> None:
    os.environ["ALL_PROXY"] = raw_server.url.replace("//", "//agent:hunter2@")
    raw_server.script = raw(
        b"HTTP/1.1 407 No hunter2 for agent\r\nContent-Length: 7\r\n\r\nhunter2"
    )

    told = str(error_of(socket_client(f"{scheme}://portal.invalid")))

    assert "hunter2" not in told
    if scheme == "https":  # through a tunnel
        assert "found no connection: the proxy refuses (407)." in told
    else:
        assert "Check the user and the password of the proxy" in told
