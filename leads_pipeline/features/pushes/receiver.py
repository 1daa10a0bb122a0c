"""Receives the leads that the portal pushes: an ASGI application on uvicorn.

Belongs here: HTTP, the key, the answers. Doesn't: the form of a push (domain/bodies.py), which
window a lead belongs to (features/pushes/placement.py), TLS and slow senders (nginx or Caddy in
front). No answer and no log line holds a key or a lead.
"""

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from leads_pipeline.domain.contract import LeadKind, ReceivedLead
from leads_pipeline.errors import InvalidAnswerError, SettingsError, StorageError
from leads_pipeline.features.pushes.body import read_push
from leads_pipeline.features.pushes.placement import Placement
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import Place

PATH: Final = "/leads"

# A lead has 3 kB, so this holds hundreds of leads.
MAX_BODY_BYTES: Final = 1024 * 1024

# uvicorn answers 503 from this one on.
MAX_CONNECTIONS: Final = 256

# A key of 16 random characters can't be guessed.
MIN_KEY_CHARACTERS: Final = 16

logger = logging.getLogger(__name__)


class _Refusal(Exception):  # noqa: N818 - it becomes an answer
    def __init__(
        self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status
        # The body may be unread, so the connection can't be used again.
        self.headers = {**(headers or {}), "Connection": "close"}


class Receiver:
    """Answers 200 once the leads of a push are in their raw windows.

    Each refused push leaves a line in the log. Raises SettingsError if the key is short.
    """

    def __init__(self, raw: Raw, placement: Placement, key: str) -> None:
        if len(key) < MIN_KEY_CHARACTERS:
            raise SettingsError(
                f"LEADS_RECEIVE_KEY has fewer than {MIN_KEY_CHARACTERS} characters. Make one with: "
                "openssl rand -hex 32"
            )
        self._raw = raw
        self._placement = placement
        self._key = _digest(key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            answer = JSONResponse({"received": await self._take(request)})
        except _Refusal as refusal:
            sender = request.client.host if request.client else "an unknown address"
            logger.warning(
                "A push from %s was refused with %d. %s", sender, refusal.status, refusal
            )
            # The portal's own errors have this form.
            error = {"message": str(refusal), "code": refusal.status.name.lower(), "links": []}
            answer = JSONResponse({"errors": [error]}, refusal.status, refusal.headers)

        await answer(scope, receive, send)

    async def _take(self, request: Request) -> int:
        """Store the push and return the number of its leads. Raises _Refusal."""
        try:
            self._check_head(request)
            leads = read_push(await _body(request))
            await asyncio.to_thread(self._land, leads, datetime.now(UTC))
        except _Refusal:
            raise
        except InvalidAnswerError as error:
            raise _Refusal(HTTPStatus.BAD_REQUEST, str(error)) from None
        except ClientDisconnect:
            raise _Refusal(
                HTTPStatus.BAD_REQUEST, "The sender hung up before the body was complete."
            ) from None
        except StorageError as error:
            logger.error("A push could not be stored. %s", error)
            reason = "The push can't be stored at the moment. Send it again later."
            raise _Refusal(HTTPStatus.SERVICE_UNAVAILABLE, reason, {"Retry-After": "5"}) from None
        except Exception as error:  # noqa: BLE001 - its text may quote a lead
            reason = f"The receiver failed with {type(error).__name__}. Please report it."
            raise _Refusal(HTTPStatus.INTERNAL_SERVER_ERROR, reason) from None
        return len(leads)

    def _land(self, leads: Sequence[tuple[LeadKind, ReceivedLead]], received_at: datetime) -> None:
        places: dict[Place, list[ReceivedLead]] = {}
        for kind, lead in leads:
            places.setdefault(self._placement.of(kind, lead, received_at), []).append(lead)
        for place, of_place in places.items():
            self._raw.add(place, of_place, received_at)

    def _check_head(self, request: Request) -> None:
        if request.scope["path"] not in (PATH, f"{PATH}/"):
            raise _Refusal(HTTPStatus.NOT_FOUND, f"There is nothing here. Push to {PATH}.")
        if request.method != "POST":
            raise _Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "Push by POST.", {"Allow": "POST"})

        if not any(
            hmac.compare_digest(_digest(given), self._key) for given in _given_keys(request)
        ):
            reason = (
                "The key is missing or wrong. Send it as Authorization, as Authorization: Bearer "
                "or as X-API-Key."
            )
            raise _Refusal(HTTPStatus.UNAUTHORIZED, reason, {"WWW-Authenticate": "Bearer"})

        if (
            request.headers.get("content-type", "").partition(";")[0].strip().lower()
            != "application/json"
        ):
            raise _Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send application/json.")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise _Refusal(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Send the body without Content-Encoding."
            )


async def _body(request: Request) -> bytes:
    # uvicorn lets only digits pass as a length.
    if int(request.headers.get("content-length", 0)) > MAX_BODY_BYTES:
        raise _too_large()

    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()

    return bytes(body)


def _too_large() -> _Refusal:
    reason = f"A body may have {MAX_BODY_BYTES} bytes. Push fewer leads at once."
    return _Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)


def _given_keys(request: Request) -> list[bytes]:
    """Return each value that may be the key, as bytes, because a header isn't always ASCII."""
    given = []
    for name, value in request.headers.raw:
        if name == b"authorization":
            given.append(value)
            scheme, _, token = value.partition(b" ")
            if scheme.lower() == b"bearer":
                given.append(token.strip())
        elif name == b"x-api-key":
            given.append(value)

    return given


def _digest(key: bytes) -> bytes:
    # All digests have one length, so the time of a comparison doesn't tell the key's length.
    return hashlib.sha256(key).digest()


def server(receiver: Receiver, each_minute: Callable[[], object] = lambda: None) -> uvicorn.Server:
    """Return uvicorn with its limits, for sockets that listen.

    It runs until the process is told to stop; pushes under way are finished first. It calls
    `each_minute` at the start and every minute.
    """

    async def notify() -> None:
        await asyncio.to_thread(each_minute)  # it may wait for a bucket, and pushes go on

    return uvicorn.Server(
        uvicorn.Config(
            receiver,
            http="h11",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=10,
            h11_max_incomplete_event_size=16 * 1024,
            timeout_graceful_shutdown=30,
            callback_notify=notify,
            timeout_notify=60,
        )
    )
