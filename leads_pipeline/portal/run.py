"""The requests of one run to one service.

All threads share one pace, and one error ends the run for all.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, Generic, TypeVar
from urllib.parse import urlencode

from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    SettingsError,
    TokenRefusedError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline.portal.http import ADDRESS_HINT, make_client, read_body, tls_context
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.pace import Pace, RetryPolicy
from leads_pipeline.portal.tokens import Token, Tokens
from leads_pipeline.portal.verdicts import (
    DEADLINE_PASSED,
    LATER,
    UNUSABLE_ADDRESS,
    USELESS,
    broken_off,
    is_slow,
    verdict_on,
)

# For a whole request with its body. A read timeout alone never ends a body that arrives byte by
# byte.
DEADLINE_SECONDS: Final = 120.0
# About 20,000 leads of 2 to 4 kB. Holds for the body as received and as decoded.
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
# After this many failures in a row, over this many scopes, the run ends. The rest is asked for
# later.
MAX_FAILURES_IN_A_ROW = 20
LEAST_FAILING_SCOPES = 3
# After this many answers of 401 to different windows, and none of 200, the run ends too.
MAX_REFUSED_TOKENS: Final = 20
# An answer that was too slow twice is too slow the third time too.
MAX_SLOW_ATTEMPTS: Final = 2

# A service may answer either to a new token.
_REFUSALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "leads-pipeline"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clocks, the waiting and the random numbers of a client. Tests bring their own.

    `now` is the moment in UTC, `monotonic` counts seconds from anywhere, `wait` ends early when the
    event is set.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], object] = threading.Event.wait
    rng: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """A request to make. Its text names path and subject, never host, query or headers.

    `scope` is that of its window. `advice` has the sentence for a status that means something
    special here.
    """

    path: str
    parameters: Mapping[str, str]
    about: str
    advice: Mapping[int, str]
    scope: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"GET {self.path} for {self.about}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched(Generic[T]):
    """The answer to a request, and the value that was read from it."""

    value: T
    body: bytes
    fetched_at: datetime
    attempts: int


@dataclass(slots=True, kw_only=True)
class Service:
    """A service: its address, its token, and how to ask. `requests_made` counts none for tokens."""

    base_url: str
    tokens: Tokens
    policy: RetryPolicy = RetryPolicy()  # noqa: RUF009 - frozen
    timing: Timing = field(default_factory=Timing)
    transport: httpx.BaseTransport | None = None
    deadline_seconds: float = DEADLINE_SECONDS
    max_body_bytes: int = MAX_BODY_BYTES
    requests_made: int = 0


@dataclass(slots=True)
class _Tries:
    """The tries of one request so far.

    `refusals` counts answers of 401 or 403, `status` is the last answer's.
    """

    attempts: int = 0
    refusals: int = 0
    status: int | None = None
    token: Token | None = None
    refused_at: float = 0.0


class Requests:
    """The requests of one run to one service, at most `at_once` at a time, over `scopes` scopes.

    Some failures end the run: a refused credential or setting, a longer Retry-After than the policy
    allows, too many temporary failures in a row, and too many 401 if nothing is accepted. Later
    requests get that error, and are not sent.
    """

    def __init__(self, service: Service, *, at_once: int = 1, scopes: int = 1) -> None:
        self._service = service
        self._timing = service.timing
        try:
            self._base = httpx.URL(service.base_url)
        except httpx.InvalidURL:
            raise SettingsError(f"The service's address isn't an address. {ADDRESS_HINT}") from None

        self._path = self._base.raw_path.decode().rstrip("/")
        self._tls = tls_context()
        self._pace = Pace(service.policy, self._timing.rng)
        self._slots = threading.Semaphore(at_once)
        self._guard = threading.Lock()
        self._local = threading.local()
        self._stop = threading.Event()
        self._failures_in_a_row = 0
        self._failing_scopes: set[str] = set()
        self._least_failing_scopes = min(LEAST_FAILING_SCOPES, scopes)
        self._accepted_tokens: dict[
            str, float
        ] = {}  # with the moment of the last answer, by the monotonic clock
        self._accepted_scopes: set[str] = set()
        self._refused_scopes: set[str] = set()
        self._requests_without_token = 0
        self._over: LeadsPipelineError | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether the run was stopped."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Send nothing more, and wait for nothing."""
        self._stop.set()

    def fetch(
        self, spec: RequestSpec, read: Callable[[bytes], T], asked_at: datetime | None = None
    ) -> Fetched[T]:
        """Ask, and ask again if that can help. Raises the last verdict.

        `asked_at` is the moment of the first request, if the caller has noted it before.
        """
        request = f"{self._path}{spec.path}?{urlencode(spec.parameters)}"
        tries = _Tries()
        while True:
            tries.attempts += 1
            with self._slots:
                pace_number = self._start(spec)
                # Noted before the answer: of two answers that cross, the one that was asked for
                # later is the newer.
                fetched_at = asked_at if tries.attempts == 1 and asked_at else self._timing.now()
                outcome = self._ask_once(spec, request, read, tries)
                # Before the next request may start.
                self._learn(outcome, pace_number, tries.attempts)

            if not isinstance(outcome, LeadsPipelineError):
                body, value = outcome
                self._end_row()
                return Fetched(
                    value=value, body=body, fetched_at=fetched_at, attempts=tries.attempts
                )

            seconds = self._seconds_until_next_try(spec, outcome, tries)
            if seconds is None:
                self._give_up_on(spec, outcome)
                outcome.attempts = tries.attempts
                raise outcome
            self._timing.wait(self._stop, seconds)

    def _seconds_until_next_try(
        self, spec: RequestSpec, error: LeadsPipelineError, tries: _Tries
    ) -> float | None:
        """Return how long to wait before the request is sent again. None if that can't help."""
        policy = self._service.policy
        if self._over:
            return None
        if tries.status in _REFUSALS:
            return self._seconds_for_another_token(spec, tries)

        most = MAX_SLOW_ATTEMPTS if is_slow(error) else policy.max_attempts
        if not error.is_transient or tries.attempts >= most:
            return None
        if _slows_the_run(error, tries.attempts):
            return 0.0  # the pace of the whole run holds it back
        return policy.delay_seconds(tries.attempts, None, self._timing.rng)

    def _seconds_for_another_token(self, spec: RequestSpec, tries: _Tries) -> float | None:
        """Return how long to wait before a request is sent again whose token was refused."""
        waits = self._service.policy.refused_token_waits_seconds
        with self._guard:
            is_scope_refused = spec.scope in self._refused_scopes - self._accepted_scopes
            is_token_good = (
                tries.token is not None and tries.token.access_token in self._accepted_tokens
            )

        # A token that is accepted elsewhere is good: the 403 is about the scope. A 401 says nothing
        # of the scope.
        is_forbidden = tries.status == HTTPStatus.FORBIDDEN and is_token_good
        if is_forbidden or is_scope_refused or tries.refusals > len(waits):
            return None

        return waits[tries.refusals - 1]

    def _start(self, spec: RequestSpec) -> int:
        """Wait until the run may start a request. Returns the number of its pace."""
        while True:
            with self._guard:
                if self._over is not None:
                    text = (
                        f"{spec} was not sent, because another request's failure holds for the "
                        "whole run: "
                    )
                    raise self._over.reworded(f"{text}{self._over.args[0]}", attempts=0)
                if self.is_stopped:
                    raise UnreachableError(f"{spec} was not sent: the run was stopped.")
                now = self._timing.monotonic()
                if (seconds := self._pace.wait_seconds(now)) <= 0:
                    return self._pace.start(now)
            self._timing.wait(self._stop, seconds)

    def _learn(self, outcome: object, pace_number: int, attempt: int) -> None:
        """Let an outcome change the run's pace, or end the run.

        Other temporary errors change nothing here: see _give_up_on.
        """
        with self._guard:
            if not isinstance(outcome, LeadsPipelineError):
                self._pace.succeeded(pace_number)
            elif _slows_the_run(outcome, attempt):
                seconds = outcome.retry_after_seconds
                self._pace.asked_for_patience(pace_number, self._timing.monotonic(), seconds)
                if self._service.policy.is_beyond_patience(seconds):
                    self._over = outcome

            if isinstance(outcome, CredentialsError | SettingsError):
                # Every other window would hear the same, and the token server each time.
                self._over = outcome

    def _give_up_on(self, spec: RequestSpec, error: LeadsPipelineError) -> None:
        """Note a failure after all retries. Too many temporary ones in a row end the run."""
        if isinstance(error, TokenRefusedError):
            self._note_refused_token(spec, error)
            return

        if not error.is_transient:
            self._end_row()
            return

        with self._guard:
            self._failures_in_a_row += 1
            self._failing_scopes.add(spec.scope)
            is_everywhere = len(self._failing_scopes) >= self._least_failing_scopes
            if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW and is_everywhere:
                self._over = error

    def _note_refused_token(self, spec: RequestSpec, error: TokenRefusedError) -> None:
        """Note a request of which no token was accepted.

        After MAX_REFUSED_TOKENS of them, and none accepted, it ends the run.
        """
        with self._guard:
            self._refused_scopes.add(spec.scope)
            self._requests_without_token += 1
            if self._requests_without_token >= MAX_REFUSED_TOKENS and not self._accepted_scopes:
                self._over = error

    def _end_row(self) -> None:
        """Note that the service answers."""
        with self._guard:
            self._failures_in_a_row = 0
            self._failing_scopes.clear()

    def _ask_once(
        self, spec: RequestSpec, request: str, read: Callable[[bytes], T], tries: _Tries
    ) -> tuple[bytes, T] | LeadsPipelineError:
        """Send one request. Return its body with the result of `read`, or the verdict.

        An error is returned and not raised, so that it doesn't carry httpx's one along, which
        quotes headers and URLs.
        """
        service = self._service
        until = time.monotonic() + service.deadline_seconds
        tries.status = None

        try:
            token = self._token(tries)
            tries.token = token
            with closing(self._send(request, spec.headers, token.access_token)) as response:
                self._note_answer(spec, token, response.status_code, tries)
                if response.status_code != HTTPStatus.OK:
                    body = _courtesy(response, service.max_body_bytes, until)
                    verdict = verdict_on(str(spec), response, body, spec.advice, self._timing.now())
                    if isinstance(verdict, TokenRefusedError):
                        verdict.token_fetched_at = datetime.fromtimestamp(token.fetched_at, UTC)
                    return verdict
                body = read_body(response, service.max_body_bytes, until)
            return body, read(body)
        except InvalidAnswerError as error:
            message = (
                f"The answer to {spec} isn't as the contract says. {error} What was landed before "
                "stays."
            )
            return InvalidAnswerError(f"{message} {LATER}", reason=error.reason)
        except TooLargeError as error:
            return TooLargeError(
                f"The answer to {spec} is too large. {error} What was landed before stays. "
                f"{USELESS} Tell the portal's technical contact."
            )
        except UnreachableError as error:
            if error.reason != DEADLINE_PASSED:  # the token server's
                return error.with_traceback(None)
            return UnreachableError(f"{spec}: {error} {LATER}", reason=error.reason)
        except LeadsPipelineError as error:
            return error.with_traceback(None)
        except httpx.TransportError as error:
            return broken_off(str(spec), error)
        except UNUSABLE_ADDRESS:
            return SettingsError(f"{spec} can't be sent. {ADDRESS_HINT}")

    def _token(self, tries: _Tries) -> Token:
        """Return the token for the next try.

        A refused one is replaced, unless other requests were accepted with it.
        """
        tokens = self._service.tokens
        if tries.token is None or not tries.refusals:
            return tokens.get()

        accepted_at = self._accepted_tokens.get(tries.token.access_token)
        if accepted_at is not None and accepted_at > tries.refused_at:
            return tries.token
        return tokens.get(refused=tries.token)

    def _note_answer(self, spec: RequestSpec, token: Token, status: int, tries: _Tries) -> None:
        """Note whether the service accepts the token."""
        tries.status = status
        with self._guard:
            if status == HTTPStatus.OK:
                self._accepted_tokens[token.access_token] = self._timing.monotonic()
                self._accepted_scopes.add(spec.scope)
            elif status in _REFUSALS:
                tries.refusals += 1
                tries.refused_at = self._timing.monotonic()

    def _send(self, request: str, headers: Mapping[str, str], token: str) -> httpx.Response:
        # One client a thread: httpx's pool looks through all its connections several times a
        # request.
        http = getattr(self._local, "http", None)
        if http is None:
            http = self._local.http = make_client(
                headers=_HEADERS, transport=self._service.transport, tls=self._tls
            )

        headers = {**headers, "Authorization": f"Bearer {token}"}
        url = self._base.copy_with(raw_path=request.encode())

        with self._guard:
            self._service.requests_made += 1

        return http.send(http.build_request("GET", url, headers=headers), stream=True)

    def close(self) -> None:
        """Close the connection of the calling thread."""
        if (http := getattr(self._local, "http", None)) is not None:
            http.close()


def _courtesy(response: httpx.Response, max_bytes: int, until: float) -> bytes:
    """Return the body of an error answer. Empty if it can't be read: the status decides."""
    try:
        return read_body(response, max_bytes, until)
    except (LeadsPipelineError, httpx.TransportError):
        return b""


def _slows_the_run(error: LeadsPipelineError, attempt: int) -> bool:
    """Whether an answer is about the whole service.

    A 429 without Retry-After to a repeated request isn't. If the service were busy, other requests
    would get 429 too. One branch that is always refused must not slow down the others.
    """
    return error.retry_after_seconds is not None or (isinstance(error, BusyError) and attempt == 1)
