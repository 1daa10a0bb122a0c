"""Access tokens by client credentials (RFC 6749, section 4.4), shared by processes in a folder.

Belongs here: asking for a token, keeping it for its lifetime, replacing one that a service refuses.
Doesn't: where the secret comes from (portal/credentials.py), or when a refused data request is sent
again (run.py).
"""

import base64
import hashlib
import hmac
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Final
from urllib.parse import quote_plus

import msgspec

from leads_pipeline.errors import (
    InvalidAnswerError,
    LeadsPipelineError,
    SettingsError,
    StorageError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline.portal.credentials import PgpSecret, client_secret
from leads_pipeline.portal.http import ADDRESS_HINT, make_client, read_body
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.verdicts import (
    LATER,
    UNUSABLE_ADDRESS,
    broken_off,
    is_bearer,
    token_verdict,
)
from leads_pipeline.raw.durable import (
    PRIVATE_FOLDER_MODE,
    locked,
    replace_file,
    storing,
)
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.settings import AuthMethod, Secret

# For an `expires_in` that is missing or makes no sense.
DEFAULT_LIFETIME_SECONDS: Final = 300.0
# No token is trusted for longer than a day, whatever the server says.
MAX_LIFETIME_SECONDS: Final = 86_400.0
# A token is renewed this long before it expires, so that none expires on its way. A short-lived
# one: a tenth before.
RENEWAL_MARGIN_SECONDS = 60.0
RENEWAL_MARGIN_SHARE = 0.1
# A refused token is replaced only at this age. So all processes together ask for one a minute at
# most: a token per request is the usual cause of 429. And a service has time to accept a new token.
LEAST_AGE_TO_REPLACE_SECONDS: Final = 60.0
# The whole token request; a healthy endpoint takes under a second.
TOKEN_DEADLINE_SECONDS: Final = 30.0
# Longer than any token request. A process that holds the lock for longer has hung.
LOCK_DEADLINE_SECONDS: Final = 45.0
# A token answer has one to five kilobytes, and web servers take request headers up to eight or
# sixteen.
MAX_ANSWER_BYTES = 65_536
MAX_TOKEN_CHARACTERS = 8_000

# RFC 6749, appendix A.12, without spaces.
_TOKEN_FORM = re.compile(rf"[\x21-\x7e]{{1,{MAX_TOKEN_CHARACTERS}}}")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """One client at one token endpoint.

    `audience` goes with the body form alone, `scope` with Basic alone.
    """

    token_url: str
    client_id: str
    secret: Secret | PgpSecret
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
        """The headers of the token request.

        Basic form-encodes both halves first (RFC 6749, section 2.3.1).
        """
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self.method is AuthMethod.BASIC:
            pair = f"{quote_plus(self.client_id)}:{quote_plus(secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return headers

    def store_key(self, secret: str) -> str:
        """The token's file name: another one for each endpoint, client, audience, scope and secret.

        It is a MAC keyed by the secret, so it tells nothing about a secret that can't be guessed.
        """
        identity = [self.token_url, self.client_id, self.method, self.audience, self.scope]
        return hmac.new(secret.encode(), json.dumps(identity).encode(), hashlib.sha256).hexdigest()[
            :32
        ]


@dataclass(frozen=True, slots=True)
class Token:
    """An access token.

    `fetched_at` is the moment of asking, in seconds since 1970 by this machine's clock.
    """

    access_token: str = field(repr=False)
    fetched_at: float
    lifetime_seconds: float

    def __post_init__(self) -> None:
        if (
            not _TOKEN_FORM.fullmatch(self.access_token)
            or not 0 < self.lifetime_seconds <= MAX_LIFETIME_SECONDS
        ):
            raise ValueError("not a token")

    def is_usable(self, now: float) -> bool:
        """Whether it is valid for a while longer. It isn't if the clock was set back."""
        left = self.fetched_at + self.lifetime_seconds - now
        return (
            min(RENEWAL_MARGIN_SECONDS, self.lifetime_seconds * RENEWAL_MARGIN_SHARE)
            < left
            <= self.lifetime_seconds
        )


class Tokens:
    """The token of one client: from memory, from the processes' shared file, or the endpoint.

    Threads may share it: while one fetches a token, the others wait for it. After the endpoint has
    refused the secret, this object doesn't ask it again. `transport` stands in for the network in
    tests.
    """

    def __init__(
        self,
        credentials: ClientCredentials,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
        transport: httpx.BaseTransport | None = None,
        deadline_seconds: float = TOKEN_DEADLINE_SECONDS,
    ) -> None:
        self.requests_made = 0
        self._credentials = credentials
        self._folder = folder
        self._clock = clock
        self._transport = transport
        self._deadline_seconds = deadline_seconds
        self._guard = Lock()
        self._token: Token | None = None
        self._failure: tuple[float, LeadsPipelineError] | None = None

    def get(self, refused: Token | None = None) -> Token:
        """Return a valid token.

        A refused one that is old enough is replaced by another. Raises CredentialsError,
        SettingsError, BusyError, ServerError, UnreachableError or StorageError.
        """
        asked_at = time.monotonic()
        with self._guard:
            if self._token and self._is_good(self._token, refused):
                return self._token
            if self._failure and (
                self._failure[0] >= asked_at or not self._failure[1].is_transient
            ):
                # Of the request that this one waited for, or refused for good.
                error = self._failure[1]
                raise error.reworded(error.args[0], attempts=0)
            try:
                self._token = self._obtain(client_secret(self._credentials.secret), refused)
            except LeadsPipelineError as error:
                self._failure = time.monotonic(), error
                raise
            return self._token

    def _is_good(self, token: Token, refused: Token | None) -> bool:
        if not token.is_usable(self._clock()):
            return False

        was_refused = refused is not None and token.access_token == refused.access_token
        is_old = self._clock() - token.fetched_at >= LEAST_AGE_TO_REPLACE_SECONDS
        return not (was_refused and is_old)

    def _obtain(self, secret: str, refused: Token | None) -> Token:
        path = self._folder / f"{self._credentials.store_key(secret)}.json"
        with locked(path.with_suffix(".lock"), LOCK_DEADLINE_SECONDS):
            with storing(self._folder):
                self._folder.chmod(PRIVATE_FOLDER_MODE)  # it may be from a copy
            stored = _read(path)
            if stored is not None and self._is_good(stored, refused):
                return stored
            # No other process takes the refused token, even if the request fails.
            with suppress(OSError):
                path.unlink(missing_ok=True)
            token = self._ask(secret)
            try:
                FolderStore(self._folder).delete_drafts("")  # of killed processes
                replace_file(path, msgspec.json.encode(token))
            except StorageError as error:  # to ask once more for each request would make it worse
                logger.warning(
                    "This token can't be kept, so other processes ask for tokens of their own. %s",
                    error,
                )
            return token

    def _ask(self, secret: str) -> Token:
        """Ask once, over its own connection: the hooks of data requests must not see a secret."""
        self.requests_made += 1
        asked_at = self._clock()
        until = time.monotonic() + self._deadline_seconds
        credentials = self._credentials
        asked = f"Asked {credentials.token_url} for an access token:"
        failure: LeadsPipelineError

        try:
            with (
                make_client(transport=self._transport) as http,
                http.stream(
                    "POST",
                    credentials.token_url,
                    headers=credentials.headers(secret),
                    data=credentials.form(secret),
                    timeout=self._deadline_seconds,
                ) as response,
            ):
                return self._token_in(
                    response, read_body(response, MAX_ANSWER_BYTES, until), asked, asked_at
                )
        except (TooLargeError, InvalidAnswerError):  # the status decides
            failure = token_verdict(asked, response, b"", {}, datetime.fromtimestamp(asked_at, UTC))
        except UnreachableError as error:
            failure = error.reworded(f"{asked} {error} {LATER}", attempts=0)
        except UNUSABLE_ADDRESS:
            failure = SettingsError(f"{asked} it can't be sent. {ADDRESS_HINT}")
        except httpx.TransportError as error:
            failure = broken_off(f"{asked} it", error)

        # Outside of the except blocks: their errors hold the request, and with it the secret.
        if isinstance(failure, UnreachableError):
            failure.reason = "token server unreachable"

        raise failure

    def _token_in(
        self, response: httpx.Response, body: bytes, asked: str, asked_at: float
    ) -> Token:
        answer = _json_object(body)
        value = answer.get("access_token")
        if response.is_success and is_bearer(answer.get("token_type")) and isinstance(value, str):
            with suppress(ValueError):
                return Token(value, asked_at, _lifetime_seconds(answer.get("expires_in")))
        raise token_verdict(asked, response, body, answer, datetime.fromtimestamp(asked_at, UTC))


def _read(path: Path) -> Token | None:
    """Return the token in the file.

    None if it is missing, damaged, readable for others or another user's.
    """
    try:
        status = path.lstat()
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.geteuid()
            or status.st_mode & 0o077
        ):
            return None
        return msgspec.json.decode(path.read_bytes(), type=Token)
    except (OSError, ValueError):
        return None


def _json_object(body: bytes) -> dict[str, object]:
    try:
        # As floats: int() refuses numbers of more than 4,300 digits, and no number but expires_in
        # matters.
        value = json.loads(body, parse_int=float)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _lifetime_seconds(expires_in: object) -> float:
    try:
        seconds = float(expires_in) if isinstance(expires_in, float | str) else 0.0
    except ValueError:
        seconds = 0.0
    # NaN isn't > 0 either.
    return min(seconds, MAX_LIFETIME_SECONDS) if seconds > 0 else DEFAULT_LIFETIME_SECONDS
