"""One run: requests that share pace, retry budget and their end."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Generic, TypeVar, cast

import httpx

from leads_pipeline.auth.address import ADDRESS_HINT, UNUSABLE_ADDRESS
from leads_pipeline.client.connection import http_client
from leads_pipeline.client.service import RequestSpec, Service
from leads_pipeline.client.verdicts import (
    DEADLINE_PASSED,
    LATER,
    USELESS,
    broken_off,
    failures_before_pieces,
    is_too_large,
    problem_in,
    seconds_asked_for,
    slows_the_run,
    turns_away,
    unsent,
    verdict_on,
)
from leads_pipeline.errors import (
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    SettingsError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline.retry import Pace, RetryBudget

# After that many windows in a row that found no connection or a busy service to the last of their retries, the rest of
# a run needn't try: it is asked for again when the service has had time.
MAX_TURNED_AWAY_IN_A_ROW = 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched(Generic[T]):
    """What a request gave; `request` is its path and query."""

    value: T
    body: bytes
    fetched_at: datetime
    attempts: int
    sequence: int | None
    request: str


class AskForLessError(Exception):
    """A divisible request that is better made in pieces, and why. `failures` are those since the last answer."""

    def __init__(self, verdict: LeadsPipelineError, *, attempts: int, failures: int) -> None:
        super().__init__(verdict)
        self.verdict = verdict
        self.attempts = attempts
        self.failures = failures


class Run:
    """Requests to one service, from the first to the last."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._timing = service.timing
        self._budget = RetryBudget(service.policy)
        self._pace = Pace(service.policy, service.timing.rng)
        self._door = asyncio.Lock()
        self._turned_away_in_a_row = 0
        self._over: LeadsPipelineError | None = None
        self._tls = httpx.create_ssl_context()

    def connection(self) -> httpx.AsyncClient:
        """A connection that serves one request after the other, made when first needed and again when it breaks.

        Each worker has its own: httpx's pool looks through all its connections several times a request, which costs
        40 ms of CPU a request with 128 of them against 2.5 ms so (measured with httpcore 1.0.9).
        """
        return http_client(self._service, self._tls)

    def address(self, spec: RequestSpec) -> httpx.URL:
        """What is asked, and of whom."""
        return httpx.URL(f"{self._service.base_url}{spec.path}", params=spec.parameters)

    async def fetch(
        self, http: httpx.AsyncClient, spec: RequestSpec, read: Callable[[bytes], T], failures: int = 0
    ) -> _Fetched[T]:
        """Ask, and ask again where that can help.

        `failures` are those of larger requests that this is a piece of: together they have as many attempts and as much
        of the budget as any other request, so that an outage costs no more for being asked about in pieces.

        Raises LeadsPipelineError with the last verdict, and AskForLessError where less is likelier to be answered.
        """
        request = http.build_request("GET", self.address(spec), headers=spec.headers)
        if failures == 0:
            self._budget.earn()
        for attempt in itertools.count(1):
            pace = await self._start(spec)
            fetched_at = self._timing.now()
            # Now and not with the answer: of two that cross, the one that was asked for later is the newer.
            sequence = self._service.next_sequence() if self._service.next_sequence else None
            outcome = await self._ask_once(http, spec, request, read)
            failures += 1
            self._learn(outcome, pace, failures)
            if not isinstance(outcome, LeadsPipelineError):
                body, value = outcome
                return _Fetched(
                    value=value,
                    body=body,
                    fetched_at=fetched_at,
                    attempts=attempt,
                    sequence=sequence,
                    request=request.url.raw_path.decode(),
                )
            if spec.is_divisible and is_too_large(outcome):
                raise AskForLessError(outcome, attempts=attempt, failures=0)  # the service answers, so it isn't down
            if not self._may_retry(outcome, failures):
                self._give_up_on(outcome)
                outcome.attempts = attempt
                raise outcome
            self._service.stats.retries += 1
            if not slows_the_run(outcome, failures):  # else the pace of the whole run holds it back
                await self._timing.sleep(self._service.policy.delay_seconds(failures, None, self._timing.rng))
                if spec.is_divisible and failures >= failures_before_pieces(outcome):
                    raise AskForLessError(outcome, attempts=attempt, failures=failures)
        raise AssertionError("count() never ends")

    async def _start(self, spec: RequestSpec) -> int:
        """Wait for the run's next start, first come first served."""
        async with self._door:
            while (seconds := self._pace.wait_seconds(self._timing.monotonic())) > 0 and self._over is None:
                await self._timing.sleep(seconds)
            if self._over is not None:
                raise unsent(spec, self._over)
            return self._pace.start(self._timing.monotonic())

    def _may_retry(self, error: LeadsPipelineError, attempt: int) -> bool:
        may_pass = error.is_transient and self._over is None
        return may_pass and attempt < self._service.policy.max_attempts and self._budget.spend()

    def _learn(self, outcome: object, pace: int, attempt: int) -> None:
        """Let one outcome tell the rest of the run how fast to go on, and whether to."""
        if not isinstance(outcome, LeadsPipelineError):
            self._pace.succeeded(pace)
        elif slows_the_run(outcome, attempt):
            seconds = seconds_asked_for(outcome)
            self._pace.asked_for_patience(pace, self._timing.monotonic(), seconds)
            if self._service.policy.is_beyond_patience(seconds):
                self._over = outcome
        elif isinstance(outcome, CredentialsError | SettingsError):
            self._over = outcome  # every other window would hear the same, and the token server each time
        if not turns_away(outcome):
            self._turned_away_in_a_row = 0

    def _give_up_on(self, error: LeadsPipelineError) -> None:
        if turns_away(error):
            self._turned_away_in_a_row += 1
            if self._turned_away_in_a_row >= MAX_TURNED_AWAY_IN_A_ROW:
                self._over = error

    async def _ask_once(
        self, http: httpx.AsyncClient, spec: RequestSpec, request: httpx.Request, read: Callable[[bytes], T]
    ) -> tuple[bytes, T] | LeadsPipelineError:
        """One request through the auth flow: the body with what `read` made of it, or the verdict.

        Errors are returned, so that none carries the exception before it along: httpx's quote headers and URLs.
        """
        try:
            async with asyncio.timeout(self._service.deadline_seconds):
                response = await self._send(http, spec, request)
                async with contextlib.aclosing(response):
                    if response.status_code != HTTPStatus.OK:
                        return verdict_on(spec, response, await problem_in(response), self._timing.now())
                    # BoundedBody decodes it; what else aread() does takes a twentieth of a large answer's time.
                    stream = cast("httpx.AsyncByteStream", response.stream)
                    body = b"".join([piece async for piece in stream])
            return body, read(body)
        except InvalidAnswerError as error:
            return InvalidAnswerError(
                f"{spec} was answered, but not with what the contract calls an answer. {error} What was landed before "
                f"stays as it is. {LATER}",
                reason=error.reason,
            )
        except TooLargeError as error:
            return TooLargeError(f"{spec} was answered with too much. {error} {USELESS}")
        except LeadsPipelineError as error:
            return error.with_traceback(None)
        except TimeoutError:
            return UnreachableError(
                f"{spec} got no whole answer within {self._service.deadline_seconds:g} seconds. {LATER}",
                reason=DEADLINE_PASSED,
            )
        except httpx.TransportError as error:
            return broken_off(spec, error)

    async def _send(self, http: httpx.AsyncClient, spec: RequestSpec, request: httpx.Request) -> httpx.Response:
        try:
            return await http.send(request, auth=self._service.auth, stream=True)
        except UNUSABLE_ADDRESS:
            pass
        raise SettingsError(f"{spec} can't be sent. {ADDRESS_HINT}")
