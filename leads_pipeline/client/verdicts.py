"""What came back, as an error of the right kind, and what follows of it for a run."""

import json
import math
import re
from datetime import datetime
from http import HTTPStatus

import httpx

from leads_pipeline.client.service import READ_TIMEOUT_SECONDS, RequestSpec
from leads_pipeline.errors import (
    BusyError,
    InvalidAnswerError,
    LeadsPipelineError,
    RefusedError,
    ServerError,
    SettingsError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline.retry import parse_retry_after

# So many failures are taken for a fault that passes before a smaller piece is asked for. Too long twice is no accident;
# other faults rarely come of the size.
TIMEOUTS_BEFORE_PIECES = 2
FAULTS_BEFORE_PIECES = 4
NO_CONNECTION = "no connection"
DEADLINE_PASSED = "deadline passed"
LATER = "The daemon asks again by itself; nothing needs doing unless this stays."
USELESS = "Asking again doesn't help."
_TIMEOUTS = frozenset({DEADLINE_PASSED, "server error (408)", "server error (504)"})
_CHECK_SCOPES = "Check the base URL and the scope ids; then tell the portal's technical contact."
_HINTS = {407: "Check the user and the password of the proxy in the environment."}
# The code that the specification documents, and the names of HTTP's own statuses.
_KNOWN_CODES = frozenset({"invalid_valuation_lead_product", *(status.name.lower() for status in HTTPStatus)})


def verdict_on(spec: RequestSpec, response: httpx.Response, problem: str, now: datetime) -> LeadsPipelineError:
    """What an answer other than 200 means."""
    status = response.status_code
    answered = f"{spec} was answered {status}{_phrase(status)}{problem}."
    retry_after = parse_retry_after(response.headers.get("retry-after"), now)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return BusyError(f"{answered} The service is busy. {LATER}", retry_after_seconds=retry_after)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY}:
        return ServerError(
            f"{answered} The fault is at the service. {LATER}",
            retry_after_seconds=retry_after,
            reason=f"server error ({status})",
        )
    if status < HTTPStatus.MULTIPLE_CHOICES:
        return InvalidAnswerError(
            f"{answered} Only 200 carries leads. What was landed before stays as it is. {LATER}",
            reason=f"invalid answer ({status})",
        )
    if status in {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.PERMANENT_REDIRECT}:
        return RefusedError(
            f"{answered} The address has moved for good. Redirects aren't followed, so that the token goes to no other "
            f"host. {USELESS} Correct the base URL in the settings.",
            status=status,
        )
    if status < HTTPStatus.BAD_REQUEST:
        return ServerError(
            f"{answered} Redirects aren't followed, so that the token goes to no other host. {LATER} If it does, check "
            "the base URL in the settings.",
            reason=f"redirected ({status})",
        )
    hint = spec.hints.get(status, _HINTS.get(status, _CHECK_SCOPES))
    return RefusedError(f"{answered} {USELESS} {hint}", status=status)


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


async def problem_in(response: httpx.Response) -> str:
    """What an error body says for machines: `errors[].code`, where it is a known one; else no more than that.

    A message, a title or a code can be made of what was asked for and name a person, however little it looks like it.
    """
    try:
        errors = json.loads(await response.aread()).get("errors")
        codes = [str(error.get("code")) for error in errors] if isinstance(errors, list) else []
    except (InvalidAnswerError, TooLargeError, httpx.TransportError, ValueError, AttributeError, RecursionError):
        return ""  # the status alone decides; its body is a courtesy
    if not codes:
        return ""
    return f" ({', '.join(code if code in _KNOWN_CODES else 'a code that is not known' for code in codes[:3])})"


def broken_off(spec: RequestSpec, error: httpx.TransportError) -> LeadsPipelineError:
    """A request that got no whole answer. Only errors of connecting are quoted: others quote headers."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return UnreachableError(
            f"{spec} found no connection: {why_no_connection(error)}. Check the network, the proxy and the base URL. "
            f"{LATER}",
            reason=NO_CONNECTION,
        )
    if isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return SettingsError(
            f"{spec} can't be sent: the address, the token or a header isn't HTTP. {USELESS} Check the base URL and "
            "the credentials in the settings."
        )
    if isinstance(error, httpx.ReadTimeout):
        return UnreachableError(
            f"{spec} got nothing for {READ_TIMEOUT_SECONDS:g} seconds. {LATER}", reason=DEADLINE_PASSED
        )
    return UnreachableError(
        f"{spec} broke off before the answer was whole ({type(error).__name__}). {LATER}", reason="connection broken"
    )


def why_no_connection(error: httpx.TransportError) -> str:
    """Why there is no connection: the system's words, or a proxy's status. A proxy's words are its own."""
    text = re.sub(r"[^ -~]", "?", str(error))[:200]
    if isinstance(error, httpx.ProxyError):
        status = re.match(r"[1-5]\d\d\b", text)
        return f"the proxy refuses ({status[0]})" if status else "the proxy refuses"
    return text or "no answer in time"


def turns_away(outcome: object) -> bool:
    """Whether the service lets nobody in: what one window hears, the next one is likely to hear too."""
    return isinstance(outcome, BusyError) or (isinstance(outcome, UnreachableError) and outcome.reason == NO_CONNECTION)


def is_too_large(error: LeadsPipelineError) -> bool:
    """Whether it is certain that asking for the same again gets no further."""
    is_refused = isinstance(error, RefusedError) and error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    return is_refused or isinstance(error, TooLargeError)


def failures_before_pieces(error: LeadsPipelineError) -> float:
    """After how many failures in a row, of which this is the last, less is asked for."""
    if turns_away(error):
        return math.inf
    return TIMEOUTS_BEFORE_PIECES if error.reason in _TIMEOUTS else FAULTS_BEFORE_PIECES


def slows_the_run(error: LeadsPipelineError, attempt: int) -> bool:
    """Whether an answer speaks for the whole service.

    A bare 429 to a request that was refused before needn't: were the service busy, other requests would hear so too,
    and one branch that is always refused must not bring the others to a crawl.
    """
    return seconds_asked_for(error) is not None or (isinstance(error, BusyError) and attempt == 1)


def seconds_asked_for(error: LeadsPipelineError) -> float | None:
    """The patience that the service asked for, None where it said nothing."""
    return error.retry_after_seconds if isinstance(error, BusyError | ServerError) else None


def unsent(spec: RequestSpec, error: LeadsPipelineError) -> LeadsPipelineError:
    """The failure that ended a run, for a request that was therefore not sent."""
    return error.reworded(
        f"{spec} was not sent, because another request's failure holds for the whole run: {error}", attempts=0
    )
