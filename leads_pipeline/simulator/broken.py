"""Sends answers as a fault rule wants them: replaced, late, slow, cut off.

Belongs here: an ASGI application around the portal's that meets each request with the rules and counts it. Doesn't:
which request a rule takes (faults.py).
"""

import asyncio
import re
import socket
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leads_pipeline.simulator.faults import LEAD_PATHS, PORTAL_PATHS, TOKEN_PATHS, CutOff, Faults, Request, Shape, Then
from leads_pipeline.simulator.organisation import SCOPE_KINDS

# How often a dripped body moves on.
_DRIP_SECONDS: Final = 0.05
# For what has been written to leave for the wire before the connection is reset.
_FLUSH_SECONDS: Final = 0.02
# Specification, "Errors": an invalid or expired token is answered with either.
_TOKEN_STATUS: Final = {"expired": 401, "revoked": 403}
_HTML: Final = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in.</body></html>"
_ERROR: Final = b'{"errors":[{"message":"Something went wrong.","code":"internal_error","links":[]}]}'


@dataclass(frozen=True, slots=True)
class Counters:
    """What has been asked of the portal since the start or the last reset; control requests don't count.

    `requests` and `token_requests` by path, `statuses` by status, `faults` by rule, `windows` by (kind, scope,
    from-time as sent): scope is `branch-101`, `all` or `several`; a missing from-time is an empty text.
    """

    requests: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    windows: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def token_requests(self) -> int:
        """Requests to both token endpoints."""
        return sum(self.requests[path] for path in TOKEN_PATHS)


@dataclass(slots=True)
class _Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class FaultyPortal:
    """The portal with its faults. `faults` and `counters` may be replaced between requests."""

    def __init__(self, portal: ASGIApp, faults: Faults, revoke: Callable[[str], None], latency_ms: int) -> None:
        self._portal = portal
        self._revoke = revoke
        self._latency_seconds = latency_ms / 1000
        self.faults = faults
        self.counters = Counters()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] not in PORTAL_PATHS:
            await self._portal(scope, receive, send)
            return
        counters, request = self.counters, read_request(scope)
        counters.requests[request.path] += 1
        if request.path in LEAD_PATHS:
            kind = request.path.strip("/").removesuffix("-leads")
            counters.windows[kind, request.scope or "several", request.from_time or ""] += 1

        async def counting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                counters.statuses[message["status"]] += 1
            await send(message)

        late_seconds, effect = self._latency_seconds, None
        if (met := self.faults.meet(request)) is not None:
            rule, effect = met
            counters.faults[rule] += 1
            late_seconds += effect.latency_ms / 1000
        if late_seconds:
            await asyncio.sleep(late_seconds)
        if effect is None:
            await self._portal(scope, receive, counting_send)
        else:
            await self._break(effect, request, scope, receive, counting_send)

    async def _break(self, fault: Then, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        if fault.status is not None:
            headers = {"content-type": "application/json", **{k.lower(): v for k, v in fault.headers.items()}}
            if fault.retry_after is not None:
                headers["retry-after"] = str(fault.retry_after)
            pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
            await _send(_Answer(fault.status, pairs, fault.body.encode()), send)
        elif fault.shape is not None:
            await _send(_shaped(fault.shape, request.path), send)
        elif fault.token is not None:
            self._revoke(_authorization(scope))
            await _send(_Answer(_TOKEN_STATUS[fault.token], [], b""), send)
        elif fault.drip_bytes_per_second is not None:
            await _drip(await _answer_of(self._portal, scope, receive), fault.drip_bytes_per_second, send)
        elif fault.cut_off is not None:
            await _cut_off(await _answer_of(self._portal, scope, receive), fault.cut_off, scope, receive, send)
        else:
            await self._portal(scope, receive, send)


def read_request(scope: Scope) -> Request:
    """What rules and counters look at, read leniently: a request that the portal refuses is one as well."""
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    path: str = scope["path"]
    scopes = [f"{kind}-{query[f'{kind}-id']}" for kind in SCOPE_KINDS if f"{kind}-id" in query]
    return Request(path, _scope_of(path, scopes), query.get("from-time"))


def _scope_of(path: str, scopes: list[str]) -> str | None:
    if path not in LEAD_PATHS or len(scopes) > 1:
        return None
    return scopes[0] if scopes else "all"


def _authorization(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), "")


def _shaped(shape: Shape, path: str) -> _Answer:
    json = [(b"content-type", b"application/json")]
    match shape:
        case "empty_object":
            return _Answer(200, json, b"{}")
        case "null_list":
            key = re.sub(r"^/(.+)-leads$", r"\1s", path) if path in LEAD_PATHS else "items"
            return _Answer(200, json, b'{"%s":null}' % key.encode())
        case "empty":
            return _Answer(200, json, b"")
        case "html":
            return _Answer(200, [(b"content-type", b"text/html; charset=utf-8")], _HTML)
        case "error_object":
            return _Answer(200, json, _ERROR)
        case "no_content":
            return _Answer(204, [], b"")
        case "redirect":
            return _Answer(302, [(b"location", path.encode() + b"?signed-in=no")], b"")


async def _answer_of(portal: ASGIApp, scope: Scope, receive: Receive) -> _Answer:
    """What the portal would have answered."""
    answer = _Answer(500, [], b"")

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], list(message["headers"])
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")

    await portal(scope, receive, keep)
    return answer


async def _send(answer: _Answer, send: Send) -> None:
    headers = [pair for pair in answer.headers if pair[0] != b"content-length"]
    if answer.status != 204:
        headers.append((b"content-length", str(len(answer.body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _drip(answer: _Answer, bytes_per_second: int, send: Send) -> None:
    step = max(1, round(bytes_per_second * _DRIP_SECONDS))
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    for start in range(0, len(answer.body), step):
        await send({"type": "http.response.body", "body": answer.body[start : start + step], "more_body": True})
        await asyncio.sleep(step / bytes_per_second)
    await send({"type": "http.response.body"})


async def _cut_off(answer: _Answer, how: CutOff, scope: Scope, receive: Receive, send: Send) -> None:
    headers = [pair for pair in answer.headers if how != "chunked" or pair[0] != b"content-length"]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    half = answer.body[: len(answer.body) // 2]
    await send({"type": "http.response.body", "body": half, "more_body": True})
    await hang_up(scope, receive, by_reset=how == "reset")


async def hang_up(scope: Scope, receive: Receive, *, by_reset: bool) -> None:
    """Break the connection of a request, which ASGI has no message for: server.py hands its transport over."""
    transport: asyncio.Transport = scope["state"]["transport"]
    if by_reset:
        await asyncio.sleep(_FLUSH_SECONDS)
    if by_reset and not transport.is_closing():
        # Lingering for no time turns the closing of a socket into a reset (socket(7), SO_LINGER).
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
    else:
        transport.close()
    while (await receive())["type"] != "http.disconnect":
        pass
