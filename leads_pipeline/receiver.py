"""The portal's push deliveries over HTTP: who may deliver, how much at once, and what it is answered.

Belongs here: the ASGI app and its server. Doesn't: what a delivery holds (contract.py), where it is kept (spool.py),
TLS (a proxy in front). Neither a body nor a key is ever logged or answered.
"""

import asyncio
import hashlib
import hmac
import json
import logging
import math
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import ClassVar, Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from leads_pipeline.contract import PushedLead, read_delivery
from leads_pipeline.credentials import SecretSource
from leads_pipeline.errors import CredentialsError, InvalidAnswerError, SettingsError, StorageError
from leads_pipeline.spool import Spool

if sys.platform != "win32":
    import resource

PATH: Final = "/leads"

# What a delivery may be answered, as docs/operate.md says.
ANSWERS: Final = (200, 400, 401, 408, 411, 413, 415, 429, 500, 503)

# 16 random characters can't be guessed at any rate that the receiver answers at.
MIN_KEY_CHARACTERS: Final = 16

# How many connections the system takes in at once: fewer than half of Limits.waiting, so that one whose request has
# come is read before those behind it push it out.
BACKLOG: Final = 128

# How long deliveries under way may take to end once the receiver is told to stop.
STOP_SECONDS: Final = 30

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What the receiver takes at most; beyond it a sender is told to come back.

    A lead has 3 kB, so a megabyte holds a delivery of hundreds. `concurrent` of those are 64 MB. 100 a second is a
    thousand times the 10,000 a day of a large agency, and `burst` what a sender may have queued up while it couldn't.

    `waiting` connections may be there without a request under way, each for `head_seconds`. Whoever they are, one more
    pushes out the one that has waited longest: who sends a request as soon as it is connected always gets a turn.
    """

    head_seconds: float = 10.0
    waiting: int = 512
    body_bytes: int = 1024 * 1024
    body_seconds: float = 10.0
    concurrent: int = 64
    per_second: float = 100.0
    burst: int = 1000


class Receiver:
    """Answers 200 to a delivery once its leads are on the disk, and refuses everything else.

    The key is read at each delivery, so that a replaced one works at once. `answered` counts the deliveries since the
    start by the status of their answer, `received` the leads of those that were answered 200.
    """

    def __init__(
        self,
        spool: Spool,
        key: SecretSource,
        limits: Limits = Limits(),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = spool
        self._writer = _Writer(spool)
        self._key = key
        self._limits = limits
        self._rate = _Rate(limits, clock)
        self._under_way = 0
        # From 0: whoever looks at them now and then sees an increase between two looks alone.
        self.answered: Counter[int] = Counter(dict.fromkeys(ANSWERS, 0))
        self.received = 0

    def app(self) -> Starlette:
        """The ASGI app."""
        return Starlette(
            routes=[Route(PATH, self._deliver, methods=["POST"])], exception_handlers={HTTPException: _refusal}
        )

    async def _deliver(self, request: Request) -> Response:
        try:
            response = await self._answer(request)
        except HTTPException as refusal:
            self.answered[refusal.status_code] += 1
            raise
        self.answered[response.status_code] += 1
        return response

    async def _answer(self, request: Request) -> Response:
        try:
            self._check_key(request)
            self._check_head(request)
            self._rate.take()
            if self._under_way >= self._limits.concurrent:
                raise _busy("Too many deliveries are under way.")
            self._under_way += 1
            try:
                return await self._take(request)
            finally:
                self._under_way -= 1
        except HTTPException:
            raise
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # to nobody: the sender has gone
        except Exception as error:  # noqa: BLE001 - whatever it is, its text may quote a lead
            logger.error("A delivery failed with %s. Nothing was answered 200; please report it.", type(error).__name__)
            raise HTTPException(HTTPStatus.INTERNAL_SERVER_ERROR, "The receiver failed.") from None

    async def _take(self, request: Request) -> Response:
        body = await self._body(request)
        try:
            leads = read_delivery(body)
        except InvalidAnswerError as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from None
        now = datetime.now(UTC)
        try:
            sequence = self._spool.next_sequence()
            await self._writer.write([PushedLead(kind, lead, now, sequence) for kind, lead in leads])
        except StorageError as error:
            logger.error("A delivery could not be kept. %s", error)
            raise _busy("The delivery can't be kept at the moment.") from None
        self.received += len(leads)
        return JSONResponse({"received": len(leads)})

    def _check_key(self, request: Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        try:
            key = read_key(self._key)
        except (CredentialsError, SettingsError) as error:
            logger.error("No delivery can be taken. %s", error)
            raise _busy("The receiver isn't ready.") from None
        # Digests have one length, so that not even the key's is to be learned from how long this takes.
        if not hmac.compare_digest(_digest(given.encode("latin-1")), _digest(key.encode())):
            raise HTTPException(
                HTTPStatus.UNAUTHORIZED,
                "The key is missing or wrong. Send it as Authorization: Bearer, or as X-API-Key.",
                {"WWW-Authenticate": "Bearer"},
            )

    def _check_head(self, request: Request) -> None:
        """Refuse by its headers what can't be a delivery, before a byte of the body is read."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send application/json.")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send the body without Content-Encoding.")
        length = request.headers.get("content-length")
        if length is None and "transfer-encoding" not in request.headers:
            raise HTTPException(HTTPStatus.LENGTH_REQUIRED, "Send a body with its Content-Length.")
        if length is not None and int(length) > self._limits.body_bytes:  # the server has let digits alone pass
            raise self._too_large()

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for piece in request.stream():
                    body += piece
                    if len(body) > self._limits.body_bytes:
                        raise self._too_large()
        except TimeoutError:
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "The body took too long.") from None
        return bytes(body)

    def _too_large(self) -> HTTPException:
        return HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"A body may have {self._limits.body_bytes} bytes; deliver fewer leads.",
        )


def read_key(source: SecretSource) -> str:
    """The key that deliveries are to carry. Raises CredentialsError where it can't be read, SettingsError if short."""
    key = source.read()
    if len(key) < MIN_KEY_CHARACTERS:
        raise SettingsError(
            f"LEADS_RECEIVE_KEY has fewer than {MIN_KEY_CHARACTERS} characters. Make one that nobody guesses: "
            "openssl rand -hex 32"
        )
    return key


def serve(receiver: Receiver, host: str, port: int, limits: Limits, on_listening: Callable[[str], None]) -> None:
    """Receive until the process is told to stop; what is under way then is finished first.

    `on_listening` is given the address to deliver to. Raises SettingsError where host and port can't be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SettingsError(f"{host}, port {port} can't be listened on: {error.strerror}. Name others.") from None
    with listener:
        shown = f"[{host}]" if family == socket.AF_INET6 else host
        on_listening(f"http://{shown}:{listener.getsockname()[1]}{PATH}")
        server(receiver, limits).run([listener])


def server(receiver: Receiver, limits: Limits) -> uvicorn.Server:
    """What serves the receiver's app on the sockets that it is run with."""

    class Connection(_Connection):
        waiting = _Waiting(limits)

    return uvicorn.Server(
        uvicorn.Config(
            receiver.app(),
            http=Connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
    )


class _Waiting:
    """The connections without a request under way, the one that waits longest first."""

    def __init__(self, limits: Limits) -> None:
        self._seconds = limits.head_seconds
        # As many files as the process may open, but for half of them: those are for deliveries.
        self._most = min(limits.waiting, _open_files() // 2)
        self._timers: dict[H11Protocol, asyncio.TimerHandle] = {}

    def begin(self, connection: H11Protocol) -> None:
        """Give it its time from now on, unless it waits already."""
        if connection in self._timers:
            return
        self._timers[connection] = connection.loop.call_later(self._seconds, connection.transport.abort)
        if len(self._timers) > self._most:
            longest = next(iter(self._timers))
            self.end(longest)
            longest.transport.abort()

    def end(self, connection: H11Protocol) -> None:
        """It waits no longer."""
        if (timer := self._timers.pop(connection, None)) is not None:
            timer.cancel()


class _Connection(H11Protocol):
    """A connection that may wait for a request as long as `waiting` lets it; uvicorn's own waits for ever."""

    waiting: ClassVar[_Waiting]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.waiting.end(self)

    def _look(self) -> None:
        is_under_way = self.cycle is not None and not self.cycle.response_complete
        if is_under_way or self.transport.is_closing():
            self.waiting.end(self)
        else:
            self.waiting.begin(self)


def _open_files() -> float:
    """How many files and connections this process may have open at once."""
    if sys.platform == "win32":
        return math.inf
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if most == resource.RLIM_INFINITY else most


class _Writer:
    """Keeps deliveries, those that come while the disk is busy together: one file and one wait for many of them."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._waiting: list[tuple[Sequence[PushedLead], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, pushed: Sequence[PushedLead]) -> None:
        """Return once they are on the disk. Raises what the spool raised."""
        if not pushed:
            return
        landing = asyncio.get_running_loop().create_future()
        self._waiting.append((pushed, landing))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        await landing

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            failure: Exception | None = None
            try:
                await asyncio.to_thread(self._spool.add, [one for pushed, _ in batch for one in pushed])
            except Exception as error:  # noqa: BLE001 - each delivery that waits is told, whatever it is
                failure = error
            for _, landing in batch:
                if landing.done():  # its request was cancelled
                    continue
                if failure is None:
                    landing.set_result(None)
                else:
                    landing.set_exception(failure)


class _Rate:
    """A token bucket of all senders together; a wrong key takes nothing out of it."""

    def __init__(self, limits: Limits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._left = float(limits.burst)
        self._at = clock()

    def take(self) -> None:
        """Count a delivery; raises the 429 beyond the rate."""
        now = self._clock()
        self._left = min(float(self._limits.burst), self._left + (now - self._at) * self._limits.per_second)
        self._at = now
        if self._left < 1:
            raise HTTPException(HTTPStatus.TOO_MANY_REQUESTS, "Too many deliveries.", {"Retry-After": "1"})
        self._left -= 1


def _busy(why: str) -> HTTPException:
    return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"{why} Deliver it again later.", {"Retry-After": "5"})


async def _refusal(_: Request, error: Exception) -> Response:
    """A refusal in the form of the portal's own errors. It closes the connection: the body may not have been read."""
    assert isinstance(error, HTTPException)  # noqa: S101 - for mypy: it is registered for this alone
    code = HTTPStatus(error.status_code).name.lower()
    body = {"errors": [{"message": error.detail, "code": code, "links": []}]}
    return Response(
        json.dumps(body),
        status_code=error.status_code,
        media_type="application/json",
        headers={**(error.headers or {}), "Connection": "close"},
    )


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()
