"""What token endpoints and lead services answer in the wild, and the verdict that each answer
should get.

Belongs here: bytes and verdicts. Doesn't: asking for them (test_answers_in_the_wild.py).
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus

from leads_pipeline.errors import (
    BusyError,
    CredentialsError,
    InvalidAnswerError,
    LeadsPipelineError,
    RefusedError,
    ServerError,
    SettingsError,
    TooLargeError,
    UnreachableError,
)
from leads_pipeline_tests.support.raw_server import HEAD, Script, bomb, drip, raw, respond

# The moment at which the client asks.
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
# The attempts that a window gets while its failure is temporary.
ATTEMPTS = 6


@dataclass(frozen=True)
class Wild:
    """An answer, always the same, and what comes of a window.

    `error` is None if its leads are taken; they are `a` and `b`. `requests` is the most that may be
    sent to the endpoint; the default is one for a permanent error or none, and the client's
    attempts for a temporary one. `says` is a part of the message. `is_slow`: it takes a second or
    more.
    """

    name: str
    script: Script
    error: type[LeadsPipelineError] | None = None
    says: str = ""
    requests: int = 0
    is_slow: bool = False
    has_unknown_authority: bool = False

    @property
    def most_requests(self) -> int:
        return self.requests or (ATTEMPTS if self.error and self.error.is_transient else 1)

    @property
    def leads(self) -> list[str]:
        return ["a", "b"] if self.error is None else []


# --- the leads service ----------------------------------------------------------------------------

A = b'{"id":"a"}'
B = b'{"id":"b"}'
LEADS = b'{"applicants":[' + A + b"," + B + b"]}"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(LEADS) + LEADS
GZIP = "Content-Encoding: gzip"
# A connection that ends without a word makes the next request on it break off, now and then.
CLOSE = "Connection: close"


def status(code: HTTPStatus, *headers: str) -> Script:
    return respond(b"<html>Gateway</html>", "Content-Type: text/html", *headers, status=code)


def without_body(line: str) -> Script:
    return raw(f"HTTP/1.1 {line}\r\n{CLOSE}\r\n\r\n".encode())


def moved(code: HTTPStatus) -> Script:
    return status(code, "Location: https://elsewhere.example/applicant-leads")


def busy(retry_after: str) -> Script:
    return status(HTTPStatus.TOO_MANY_REQUESTS, f"Retry-After: {retry_after}")


ANSWERS: Sequence[Wild] = [
    # Fine.
    # A finding tells of this (fault 2).
    Wild("a next page", respond(LEADS[:-1] + b',"nextPage":"/2"}')),
    # No answer, with 200.
    Wild(
        "HTML with 200",
        respond(b"<html>Sign in</html>", "Content-Type: text/html"),
        InvalidAnswerError,
        "HTML",
    ),
    # Too much: a window of a minute is asked for once more at most.
    Wild("a gzip bomb", respond(bomb(70), GZIP), TooLargeError, requests=2),
    # Broken connections.
    Wild(
        "chunks without an end",
        raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n400\r\n" + LEADS),
        UnreachableError,
    ),
    Wild("a drip-fed body", drip(LEADS), UnreachableError, is_slow=True),
    # Redirects are never followed.
    Wild("302", moved(HTTPStatus.FOUND), ServerError, "base URL"),
    # Refused for now, or for good.
    Wild(
        "403",
        status(HTTPStatus.FORBIDDEN),
        RefusedError,
        "Check that branch-101 is an internal id of the portal",
        requests=4,
    ),
    Wild("407 by a proxy", status(HTTPStatus.PROXY_AUTHENTICATION_REQUIRED), RefusedError, "proxy"),
    # More patience than a run has ends it.
    Wild("429 with 10^30 seconds", busy("1" + "0" * 30), BusyError, requests=1),
]

# --- the token endpoint ---------------------------------------------------------------------------


def token(members: str, *headers: str, code: int = 200) -> Script:
    return respond(
        b"{%s}" % members.encode(), "Content-Type: application/json", *headers, status=code
    )


def half_a_header(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"X-Slow: ")
    connection.recv(1)  # until the client has had enough


GOOD = '"access_token":"t0ken","token_type":"Bearer"'
PLAIN = token(f'{GOOD},"expires_in":3600')
TOKENS: Sequence[Wild] = [
    # Fine. Each token is kept.
    Wild("200", PLAIN),
    # Somebody has to change something: refused once, and the cause is named.
    Wild(
        "200 with invalid_client",
        token('"error":"invalid_client"'),
        CredentialsError,
        "invalid_client",
    ),
    Wild("400 without a code", respond(b"", status=400), CredentialsError, "400, no error code"),
    Wild(
        "HTML with 200",
        respond(b"<html>Sign in</html>", "Content-Type: text/html"),
        CredentialsError,
        "HTML",
    ),
    Wild("407 by a proxy", respond(b"", status=407), SettingsError, "proxy refused (407)"),
    # It passes by itself.
    Wild("deep JSON", respond(b"[" * 60_000), ServerError, "without a token"),
    Wild("half a header", half_a_header, UnreachableError, "in time", is_slow=True),
    Wild("503 with Retry-After", respond(b"", "Retry-After: 1", status=503), ServerError, "503"),
    Wild(
        "an unknown authority", PLAIN, UnreachableError, "SSL_CERT_FILE", has_unknown_authority=True
    ),
]
