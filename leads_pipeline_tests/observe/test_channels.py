"""Each channel against a real socket: what arrives, and what is told where it doesn't."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from click.testing import CliRunner

from leads_pipeline.cli import main
from leads_pipeline.errors import AlertError, LeadsPipelineError, SettingsError
from leads_pipeline.observe.alerts import Alert, Level, Occasion
from leads_pipeline.observe.channels import Channel, Email, SlackWebhook, Webhook, beat
from leads_pipeline.portal.credentials import StaticSecret
from leads_pipeline_tests.support.newcomer import free_port

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
ALERT = Alert(Occasion.NEW, ("disk",), "the disk gets full", "Make <room> & soon. £", Level.ERROR, NOON, NOON)
TOKEN = "T0KEN"


class WebSink(HTTPServer):
    """Takes every request, and answers with `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taker)
        self.status = 200
        self.requests: list[tuple[str, str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Taker(BaseHTTPRequestHandler):
    server: WebSink

    def _take(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, body))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST = _take  # noqa: N815 - the names that http.server calls

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def web() -> Iterator[WebSink]:
    with web_sink() as sink:
        yield sink


@contextmanager
def web_sink() -> Iterator[WebSink]:
    sink = WebSink()
    thread = Thread(target=sink.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield sink
    finally:
        sink.shutdown()
        thread.join()
        sink.server_close()


def test_a_webhook_gets_the_alert_as_json(web: WebSink) -> None:
    Webhook("LEADS_ALERT_WEBHOOK", StaticSecret(f"{web.url}/hook?key={TOKEN}")).send(ALERT)
    [(method, path, body)] = web.requests
    assert (method, path) == ("POST", f"/hook?key={TOKEN}")
    assert json.loads(body) == {
        "occasion": "new",
        "level": "error",
        "title": "the disk gets full",
        "message": "Make <room> & soon. £",
        "causes": ["disk"],
        "since": "2026-11-22T12:00:00+00:00",
        "at": "2026-11-22T12:00:00+00:00",
    }


def test_slack_reads_no_marks_into_a_message(web: WebSink) -> None:
    SlackWebhook("LEADS_ALERT_SLACK_WEBHOOK", StaticSecret(f" {web.url}/{TOKEN} ")).send(ALERT)
    [(_, path, body)] = web.requests
    assert path == f"/{TOKEN}", "a blank around an address isn't part of it"
    text = "*[leads_pipeline] the disk gets full*\nMake &lt;room&gt; &amp; soon. £"
    assert json.loads(body) == {"text": text}


def test_the_heartbeat_is_called_with_what_happened_behind_it(web: WebSink) -> None:
    for path in ("/start", "", "/fail"):
        beat("LEADS_HEARTBEAT_URL", StaticSecret(f" {web.url}/{TOKEN}/ "), path)
    assert [request[:2] for request in web.requests] == [
        ("GET", f"/{TOKEN}/start"),
        ("GET", f"/{TOKEN}"),
        ("GET", f"/{TOKEN}/fail"),
    ]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_what_a_webhook_does_not_take_is_told_without_its_address(web: WebSink, status: int) -> None:
    web.status = status
    with pytest.raises(AlertError, match=f"LEADS_ALERT_WEBHOOK answered {status}") as raised:
        Webhook("LEADS_ALERT_WEBHOOK", StaticSecret(f"{web.url}/{TOKEN}")).send(ALERT)
    assert TOKEN not in str(raised.value)
    assert len(web.requests) == 1


def test_an_address_that_nobody_answers_at_is_told_without_it() -> None:
    with web_sink() as sink:
        url = f"{sink.url}/{TOKEN}"
    with pytest.raises(AlertError, match=r"can't be reached \(ConnectError\)") as raised:
        Webhook("LEADS_ALERT_WEBHOOK", StaticSecret(url)).send(ALERT)
    assert TOKEN not in str(raised.value)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "address", ["hooks.example/T0KEN", "ftp://hooks.example/T0KEN", "http://hooks.example/T0KEN", "https://[T0KEN"]
)
def test_what_can_be_no_address_is_told_without_it(address: str) -> None:
    with pytest.raises(SettingsError, match="LEADS_ALERT_WEBHOOK") as raised:
        Webhook("LEADS_ALERT_WEBHOOK", StaticSecret(address)).send(ALERT)
    assert TOKEN not in str(raised.value)


def test_an_address_is_not_logged(web: WebSink, caplog: pytest.LogCaptureFixture) -> None:
    before = [*logging.getLogger("httpx").filters]
    with caplog.at_level(logging.INFO, "httpx"):
        Webhook("LEADS_ALERT_WEBHOOK", StaticSecret(f"{web.url}/{TOKEN} é")).send(ALERT)
    assert TOKEN not in caplog.text
    assert logging.getLogger("httpx").filters == before


class MailSink:
    """Keeps what it is sent, for whoever knows the password."""

    def __init__(self) -> None:
        self.mails: list[bytes] = []
        self.recipients: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        if b"full" not in envelope.content:
            return "550 unwanted"
        self.mails.append(envelope.content)
        self.recipients += envelope.rcpt_tos
        return "250 OK"


@pytest.fixture
def mail() -> Iterator[tuple[MailSink, str]]:
    sink = MailSink()

    def authenticate(*arguments: Any) -> AuthResult:
        return AuthResult(success=arguments[-1].password == b"p@ss", handled=False)

    port = free_port()
    server = Controller(
        sink, "127.0.0.1", port=port, authenticator=authenticate, auth_require_tls=False, ready_timeout=30
    )
    server.start()
    yield sink, f"127.0.0.1:{port}"
    server.stop()


def email(address: str) -> Channel:
    return Email("LEADS_SMTP_URL", StaticSecret(address), ("ops@agency.example", "it@agency.example"))


def test_an_e_mail_reaches_everybody_with_subject_and_message(mail: tuple[MailSink, str]) -> None:
    sink, host = mail
    email(f"smtp://alerts%40agency.example:p%40ss@{host}").send(ALERT)
    [content] = sink.mails
    message = message_from_bytes(content, policy=default)
    assert message["Subject"] == "[leads_pipeline] the disk gets full"
    assert message["From"] == "alerts@agency.example"
    assert message["To"] == "ops@agency.example, it@agency.example"
    assert sink.recipients == ["ops@agency.example", "it@agency.example"]
    body = message.get_body()
    assert body is not None
    assert body.get_content().strip() == "Make <room> & soon. £"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("smtp://alerts:wrong@{host}", "refused the message with 535"),
        ("smtps://alerts:p%40ss@{host}", r"can't be reached \(SSLError\)"),
        ("smtp://alerts:p%40ss@127.0.0.1:1", r"can't be reached \(ConnectionRefusedError\)"),
        ("https://alerts:p%40ss@{host}", "begins with smtps:// or smtp://"),
    ],
)
def test_what_keeps_an_e_mail_from_being_sent_is_told_without_the_password(
    mail: tuple[MailSink, str], address: str, words: str
) -> None:
    with pytest.raises(LeadsPipelineError, match=words) as raised:
        email(address.format(host=mail[1])).send(ALERT)
    assert "p%40ss" not in str(raised.value)
    assert "wrong" not in str(raised.value)


def test_a_server_that_refuses_the_message_is_told(mail: tuple[MailSink, str]) -> None:
    unwanted = Alert(Occasion.NEW, ("x",), "something", "else", Level.ERROR, NOON, NOON)
    with pytest.raises(AlertError, match="refused the message with 550"):
        email(f"smtp://{mail[1]}").send(unwanted)


# --- leads-pipeline alert --test --------------------------------------------------------------------------------------


def test_the_command_tries_every_channel_and_the_heartbeat(web: WebSink, mail: tuple[MailSink, str]) -> None:
    variables = {
        "LEADS_ALERT_WEBHOOK": f"{web.url}/{TOKEN}/hook",
        "LEADS_ALERT_SLACK_WEBHOOK": f"{web.url}/{TOKEN}/slack",
        "LEADS_HEARTBEAT_URL": f"{web.url}/{TOKEN}/beat",
        "LEADS_ALERT_EMAIL": "it@agency.example",
        "LEADS_SMTP_URL": f"smtp://{mail[1]}",
    }
    result = CliRunner().invoke(main, ["alert", "--test"], env=variables)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "sent   LEADS_ALERT_WEBHOOK",
        "sent   LEADS_ALERT_SLACK_WEBHOOK",
        # This server takes only mails that have the word full in them.
        "failed LEADS_SMTP_URL: The mail server of LEADS_SMTP_URL refused the message with 550.",
        "sent   LEADS_HEARTBEAT_URL",
    ]
    assert [path for _, path, _ in web.requests] == [f"/{TOKEN}/hook", f"/{TOKEN}/slack", f"/{TOKEN}/beat"]
    assert json.loads(web.requests[0][2])["occasion"] == "test"


def test_the_command_says_where_no_channel_is_set_up() -> None:
    result = CliRunner().invoke(main, ["alert", "--test"], env={})
    assert result.exit_code == 2
    assert "Set LEADS_ALERT_EMAIL with LEADS_SMTP_URL" in " ".join(result.output.split())
