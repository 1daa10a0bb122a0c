"""Signing requests: a token for each, another one where it is refused."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Literal, cast

import httpx

from leads_pipeline.auth.address import origin_of
from leads_pipeline.auth.endpoint import ClientCredentials, TokenEndpoint
from leads_pipeline.auth.tokens import Token, TokenStore
from leads_pipeline.errors import (
    CredentialsError,
    StorageError,
)

# After a new token was refused as well, refusals are about the request (a scope that isn't ours, say), not the token.
# For this long they are taken as final; else every such request would cost a token request.
RENEWAL_PAUSE_SECONDS = 60.0

_REFUSALS = frozenset({401, 403})  # the specification answers either for an invalid or expired token

_log = logging.getLogger(__name__)


class ClientCredentialsAuth(httpx.Auth):
    """Signs requests to the service at `service_url`, and to no other origin, with a token from store or endpoint.

    Works with AsyncClient, from any number of threads and tasks: whoever needs a token while one is on
    its way waits for that one. A request refused with 401 or 403 is sent once more with another token; what comes
    back then is the caller's to judge. Errors of the token request are raised to whoever sends: CredentialsError,
    StorageError, BusyError, ServerError, UnreachableError. After the endpoint has refused the secret, this object
    doesn't ask it again. `transport` is for the token requests alone.
    """

    def __init__(
        self,
        credentials: ClientCredentials,
        store: TokenStore,
        *,
        service_url: str,
        clock: Callable[[], float] = time.time,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.requests_made = 0
        self.token_source: Literal["store", "endpoint"] | None = None
        self._credentials = credentials
        self._store = store
        self._service = origin_of(service_url)
        origin_of(credentials.token_url)  # raises now rather than at the first request
        self._clock = clock
        self._endpoint = TokenEndpoint(credentials, clock, transport)
        self._guard = Lock()
        self._taken: Token | None = None
        self._flight: tuple[Token | None, Future[Token]] | None = None  # with the token that was refused
        self._refusal: CredentialsError | None = None
        self._unhelpful: Token | None = None

    def token(self) -> Token:
        """A token that is good now, from store or endpoint, without a request to the service. Raises as those do."""
        return self._token().result()

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Sign, send, and once more with another token if refused. The event loop never waits for a lock or a token."""
        if origin_of(request.url) != self._service:
            yield request
            return
        token = await _had(self._token())
        response = yield _signed(request, token)
        if self._is_worth_renewing(response, token):
            await cast("httpx.AsyncByteStream", response.stream).aclose()
            response.stream = httpx.ByteStream(b"")  # httpx reads it before it sends again, however long it is
            token = await _had(self._token(refused=token))
            response = yield _signed(request, token)
            if response.status_code in _REFUSALS:
                self._unhelpful = token

    def _is_worth_renewing(self, response: httpx.Response, token: Token) -> bool:
        is_known_good = token == self._unhelpful and self._clock() - token.fetched_at < RENEWAL_PAUSE_SECONDS
        return response.status_code in _REFUSALS and not is_known_good

    def _token(self, refused: Token | None = None) -> Future[Token]:
        """A token other than the refused one: at once where this object holds it, else when it has been got."""
        with self._guard:
            if self._taken and self._is_good(self._taken, refused):
                return _done(self._taken)
            if self._refusal:
                raise CredentialsError(str(self._refusal), reason=self._refusal.reason)
            if self._flight and self._flight[0] == refused and not self._flight[1].done():
                return self._flight[1]
            secret = self._credentials.secret.read()
            future: Future[Token] = Future()
            future.set_running_or_notify_cancel()  # from here on a waiter that is cancelled can't cancel it for others
            self._flight = (refused, future)
        # A thread of its own, once per token: nobody's event loop, worker pool or exit waits for a slow endpoint.
        Thread(target=self._fly, args=(future, secret, refused), name="access-token", daemon=True).start()
        return future

    def _is_good(self, token: Token, refused: Token | None) -> bool:
        return token.is_usable(self._clock()) and (refused is None or token.access_token != refused.access_token)

    def _fly(self, future: Future[Token], secret: str, refused: Token | None) -> None:
        try:
            token = self._obtain(secret, refused)
        except BaseException as error:  # noqa: BLE001 - it is raised in whoever waits
            with self._guard:
                if isinstance(error, CredentialsError):
                    self._refusal = error
                future.set_exception(error)
        else:
            with self._guard:
                self._taken = token
                future.set_result(token)

    def _obtain(self, secret: str, refused: Token | None) -> Token:
        key = self._credentials.store_key(secret)
        stored = self._store.read(key)
        if stored is None or not self._is_good(stored, refused):
            with self._store.locked(key):
                stored = self._store.read(key)  # another process may have been faster
                if stored is None or not self._is_good(stored, refused):
                    return self._fetch(secret, key, refused)
        self.token_source = "store"  # noqa: S105 - a word for the run's metadata
        return stored

    def _fetch(self, secret: str, key: str, refused: Token | None) -> Token:
        if refused is not None:
            self._store.drop(key, refused)
        self.requests_made += 1
        token = self._endpoint.ask(secret)
        self.token_source = "endpoint"  # noqa: S105 - a word for the run's metadata
        try:
            self._store.write(key, token)
        except StorageError as error:  # to ask once more for each request would make it worse
            _log.warning("Other processes will ask for tokens of their own, as this one can't be kept. %s", error)
        return token


async def _had(future: Future[Token]) -> Token:
    """The token; at once where it is there, as a future of another thread takes the loop round once more."""
    return future.result() if future.done() else await asyncio.wrap_future(future)


def _done(token: Token) -> Future[Token]:
    future: Future[Token] = Future()
    future.set_result(token)
    return future


def _signed(request: httpx.Request, token: Token) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token.access_token}"
    return request
