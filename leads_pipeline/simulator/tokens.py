"""The two token endpoints' rules: client credentials in either form, tokens that expire, each for one service.

Belongs here: RFC 6749 sections 2.3.1, 4.4, 5.1 and 5.2 as the contract uses them. Doesn't: HTTP responses (app.py).
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final
from urllib.parse import parse_qsl, unquote_plus, urlsplit

TOKEN_SCOPE: Final = "api/api_access"  # noqa: S105 - the scope's name, not a secret
_FORM: Final = "application/x-www-form-urlencoded"


class Service(Enum):
    """What a token is for. The value is the service's made-up client: id and secret.

    The secrets hold characters that section 2.3.1 has a client encode before Base64; one that doesn't is refused.
    """

    LEADS = ("leads-simulator", "made-up:secret/100%+1")
    INVENTORY = ("inventory-simulator", "made-up:secret/200%+2")

    @property
    def client_id(self) -> str:
        """The made-up client id."""
        return self.value[0]

    @property
    def client_secret(self) -> str:
        """The made-up client secret, known to everybody."""
        return self.value[1]


class TokenError(Exception):
    """A refused token request: `code` and `description` are those of RFC 6749 section 5.2."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.description = description


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A token request as it came in. `host` is the Host header, which tells what this service's own address is."""

    content_type: str
    authorization: str | None
    body: bytes
    host: str


@dataclass(frozen=True, slots=True)
class _Grant:
    service: Service
    expires_at: datetime


class Tokens:
    """Issues tokens and tells which are good. `clock` gives the moment in UTC."""

    def __init__(self, lifetime_seconds: int, clock: Callable[[], datetime]) -> None:
        self.lifetime_seconds = lifetime_seconds
        self._clock = clock
        self._grants: dict[str, _Grant] = {}

    def issue(self, service: Service, request: TokenRequest) -> str:
        """Check the request and return a new token. Raises TokenError."""
        _check(service, request)
        now = self._clock()
        self._grants = {token: grant for token, grant in self._grants.items() if grant.expires_at > now}
        token = secrets.token_urlsafe(32)
        self._grants[token] = _Grant(service, now + timedelta(seconds=self.lifetime_seconds))
        return token

    def is_good(self, service: Service, authorization: str | None) -> bool:
        """Whether an Authorization header carries a token that was issued for the service and is still valid."""
        grant = self._grants.get(_bearer(authorization))
        return grant is not None and grant.service is service and grant.expires_at > self._clock()

    def revoke(self, authorization: str | None) -> None:
        """Forget the token of an Authorization header before its time."""
        self._grants.pop(_bearer(authorization), None)


def _bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _check(service: Service, request: TokenRequest) -> None:
    by_header = request.authorization is not None
    if request.authorization is not None:
        _check_client(service, _basic(request.authorization))
    elif service is Service.INVENTORY:
        raise TokenError("invalid_client", "Credentials come in an Authorization header here, and none was sent.")
    form = _form(request)
    if "client_secret" in form and by_header:
        raise TokenError("invalid_request", "Credentials came in the header and in the body: send one (section 2.3).")
    if not by_header:
        if not {"client_id", "client_secret"} <= form.keys():
            raise TokenError("invalid_client", "No client credentials were sent.")
        _check_client(service, (form["client_id"], form["client_secret"]))
    if "grant_type" not in form:
        raise TokenError("invalid_request", "grant_type is missing.")
    if form["grant_type"] != "client_credentials":
        raise TokenError("unsupported_grant_type", "grant_type must be client_credentials.")
    if service is Service.LEADS:
        _check_target(form, request.host, by_header=by_header)


def _check_target(form: dict[str, str], host: str, *, by_header: bool) -> None:
    if by_header:
        if "scope" not in form:
            raise TokenError("invalid_request", "scope is missing, which the form with a Basic header takes.")
        if TOKEN_SCOPE not in form["scope"].split():
            raise TokenError("invalid_scope", f"scope must be {TOKEN_SCOPE}.")
    elif "audience" not in form:
        raise TokenError("invalid_request", "audience is missing, which the form with credentials in the body takes.")
    elif _place(form["audience"]) != _place(f"http://{host}"):
        raise TokenError("invalid_request", "audience must be the address of the leads service.")


def _place(address: str) -> str:
    try:
        return urlsplit(address).netloc.lower().replace("localhost", "127.0.0.1")
    except ValueError:
        return ""


def _form(request: TokenRequest) -> dict[str, str]:
    if request.content_type.partition(";")[0].strip().lower() != _FORM:
        raise TokenError("invalid_request", f"Content-Type must be {_FORM}.")
    try:
        pairs = parse_qsl(request.body.decode("ascii"), errors="strict")
    except ValueError:
        raise TokenError("invalid_request", f"The body is not {_FORM}.") from None
    form = dict(pairs)
    if len(form) < len(pairs):
        raise TokenError("invalid_request", "A parameter stands twice (section 3.2).")
    return form


def _basic(authorization: str) -> tuple[str, str]:
    """Id and secret of a Basic header: each form-encoded, then joined by a colon and Base64-encoded (2.3.1)."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    client_id, colon, secret = text.partition(":")
    if scheme.lower() != "basic" or not colon:
        raise TokenError("invalid_client", "The Authorization header is not Basic with an id and a secret.")
    return unquote_plus(client_id), unquote_plus(secret)


def _check_client(service: Service, pair: tuple[str, str]) -> None:
    sent, expected = ":".join(pair), f"{service.client_id}:{service.client_secret}"
    if not hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), expected.encode()):
        raise TokenError("invalid_client", "The client id or secret is wrong.")
