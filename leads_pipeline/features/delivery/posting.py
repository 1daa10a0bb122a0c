"""Sends events, several at once, and says what came of each.

Belongs here: connections, time limits, errors of the network. Doesn't: the meaning of an answer
(answers.py), what is sent when (sending.py).
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from importlib.metadata import version as release_of
from typing import Final

from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.features.delivery.answers import (
    Outcome,
    content_type_of,
    error_code,
    id_in,
    outcome_of,
)
from leads_pipeline.features.delivery.form import (
    Event,
    EventType,
    Form,
    HttpRequest,
    UnusableTemplateError,
)
from leads_pipeline.features.delivery.ledger import Version
from leads_pipeline.features.delivery.message import words_of_lead
from leads_pipeline.portal.http import make_async_client, tls_context
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.tokens import Token, Tokens
from leads_pipeline.portal.verdicts import UNUSABLE_ADDRESS, why_no_connection

# Requests at once, and how long each may take as a whole.
CONCURRENCY: Final = 4
TIMEOUT_SECONDS: Final = 15.0

# An error code is looked for in so many bytes, and an id in so many.
_CODE_BYTES_MAX: Final = 16_384
_ID_BYTES_MAX: Final = 2**20

_USER_AGENT: Final = f"leads-pipeline/{release_of('leads-pipeline')}"


@dataclass
class Poster:
    """Sends to one destination. `tokens` are its access tokens, None if it wants none."""

    form: Form
    clock: Callable[[], datetime]
    tokens: Tokens | None = None
    transport: httpx.AsyncBaseTransport | None = None
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        self._tls: ssl.SSLContext | None = None
        self._token: Token | None = None
        self._is_refused = False

    def post(
        self, events: Sequence[tuple[Version, Event]], may_go_on: Callable[[], bool]
    ) -> Iterator[list[Outcome]]:
        """Send the events in groups, as long as that is allowed. Yield what came of each group."""
        if not events:
            return
        # Reading the certificates takes as long as twenty messages.
        self._tls = self._tls or tls_context()
        with asyncio.Runner() as loop:
            http = make_async_client(CONCURRENCY, transport=self.transport, tls=self._tls)
            try:
                for first in range(0, len(events), CONCURRENCY):
                    if not may_go_on():
                        return
                    yield self._group(loop, http, events[first : first + CONCURRENCY])
            finally:
                loop.run(http.aclose())

    def _group(
        self, loop: asyncio.Runner, http: httpx.AsyncClient, events: Sequence[tuple[Version, Event]]
    ) -> list[Outcome]:
        try:
            self._renew_token()
        except LeadsPipelineError as error:
            return [Outcome(version, f"wasn't asked. {error}") for version, _ in events]

        outcomes = loop.run(self._post_all(http, events))
        self._is_refused = any(outcome.status == HTTPStatus.UNAUTHORIZED for outcome in outcomes)
        return outcomes

    def _renew_token(self) -> None:
        """Get an access token that is valid, another one than the refused.

        Raises LeadsPipelineError.
        """
        if self.tokens is not None:
            self._token = self.tokens.get(self._token if self._is_refused else None)

    async def _post_all(
        self, http: httpx.AsyncClient, events: Sequence[tuple[Version, Event]]
    ) -> list[Outcome]:
        return await asyncio.gather(
            *(self._post(http, version, event) for version, event in events)
        )

    async def _post(self, http: httpx.AsyncClient, version: Version, event: Event) -> Outcome:
        try:
            request = self.form.request(event, self.clock())
        except UnusableTemplateError as error:
            return Outcome(version, f"wasn't asked. {error}", is_of_the_lead=True)

        try:
            return await self._answer(http, version, event, request)
        except TimeoutError:
            trouble = f"gave no answer within {self.timeout_seconds:g} seconds"
            return Outcome(version, trouble, is_unclear=True)
        except (httpx.ConnectError, httpx.ProxyError) as error:
            return Outcome(version, f"can't be reached: {why_no_connection(error)}")
        except httpx.TransportError as error:
            return Outcome(version, f"gave no answer ({type(error).__name__})", is_unclear=True)
        except UNUSABLE_ADDRESS:
            return Outcome(version, "can't be called: its address isn't one. Copy it again.")

    async def _answer(
        self, http: httpx.AsyncClient, version: Version, event: Event, request: HttpRequest
    ) -> Outcome:
        headers = {"user-agent": _USER_AGENT, "accept-encoding": "identity", **request.headers}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token.access_token}"
        async with (
            asyncio.timeout(self.timeout_seconds) as limit,
            http.stream(
                request.method, request.url, content=request.content, headers=headers, timeout=None
            ) as answer,
        ):
            # From here on the status decides: a body that breaks off has no lead sent again.
            deadline = limit.when()
            limit.reschedule(None)
            is_done = self.form.is_done(event.type, answer.status_code)
            id_path = self.form.id_path(event.type)

            if is_done and answer.is_success and id_path:
                id_there = id_in(await _beginning(answer, _ID_BYTES_MAX, deadline), id_path)
                return replace(self._outcome(version, event, answer, ""), id_there=id_there)

            code = ""
            # An erased lead's words aren't known any more.
            if not is_done and event.type is not EventType.ERASED:
                beginning = await _beginning(answer, _CODE_BYTES_MAX, deadline)
                code = error_code(beginning, words_of_lead(event))
            return self._outcome(version, event, answer, code)

    def _outcome(
        self, version: Version, event: Event, answer: httpx.Response, code: str
    ) -> Outcome:
        return outcome_of(version, event.type, answer, code, self.form, self.clock())


async def _beginning(answer: httpx.Response, most: int, deadline: float | None) -> bytes:
    """Return a JSON answer's body, up to some more bytes than `most`. Nobody keeps it.

    Empty if it isn't JSON, or breaks off.
    """
    is_packed = "content-encoding" in answer.headers  # it may unpack to any size
    if is_packed or not content_type_of(answer).endswith("json"):
        return b""

    body = b""
    with suppress(TimeoutError, httpx.TransportError):
        async with asyncio.timeout_at(deadline):
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > most:
                    break
            return body
    return b""
