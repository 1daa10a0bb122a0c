"""The token endpoint: the request in its two forms, and what each answer means (RFC 6749, sections 2.3.1, 5.1, 5.2)."""

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote_plus

import httpx

from leads_pipeline.auth.address import ADDRESS_HINT, UNUSABLE_ADDRESS, make_client
from leads_pipeline.auth.tokens import MAX_LIFETIME_SECONDS, MAX_TOKEN_CHARACTERS, TOKEN_FORM, Token
from leads_pipeline.credentials import SecretSource
from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    LeadsPipelineError,
    ServerError,
    SettingsError,
    UnreachableError,
)
from leads_pipeline.retry import parse_retry_after
from leads_pipeline.settings import AuthMethod

# For an `expires_in` that is missing or makes no sense: short enough to be true for any server in use, long enough
# that asking again is rare.
DEFAULT_LIFETIME_SECONDS = 300.0
# The whole token request, from looking up the host to the last byte; a healthy endpoint takes under a second.
TOKEN_DEADLINE_SECONDS = 30.0
# A token answer has one to five kilobytes.
MAX_ANSWER_BYTES = 65_536

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
        if not isinstance(value, str) or not TOKEN_FORM.fullmatch(value):
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
