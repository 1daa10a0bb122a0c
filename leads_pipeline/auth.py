"""The client credentials grant (RFC 6749, section 4.4) as an httpx.Auth, and the tokens that processes share.

Belongs here: asking for a token, keeping it for its lifetime, renewing it once when it is refused. Doesn't: where
the secret comes from (credentials.py), or what a refused data request means (client/).
"""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import re
import stat
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, Thread
from typing import Literal, TypeVar, cast
from urllib.parse import quote_plus

import filelock
import httpx
import msgspec

from leads_pipeline.credentials import SecretSource
from leads_pipeline.durable import PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE, make_folder, replace_file, sweep
from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    LeadsPipelineError,
    ServerError,
    SettingsError,
    StorageError,
    UnreachableError,
)
from leads_pipeline.retry import parse_retry_after
from leads_pipeline.settings import AuthMethod

# A token is renewed this long before it expires, so that none expires on its way; a short-lived one a tenth before.
RENEWAL_MARGIN_SECONDS = 60.0
RENEWAL_MARGIN_SHARE = 0.1
# For an `expires_in` that is missing or makes no sense: short enough to be true for any server in use, long enough
# that asking again is rare.
DEFAULT_LIFETIME_SECONDS = 300.0
# No token is trusted for longer than a day, whatever the server says.
MAX_LIFETIME_SECONDS = 86_400.0
# After a new token was refused as well, refusals are about the request (a scope that isn't ours, say), not the token.
# For this long they are taken as final; else every such request would cost a token request.
RENEWAL_PAUSE_SECONDS = 60.0
# The whole token request, from looking up the host to the last byte; a healthy endpoint takes under a second.
TOKEN_DEADLINE_SECONDS = 30.0
# Longer than any token request: whichever process holds the lock for this long has hung.
LOCK_DEADLINE_SECONDS = 45.0
# A token answer has one to five kilobytes; web servers take request headers up to eight or sixteen.
MAX_ANSWER_BYTES = 65_536
MAX_TOKEN_CHARACTERS = 8_000

_REFUSALS = frozenset({401, 403})  # the specification answers either for an invalid or expired token
_TOKEN = re.compile(rf"[\x21-\x7e]{{1,{MAX_TOKEN_CHARACTERS}}}")  # RFC 6749, appendix A.12, without spaces
_CHECK_PAIR = (
    "Check the client id and its secret. If both are as issued, the pair may have been revoked or replaced: ask the "
    "portal's technical contact for a new one."
)
_CHECK_FORM = "Check the authentication method (body with audience, or basic with scope), the audience and the scope."
_ASK_CONTACT = "Ask the portal's technical contact to allow the client credentials grant for this client id."
# RFC 6749 section 5.2, RFC 8707 section 2, and access_denied, which widespread servers add. Other codes aren't
# repeated in messages: what a server puts there could be what we sent it.
_WHAT_TO_DO = {
    "invalid_client": _CHECK_PAIR,
    "invalid_grant": _CHECK_PAIR,
    "unauthorized_client": _ASK_CONTACT,
    "access_denied": _ASK_CONTACT,
    "unsupported_grant_type": _ASK_CONTACT,
    "invalid_request": _CHECK_FORM,
    "invalid_scope": _CHECK_FORM,
    "invalid_target": _CHECK_FORM,
}
_TRANSIENT_CODES = frozenset({"server_error", "temporarily_unavailable"})  # RFC 6749, section 4.1.2.1; some send 400
_UNREACHABLE = "token server unreachable"
_TRIED_AGAIN = "It is tried again."
_CHECK_ADDRESS = "If it stays so, check the token server's address in the settings."

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. `fetched_at` is the moment of asking, in seconds since 1970 by this machine's clock."""

    access_token: str = field(repr=False)
    fetched_at: float
    lifetime_seconds: float

    def __post_init__(self) -> None:
        if not _TOKEN.fullmatch(self.access_token) or not 0 < self.lifetime_seconds <= MAX_LIFETIME_SECONDS:
            raise ValueError("not a token")

    def is_usable(self, now: float) -> bool:
        """Whether it lives for a while longer. After a clock that was set back, it counts as expired."""
        left = self.fetched_at + self.lifetime_seconds - now
        return min(RENEWAL_MARGIN_SECONDS, self.lifetime_seconds * RENEWAL_MARGIN_SHARE) < left <= self.lifetime_seconds


class TokenStore:
    """Tokens in files of a folder that this user alone can read, shared by all processes of the machine.

    A file that is missing, damaged, too open or another user's counts as absent: a token can always be had anew.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, key: str) -> Token | None:
        """The stored token, expired or not."""
        path = self._path(key)
        try:
            if not _is_private_file(path):
                return None
            return msgspec.json.decode(path.read_bytes(), type=Token)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Hold the lock that whoever writes, drops or fetches this token holds, in all processes and threads.

        Raises StorageError if the folder can't be used, UnreachableError if another process has hung with the lock.
        """
        path = self._path(key).with_suffix(".lock")
        try:
            make_folder(self.folder)
            self.folder.chmod(PRIVATE_FOLDER_MODE)
            lock = filelock.FileLock(path, timeout=LOCK_DEADLINE_SECONDS, mode=PRIVATE_FILE_MODE)
            lock.acquire()
        except filelock.Timeout:
            raise UnreachableError(
                f"Another process has been getting an access token for over {LOCK_DEADLINE_SECONDS:.0f} seconds and "
                f"holds {path}. It is tried again later; end that process if it hangs."
            ) from None
        except OSError as error:
            raise StorageError(
                f"The folder for access tokens, {self.folder}, can't be used ({error.strerror}). Make it this user's "
                "own and writable, or delete it."
            ) from None
        try:
            yield
        finally:
            lock.release()

    def write(self, key: str, token: Token) -> None:
        """Store the token in place of any other; call it under the lock. Raises StorageError."""
        path = self._path(key)
        sweep(path)
        replace_file(path, msgspec.json.encode(token))

    def drop(self, key: str, token: Token) -> None:
        """Forget the token if the store still holds this very one; call it under the lock. Raises OSError."""
        stored = self.read(key)
        if stored is not None and stored.access_token == token.access_token:
            self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _is_private_file(path: Path) -> bool:
    status = path.lstat()
    if sys.platform == "win32":  # its permissions aren't mode bits; the user's profile folder protects them
        return stat.S_ISREG(status.st_mode)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """One client at one token endpoint. `audience` goes with the body form alone, `scope` with Basic alone."""

    token_url: str
    client_id: str
    secret: SecretSource
    method: AuthMethod
    audience: str | None = None
    scope: str | None = None

    def form(self, secret: str) -> dict[str, str]:
        """The fields of the token request's body."""
        fields = {"grant_type": "client_credentials"}
        if self.method is AuthMethod.BASIC:
            return fields | ({"scope": self.scope} if self.scope else {})
        fields |= {"client_id": self.client_id, "client_secret": secret}
        return fields | ({"audience": self.audience} if self.audience else {})

    def headers(self, secret: str) -> dict[str, str]:
        """The headers of the token request. Basic form-encodes both halves first (RFC 6749, section 2.3.1)."""
        # Without compression, the cap on the answer's size holds for what it unpacks to.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self.method is AuthMethod.BASIC:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return headers

    def store_key(self, secret: str) -> str:
        """The token's name in the store: another for each endpoint, client, audience, scope and secret.

        It is a MAC keyed by the secret, so it tells nothing about a secret that can't be guessed, and issued ones
        can't. A slow hash would guard guessable ones, but whoever can list the folder can read the token itself.
        """
        identity = [self.token_url, self.client_id, self.method, self.audience, self.scope]
        return hmac.new(secret.encode(), json.dumps(identity).encode(), hashlib.sha256).hexdigest()[:32]


class TokenEndpoint:
    """The token endpoint of one client: what is sent to it, and what each of its answers means.

    It is asked over a connection of its own, not through the client of the data requests: that one's redirects,
    retries and hooks must not touch a secret, and its errors wouldn't say what was asked.
    """

    def __init__(
        self,
        credentials: ClientCredentials,
        clock: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None,
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._transport = transport

    def ask(self, secret: str) -> Token:
        """One request, no retry. Raises CredentialsError, BusyError, ServerError or UnreachableError.

        Call it from a thread without an event loop.
        """
        asked_at = self._clock()
        response, body = asyncio.run(self._post(secret))
        return self._token(response, body, asked_at)

    async def _post(self, secret: str) -> tuple[httpx.Response, bytes | None]:
        """The token endpoint's answer and its body, None in place of one that is too large or compressed."""
        credentials = self._credentials
        body = bytearray()
        try:
            async with (
                asyncio.timeout(TOKEN_DEADLINE_SECONDS),  # over all steps: a drip-fed answer passes a read timeout
                make_client(self._make_client) as client,
                client.stream(
                    "POST",
                    credentials.token_url,
                    headers=credentials.headers(secret),
                    data=credentials.form(secret),
                ) as response,
            ):
                if "Content-Encoding" in response.headers:  # compressed though asked not to: the cap wouldn't hold
                    return response, None
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > MAX_ANSWER_BYTES:
                        return response, None
                return response, bytes(body)
        except TimeoutError:
            what = f"it didn't answer within {TOKEN_DEADLINE_SECONDS:.0f} seconds"
        except httpx.ConnectError as error:  # its words come from this machine: a refused connection, a bad certificate
            what = f"there is no connection ({error})"
        except UNUSABLE_ADDRESS:
            raise SettingsError(f"{self._asked} it can't be sent. {ADDRESS_HINT}") from None
        except httpx.TransportError as error:
            what = f"the connection broke ({type(error).__name__})"
        # Outside of the except blocks: their errors hold the request, and with it the secret.
        raise UnreachableError(f"{self._asked} {what}. {_TRIED_AGAIN} {_CHECK_ADDRESS}", reason=_UNREACHABLE)

    def _make_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, timeout=None, follow_redirects=False)  # noqa: S113 - see _post

    @property
    def _asked(self) -> str:
        return f"Asked {self._credentials.token_url} for an access token:"

    def _token(self, response: httpx.Response, body: bytes | None, asked_at: float) -> Token:
        if response.status_code != httpx.codes.OK:
            raise self._failure(response, body)
        answer = _json_object(body)
        if answer is None:
            raise self._misbehaved(f"it answered 200 without a plain JSON object of at most {MAX_ANSWER_BYTES} bytes")
        # RFC 6749 requires a type. A server that leaves it out means the only one there is in use; another type
        # (DPoP, MAC) asks for more than we can do.
        if str(answer.get("token_type") or "bearer").lower() != "bearer":
            raise self._misbehaved("it answered with a token that is not a bearer token")
        value = answer.get("access_token")
        if not isinstance(value, str) or not _TOKEN.fullmatch(value):
            raise self._misbehaved(f"it answered without a token of at most {MAX_TOKEN_CHARACTERS} visible characters")
        return Token(value, asked_at, _lifetime_seconds(answer.get("expires_in")))

    def _failure(self, response: httpx.Response, body: bytes | None) -> LeadsPipelineError:
        status, code = response.status_code, _error_code(body)
        patience = parse_retry_after(response.headers.get("Retry-After"), datetime.fromtimestamp(self._clock(), UTC))
        if status == httpx.codes.TOO_MANY_REQUESTS:
            return BusyError(
                f"{self._asked} it is busy (429). {_TRIED_AGAIN} If it stays so, find out what else asks for tokens "
                "with this client id.",
                retry_after_seconds=patience,
                reason="token server busy (429)",
            )
        if status >= httpx.codes.INTERNAL_SERVER_ERROR or code in _TRANSIENT_CODES:
            return self._misbehaved(f"it has a fault of its own ({status})", patience)
        if status == httpx.codes.UNAUTHORIZED or (status >= httpx.codes.BAD_REQUEST and code is not None):
            advice = _WHAT_TO_DO.get(code or "", _CHECK_PAIR)
            named = code if code in _WHAT_TO_DO else "no error code that RFC 6749 knows"
            return CredentialsError(f"{self._asked} it refused ({status}, {named}). Retrying won't help. {advice}")
        if response.is_redirect:
            return self._misbehaved(f"it redirected elsewhere ({status}), where a secret must not go")
        return self._misbehaved(f"it answered {status}, not as a token server does")

    def _misbehaved(self, what: str, retry_after_seconds: float | None = None) -> ServerError:
        message = f"{self._asked} {what}. {_TRIED_AGAIN} {_CHECK_ADDRESS}"
        return ServerError(message, retry_after_seconds=retry_after_seconds, reason="token server error")


class ClientCredentialsAuth(httpx.Auth):
    """Signs requests to the service at `service_url`, and to no other origin, with a token from store or endpoint.

    Works with Client and AsyncClient, from any number of threads and tasks: whoever needs a token while one is on
    its way waits for that one. A request refused with 401 or 403 is sent once more with another token; what comes
    back then is the caller's to judge. Errors of the token request are raised to whoever sends: CredentialsError,
    StorageError, BusyError, ServerError, UnreachableError. After the endpoint has refused a secret it isn't asked
    again with that secret by this object. `transport` is for the token requests alone.
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
        self._service = _origin(service_url)
        _origin(credentials.token_url)  # raises now rather than at the first request
        self._clock = clock
        self._endpoint = TokenEndpoint(credentials, clock, transport)
        self._guard = Lock()
        self._held: tuple[str, Token | None] = ("", None)  # with the store key, so that a new secret takes a new token
        self._flight: tuple[tuple[str, Token | None], Future[Token]] | None = None
        self._refusal: tuple[str, CredentialsError] | None = None
        self._unhelpful: Token | None = None

    def token(self) -> Token:
        """A token that is good now, from store or endpoint, without a request to the service. Raises as those do."""
        return self._token().result()

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Sign, send, and once more with another token if refused."""
        if _origin(request.url) != self._service:
            yield request
            return
        token = self._token().result()
        response = yield _signed(request, token)
        if self._is_worth_renewing(response, token):
            cast("httpx.SyncByteStream", response.stream).close()
            response.stream = httpx.ByteStream(b"")  # httpx reads it before it sends again, however long it is
            token = self._token(refused=token).result()
            response = yield _signed(request, token)
            self._note_second(response, token)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """As sync_auth_flow; the event loop never waits for a lock or a token."""
        if _origin(request.url) != self._service:
            yield request
            return
        token = await asyncio.wrap_future(self._token())
        response = yield _signed(request, token)
        if self._is_worth_renewing(response, token):
            await cast("httpx.AsyncByteStream", response.stream).aclose()
            response.stream = httpx.ByteStream(b"")
            token = await asyncio.wrap_future(self._token(refused=token))
            response = yield _signed(request, token)
            self._note_second(response, token)

    def _is_worth_renewing(self, response: httpx.Response, token: Token) -> bool:
        is_known_good = token == self._unhelpful and self._clock() - token.fetched_at < RENEWAL_PAUSE_SECONDS
        return response.status_code in _REFUSALS and not is_known_good

    def _note_second(self, response: httpx.Response, token: Token) -> None:
        if response.status_code in _REFUSALS:
            self._unhelpful = token

    def _token(self, refused: Token | None = None) -> Future[Token]:
        """A token other than the refused one: at once where this object holds it, else when it has been got."""
        with self._guard:
            held_key, held = self._held
            if held and not self._is_good(held, refused):
                held = None
            try:
                secret = self._credentials.secret.read()
            except CredentialsError:
                if held is None:
                    raise
                return _done(held)  # the secret may be half replaced at this moment; the token is still good
            key = self._credentials.store_key(secret)
            if held and key == held_key:
                return _done(held)
            if self._refusal and self._refusal[0] == key:
                error = self._refusal[1]
                raise CredentialsError(str(error), reason=error.reason)
            if self._flight and self._flight[0] == (key, refused) and not self._flight[1].done():
                return self._flight[1]
            future: Future[Token] = Future()
            future.set_running_or_notify_cancel()  # from here on a waiter that is cancelled can't cancel it for others
            self._flight = ((key, refused), future)
        # A thread of its own, once per token: nobody's event loop, worker pool or exit waits for a slow endpoint.
        Thread(target=self._fly, args=(future, secret, key, refused), name="access-token", daemon=True).start()
        return future

    def _is_good(self, token: Token, refused: Token | None) -> bool:
        return token.is_usable(self._clock()) and (refused is None or token.access_token != refused.access_token)

    def _fly(self, future: Future[Token], secret: str, key: str, refused: Token | None) -> None:
        try:
            token = self._obtain(secret, key, refused)
        except BaseException as error:  # noqa: BLE001 - it is raised in whoever waits
            with self._guard:
                if isinstance(error, CredentialsError):
                    self._refusal = (key, error)
                future.set_exception(error)
        else:
            with self._guard:
                self._held = (key, token)
                future.set_result(token)

    def _obtain(self, secret: str, key: str, refused: Token | None) -> Token:
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


# What httpx raises while it sends to an address, or through a proxy's, that is none: a text that quotes it, a host with
# too long a part, a port beyond 65535 (in a group where several addresses of a host are tried).
UNUSABLE_ADDRESS = (httpx.InvalidURL, UnicodeError, OverflowError, ExceptionGroup)
ADDRESS_HINT = (
    "Asking again doesn't help. Check the address in the settings and the proxy in the environment (HTTPS_PROXY, "
    "HTTP_PROXY, ALL_PROXY, NO_PROXY): write one like http://proxy.example:3128, with user and password "
    "percent-encoded, or unset it."
)


def make_client(make: Callable[[], T]) -> T:
    """What `make` makes, an httpx client, whose errors over proxies quote their addresses. Raises SettingsError."""
    try:
        return make()
    except (httpx.InvalidURL, ValueError, ImportError):
        pass
    # Outside of the except block: that error's text can hold the proxy's password.
    raise SettingsError(f"No connection can be made. {ADDRESS_HINT}")


def _done(token: Token) -> Future[Token]:
    future: Future[Token] = Future()
    future.set_result(token)
    return future


def _origin(url: str | httpx.URL) -> tuple[str, str, int | None]:
    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:
        raise SettingsError(f"{url!r} is not an address. Write it like https://portal.example.") from None
    return parts.scheme, parts.host, parts.port  # lower case, and None for the scheme's own port


def _signed(request: httpx.Request, token: Token) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {token.access_token}"
    return request


def _json_object(body: bytes | None) -> dict[str, object] | None:
    try:
        # As floats: int() refuses numbers of more than 4,300 digits, and no number but expires_in matters.
        value = json.loads(body or b"", parse_int=float)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _error_code(body: bytes | None) -> str | None:
    """The `error` of an RFC 6749 error body, known or not; None if it isn't one."""
    code = (_json_object(body) or {}).get("error")
    return code if isinstance(code, str) else None


def _lifetime_seconds(expires_in: object) -> float:
    try:
        seconds = float(expires_in) if isinstance(expires_in, float | str) else 0.0
    except ValueError:
        seconds = 0.0
    return min(seconds, MAX_LIFETIME_SECONDS) if seconds > 0 else DEFAULT_LIFETIME_SECONDS  # NaN isn't > 0 either
