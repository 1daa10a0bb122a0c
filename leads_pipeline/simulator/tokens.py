"""The token endpoints' rules: client credentials in either form, and tokens for one service.

A token is good for an hour.

Belongs here: RFC 6749 sections 2.3.1, 4.4 and 5.2 as the contract uses them. Doesn't: HTTP answers
(app.py).
"""

import base64
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote_plus

LIFETIME: Final = timedelta(hours=1)
_SCOPE: Final = "api/api_access"
_FORM: Final = "application/x-www-form-urlencoded"


class Client(NamedTuple):
    """A made-up client.

    The secrets, known to everybody, hold letters that a client has to encode (section 2.3.1).
    """

    id: str
    secret: str


LEADS: Final = Client("leads-simulator", "made-up:secret/100%+1")
INVENTORY: Final = Client("inventory-simulator", "made-up:secret/200%+2")


class TokenError(Exception):
    """A refused token request: `code` is one of RFC 6749 section 5.2, the text its description."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code


class Tokens:
    """Issues tokens and tells which are good. `clock` gives the moment in UTC."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._granted: dict[str, tuple[Client, datetime]] = {}

    def issue(self, client: Client, headers: Mapping[str, str], body: bytes) -> str:
        """Check the token request and give a new token. Raises TokenError."""
        authorization = headers.get("authorization")
        by_header = authorization is not None or client is INVENTORY

        if by_header:
            _check_client(client, _basic(authorization or ""))

        form = _form(headers, body)
        if by_header and "client_secret" in form:
            raise TokenError(
                "invalid_request", "The secret came in the header and in the body (section 2.3)."
            )

        if not by_header:
            _check_client(client, (form.get("client_id", ""), form.get("client_secret", "")))

        if "grant_type" not in form:
            raise TokenError("invalid_request", "grant_type is missing.")
        if form["grant_type"] != "client_credentials":
            raise TokenError("unsupported_grant_type", "grant_type must be client_credentials.")

        if not by_header:
            own_address = rf"https?://{re.escape(headers.get('host', ''))}(/.*)?"
            if not re.fullmatch(own_address, form.get("audience", "")):
                raise TokenError(
                    "invalid_request", "audience must be the address of the leads service."
                )
        elif client is LEADS and _SCOPE not in form.get("scope", "").split():
            raise TokenError("invalid_scope", f"scope must be {_SCOPE}.")

        token = secrets.token_urlsafe(32)
        self._granted[token] = client, self._clock() + LIFETIME
        return token

    def is_good(self, client: Client, authorization: str) -> bool:
        """Whether an Authorization header carries a token of the client that is still valid."""
        scheme, _, token = authorization.partition(" ")
        owner, expires_at = self._granted.get(token, (None, self._clock()))
        return scheme.lower() == "bearer" and owner is client and expires_at > self._clock()


def _check_client(client: Client, sent: tuple[str, str]) -> None:
    if sent != client:
        raise TokenError("invalid_client", "The client id or secret is missing or wrong.")


def _form(headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise TokenError("invalid_request", f"Content-Type must be {_FORM}.")

    try:
        pairs = parse_qsl(body.decode("ascii"), errors="strict")
    except ValueError:
        raise TokenError("invalid_request", f"The body is not {_FORM}.") from None

    form = dict(pairs)
    if len(form) < len(pairs):
        raise TokenError("invalid_request", "A parameter stands twice (section 3.2).")

    return form


def _basic(authorization: str) -> tuple[str, str]:
    """Id and secret of a Basic header: each form-encoded, joined by `:`, in Base64 (2.3.1)."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        text = (
            base64.b64decode(encoded, validate=True).decode("ascii")
            if scheme.lower() == "basic"
            else ""
        )
    except ValueError:
        text = ""
    client_id, _, secret = text.partition(":")
    return unquote_plus(client_id), unquote_plus(secret)
