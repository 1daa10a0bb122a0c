"""The meaning of each answer, and what to do about it.

There is one table for the services, and one for the token servers. A verdict is an error of the
right kind (errors.py). Its text names path and status, what they mean, and who must act. It never
repeats a server's text, which may quote a person or a secret.
"""

import errno
import json
import os
import re
import ssl
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Final, NamedTuple

from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    RefusedError,
    ServerError,
    SettingsError,
    TokenRefusedError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.pace import parse_retry_after
from leads_pipeline.raw.durable import MORE_FILES

LATER: Final = "This can pass by itself: asking again later can help."
USELESS: Final = "Asking again doesn't help."
DEADLINE_PASSED: Final = "deadline passed"
NO_CONNECTION: Final = "no connection"

# A 401 is no reason to doubt the client secret. A token server doesn't give a token for a wrong
# one.
CHECK_ACCESS: Final = (
    "Check the scope id, and LEADS_AUDIENCE or LEADS_TOKEN_SCOPE; then ask the portal's technical "
    "contact whether this client may read these leads. The client id and its secret are right, "
    "because the token server gives tokens for them."
)

# Beside a 401, the same run has answers of 200 for the same kind and scope.
ACCEPTED_AT_TIMES: Final = "token accepted at times (401)"

# httpx raises these for the address of a service or a proxy that isn't one: a host with too long a
# part, a port beyond
# 65535. Their text quotes the address. They come in a group if several addresses of a host are
#        tried.
UNUSABLE_ADDRESS: Final = (httpx.InvalidURL, UnicodeError, OverflowError, ExceptionGroup)

# --- the services ---------------------------------------------------------------------------------


class Meaning(NamedTuple):
    """A status's meaning: the class of its verdict, a short reason, and a sentence for people."""

    error: type[LeadsPipelineError]
    reason: str
    advice: str


_TEMPORARY: Final = Meaning(ServerError, "server error", f"The fault is at the service. {LATER}")
_NO_ANSWER: Final = Meaning(
    InvalidAnswerError,
    "invalid answer",
    f"Only 200 carries leads. What was landed before stays. {LATER}",
)
_MOVED: Final = Meaning(
    RefusedError,
    "refused",
    "The address has moved for good. Redirects aren't followed, so that the token goes to no "
    f"other host. {USELESS} Correct the base URL in the settings.",
)
_ELSEWHERE: Final = Meaning(
    ServerError,
    "redirected",
    f"Redirects aren't followed, so that the token goes to no other host. {LATER} If it stays so, "
    "check the base URL in the settings.",
)
_REFUSED: Final = Meaning(
    RefusedError,
    "refused",
    f"{USELESS} Check the base URL and the scope ids; then tell the portal's technical contact.",
)

# Statuses with a meaning of their own. The others go by their hundred. A client's `advice` wins.
_STATUSES: Final[Mapping[int, Meaning]] = {
    301: _MOVED,
    304: Meaning(
        InvalidAnswerError,
        "invalid answer",
        f"A cache on the way answered: this request asks the portal for no such answer. {LATER}",
    ),
    308: _MOVED,
    401: Meaning(
        TokenRefusedError, "token refused", f"The service doesn't accept the token. {LATER}"
    ),
    407: Meaning(
        RefusedError,
        "refused",
        f"{USELESS} Check the user and the password of the proxy in the environment.",
    ),
    408: _TEMPORARY,
    425: _TEMPORARY,
    429: Meaning(BusyError, "busy", f"The service is busy. {LATER}"),
}
_HUNDREDS: Final[Mapping[int, Meaning]] = {
    1: _NO_ANSWER,
    2: _NO_ANSWER,
    3: _ELSEWHERE,
    4: _REFUSED,
    5: _TEMPORARY,
}

# The code that the specification documents, and the names of HTTP's own statuses.
_KNOWN_CODES: Final = frozenset(
    {"invalid_valuation_lead_product", *(status.name.lower() for status in HTTPStatus)}
)


def verdict_on(
    asked: str, response: httpx.Response, body: bytes, advice: Mapping[int, str], now: datetime
) -> LeadsPipelineError:
    """Return the meaning of an answer other than 200.

    `advice` has the client's own sentences, by status.
    """
    status = response.status_code
    meaning = _STATUSES.get(status) or _HUNDREDS.get(status // 100, _TEMPORARY)
    outlook = LATER if meaning.error.is_transient else USELESS
    sentence = f"{outlook} {advice[status]}" if status in advice else meaning.advice
    answered = f"{status} {httpx.codes.get_reason_phrase(status)}".rstrip()
    message = f"{asked} was answered {answered}{_code_in(body)}. {sentence}"
    reason = f"{meaning.reason} ({status})"
    may_ask = meaning.error in (BusyError, ServerError)
    asked_for = parse_retry_after(response.headers.get("retry-after"), now) if may_ask else None

    return meaning.error(message, reason=reason, retry_after_seconds=asked_for)


def verdict_on_refused_token(
    error: TokenRefusedError, about: str, *, was_accepted: bool, refused_since: datetime | None
) -> TokenRefusedError | RefusedError:
    """Return the verdict on a 401 at a run's end, for the kind and scope that `about` names.

    It is a refusal if the service accepted none of them: not in this run, and not since
    `refused_since`, the moment in UTC of a failure of that kind in an earlier run with another
    token. Otherwise it can pass: a token may be too young for the service, or one of its replicas
    may not know it.
    """
    if was_accepted:
        error.reason = ACCEPTED_AT_TIMES
        return error

    was_another_token = refused_since is not None and refused_since < error.token_fetched_at
    if not was_another_token:
        return error

    refused = RefusedError(
        f"The service has answered every request for {about} with 401 since "
        f"{refused_since:%Y-%m-%d %H:%M} UTC, with at least two tokens. {USELESS} {CHECK_ACCESS}",
        reason=error.reason,
    )
    refused.attempts = error.attempts
    return refused


def _code_in(body: bytes) -> str:
    """Return the codes of an error body (`errors[].code`). An unknown code isn't repeated."""
    try:
        errors = json.loads(body).get("errors")
        codes = [str(error.get("code")) for error in errors] if isinstance(errors, list) else []
    except (ValueError, AttributeError, RecursionError):
        return ""  # the status decides; the body is a courtesy
    if not codes:
        return ""

    shown = [code if code in _KNOWN_CODES else "a code that is not known" for code in codes[:3]]
    return f" ({', '.join(shown)})"


def broken_off(asked: str, error: httpx.TransportError) -> LeadsPipelineError:
    """Judge a request without a whole answer.

    Only errors of connecting are quoted, because others hold headers.
    """
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        why = why_no_connection(error)
        return UnreachableError(f"{asked} found no connection: {why} {LATER}", reason=NO_CONNECTION)

    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return SettingsError(
            f"{asked} can't be sent: the address, the token or a header isn't HTTP. {USELESS} "
            "Check the base URL and the credentials in the settings."
        )
    if isinstance(error, httpx.ReadTimeout):
        return UnreachableError(f"{asked} got no answer in time. {LATER}", reason=DEADLINE_PASSED)

    return UnreachableError(
        f"{asked} broke off before the answer was whole ({type(error).__name__}). {LATER}",
        reason="connection broken",
    )


def why_no_connection(error: httpx.TransportError) -> str:
    """Say why there is no connection, and what to check.

    The reason is in the system's words, or is a proxy's status.
    """
    cause: BaseException = error
    while (
        inner := cause.exceptions[0]
        if isinstance(cause, ExceptionGroup)
        else cause.__cause__ or cause.__context__
    ):
        cause = inner

    text = str(cause)
    if (
        isinstance(cause, OSError)
        and not isinstance(cause, ssl.SSLError)
        and cause.errno
        and cause.errno > 0
    ):
        # Of a refused connection, asyncio says "Connect call failed".
        text = os.strerror(cause.errno)

    text = re.sub(r"[^ -~]", "?", text)[:200]
    if isinstance(error, httpx.ProxyError):
        status = re.match(r"[1-5]\d\d\b", text)  # a proxy's words are its own
        refused = f"the proxy refuses ({status[0]})" if status else "the proxy refuses"
        return f"{refused}. Check the proxy in the environment, its user and its password."

    if "CERTIFICATE_VERIFY_FAILED" in text or isinstance(
        error.__cause__, ssl.SSLCertVerificationError
    ):
        return (
            f"its certificate isn't trusted ({text}). If your network has its own certificate "
            "authority, put that authority's file into SSL_CERT_FILE."
        )
    if isinstance(cause, OSError) and cause.errno == errno.EMFILE:
        return f"{text}. {MORE_FILES}"

    return (
        f"{text or 'no answer in time'}. Check the network, the proxy and the address in the "
        "settings."
    )


def is_slow(error: LeadsPipelineError) -> bool:
    """Whether the service took too long for what was asked."""
    return error.reason in {DEADLINE_PASSED, "server error (408)", "server error (504)"}


def is_too_much(error: LeadsPipelineError) -> bool:
    """Whether a shorter interval may be answered: the answer is too large, or takes too long."""
    return is_slow(error) or isinstance(error, TooLargeError) or error.reason == "refused (413)"


# --- the token servers ----------------------------------------------------------------------------

_CHECK_PAIR: Final = (
    "Check the client id and its secret. If both are as issued, the pair may have been revoked or "
    "replaced: ask the portal's technical contact for a new one."
)
_CHECK_FORM: Final = (
    "Check the authentication method (body with audience, or basic with scope), the audience and "
    "the scope."
)
_ASK_CONTACT: Final = (
    "Ask the portal's technical contact to allow the client credentials grant for this client id."
)
_CHECK_ADDRESS: Final = "Check the token server's address in the settings."

# RFC 6749 section 5.2, RFC 8707 section 2, and access_denied, which widespread servers add.
_OAUTH_ERRORS: Final = {
    "invalid_client": _CHECK_PAIR,
    "invalid_grant": _CHECK_PAIR,
    "unauthorized_client": _ASK_CONTACT,
    "access_denied": _ASK_CONTACT,
    "unsupported_grant_type": _ASK_CONTACT,
    "invalid_request": _CHECK_FORM,
    "invalid_scope": _CHECK_FORM,
    "invalid_target": _CHECK_FORM,
}
# Section 4.1.2.1; some send 400.
_OAUTH_TEMPORARY: Final = frozenset({"server_error", "temporarily_unavailable"})


def token_verdict(
    asked: str, response: httpx.Response, body: bytes, answer: Mapping[str, object], now: datetime
) -> LeadsPipelineError:
    """Return the meaning of an answer without a usable token.

    `answer` is its JSON object, {} if it isn't one.
    """
    status = response.status_code
    code = answer.get("error")
    patience = parse_retry_after(response.headers.get("retry-after"), now)

    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return BusyError(
            f"{asked} it is busy (429). {LATER} If it stays so, find out what else asks for tokens "
            "with this client id.",
            retry_after_seconds=patience,
            reason="token server busy (429)",
        )

    is_fault = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in (
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_EARLY,
    )
    if is_fault or code in _OAUTH_TEMPORARY:
        return _token_server_error(
            f"{asked} it has a fault of its own ({status}). {LATER}", patience
        )
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return SettingsError(f"{asked} a proxy refused (407). {_STATUSES[status].advice}")

    if isinstance(code, str) or status in (
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.BAD_REQUEST,
    ):
        named = code if code in _OAUTH_ERRORS else "no error code that RFC 6749 knows"
        return CredentialsError(
            f"{asked} it refused ({status}, {named}). {USELESS} "
            f"{_OAUTH_ERRORS.get(str(code), _CHECK_PAIR)}"
        )

    if status // 100 == 3:
        return CredentialsError(
            f"{asked} it answered with a redirect ({status}), and a secret follows none. "
            f"{_CHECK_ADDRESS}"
        )
    if status // 100 == 4:
        return CredentialsError(
            f"{asked} it answered {status}, not as a token server does. {_CHECK_ADDRESS}"
        )
    if body.lstrip().startswith(b"<"):
        return CredentialsError(
            f"{asked} it answered {status} with HTML, as a login page does. {_CHECK_ADDRESS}"
        )

    if isinstance(answer.get("access_token"), str) and answer["access_token"]:
        if not is_bearer(answer.get("token_type")):
            return CredentialsError(
                f"{asked} its token is not a bearer token, and no other kind can be used. Ask the "
                "portal's technical contact."
            )
        return CredentialsError(
            f"{asked} its token can't be sent as a header. Ask the portal's technical contact."
        )

    return _token_server_error(
        f"{asked} it answered {status} without a token. {LATER} If it stays so: {_CHECK_ADDRESS}",
        None,
    )


def is_bearer(token_type: object) -> bool:
    """Whether that is a bearer token's type.

    RFC 6749 requires one. A server that leaves it out means this one.
    """
    return (
        not token_type
        or re.fullmatch(r"bearer[ _-]?(token)?", str(token_type).strip(), re.IGNORECASE) is not None
    )


def _token_server_error(message: str, patience: float | None) -> ServerError:
    return ServerError(message, retry_after_seconds=patience, reason="token server error")
