"""A 401 loses no window, costs few tokens, and is blamed on nobody who is right (fault 75)."""

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.domain.contract import APPLICANT, Answer
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.errors import LeadsPipelineError, RefusedError, TokenRefusedError
from leads_pipeline.portal import ClientCredentials, LeadsClient, Service, Tokens
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.run import MAX_REFUSED_TOKENS
from leads_pipeline.portal.tokens import LEAST_AGE_TO_REPLACE_SECONDS
from leads_pipeline.portal.verdicts import verdict_on_refused_token
from leads_pipeline.settings import AuthMethod, Secret
from leads_pipeline_tests.support.fake_timing import FakeTiming

BASE_URL = "http://portal.example"
REQUEST_SECONDS = 0.05

Outcomes = dict[Window, Answer | LeadsPipelineError]


@dataclass
class Request:
    """A request for a window: its branch, its token and the token's age, and the moment."""

    branch: int
    token: int
    token_age: float
    now: float


@dataclass
class Portal:
    """A portal that accepts a request if `accepts` says so, and an agency that pulls from it.

    Its clock moves by each request and by waiting. The runs share the folder of tokens.
    """

    folder: Path
    accepts: Callable[[Request], bool]
    refusal: int = 401
    timing: FakeTiming = field(default_factory=FakeTiming)
    issued: list[float] = field(default_factory=list)
    requests: int = 0
    is_token_server_down: bool = False
    guard: threading.Lock = field(default_factory=threading.Lock)

    def run(self, windows: Sequence[Window]) -> Outcomes:
        """Pull these windows with a client of its own."""
        timing = self.timing
        transport = httpx.MockTransport(self._answer)
        credentials = ClientCredentials(
            token_url=f"{BASE_URL}/oauth2/token",
            client_id="me",
            secret=Secret("A_SECRET", "s3cret"),
            method=AuthMethod.BODY,
        )
        tokens = Tokens(
            credentials, self.folder, clock=lambda: timing.now().timestamp(), transport=transport
        )
        service = Service(
            base_url=BASE_URL, tokens=tokens, transport=transport, timing=timing.as_timing()
        )
        client = LeadsClient(service, max_concurrency=8)
        return dict(client.fetch_windows(APPLICANT, windows, lambda answer: answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        with self.guard:
            if request.url.path == "/oauth2/token":
                return self._issue()
            self.requests += 1
            self.timing.seconds += REQUEST_SECONDS
            token = int(request.headers["Authorization"].removeprefix("Bearer token-"))
            asked = Request(
                branch=int(request.url.params["branch-id"]),
                token=token,
                token_age=self.timing.seconds - self.issued[token - 1],
                now=self.timing.seconds,
            )
            status = 200 if self.accepts(asked) else self.refusal
            return httpx.Response(status, json={"applicants": []})

    def _issue(self) -> httpx.Response:
        if self.is_token_server_down:
            return httpx.Response(503)
        self.issued.append(self.timing.seconds)
        token = f"token-{len(self.issued)}"
        return httpx.Response(200, json={"access_token": token, "expires_in": 3600})


def landed(outcomes: Outcomes) -> list[Window]:
    return [window for window, outcome in outcomes.items() if isinstance(outcome, Answer)]


def windows(branches: int, days: int = 4) -> list[Window]:
    return [
        Window.of(
            date(2026, 11, 10) + timedelta(days=day),
            Scope.parse(f"branch-{branch}"),
            ZoneInfo("UTC"),
        )
        for day in range(days)
        for branch in range(1, branches + 1)
    ]


# --- services that accept a good token late, or not always ----------------------------------------


@pytest.mark.parametrize("seconds", [0.5, 5])
def test_a_token_that_is_accepted_only_after_seconds_lands_all_windows_in_one_run(
    tmp_path: Path, seconds: float
) -> None:
    portal = Portal(tmp_path, accepts=lambda request: request.token_age > seconds)

    assert len(landed(portal.run(windows(branches=20)))) == 80
    assert len(portal.issued) == 1


def test_a_replica_that_never_learns_the_key_costs_no_window(tmp_path: Path) -> None:
    two_of_three = random.Random(7)  # noqa: S311 - no secret
    portal = Portal(tmp_path, accepts=lambda _: two_of_three.random() > 1 / 3)
    missing = {*windows(branches=20)}

    for _ in range(4):
        missing -= {*landed(portal.run([*missing]))}
        portal.timing.seconds += 600

    assert missing == set()
    assert len(portal.issued) <= 4


def test_a_token_server_that_is_down_for_ten_minutes_costs_no_window(tmp_path: Path) -> None:
    portal = Portal(tmp_path, accepts=lambda request: request.token != 1 or request.now < 70)
    asked = windows(branches=5, days=1)
    portal.run(asked)
    portal.timing.seconds = 90
    portal.is_token_server_down = True
    assert landed(portal.run(asked)) == []

    portal.timing.seconds = 700
    portal.is_token_server_down = False

    assert len(landed(portal.run(asked))) == 5
    assert len(portal.issued) == 2


@pytest.mark.parametrize("refusal", [401, 403])
def test_an_old_token_that_is_refused_is_replaced_once(tmp_path: Path, refusal: int) -> None:
    portal = Portal(
        tmp_path, accepts=lambda request: request.token == 2 or request.now < 30, refusal=refusal
    )
    asked = windows(branches=1, days=1)
    portal.run(asked)
    portal.timing.seconds = LEAST_AGE_TO_REPLACE_SECONDS + 1

    for _ in range(2):
        assert landed(portal.run(asked)) == asked
    assert len(portal.issued) == 2
    assert portal.requests == 4


# --- clients that may not read everything ---------------------------------------------------------


@pytest.mark.parametrize("refusal", [401, 403])
def test_three_mistyped_branches_end_no_run_for_the_good_ones(tmp_path: Path, refusal: int) -> None:
    portal = Portal(tmp_path, accepts=lambda request: request.branch > 3, refusal=refusal)
    asked = windows(branches=20)

    outcomes = portal.run(asked)

    assert {*landed(outcomes)} == {window for window in asked if int(window.scope.id) > 3}
    # A scope whose token was refused is tried once a window.
    assert portal.requests < len(asked) + 60
    assert len(portal.issued) == 1


def test_a_client_without_any_right_ends_the_run_early_and_asks_for_few_tokens(
    tmp_path: Path,
) -> None:
    portal = Portal(tmp_path, accepts=lambda _: False)

    outcomes = portal.run(windows(branches=20))

    assert {type(outcome) for outcome in outcomes.values()} == {TokenRefusedError}
    asked = [outcome for outcome in outcomes.values() if outcome.attempts]
    assert MAX_REFUSED_TOKENS <= len(asked) <= MAX_REFUSED_TOKENS + 12
    assert len(portal.issued) <= 2


def test_processes_together_ask_for_one_token_a_minute(tmp_path: Path) -> None:
    portal = Portal(tmp_path, accepts=lambda _: False)

    for _ in range(5):
        portal.run(windows(branches=1, days=1))
        portal.run(windows(branches=1, days=1))

    assert len(portal.issued) <= 1 + portal.timing.seconds / 60


# --- the verdict at the end of a run --------------------------------------------------------------

MOMENT = datetime(2026, 11, 20, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("was_accepted", "refused_since", "is_refused"),
    [
        (False, None, False),
        (False, MOMENT - timedelta(minutes=10), True),
        (False, MOMENT + timedelta(minutes=10), False),
        (True, MOMENT - timedelta(minutes=10), False),
    ],
    ids=["the first run", "another token before", "the same token before", "accepted in this run"],
)
def test_only_two_tokens_that_were_never_accepted_make_a_refusal(
    *, was_accepted: bool, refused_since: datetime | None, is_refused: bool
) -> None:
    error = TokenRefusedError("GET /applicant-leads was answered 401.")
    error.token_fetched_at = MOMENT

    verdict = verdict_on_refused_token(
        error, "leads of branch-7", was_accepted=was_accepted, refused_since=refused_since
    )

    assert isinstance(verdict, RefusedError) == is_refused
    assert verdict.is_transient != is_refused
