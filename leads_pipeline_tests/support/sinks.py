"""A web server and a mail server that take alerts.

Belongs here: keeping each request and mail. Doesn't: what it should hold, which the test says.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from leads_pipeline_tests.support.serving import QuietHandler, free_port, serving


@dataclass
class WebSink:
    """Takes every request, as method, path and body, and answers with `status`."""

    url: str = ""
    status: int = 200
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)


@contextmanager
def web_sink() -> Iterator[WebSink]:
    """Serve it while the block runs."""
    sink = WebSink()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sink.requests.append((self.command, self.path, body))
            self.answer(sink.status, b"", Location="/elsewhere")

        do_GET = do_POST

    with serving(Handler) as sink.url:
        yield sink


class MailSink:
    """A mail server.

    It answers to commands as a test says: by `MAIL`, `DATA`, `QUIT`, or a recipient's address.
    """

    def __init__(self) -> None:
        self.host = f"127.0.0.1:{free_port()}"
        self.mails: list[Any] = []
        self.password = b"p@ss"
        self.answers: dict[str, str] = {}
        # It has the mail, and answers only after so long.
        self.delay_seconds = 0.0

    def authenticate(self, *arguments: Any) -> AuthResult:
        return AuthResult(success=arguments[-1].password == self.password, handled=False)

    async def handle_QUIT(self, _s: Any, _n: Any, _e: Any) -> str:  # noqa: N802 - aiosmtpd's
        return self.answers.get("QUIT", "221 Bye")

    async def handle_MAIL(self, _s: Any, _n: Any, envelope: Any, address: str, _o: Any) -> str:  # noqa: N802 - aiosmtpd's
        envelope.mail_from = address
        return self.answers.get("MAIL", "250 OK")

    async def handle_RCPT(self, _s: Any, _n: Any, envelope: Any, address: str, _o: Any) -> str:  # noqa: N802 - aiosmtpd's
        if address not in self.answers:
            envelope.rcpt_tos.append(address)
        return self.answers.get(address, "250 OK")

    async def handle_DATA(self, _s: Any, _n: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        if "DATA" not in self.answers:
            self.mails.append(envelope)
        await asyncio.sleep(self.delay_seconds)
        return self.answers.get("DATA", "250 OK")


@contextmanager
def mail_server(**options: Any) -> Iterator[MailSink]:
    """Serve it while the block runs, with options of aiosmtpd."""
    sink = MailSink()
    port = int(sink.host.rpartition(":")[2])
    server = Controller(
        sink, "127.0.0.1", port=port, authenticator=sink.authenticate, ready_timeout=30, **options
    )
    server.start()
    try:
        yield sink
    finally:
        server.stop()
