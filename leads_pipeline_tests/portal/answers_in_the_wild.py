"""What token endpoints and lead services answer in the wild, and the verdict that each answer
should get.

Belongs here: bytes and verdicts. Doesn't: asking for them (test_answers_in_the_wild.py).
"""

import socket
from collections.abc import Sequence
from dataclasses import dataclass

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

# The attempts that a window gets while its failure is temporary.
ATTEMPTS = 6


@dataclass(frozen=True)
class Wild:
    """An answer, always the same, and what comes of a window.

    `error` is None if its leads are taken. `requests` is the most that may be sent to the endpoint;
    the default is one for a permanent error or none, and the client's attempts for a temporary one.
    `says` is a part of the message. `seconds` is how long the client waits for an answer.
    """

    name: str
    script: Script
    error: type[LeadsPipelineError] | None = None
    says: str = ""
    requests: int = 0
    seconds: float = 30
    has_unknown_authority: bool = False

    @property
    def most_requests(self) -> int:
        return self.requests or (ATTEMPTS if self.error and self.error.is_transient else 1)


def html(status: int, *headers: str) -> Script:
    return respond(b"<html>Sign in</html>", "Content-Type: text/html", *headers, status=status)


# --- the leads service ----------------------------------------------------------------------------

LEADS = b'{"applicants":[{"id":"a"},{"id":"b"}]}'
ANSWERS: Sequence[Wild] = [
    # Fine.
    # A finding tells of this (fault 2).
    Wild("a next page", respond(LEADS[:-1] + b',"nextPage":"/2"}')),
    # No answer, with 200.
    Wild("HTML with 200", html(200), InvalidAnswerError, "HTML"),
    # Too much: a window of a minute is asked for once more at most.
    Wild("a gzip bomb", respond(bomb(70), "Content-Encoding: gzip"), TooLargeError, requests=2),
    # Broken connections.
    Wild(
        "chunks without an end",
        raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n400\r\n" + LEADS),
        UnreachableError,
    ),
    Wild("a drip-fed body", drip(LEADS), UnreachableError, seconds=0.2),
    # Redirects are never followed.
    Wild("302", html(302, "Location: https://elsewhere.example/"), ServerError, "base URL"),
    # Refused for now, or for good.
    Wild("403", html(403), RefusedError, "Check that branch-101 is an internal id", requests=4),
    Wild("407 by a proxy", html(407), RefusedError, "proxy"),
    # More patience than a run has ends it.
    Wild("429 with 10^30 seconds", html(429, f"Retry-After: {10**30}"), BusyError, requests=1),
]

# --- the token endpoint ---------------------------------------------------------------------------


def half_a_header(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"X-Slow: ")
    connection.recv(1)  # until the client has had enough


PLAIN = respond(b'{"access_token":"t0ken","token_type":"Bearer","expires_in":3600}')
TOKENS: Sequence[Wild] = [
    # Fine. Each token is kept.
    Wild("200", PLAIN),
    # Somebody has to change something: refused once, and the cause is named.
    Wild(
        "200 with invalid_client",
        respond(b'{"error":"invalid_client"}'),
        CredentialsError,
        "invalid_client",
    ),
    Wild("400 without a code", respond(b"", status=400), CredentialsError, "400, no error code"),
    Wild("HTML with 200", html(200), CredentialsError, "HTML"),
    Wild("407 by a proxy", respond(b"", status=407), SettingsError, "proxy refused (407)"),
    # It passes by itself.
    Wild("deep JSON", respond(b"[" * 60_000), ServerError, "without a token"),
    Wild("half a header", half_a_header, UnreachableError, "in time", seconds=0.2),
    Wild("503 with Retry-After", respond(b"", "Retry-After: 1", status=503), ServerError, "503"),
    Wild(
        "an unknown authority", PLAIN, UnreachableError, "SSL_CERT_FILE", has_unknown_authority=True
    ),
]
