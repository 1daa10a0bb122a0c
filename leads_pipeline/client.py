"""The leads and inventory clients: from "this window, please" to an answer or an error of the right kind.

Belongs here: requests, deadlines, bounds, verdicts on what came back, retrying, concurrency. Doesn't: tokens (auth.py),
what a valid body holds (contract.py), how long to wait (retry.py), files.
"""

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import math
import queue
import random
import re
import ssl
import threading
import time
import zlib
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx

from leads_pipeline.auth import ADDRESS_HINT, UNUSABLE_ADDRESS, make_client
from leads_pipeline.contract import (
    INVENTORY_PATH,
    Answer,
    InventoryItem,
    InventoryPage,
    LeadKind,
    ReceivedLead,
    read_inventory_page,
    read_leads,
    window_parameters,
)
from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    RefusedError,
    RetentionError,
    ServerError,
    SettingsError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline.retry import Pace, RetryBudget, RetryPolicy, parse_retry_after
from leads_pipeline.settings import DEFAULT_MAX_BODY_MB, MEBIBYTE
from leads_pipeline.window import RETENTION, ScopeKind, Window

# A whole request, token and body included. A read timeout alone lets a body that comes drop by drop go on for ever.
DEADLINE_SECONDS = 120.0
CONNECT_TIMEOUT_SECONDS = 10.0
# The longest silence within a request: a busy day of a large group takes the service a while to gather.
READ_TIMEOUT_SECONDS = 60.0
# Shorter than the 5 seconds after which common servers close a connection that is idle.
KEEPALIVE_SECONDS = 4.0
# A lead is 2 to 4 kB, so this is some 20,000 of them in one answer. Holds for the body as received and as decoded.
MAX_BODY_BYTES = DEFAULT_MAX_BODY_MB * MEBIBYTE
# A window whose answer is too large, or takes the service too long, is asked for in pieces: none shorter than this and
# no more of them, since their leads are held together until they are landed.
SHORTEST_PIECE = timedelta(minutes=1)
MAX_PIECES = 64
# So many failures are taken for a fault that passes before a smaller piece is asked for. Too long twice is no accident;
# other faults rarely come of the size.
TIMEOUTS_BEFORE_PIECES = 2
FAULTS_BEFORE_PIECES = 4
# So many pieces may be hopeless, too large for example, before any is answered.
MAX_HOPELESS_PIECES = 3
# How much of a gzip body is decoded at once: 64 kB received can stand for 64 MB.
DECODE_STEP_BYTES = 256 * 1024
# After that many windows in a row that found no connection or a busy service to the last of their retries, the rest of
# a run needn't try: it is asked for again when the service has had time.
MAX_TURNED_AWAY_IN_A_ROW = 20
# The largest page that the service gives (openapi.yaml, inventorySearch).
INVENTORY_PAGE_SIZE = 250
# 250,000 items for one address: more is a cursor that leads nowhere.
MAX_INVENTORY_PAGES = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The clocks, the sleep and the dice of a client; tests bring their own.

    `now` is the moment in UTC, `monotonic` counts seconds from anywhere.
    """

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    rng: random.Random = field(default_factory=random.Random)


@dataclass(slots=True)
class FetchStats:
    """What a client has done since it was made. Holds no personal data, so it can go into metadata.

    `requests` and `statuses` count data requests, not those for tokens; a request that broke has no status.
    `waited_seconds` adds up over requests that waited side by side. `received_bytes` is as sent, compressed.
    """

    requests: int = 0
    retries: int = 0
    waited_seconds: float = 0.0
    received_bytes: int = 0
    statuses: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """A service to be asked, and how."""

    base_url: str
    auth: httpx.Auth
    policy: RetryPolicy
    timing: Timing
    transport: httpx.AsyncBaseTransport | None
    max_concurrency: int
    deadline_seconds: float
    max_body_bytes: int
    next_sequence: Callable[[], int] | None = None
    stats: FetchStats = field(default_factory=FetchStats)


class LeadsClient:
    """Fetches windows of leads.

    `next_sequence` gives each request its place in the order of receipt (Lake.next_sequence). `transport` stands in for
    the network in tests. Proxies come from the environment as everywhere (HTTPS_PROXY, NO_PROXY); credentials never do.
    """

    def __init__(
        self,
        base_url: str,
        auth: httpx.Auth,
        *,
        max_concurrency: int,
        next_sequence: Callable[[], int] | None = None,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        transport: httpx.AsyncBaseTransport | None = None,
        timing: Timing | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._service = _Service(
            base_url=base_url.rstrip("/"),
            auth=auth,
            policy=policy,
            timing=timing or Timing(),
            transport=transport,
            max_concurrency=max_concurrency,
            deadline_seconds=deadline_seconds,
            max_body_bytes=max_body_bytes,
            next_sequence=next_sequence,
        )

    @property
    def stats(self) -> FetchStats:
        """Requests, retries, waiting and bytes since the client was made."""
        return self._service.stats

    def fetch_windows(
        self, kind: LeadKind, windows: Sequence[Window]
    ) -> Iterator[tuple[Window, Answer | LeadsPipelineError]]:
        """Fetch windows side by side and yield each as it finishes, with its answer or with why there is none.

        An answer that has a `failure` holds what came of the window, and not all of it.

        Windows start in the given order, at most `max_concurrency` at a time, each over its own kept connection, at one
        pace and with one retry budget. At most twice `max_concurrency` answers are held, so a slow consumer holds the
        fetching back. Closing the iterator cancels what is under way.

        Some failures hold for the whole run: a refused credential, a service that asks for more patience than the
        policy has, a host that can't be reached at all. After one, the windows left get that error unasked.
        """
        return _in_background(partial(self._fetch_all, kind, windows), capacity=2 * self._service.max_concurrency)

    async def _fetch_all(
        self, kind: LeadKind, windows: Sequence[Window], outbox: "_Outbox[tuple[Window, Answer | LeadsPipelineError]]"
    ) -> None:
        run = _Run(self._service)
        left = iter(windows)

        async def work() -> None:
            async with run.connection() as http:
                while True:
                    await outbox.has_room()
                    window = next(left, None)
                    if window is None:
                        return
                    outbox.put((window, await self._fetch(run, http, kind, window)))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._service.max_concurrency, len(windows))):
                group.create_task(work())

    async def _fetch(
        self, run: "_Run", http: httpx.AsyncClient, kind: LeadKind, window: Window
    ) -> Answer | LeadsPipelineError:
        if window.is_deleted(self._service.timing.now()):
            return RetentionError(
                f"The window {window.partition_key} was not asked for: the portal keeps leads for {RETENTION.days} "
                "days, and it is wholly older. What was landed of it stays; there is nothing left to fetch."
            )
        answer = await self._gather(run, http, kind, window)
        return answer.failure if answer.failure and not answer.leads else answer

    async def _gather(self, run: "_Run", http: httpx.AsyncClient, kind: LeadKind, window: Window) -> Answer:
        """The window's answer: in one, or put together from pieces of it."""
        began = self._service.timing.monotonic()
        to_ask = [window]  # the earliest last
        missing: list[tuple[Window, LeadsPipelineError]] = []
        leads: list[tuple[ReceivedLead, ...]] = []
        moments: list[datetime] = []
        sequences: list[int] = []
        digest = hashlib.sha256()
        requests = body_bytes = 0
        failures = 0  # since something was answered
        while to_ask:
            piece = to_ask.pop()
            try:
                fetched = await run.fetch(http, _window_ask(kind, window, piece), partial(read_leads, kind), failures)
            except _AskForLessError as less:
                requests += less.attempts
                if len(leads) + len(missing) + len(to_ask) + 2 <= MAX_PIECES:
                    failures = less.failures
                    to_ask += reversed(_halves(piece))
                    continue
                error = less.verdict
            except LeadsPipelineError as verdict:
                requests += verdict.attempts
                error = verdict
            else:
                requests += fetched.attempts
                failures = 0
                leads.append(fetched.value)
                moments.append(fetched.fetched_at)
                sequences += [fetched.sequence] if fetched.sequence is not None else []
                body_bytes += len(fetched.body)
                digest.update(fetched.body)
                continue
            missing.append((piece, error))
            if _turns_away(error) or (not leads and (error.is_transient or len(missing) == MAX_HOPELESS_PIECES)):
                break  # it isn't the piece's fault; else the others are fetched all the same
            failures = self._service.policy.max_attempts - 1 if error.is_transient else 0
        joined = _joined(leads)
        return Answer(
            kind=kind,
            window=window,
            leads=joined,
            fetched_at=min(moments, default=self._service.timing.now()),  # later ones may be missing in earlier pieces
            request=run.address(_window_ask(kind, window, window)).raw_path.decode(),
            body_sha256=digest.hexdigest(),
            body_bytes=body_bytes,
            attempts=requests,
            duration_seconds=self._service.timing.monotonic() - began,
            sequence=min(sequences, default=None),  # like the moment
            failure=self._failure(window, missing, to_ask, len(joined), requests) if missing else None,
        )

    def _failure(
        self,
        window: Window,
        missing: Sequence[tuple[Window, LeadsPipelineError]],
        unasked: Sequence[Window],
        leads: int,
        requests: int,
    ) -> LeadsPipelineError:
        """Why these pieces of the window are missing. What can pass comes first: it is asked for again sooner."""
        piece, verdict = next((one for one in missing if one[1].is_transient), missing[0])
        told = str(verdict.reworded(verdict.args[0], attempts=0))
        if isinstance(verdict, TooLargeError):
            limit = f"{self._service.max_body_bytes / MEBIBYTE:g}"
            told = (
                f"The window {window.partition_key} holds more than fits: it was asked for in pieces, and the one from "
                f"{piece.start:%H:%M} to {piece.end:%H:%M} UTC still has more than the {limit} MB that an answer may "
                "have. What was landed before stays as it is. Raise LEADS_MAX_BODY_MB; it is then asked for again at "
                "once."
            )
        if leads:
            stretches = _stretches([*(piece for piece, _ in missing), *unasked])
            told = (
                f"{leads} leads of the window {window.partition_key} came and are kept. It isn't landed before the "
                f"rest has come, of {stretches} UTC. {told}"
            )
        return verdict.reworded(told, requests)


class InventoryClient:
    """Searches the inventory of one agency. Keeps the address, which can be a lead's home, out of logs and messages."""

    def __init__(
        self,
        base_url: str,
        auth: httpx.Auth,
        agency_ref: str,
        *,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        transport: httpx.AsyncBaseTransport | None = None,
        timing: Timing | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        if not re.fullmatch(r"[!-~](?:[ -~]*[!-~])?", agency_ref):
            raise SettingsError(
                "INVENTORY_AGENCY_REF can't be sent as a header: write plain ASCII without line breaks."
            )
        self._agency_ref = agency_ref
        self._service = _Service(
            base_url=base_url.rstrip("/"),
            auth=auth,
            policy=policy,
            timing=timing or Timing(),
            transport=transport,
            max_concurrency=1,  # a page is known only from the one before
            deadline_seconds=deadline_seconds,
            max_body_bytes=max_body_bytes,
        )
        logging.getLogger("httpx").addFilter(_hide_inventory_query)

    @property
    def stats(self) -> FetchStats:
        """Requests, retries, waiting and bytes since the client was made."""
        return self._service.stats

    def search(self, address: str) -> tuple[InventoryItem, ...]:
        """All items of all pages for a place, in the service's order.

        Raises the LeadsPipelineError of the first page that couldn't be had, and InvalidAnswerError for a cursor that
        repeats or never ends: part of a search is never taken for the whole.
        """
        pages = _in_background(partial(self._fetch_pages, address), capacity=2)
        return tuple(itertools.chain.from_iterable(page.items for page in pages))

    def first_page(self, address: str) -> InventoryPage:
        """The first page for a place, to see whether the API answers. Raises as `search` does."""
        pages: Generator[InventoryPage, None, None] = _in_background(partial(self._fetch_pages, address), capacity=1)
        with contextlib.closing(pages):  # or the pages after it would be fetched as well
            return next(pages)

    async def _fetch_pages(self, address: str, outbox: "_Outbox[InventoryPage]") -> None:
        parameters = {"address": address, "maxResults": str(INVENTORY_PAGE_SIZE)}
        seen: set[str] = set()
        run = _Run(self._service)
        async with run.connection() as http:
            for number in range(1, MAX_INVENTORY_PAGES + 1):
                await outbox.has_room()
                ask = _Ask(
                    path=INVENTORY_PATH,
                    parameters=parameters,
                    headers={"AgencyRef": self._agency_ref},
                    about=f"page {number}",
                    hints={401: _INVENTORY_401, 403: _INVENTORY_403},
                )
                page = (await run.fetch(http, ask, partial(read_inventory_page, number=number))).value
                outbox.put(page)
                if page.next_token is None:
                    return
                if page.next_token in seen:
                    raise InvalidAnswerError(
                        f"{ask} names a next page that was had before, so the search would never end. Nothing of it is "
                        "kept; it is tried again later. If it stays so, tell the portal's contact.",
                        reason="repeating cursor",
                    )
                seen.add(page.next_token)
                parameters = {**parameters, "nextToken": page.next_token}
        raise InvalidAnswerError(
            f"The inventory search has more than {MAX_INVENTORY_PAGES} pages. Nothing of it is kept. Search for a "
            "smaller place.",
            reason="endless cursor",
        )


def server_time(base_url: str, *, transport: httpx.BaseTransport | None = None) -> datetime | None:
    """The service's clock by the Date header of whatever it answers to a request without a token; None without one.

    Raises UnreachableError, and SettingsError for an address that is none.
    """
    make = partial(httpx.Client, transport=transport, timeout=CONNECT_TIMEOUT_SECONDS, follow_redirects=False)
    try:
        with make_client(make) as http, http.stream("GET", base_url) as response:  # the body stays unread
            said = response.headers.get("date", "")
    except httpx.TransportError as error:
        why = _connecting(error) if isinstance(error, httpx.ConnectError) else type(error).__name__
        raise UnreachableError(
            f"{urlsplit(base_url).hostname} doesn't answer ({why}). Check the network, the proxy and the address.",
            reason=_NO_CONNECTION,
        ) from None
    except UNUSABLE_ADDRESS:
        said = None
    if said is None:
        raise SettingsError(f"{urlsplit(base_url).hostname} can't be asked. {ADDRESS_HINT}")
    try:
        moment = parsedate_to_datetime(said)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# --- one run: requests that share pace and retry budget ------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ask:
    """A request to be made. Its text names path and subject, never host, query or headers."""

    path: str
    parameters: Mapping[str, str]
    about: str
    hints: Mapping[int, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    is_divisible: bool = False

    def __str__(self) -> str:
        return f"GET {self.path} for {self.about}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetched(Generic[T]):
    value: T
    body: bytes
    fetched_at: datetime
    attempts: int
    sequence: int | None


class _AskForLessError(Exception):
    """A divisible request that is better made in pieces, and why. `failures` are those since the last answer."""

    def __init__(self, verdict: LeadsPipelineError, *, attempts: int, failures: int) -> None:
        super().__init__(verdict)
        self.verdict = verdict
        self.attempts = attempts
        self.failures = failures


class _Run:
    def __init__(self, service: _Service) -> None:
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
        return _http_client(self._service, self._tls)

    def address(self, ask: _Ask) -> httpx.URL:
        """What is asked, and of whom."""
        return httpx.URL(f"{self._service.base_url}{ask.path}", params=ask.parameters)

    async def fetch(
        self, http: httpx.AsyncClient, ask: _Ask, read: Callable[[bytes], T], failures: int = 0
    ) -> _Fetched[T]:
        """Ask, and ask again where that can help.

        `failures` are those of larger requests that this is a piece of: together they have as many attempts and as much
        of the budget as any other request, so that an outage costs no more for being asked about in pieces.

        Raises LeadsPipelineError with the last verdict, and _AskForLessError where less is likelier to be answered.
        """
        request = http.build_request("GET", self.address(ask), headers=ask.headers)
        if failures == 0:
            self._budget.earn()
        for attempt in itertools.count(1):
            pace = await self._start(ask)
            fetched_at = self._timing.now()
            # Now and not with the answer: of two that cross, the one that was asked for later is the newer.
            sequence = self._service.next_sequence() if self._service.next_sequence else None
            outcome = await self._ask_once(http, ask, request, read)
            failures += 1
            self._learn(outcome, pace, failures)
            if not isinstance(outcome, LeadsPipelineError):
                body, value = outcome
                return _Fetched(value=value, body=body, fetched_at=fetched_at, attempts=attempt, sequence=sequence)
            if ask.is_divisible and _is_too_large(outcome):
                raise _AskForLessError(outcome, attempts=attempt, failures=0)  # the service answers, so it isn't down
            if not self._may_retry(outcome, failures):
                self._give_up_on(outcome)
                outcome.attempts = attempt
                raise outcome
            self._service.stats.retries += 1
            if not _slows_the_run(outcome, failures):  # else the pace of the whole run holds it back
                await self._wait(self._service.policy.delay_seconds(failures, None, self._timing.rng))
                if ask.is_divisible and failures >= _failures_before_pieces(outcome):
                    raise _AskForLessError(outcome, attempts=attempt, failures=failures)
        raise AssertionError("count() never ends")

    async def _start(self, ask: _Ask) -> int:
        """Wait for the run's next start, first come first served."""
        async with self._door:
            while (seconds := self._pace.wait_seconds(self._timing.monotonic())) > 0 and self._over is None:
                await self._wait(seconds)
            if self._over is not None:
                raise _unsent(ask, self._over)
            return self._pace.start(self._timing.monotonic())

    async def _wait(self, seconds: float) -> None:
        self._service.stats.waited_seconds += seconds
        await self._timing.sleep(seconds)

    def _may_retry(self, error: LeadsPipelineError, attempt: int) -> bool:
        may_pass = error.is_transient and self._over is None
        return may_pass and attempt < self._service.policy.max_attempts and self._budget.spend()

    def _learn(self, outcome: object, pace: int, attempt: int) -> None:
        """Let one outcome tell the rest of the run how fast to go on, and whether to."""
        if not isinstance(outcome, LeadsPipelineError):
            self._pace.succeeded(pace)
        elif _slows_the_run(outcome, attempt):
            seconds = _retry_after_seconds(outcome)
            self._pace.asked_for_patience(pace, self._timing.monotonic(), seconds)
            if self._service.policy.is_beyond_patience(seconds):
                self._over = outcome
        elif isinstance(outcome, CredentialsError | SettingsError):
            self._over = outcome  # every other window would hear the same, and the token server each time
        if not _turns_away(outcome):
            self._turned_away_in_a_row = 0

    def _give_up_on(self, error: LeadsPipelineError) -> None:
        if _turns_away(error):
            self._turned_away_in_a_row += 1
            if self._turned_away_in_a_row >= MAX_TURNED_AWAY_IN_A_ROW:
                self._over = error

    async def _ask_once(
        self, http: httpx.AsyncClient, ask: _Ask, request: httpx.Request, read: Callable[[bytes], T]
    ) -> tuple[bytes, T] | LeadsPipelineError:
        """One request through the auth flow: the body with what `read` made of it, or the verdict.

        Errors are returned, so that none carries the exception before it along: httpx's quote headers and URLs.
        """
        try:
            async with asyncio.timeout(self._service.deadline_seconds):
                response = await self._send(http, ask, request)
                async with contextlib.aclosing(response):
                    if response.status_code != HTTPStatus.OK:
                        return _verdict(ask, response, await _problem(response), self._timing.now())
                    body = await response.aread()
            return body, read(body)
        except InvalidAnswerError as error:
            return InvalidAnswerError(
                f"{ask} was answered, but not with what the contract calls an answer. {error} What was landed before "
                f"stays as it is. {_LATER}",
                reason=error.reason,
            )
        except TooLargeError as error:
            return TooLargeError(f"{ask} was answered with too much. {error} {_USELESS}")
        except LeadsPipelineError as error:
            return error.with_traceback(None)
        except TimeoutError:
            return UnreachableError(
                f"{ask} got no whole answer within {self._service.deadline_seconds:g} seconds. {_LATER}",
                reason=_DEADLINE_PASSED,
            )
        except httpx.TransportError as error:
            return _broken(ask, error)

    async def _send(self, http: httpx.AsyncClient, ask: _Ask, request: httpx.Request) -> httpx.Response:
        try:
            return await http.send(request, auth=self._service.auth, stream=True)
        except UNUSABLE_ADDRESS:
            pass
        raise SettingsError(f"{ask} can't be sent. {ADDRESS_HINT}")


def _http_client(service: _Service, tls: ssl.SSLContext) -> httpx.AsyncClient:
    stats = service.stats

    async def on_request(request: httpx.Request) -> None:
        if request.method == "GET":  # token requests are POST
            stats.requests += 1

    async def on_response(response: httpx.Response) -> None:
        if response.request.method == "GET":
            stats.statuses[response.status_code] += 1
        # A redirect isn't followed, and httpx fails on a broken Location even so.
        response.headers.pop("location", None)
        # Every body goes through here, also those that httpx reads itself during the auth flow.
        if isinstance(response.stream, httpx.AsyncByteStream):
            encoding = response.headers.pop("content-encoding", "")
            response.stream = _BoundedBody(response.stream, encoding, service.max_body_bytes, stats)

    return make_client(
        lambda: httpx.AsyncClient(
            transport=service.transport,
            headers={"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "leads-pipeline"},
            timeout=httpx.Timeout(READ_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS, pool=None),
            limits=httpx.Limits(max_connections=1, keepalive_expiry=KEEPALIVE_SECONDS),
            verify=tls,
            event_hooks={"request": [on_request], "response": [on_response]},
            follow_redirects=False,
        )
    )


class _BoundedBody(httpx.AsyncByteStream):
    """A body that is decoded here and bounded both as received and as decoded.

    httpx would decode whatever stands in one read at once, and takes a gzip body that is cut off for a whole one.
    """

    def __init__(self, stream: httpx.AsyncByteStream, encoding: str, max_bytes: int, stats: FetchStats) -> None:
        self._stream = stream
        self._encoding = encoding.strip().lower()
        self._max_bytes = max_bytes
        self._stats = stats
        self._received = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in {"", "identity", "gzip", "x-gzip"}:
            raise InvalidAnswerError("Its content encoding is none that was asked for.", reason="unknown encoding")
        is_gzip = "gzip" in self._encoding
        decoded = 0
        async for piece in _gunzip(self._count()) if is_gzip else self._count():
            decoded += len(piece)
            self._check(decoded)
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def _count(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            self._received += len(piece)
            self._stats.received_bytes += len(piece)
            self._check(self._received)
            yield piece

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLargeError(f"Its body is larger than {self._max_bytes} bytes.")


async def _gunzip(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Decode step by step, all members of the file one after the other (RFC 1952, section 2.2)."""
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    is_begun = False
    async for piece in pieces:
        rest = piece
        while rest:
            if decoder.eof:
                decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            is_begun = True
            try:
                decoded = decoder.decompress(rest, DECODE_STEP_BYTES)
            except zlib.error:
                raise InvalidAnswerError("Its gzip body is damaged.", reason="broken gzip") from None
            rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            if decoded:
                yield decoded
    if is_begun and not decoder.eof:
        raise InvalidAnswerError("Its gzip body is cut off.", reason="broken gzip")


# --- verdicts -------------------------------------------------------------------------------------------------------

_NO_CONNECTION = "no connection"
_DEADLINE_PASSED = "deadline passed"
_LATER = "It is asked for again by itself; nothing needs doing unless this stays."
_USELESS = "Asking again doesn't help."
_TIMEOUTS = frozenset({_DEADLINE_PASSED, "server error (408)", "server error (504)"})
_LEADS_401 = (
    "The token is refused even after a renewal. Check LEADS_CLIENT_ID and its secret, and LEADS_AUDIENCE or "
    "LEADS_TOKEN_SCOPE; then ask the portal's technical contact whether the credentials are still valid."
)
_LEADS_413 = "The service calls even the shortest piece of a window too large; tell the portal's technical contact."
_CHECK_SCOPES = "Check the base URL and the scope ids; then tell the portal's technical contact."
_HINTS = {407: "Check the user and the password of the proxy in the environment."}
# The code that the specification documents, and the names of HTTP's own statuses.
_KNOWN_CODES = frozenset({"invalid_valuation_lead_product", *(status.name.lower() for status in HTTPStatus)})
_INVENTORY_401 = (
    "The token is refused even after a renewal. Check INVENTORY_CLIENT_ID and INVENTORY_CLIENT_SECRET; then ask the "
    "portal whether they are still valid."
)
_INVENTORY_403 = "The token is fine, the agency isn't: check INVENTORY_AGENCY_REF against the e-mail that it came in."


def _window_ask(kind: LeadKind, window: Window, piece: Window) -> _Ask:
    about = f"the window {window.partition_key}"
    if piece != window:
        about += f", {piece.start:%Y-%m-%dT%H:%M:%SZ} to {piece.end:%Y-%m-%dT%H:%M:%SZ} of it"
    return _Ask(
        path=kind.path,
        parameters=window_parameters(piece),
        about=about,
        hints={401: _LEADS_401, 403: _scope_hint(window), 413: _LEADS_413},
        is_divisible=piece.end - piece.start > SHORTEST_PIECE,
    )


def _halves(piece: Window) -> tuple[Window, Window]:
    """Both hold the moment of the cut, since both ends are included at the service: no lead falls between them."""
    half = (piece.end - piece.start) / 2
    cut = piece.start + max(SHORTEST_PIECE, half // SHORTEST_PIECE * SHORTEST_PIECE)
    return replace(piece, end=cut), replace(piece, start=cut)


def _stretches(pieces: Iterable[Window]) -> str:
    """The times of pieces, those beside each other as one."""
    found: list[Window] = []
    for piece in sorted(pieces):
        if found and found[-1].end == piece.start:
            found[-1] = replace(found[-1], end=piece.end)
        else:
            found.append(piece)
    return " and ".join(f"{stretch.start:%H:%M} to {stretch.end:%H:%M}" for stretch in found)


def _joined(pieces: Sequence[tuple[ReceivedLead, ...]]) -> tuple[ReceivedLead, ...]:
    """The leads of pieces that were asked for one after the other.

    A lead that is in two of them, as one at the cut is, stands where the later one has it: of the versions that one
    answer holds, the last is taken for the newest.
    """
    if len(pieces) == 1:
        return pieces[0]
    joined: dict[tuple[str, str], ReceivedLead] = {}
    for lead in itertools.chain.from_iterable(pieces):
        version = lead.lead_id, lead.payload
        joined.pop(version, None)
        joined[version] = lead
    return tuple(joined.values())


def _scope_hint(window: Window) -> str:
    if window.scope.kind is ScopeKind.ALL:
        return (
            "LEADS_SCOPES=all asks without a filter, which only a set-up with a single branch allows. Name the "
            "branches, or ask the portal's technical contact."
        )
    return (
        f"Check that {window.scope.key} is an internal id of the portal, not your own, and that these credentials may "
        "read it; the portal's technical contact knows."
    )


def _verdict(ask: _Ask, response: httpx.Response, problem: str, now: datetime) -> LeadsPipelineError:
    """What an answer other than 200 means."""
    status = response.status_code
    said = f"{ask} was answered {status}{_phrase(status)}{problem}."
    retry_after = parse_retry_after(response.headers.get("retry-after"), now)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return BusyError(f"{said} The service is busy. {_LATER}", retry_after_seconds=retry_after)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}:
        return ServerError(
            f"{said} The fault is at the service. {_LATER}",
            retry_after_seconds=retry_after,
            reason=f"server error ({status})",
        )
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return InvalidAnswerError(
            f"{said} Only 200 carries leads. What was landed before stays as it is. {_LATER}",
            reason=f"invalid answer ({status})",
        )
    if status in {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.PERMANENT_REDIRECT}:
        return RefusedError(
            f"{said} The address has moved for good. Redirects aren't followed, so that the token goes to no other "
            f"host. {_USELESS} Correct the base URL in the settings.",
            status=status,
        )
    if status < HTTPStatus.BAD_REQUEST:
        return ServerError(
            f"{said} Redirects aren't followed, so that the token goes to no other host. {_LATER} If it does, check "
            "the base URL in the settings.",
            reason=f"redirected ({status})",
        )
    hint = ask.hints.get(status, _HINTS.get(status, _CHECK_SCOPES))
    return RefusedError(f"{said} {_USELESS} {hint}", status=status)


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


async def _problem(response: httpx.Response) -> str:
    """What an error body says for machines: `errors[].code`, where it is a known one; else no more than that.

    A message, a title or a code can be made of what was asked for and name a person, however little it looks like it.
    """
    try:
        errors = json.loads(await response.aread()).get("errors")
        codes = [str(error.get("code")) for error in errors] if isinstance(errors, list) else []
    except (InvalidAnswerError, TooLargeError, httpx.TransportError, ValueError, AttributeError, RecursionError):
        return ""  # the status alone decides; its body is a courtesy
    if not codes:
        return ""
    return f" ({', '.join(code if code in _KNOWN_CODES else 'a code that is not known' for code in codes[:3])})"


def _broken(ask: _Ask, error: httpx.TransportError) -> LeadsPipelineError:
    """A request that got no whole answer. Only errors of connecting are quoted: others quote headers."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return UnreachableError(
            f"{ask} found no connection: {_connecting(error)}. Check the network, the proxy and the base URL. {_LATER}",
            reason=_NO_CONNECTION,
        )
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return SettingsError(
            f"{ask} can't be sent: the address, the token or a header isn't HTTP. {_USELESS} Check the base URL and "
            "the credentials in the settings."
        )
    if isinstance(error, httpx.ReadTimeout):
        return UnreachableError(
            f"{ask} got nothing for {READ_TIMEOUT_SECONDS:g} seconds. {_LATER}", reason=_DEADLINE_PASSED
        )
    return UnreachableError(
        f"{ask} broke off before the answer was whole ({type(error).__name__}). {_LATER}", reason="connection broken"
    )


def _connecting(error: httpx.TransportError) -> str:
    """Why there is no connection: the system's words, or a proxy's status. A proxy's words are its own."""
    text = re.sub(r"[^ -~]", "?", str(error))[:200]
    if isinstance(error, httpx.ProxyError):
        status = re.match(r"[1-5]\d\d\b", text)
        return f"the proxy refuses ({status[0]})" if status else "the proxy refuses"
    return text or "no answer in time"


def _turns_away(outcome: object) -> bool:
    """Whether the service lets nobody in: what one window hears, the next one is likely to hear too."""
    return isinstance(outcome, BusyError) or (
        isinstance(outcome, UnreachableError) and outcome.reason == _NO_CONNECTION
    )


def _is_too_large(error: LeadsPipelineError) -> bool:
    """Whether it is certain that asking for the same again gets no further."""
    is_refused = isinstance(error, RefusedError) and error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return is_refused or isinstance(error, TooLargeError)


def _failures_before_pieces(error: LeadsPipelineError) -> float:
    """After how many failures in a row, of which this is the last, less is asked for."""
    if _turns_away(error):
        return math.inf
    return TIMEOUTS_BEFORE_PIECES if error.reason in _TIMEOUTS else FAULTS_BEFORE_PIECES


def _slows_the_run(error: LeadsPipelineError, attempt: int) -> bool:
    """Whether an answer speaks for the whole service.

    A bare 429 to a request that was refused before needn't: were the service busy, other requests would hear so too,
    and one branch that is always refused must not bring the others to a crawl.
    """
    return _retry_after_seconds(error) is not None or (isinstance(error, BusyError) and attempt == 1)


def _retry_after_seconds(error: LeadsPipelineError) -> float | None:
    return error.retry_after_seconds if isinstance(error, BusyError | ServerError) else None


def _unsent(ask: _Ask, error: LeadsPipelineError) -> LeadsPipelineError:
    """The failure that ended a run, for a request that was therefore not sent."""
    return error.reworded(
        f"{ask} was not sent, because another request's failure holds for the whole run: {error}", attempts=0
    )


def _hide_inventory_query(record: logging.LogRecord) -> bool:
    """Take the query from the URLs that httpx logs: the address of a search can be a lead's home."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg.copy_with(query=None) if isinstance(arg, httpx.URL) and arg.path.endswith(INVENTORY_PATH) else arg
            for arg in record.args
        )
    return True


# --- a coroutine's items as a plain iterator ------------------------------------------------------------------------


class _Outbox(Generic[T]):
    """Where a coroutine puts its items, with room for `capacity` that are under way or not yet taken."""

    def __init__(self, capacity: int) -> None:
        self.items: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self.room = asyncio.Semaphore(capacity)

    async def has_room(self) -> None:
        """Wait until one more item may be begun."""
        await self.room.acquire()

    def put(self, item: T) -> None:
        self.items.put(item)


def _in_background(
    produce: Callable[[_Outbox[T]], Coroutine[Any, Any, None]], *, capacity: int
) -> Generator[T, None, None]:
    """Run `produce` on an event loop in a thread of its own and yield what it puts out.

    Its exception, if any, is raised here after the items before it. Closing the iterator cancels it; in every case the
    thread has ended when the iterator has.
    """
    outbox: _Outbox[T] = _Outbox(capacity)
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()
    task = loop.create_task(produce(outbox))

    def drive() -> None:
        try:
            with runner:
                runner.run(asyncio.wait({task}))
        finally:
            outbox.items.put(None)

    thread = threading.Thread(target=drive, name="leads-client", daemon=True)
    thread.start()
    try:
        while (item := outbox.items.get()) is not None:
            _call_soon(loop, outbox.room.release)
            yield item
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
    finally:
        _call_soon(loop, task.cancel)
        thread.join()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended by itself: nobody is left to be told
        loop.call_soon_threadsafe(call)
