import errno
import hashlib
import json
import logging
import os
import re
import socket
import threading
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import count, cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL, Answer
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    RefusedError,
    RetentionError,
    ServerError,
    SettingsError,
    StorageError,
    TokenRefusedError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline.portal import ClientCredentials, LeadsClient, RetryPolicy, Timing, Tokens
from leads_pipeline.portal.http import answer_to, server_time
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.requests import MAX_BODY_BYTES, MAX_FAILURES_IN_A_ROW, Requests
from leads_pipeline.portal.tokens import Token
from leads_pipeline.settings import AuthMethod, Secret
from leads_pipeline_tests.support.fake_timing import NOW, FakeTiming
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS
from leads_pipeline_tests.support.raw_server import HEAD, RawServer, Script, bomb, drip, gzipped, raw, respond
from leads_pipeline_tests.support.serving import free_port

BASE_URL = "http://portal.example"
TOKEN = "t0ken-t0ken"
BODY = b'{"applicants": [{"id": "a", "price": 250000.10}]}'
ONCE = RetryPolicy(max_attempts=1)
# Real waiting, on the day after the windows', whatever the calendar says: a month later nobody would ask for them.
THAT_DAY = Timing(now=lambda: NOW)
CREDENTIALS = ClientCredentials(
    token_url=f"{BASE_URL}/oauth2/token", client_id="me", secret=Secret("A_SECRET", "s3cret"), method=AuthMethod.BODY
)

Outcome = Answer | LeadsPipelineError


class GoodTokens(Tokens):
    """Always one and the same, too young to be replaced; `failures` come first."""

    def __init__(self, *failures: LeadsPipelineError, token: str = TOKEN) -> None:
        super().__init__(CREDENTIALS, Path("/nowhere"))
        self.failures = list(failures)
        self.asked = 0
        self.good = Token(token, 0.0, 3600.0)

    def get(self, refused: Token | None = None) -> Token:  # noqa: ARG002 - see the class
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        return self.good


def windows(count: int) -> list[Window]:
    return [Window.of(date(2026, 11, 19), Scope.parse(f"branch-{n}"), ZoneInfo("UTC")) for n in range(1, count + 1)]


Handler = Callable[[httpx.Request], httpx.Response]


def leads_client(
    handler: Handler,
    *,
    max_concurrency: int = 4,
    policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    timing: Timing | None = None,
    tokens: Tokens | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    **options: Any,
) -> LeadsClient:
    return LeadsClient(
        BASE_URL,
        tokens or GoodTokens(),
        max_concurrency=max_concurrency,
        policy=policy,
        transport=httpx.MockTransport(handler),
        timing=timing or FakeTiming().as_timing(),
        max_body_bytes=max_body_bytes,
        **options,
    )


def answer_itself(answer: Answer) -> Answer:
    return answer


def fetch_one(client: LeadsClient) -> Outcome:
    [(_, outcome)] = client.fetch_windows(APPLICANT, windows(1), answer_itself)
    return outcome


def outcomes(client: LeadsClient, count: int) -> list[Outcome]:
    return [outcome for _, outcome in client.fetch_windows(APPLICANT, windows(count), answer_itself)]


def portal_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "portal"]


def branch(request: httpx.Request) -> int:
    return int(request.url.params["branch-id"])


# --- answers --------------------------------------------------------------------------------------------------------


def test_an_answer_says_how_it_was_had() -> None:
    timing = FakeTiming()
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        timing.seconds += 2  # leads that arrive during the request may or may not be in it
        return httpx.Response(200, content=BODY)

    answer = fetch_one(leads_client(handler, timing=timing.as_timing()))
    assert isinstance(answer, Answer)
    assert answer.window == windows(1)[0]
    assert [lead.payload for lead in answer.leads] == ['{"id": "a", "price": 250000.10}']
    assert answer.fetched_at == NOW
    assert asked == ["/applicant-leads?from-time=2026-11-19T00%3A00%3A00Z&to-time=2026-11-20T00%3A00%3A00Z&branch-id=1"]
    assert answer.body_sha256 == hashlib.sha256(BODY).hexdigest()
    assert (answer.body_bytes, answer.attempts, answer.duration_seconds) == (len(BODY), 1, 2.0)


def test_each_kind_has_its_path_and_its_list() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/prefix/appraisal-leads"
        assert request.headers["Authorization"] == f"Bearer {TOKEN}"
        return httpx.Response(200, json={"appraisals": [{"id": "x"}, {"id": "y"}]})

    client = LeadsClient(
        f"{BASE_URL}/prefix/",
        GoodTokens(),
        max_concurrency=1,
        transport=httpx.MockTransport(handler),
        timing=THAT_DAY,
    )
    [(_, answer)] = client.fetch_windows(APPRAISAL, windows(1), answer_itself)
    assert isinstance(answer, Answer)
    assert [lead.lead_id for lead in answer.leads] == ["x", "y"]


# --- side by side ---------------------------------------------------------------------------------------------------


def test_windows_start_in_order_and_never_more_at_once_than_allowed() -> None:
    started: list[int] = []
    in_flight = most = 0
    guard, first_three = threading.Lock(), threading.Barrier(3)

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal in_flight, most
        with guard:
            started.append(branch(request))
            in_flight += 1
            most = max(most, in_flight)
            is_early = len(started) <= 3
        if is_early:
            first_three.wait(timeout=30)
        time.sleep(0.001 * (branch(request) % 5))
        with guard:
            in_flight -= 1
        return httpx.Response(200, content=BODY)

    results = outcomes(leads_client(handler, max_concurrency=3), 40)
    assert len(results) == 40
    assert most == 3
    assert sorted(started) == list(range(1, 41))
    assert started[0] <= 3 + 4, "the first windows are asked for first"


def test_what_follows_an_answer_happens_in_its_thread_and_its_error_is_the_windows() -> None:
    threads: set[str] = set()

    def land(answer: Answer) -> str:
        threads.add(threading.current_thread().name)
        if answer.window.scope.id == "3":
            raise StorageError("The disk is full.")
        return f"landed {answer.window.scope.id}"

    client = leads_client(lambda _: httpx.Response(200, content=BODY))
    results = {window.scope.id: outcome for window, outcome in client.fetch_windows(APPLICANT, windows(5), land)}
    failed = results.pop("3")
    assert isinstance(failed, StorageError)
    assert results == {number: f"landed {number}" for number in "1245"}
    assert threads == {"portal"}


def test_closing_the_iterator_ends_the_run_and_nothing_follows_an_answer_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    landed: list[str] = []
    requests, is_over, stop = count(), threading.Event(), Requests.stop

    def handler(_: httpx.Request) -> httpx.Response:
        if next(requests):  # all but the first are answered after the end
            is_over.wait()
        return httpx.Response(200, content=BODY)

    def stopped(run: Requests) -> None:
        stop(run)
        is_over.set()

    monkeypatch.setattr(Requests, "stop", stopped)
    client = leads_client(handler, max_concurrency=2)
    results = client.fetch_windows(APPLICANT, windows(9), lambda answer: landed.append(answer.window.scope.id))
    next(results)
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert len(landed) == 1
    assert client.requests_made <= 3
    assert portal_threads() == []


def test_an_unexpected_exception_reaches_the_consumer() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if branch(request) == 1:
            return httpx.Response(200, content=BODY)
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError, match="a bug"):
        outcomes(leads_client(handler, max_concurrency=1), 5)
    assert portal_threads() == []


# --- verdicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind", "reason"),
    [
        (201, InvalidAnswerError, "invalid answer (201)"),
        (301, RefusedError, "refused (301)"),
        (302, ServerError, "redirected (302)"),
        (303, ServerError, "redirected (303)"),
        (400, RefusedError, "refused (400)"),
        (401, TokenRefusedError, "token refused (401)"),
        (403, RefusedError, "refused (403)"),
        (404, RefusedError, "refused (404)"),
        (408, ServerError, "server error (408)"),
        (418, RefusedError, "refused (418)"),
        (429, BusyError, "busy (429)"),
        (500, ServerError, "server error (500)"),
        (599, ServerError, "server error (599)"),
        (999, ServerError, "server error (999)"),
    ],
)
def test_every_status_has_its_verdict(status: int, kind: type[LeadsPipelineError], reason: str) -> None:
    client = leads_client(lambda _: httpx.Response(status, content=BODY), policy=RetryPolicy(max_attempts=2))
    error = fetch_one(client)
    assert type(error) is kind
    assert error.reason == reason
    assert str(error).startswith(f"GET /applicant-leads for the window 2026-11-19|branch-1 was answered {status}")
    tries = 4 if status in (401, 403) else 2 if error.is_transient else 1
    assert client.requests_made == tries + (3 * 2 if status == 408 else 0)


@pytest.mark.parametrize(
    "location", ["https://thief.example/applicant-leads", "http://portal.example:none/", "/elsewhere", ""]
)
def test_a_redirect_is_never_followed(location: str) -> None:
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.url.host}{request.url.path}")
        return httpx.Response(302, headers={"Location": location})

    error = fetch_one(leads_client(handler, policy=ONCE))
    assert asked == ["portal.example/applicant-leads"]
    assert isinstance(error, ServerError)
    assert "token goes to no other host" in str(error)


UNKNOWN = "a code that is not known"
THREE_UNKNOWN = ", ".join([UNKNOWN] * 3)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (
            b'{"errors": [{"code": "invalid_branch", "message": "Ann Smith"}]}',
            "400 Bad Request (a code that is not known).",
        ),
        (
            b'{"errors": [{"code": "invalid_valuation_lead_product"}]}',
            "400 Bad Request (invalid_valuation_lead_product).",
        ),
        (b'{"errors": [{"code": "not_found"}, {"code": "ann_smith"}]}', f"400 Bad Request (not_found, {UNKNOWN})."),
        (b'{"errors": [{"code": 447700}, {"code": true}, {"code": ["Ann"]}]}', f"400 Bad Request ({THREE_UNKNOWN})."),
        (b'{"title": "Ann Smith not found", "detail": "Ann Smith"}', "400 Bad Request."),
        (b'{"errors": ["Ann Smith"]}', "400 Bad Request."),
        (b"Ann Smith", "400 Bad Request."),
        (b"[" * 100_000, "400 Bad Request."),
    ],
)
def test_a_refusal_names_its_code_and_never_its_text(body: bytes, named: str) -> None:
    error = fetch_one(leads_client(lambda _: httpx.Response(400, content=body)))
    assert f"was answered {named} Asking again doesn't help." in str(error)
    assert "ann" not in str(error).lower()
    assert "447700" not in str(error)


def test_a_forbidden_scope_is_named_with_what_to_check() -> None:
    error = fetch_one(leads_client(lambda _: httpx.Response(403)))
    assert isinstance(error, RefusedError)
    assert error.reason == "refused (403)"
    assert "Check that branch-1 is an internal id of the portal" in str(error)
    assert "contact" in str(error)

    window = Window.of(date(2026, 11, 19), Scope.parse("all"), ZoneInfo("UTC"))
    [(_, error)] = leads_client(lambda _: httpx.Response(403)).fetch_windows(APPLICANT, [window], answer_itself)
    assert "LEADS_SCOPES=all" in str(error)


def test_a_refused_token_is_no_reason_to_check_the_secret() -> None:
    error = fetch_one(leads_client(lambda _: httpx.Response(401)))
    assert isinstance(error, TokenRefusedError)
    assert "its secret are right" in str(error)


def test_a_forbidden_scope_ends_no_run_though_the_token_server_is_busy() -> None:
    class Busy(GoodTokens):
        def get(self, refused: Token | None = None) -> Token:
            if refused is not None:
                raise BusyError("busy", retry_after_seconds=600)
            return super().get()

    client = leads_client(lambda r: httpx.Response(403 if branch(r) == 3 else 200, content=BODY), tokens=Busy())
    results = outcomes(client, 40)
    assert sorted(type(result).__name__ for result in results) == ["Answer"] * 39 + ["RefusedError"]


def test_a_window_past_retention_is_refused_unasked() -> None:
    horizon = (NOW - timedelta(days=30)).date()  # its day is half deleted, the one before wholly
    deleted, straddling = (
        Window.of(horizon - timedelta(days=days), Scope.parse("branch-1"), ZoneInfo("UTC")) for days in (1, 0)
    )
    client = leads_client(lambda _: httpx.Response(200, content=BODY))
    results = dict(client.fetch_windows(APPLICANT, [deleted, straddling], answer_itself))
    assert isinstance(results[deleted], RetentionError)
    assert deleted.partition_key in str(results[deleted])
    assert isinstance(results[straddling], Answer)
    assert client.requests_made == 1


def test_an_error_carries_neither_token_nor_the_exception_that_quotes_it() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.LocalProtocolError(f"Illegal header value b'Bearer {TOKEN}'", request=request)

    def cut(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError(f"{TOKEN}", request=request)

    for handler, kind in ((broken, SettingsError), (cut, UnreachableError)):
        error = fetch_one(leads_client(handler, policy=ONCE))
        assert type(error) is kind
        assert error.__cause__ is None
        assert error.__context__ is None
        assert error.__traceback__ is None
        assert TOKEN not in "".join(traceback.format_exception(error)) + repr(error)


# --- retries --------------------------------------------------------------------------------------------------------


def test_a_transient_failure_is_retried_until_it_passes() -> None:
    timing = FakeTiming()
    statuses = iter([500, 502, 200])
    client = leads_client(lambda _: httpx.Response(next(statuses), content=BODY), timing=timing.as_timing())
    answer = fetch_one(client)
    assert isinstance(answer, Answer)
    assert answer.attempts == 3
    assert answer.fetched_at == NOW + timedelta(seconds=timing.seconds)
    assert answer.duration_seconds == sum(timing.sleeps) > 0


def test_a_service_that_is_down_is_not_hammered() -> None:
    client = leads_client(lambda _: httpx.Response(500))
    errors = outcomes(client, 200)
    assert {type(error) for error in errors} == {ServerError}
    most = (MAX_FAILURES_IN_A_ROW + 4 + 4) * RetryPolicy().max_attempts
    assert client.requests_made <= most, "those that were under way together, and no other"
    assert "was not sent, because another request's failure holds for the whole run" in str(errors[-1])


def test_one_or_two_branches_that_always_fail_do_not_end_the_run_of_the_others() -> None:
    """Even where all their windows stand first."""
    days = [date(2026, 11, 19) - timedelta(days=ago) for ago in range(15)]
    asked = [Window.of(day, Scope.parse(f"branch-{n}"), ZoneInfo("UTC")) for n in range(1, 5) for day in days]

    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(503 if branch(request) <= 2 else 200, content=BODY)

    results = dict(leads_client(handler, max_concurrency=1).fetch_windows(APPLICANT, asked, answer_itself))
    assert {window.scope.id for window, outcome in results.items() if isinstance(outcome, Answer)} == {"3", "4"}
    assert sum(isinstance(outcome, Answer) for outcome in results.values()) == 2 * len(days)


def test_while_the_service_asks_for_patience_nothing_starts_in_the_whole_run() -> None:
    timing = FakeTiming()
    starts: list[float] = []
    together = threading.Barrier(3, timeout=PATIENCE_SECONDS)

    def handler(_: httpx.Request) -> httpx.Response:
        starts.append(timing.seconds)
        if timing.seconds == 0 and together.wait() == 0:
            return httpx.Response(429, headers={"Retry-After": "30"})
        while timing.seconds == 0:
            time.sleep(0.001)
        return httpx.Response(200, content=BODY)

    client = leads_client(handler, max_concurrency=3, timing=timing.as_timing())
    assert all(isinstance(outcome, Answer) for outcome in outcomes(client, 12))
    assert starts[:3] == [0.0, 0.0, 0.0]
    assert len(starts) == 13
    assert min(starts[3:]) >= 30


def test_a_503_with_retry_after_slows_the_whole_run_as_well() -> None:
    timing = FakeTiming()
    statuses = iter([503])
    starts: list[float] = []

    def handler(_: httpx.Request) -> httpx.Response:
        starts.append(timing.seconds)
        return httpx.Response(next(statuses, 200), headers={"Retry-After": "20"}, content=BODY)

    outcomes(leads_client(handler, max_concurrency=1, timing=timing.as_timing()), 3)
    assert starts[0] == 0
    assert min(starts[1:]) >= 20


def test_a_hard_rate_limit_costs_time_and_no_window() -> None:
    timing = FakeTiming()
    served_at: list[float] = []

    def handler(_: httpx.Request) -> httpx.Response:  # two a second, and a 429 without Retry-After beyond
        timing.seconds += 0.01
        if served_at and timing.seconds - served_at[-1] < 0.5:
            return httpx.Response(429)
        served_at.append(timing.seconds)
        return httpx.Response(200, content=BODY)

    client = leads_client(handler, max_concurrency=8, timing=timing.as_timing())
    assert all(isinstance(outcome, Answer) for outcome in outcomes(client, 200))
    assert client.requests_made < 300
    assert timing.seconds < 200  # 100 s at the limit


def test_more_patience_than_the_policy_has_ends_the_run() -> None:
    client = leads_client(lambda _: httpx.Response(429, headers={"Retry-After": "3600"}), max_concurrency=2)
    found = dict(client.fetch_windows(APPLICANT, windows(50), answer_itself))
    assert len(found) == 50
    assert client.requests_made <= 2
    assert all(isinstance(error, BusyError) and error.retry_after_seconds == 3600 for error in found.values())
    assert "for the window 2026-11-19|branch-50 was not sent" in str(found[windows(50)[-1]])


def test_patience_is_asked_for_by_429_and_5xx_alone() -> None:
    client = leads_client(lambda _: httpx.Response(204, headers={"Retry-After": "3600"}))
    found = dict(client.fetch_windows(APPLICANT, windows(3), answer_itself))
    assert all(isinstance(error, InvalidAnswerError) and error.attempts > 1 for error in found.values())


def test_a_refused_credential_ends_the_run_instead_of_asking_for_every_window() -> None:
    tokens = GoodTokens(CredentialsError("the token server refuses the pair"))
    results = outcomes(leads_client(lambda _: httpx.Response(200, content=BODY), tokens=tokens, max_concurrency=1), 30)
    assert {type(result) for result in results} == {CredentialsError}
    assert tokens.asked == 1


def test_a_busy_token_server_is_waited_for() -> None:
    timing = FakeTiming()
    tokens = GoodTokens(BusyError("the token server is busy", retry_after_seconds=9))
    client = leads_client(lambda _: httpx.Response(200, content=BODY), tokens=tokens, timing=timing.as_timing())
    answer = fetch_one(client)
    assert isinstance(answer, Answer)
    assert answer.attempts == 2
    assert timing.seconds >= 9


def test_one_branch_that_is_always_refused_does_not_bring_the_others_to_a_crawl() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        return httpx.Response(429) if branch(request) % 20 == 0 else httpx.Response(200, content=BODY)

    timing = FakeTiming()
    results = outcomes(leads_client(handler, timing=timing.as_timing()), 400)
    assert sum(isinstance(result, Answer) for result in results) == 380
    assert timing.seconds < 600


def test_a_single_window_without_a_connection_now_and_then_ends_nothing() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        if branch(request) % 2:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, content=BODY)

    results = outcomes(leads_client(handler, policy=ONCE), 100)
    assert sum(isinstance(result, Answer) for result in results) == 50


# --- windows that can't be had in one ---------------------------------------------------------------------------------

DAY_START = datetime(2026, 11, 19, tzinfo=UTC)


class Book:
    """A portal that holds a lead every so often, and answers each request with those of its window, both ends included.

    `refuse` says how a request for so long a stretch fails, None where it is answered.
    """

    def __init__(
        self,
        every: timedelta,
        refuse: Callable[[timedelta], httpx.Response | None],
        *,
        begin: datetime = DAY_START,
        hours: int = 24,
    ) -> None:
        self.moments = [begin + n * every for n in range(int(timedelta(hours=hours) / every) + 1)]
        self.refuse = refuse
        self.asked: list[tuple[datetime, datetime]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        start, end = (datetime.fromisoformat(request.url.params[name]) for name in ("from-time", "to-time"))
        self.asked.append((start, end))
        if (refusal := self.refuse(end - start)) is not None:
            return refusal
        found = [moment for moment in self.moments if start <= moment <= end]
        body = json.dumps({"applicants": [{"id": f"{moment:%d %H:%M:%S}"} for moment in found]})
        return httpx.Response(200, stream=httpx.ByteStream(body.encode()))  # as content it would be read already

    @property
    def ids(self) -> list[str]:
        return [f"{moment:%d %H:%M:%S}" for moment in self.moments]


def ids(answer: Outcome) -> list[str]:
    assert isinstance(answer, Answer), answer
    return [lead.lead_id for lead in answer.leads]


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("refusal", "day", "hours"),
    [
        (httpx.Response(413), date(2026, 11, 19), 24),
        (httpx.Response(504), date(2026, 10, 25), 25),
        (httpx.Response(408), date(2026, 3, 29), 23),
        (httpx.Response(200, content=b"x" * 70_000), date(2026, 11, 19), 24),
    ],
    ids=["413", "504", "408", "too large"],
)
def test_a_window_that_is_too_much_is_had_hour_by_hour(refusal: httpx.Response, day: date, hours: int) -> None:
    window = Window.of(day, Scope.parse("branch-1"), ZoneInfo("Europe/London"))
    book = Book(
        timedelta(minutes=7), lambda length: refusal if length > HOUR else None, begin=window.start, hours=hours
    )
    timing = Timing(now=lambda: window.end + HOUR, wait=lambda *_: None)
    client = leads_client(book, timing=timing, max_body_bytes=65_536)
    [(_, answer)] = client.fetch_windows(APPLICANT, [window], answer_itself)
    assert isinstance(answer, Answer)
    assert answer.failure is None
    assert ids(answer) == book.ids, "the moments at the turns of hours are in two answers"
    assert len([asked for asked in book.asked if asked[1] - asked[0] <= HOUR]) == hours
    assert len(book.asked) - hours <= 2


def test_a_service_that_asks_for_patience_is_not_asked_by_hours() -> None:
    client = leads_client(lambda _: httpx.Response(504, headers={"Retry-After": "3600"}))
    assert isinstance(fetch_one(client), ServerError)
    assert client.requests_made == 1


def test_a_slow_window_is_not_waited_for_more_than_twice(raw_server: RawServer) -> None:
    client = LeadsClient(raw_server.url, GoodTokens(), max_concurrency=1, timing=THAT_DAY, deadline_seconds=0.05)
    raw_server.script = drip(b" " * 100, pause_seconds=0.01)
    error = fetch_one(client)
    assert isinstance(error, UnreachableError)
    assert client.requests_made == 2 + 2 * 3, "nor are more than three hours, where none comes"


@pytest.mark.slow
def test_headers_that_come_byte_by_byte_do_not_hold_a_run_for_ever(raw_server: RawServer) -> None:
    client = LeadsClient(
        raw_server.url, GoodTokens(), max_concurrency=1, timing=THAT_DAY, deadline_seconds=0.05, standstill_seconds=0.2
    )
    raw_server.script = drip(b"a" * 60, head=HEAD + b"X-Slow: ", pause_seconds=0.01)
    with pytest.raises(UnreachableError, match="stood still"):
        fetch_one(client)


def test_of_a_lead_in_two_hours_the_later_answer_is_the_newest() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        start, end = (datetime.fromisoformat(request.url.params[name]) for name in ("from-time", "to-time"))
        if end - start > HOUR:
            return httpx.Response(413)
        return httpx.Response(200, content=b'{"applicants": [{"id": "a", "hour": %d}]}' % (start.hour % 2))

    answer = fetch_one(leads_client(handler))
    assert isinstance(answer, Answer)
    assert [lead.payload for lead in answer.leads] == ['{"id": "a", "hour": 0}', '{"id": "a", "hour": 1}']


@pytest.mark.parametrize(
    "always", [httpx.Response(413), httpx.Response(500), httpx.Response(200, html="<h1>Maintenance</h1>")]
)
def test_an_hour_that_always_fails_fails_its_window_and_costs_no_other_hour(always: httpx.Response) -> None:
    book = Book(timedelta(minutes=30), lambda length: httpx.Response(413) if length > HOUR else None)

    def handler(request: httpx.Request) -> httpx.Response:
        return always if request.url.params["from-time"].endswith("T03:00:00Z") else book(request)

    answer = fetch_one(leads_client(handler))
    assert isinstance(answer, Answer)
    assert set(book.ids) - set(ids(answer)) == {"19 03:30:00"}
    assert answer.failure is not None
    assert answer.failure.is_transient == (always.status_code != 413)
    assert "48 leads came and are kept" in str(answer.failure)
    assert "03:00 to 04:00 UTC" in str(answer.failure)


def test_if_no_hour_comes_what_can_pass_decides_when_it_is_asked_for_again() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        start, end = (datetime.fromisoformat(request.url.params[name]) for name in ("from-time", "to-time"))
        return httpx.Response(413 if end - start > HOUR else 503)

    assert isinstance(fetch_one(leads_client(handler)), ServerError)


def test_an_outage_in_the_middle_of_a_window_keeps_what_came_and_is_not_hammered() -> None:
    book = Book(timedelta(minutes=30), lambda length: httpx.Response(413) if length > HOUR else None)

    def handler(request: httpx.Request) -> httpx.Response:
        answered = book(request)
        return answered if len(book.asked) < 20 else httpx.Response(500)

    client = leads_client(handler)
    answer = fetch_one(client)
    assert isinstance(answer, Answer)
    assert isinstance(answer.failure, ServerError)
    assert ids(answer) == book.ids[: len(answer.leads)]
    assert answer.leads
    assert client.requests_made == 20 + 3 * RetryPolicy().max_attempts - 1, "three hours, and no more"


def test_an_answer_with_unknown_members_is_whole_and_names_them() -> None:
    body = '{"meta": {"nextToken": "x"}, "applicants": [{"id": "a"}]}'

    answer = fetch_one(leads_client(lambda _: httpx.Response(200, text=body)))

    assert isinstance(answer, Answer)
    assert (ids(answer), answer.failure) == (["a"], None)
    assert answer.unknown_members == {"meta/object", "meta.nextToken/text"}


def test_an_answer_that_cannot_be_read_is_handed_over_as_received() -> None:
    kept: list[tuple[str, bytes]] = []
    client = leads_client(
        lambda _: httpx.Response(200, content=b"<html>Maintenance</html>"),
        policy=ONCE,
        keep_unreadable=lambda kind, window, body: kept.append((f"{kind.name} {window.partition_key}", body)),
    )
    assert isinstance(fetch_one(client), InvalidAnswerError)
    assert kept == [("applicant 2026-11-19|branch-1", b"<html>Maintenance</html>")]


# --- broken bodies, over real sockets -------------------------------------------------------------------------------


@pytest.fixture
def raw_server() -> Iterator[RawServer]:
    server = RawServer()
    yield server
    server.close()


MANY = b'{"applicants": [' + b",".join(b'{"id": "%d"}' % n for n in range(5000)) + b"]}"


def socket_client(server: RawServer, **options: Any) -> LeadsClient:
    return LeadsClient(
        server.url, GoodTokens(), **{"max_concurrency": 1, "policy": ONCE, "timing": THAT_DAY, **options}
    )


def test_a_plain_and_a_compressed_body_over_a_real_connection(raw_server: RawServer) -> None:
    for script in (respond(MANY), respond(gzipped(MANY), "Content-Encoding: gzip")):
        raw_server.script = script
        client = socket_client(raw_server)
        answer = fetch_one(client)
        assert isinstance(answer, Answer)
        assert len(answer.leads) == 5000
        assert answer.body_sha256 == hashlib.sha256(MANY).hexdigest()
    assert b"accept-encoding: gzip\r\n" in raw_server.requests[0].lower()


def test_a_body_of_exactly_the_allowed_size_is_taken(raw_server: RawServer) -> None:
    raw_server.script = respond(MANY)
    assert isinstance(fetch_one(socket_client(raw_server, max_body_bytes=len(MANY))), Answer)
    assert isinstance(fetch_one(socket_client(raw_server, max_body_bytes=len(MANY) - 1)), TooLargeError)


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (respond(bomb(300), "Content-Encoding: gzip"), TooLargeError),
        (respond(bomb(300), "Content-Encoding: gzip", status=400), RefusedError),
        (raw(HEAD + b"\r\n" + b"x" * 60_000_000), TooLargeError),
    ],
    ids=["gzip bomb", "gzip bomb of an error", "plain"],
)
def test_a_flood_takes_no_memory(raw_server: RawServer, script: Script, kind: type[LeadsPipelineError]) -> None:
    raw_server.script = script
    client = socket_client(raw_server, max_body_bytes=5_000_000)
    tracemalloc.start()
    try:
        error = fetch_one(client)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, kind)
    assert peak < 20_000_000


def test_the_status_decides_even_where_an_error_body_is_broken(raw_server: RawServer) -> None:
    for script in (
        respond(b'{"errors": [', length=999, status=404),
        respond(gzipped(BODY)[:-9], "Content-Encoding: gzip", status=404),
        respond(b"x" * 2000, status=404),
    ):
        raw_server.script = script
        error = fetch_one(socket_client(raw_server, max_body_bytes=1000))
        assert isinstance(error, RefusedError)
        assert error.reason == "refused (404)"


@pytest.mark.parametrize("script", [respond(BODY), respond(b'{"errors": []}', status=404)], ids=["200", "404"])
def test_connections_are_reused(raw_server: RawServer, script: Script) -> None:
    raw_server.script = script
    outcomes(socket_client(raw_server, max_concurrency=3), 60)
    assert len(raw_server.requests) == 60
    assert raw_server.connections <= 3 + 4  # each thread has its own


def test_a_port_where_nobody_listens_is_unreachable() -> None:
    portal = f"http://127.0.0.1:{free_port()}"
    error = fetch_one(LeadsClient(portal, GoodTokens(), max_concurrency=1, policy=ONCE, timing=THAT_DAY))
    assert isinstance(error, UnreachableError)
    assert "found no connection" in str(error)


# --- the environment ------------------------------------------------------------------------------------------------


def test_a_netrc_file_never_replaces_the_token(
    raw_server: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    raw_server.script = respond(BODY)
    fetch_one(socket_client(raw_server))
    assert f"authorization: bearer {TOKEN}".encode() in raw_server.requests[0].lower()


def test_a_proxy_of_the_environment_is_used(raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", raw_server.url)
    raw_server.script = respond(BODY)
    answer = fetch_one(LeadsClient("http://portal.invalid", GoodTokens(), max_concurrency=1, timing=THAT_DAY))
    assert isinstance(answer, Answer)
    assert raw_server.requests[0].startswith(b"GET http://portal.invalid/applicant-leads?")


@pytest.mark.parametrize(
    "entry",
    [
        *("fd07:b51a:cc66:f0::/64", "[::1]", "[::1]:8080", "::1/128", "[fd07:b51a:cc66:f0::/64]", "fe80::1%eth0"),
        *("[::1", "portal.example:port", "portal.example:99999", "xn--\u0378.example", "por tal", "10.0.0.0/8"),
    ],
)
def test_an_entry_of_no_proxy_that_httpx_cannot_read_changes_nothing(
    entry: str, raw_server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 79: OrbStack sets such a network, and each request failed."""
    monkeypatch.setenv("HTTP_PROXY", raw_server.url)
    monkeypatch.setenv("NO_PROXY", f"{entry},{urlsplit(raw_server.url).hostname}")
    raw_server.script = respond(BODY)

    through_proxy = fetch_one(LeadsClient("http://portal.invalid", GoodTokens(), max_concurrency=1, timing=THAT_DAY))
    past_proxy = answer_to("GET", f"{raw_server.url}/hook", 10)

    assert isinstance(through_proxy, Answer)
    assert past_proxy.status_code == 200
    heads = [head.split(b" ")[1].partition(b"?")[0] for head in raw_server.requests]
    assert heads == [b"http://portal.invalid/applicant-leads", b"/hook"]


@pytest.mark.parametrize("entry", ["::1", "[::1]", "::1/128", "[::1]:{port}", "0:0:0:0:0:0:0:1"])
def test_an_ipv6_address_in_no_proxy_is_asked_without_the_proxy(
    entry: str, raw_server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 79: in brackets, each request failed."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("HTTP_PROXY", raw_server.url)
        monkeypatch.setenv("NO_PROXY", entry.format(port=port))

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert answer_to("GET", f"http://[::1]:{port}/", 10).status_code == 204
        thread.join(10)
    assert raw_server.requests == []


def test_too_few_descriptors_are_not_taken_for_a_fault_of_the_network() -> None:
    """Fault 85: the process may open no more sockets."""

    def refuse(_: httpx.Request) -> httpx.Response:
        cause = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        raise httpx.ConnectError("no connection") from cause

    error = fetch_one(leads_client(refuse, policy=ONCE, timing=THAT_DAY))

    assert isinstance(error, UnreachableError)
    assert "Too many open files. Raise the limit of open files (ulimit -n" in str(error)
    assert "Check the network" not in str(error)


PROXIES = [
    "http://agent:hunter2@127.0.0.1:noport",
    "http://agent:hunter2/x@127.0.0.1:1",  # as it is without percent-encoding: the port is taken for hunter2
    "http://agent:hunter2#x@127.0.0.1:1",
    "http://agent:hun ter2@127.0.0.1:1",
    "http://agent:hunter2\udcff@127.0.0.1:1",
    "http://agent:hunter2@127.0.0.1:99999",
    "http://agent:hunter2@[::1",
    f"http://agent:hunter2@{'a' * 70}.example:1",
    "http://agent:hunter2@xn--\u0378.example:1",
    "gopher://agent:hunter2@127.0.0.1:1",
    "socks5://agent:hunter2@127.0.0.1:1",
    "https://agent:hunter2@127.0.0.1:1",
    "http://agent:hunter2@127.0.0.1:1",
    "agent:hunter2@127.0.0.1:1",
    "hunter2",
]


@pytest.mark.parametrize(
    ("variable", "proxy"), [*zip(cycle(["HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY", "NO_PROXY"]), PROXIES, strict=False)]
)
def test_nothing_of_a_proxys_password_is_in_an_error(
    variable: str, proxy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv(variable, proxy)
    portal = "https://127.0.0.1:1" if variable == "HTTPS_PROXY" else "http://127.0.0.1:1"
    credentials = ClientCredentials(
        token_url=f"{portal}/oauth2/token", client_id="me", secret=Secret("A_SECRET", "s3cret"), method=AuthMethod.BODY
    )
    errors: list[LeadsPipelineError] = []
    for ask in (
        lambda: fetch_one(LeadsClient(portal, GoodTokens(), max_concurrency=1, policy=ONCE, timing=THAT_DAY)),
        lambda: server_time(portal),
        lambda: Tokens(credentials, tmp_path / "tokens").get(),
    ):
        try:
            outcome = ask()
        except LeadsPipelineError as error:
            outcome = error
        assert isinstance(outcome, SettingsError | UnreachableError)
        errors.append(outcome)
    shown = caplog.text
    for one in errors:
        shown += "".join(traceback.format_exception(one))
        link: BaseException | None = one
        while link is not None:  # also what `from None` hides from a traceback
            shown += repr(link)
            link = link.__context__
    assert not re.search("hun|ter2|agent", shown)
    if isinstance(errors[0], SettingsError):
        assert all(name in str(errors[0]) for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"))


def test_a_proxy_that_wants_another_password_is_told_without_its_words(
    raw_server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", raw_server.url.replace("//", "//agent:hunter2@"))
    raw_server.script = raw(b"HTTP/1.1 407 No hunter2 for agent\r\nContent-Length: 7\r\n\r\nhunter2")
    tunnelled, plain = (
        fetch_one(
            LeadsClient(f"{scheme}://portal.invalid", GoodTokens(), max_concurrency=1, policy=ONCE, timing=THAT_DAY)
        )
        for scheme in ("https", "http")
    )
    assert "found no connection: the proxy refuses (407)." in str(tunnelled)
    assert isinstance(plain, RefusedError)
    assert "Check the user and the password of the proxy" in str(plain)
    with pytest.raises(UnreachableError, match=r"the proxy refuses \(407\)") as caught:
        server_time("https://portal.invalid")
    assert "hunter2" not in f"{tunnelled}{plain}{caught.value}"


def test_headers_that_come_byte_by_byte_hold_neither_an_alert_nor_the_night(raw_server: RawServer) -> None:
    raw_server.script = drip(b"a" * 1000, head=HEAD + b"X-Slow: ", pause_seconds=0.05)
    began = time.monotonic()
    with pytest.raises(httpx.ReadTimeout):
        answer_to("GET", raw_server.url, 0.3)
    assert time.monotonic() - began < 10
