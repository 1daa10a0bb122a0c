"""Open faults of the alert channels, shown by `alert --test`. See the package for how the marks are used."""

import ssl
from collections.abc import Iterator
from contextlib import closing
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from leads_pipeline_tests.faults import command, fault
from leads_pipeline_tests.faults.conftest import Install
from leads_pipeline_tests.support.newcomer import free_port
from leads_pipeline_tests.support.raw_server import RawServer, respond

NOBODY = "http://127.0.0.1:9"  # nothing listens there


class MailServer:
    """Keeps its mails. It refuses the addresses and the sender that a test names, with the answer that it names."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.mails: list[Any] = []
        self.refused: dict[str, str] = {}

    async def handle_MAIL(self, _s: Any, _n: Any, envelope: Any, address: str, _o: Any) -> str:  # noqa: N802 - aiosmtpd's
        envelope.mail_from = address
        return self.refused.get(f"from {address}", "250 OK")

    async def handle_RCPT(self, _s: Any, _n: Any, envelope: Any, address: str, _o: Any) -> str:  # noqa: N802 - aiosmtpd's
        if address not in self.refused:
            envelope.rcpt_tos.append(address)
        return self.refused.get(address, "250 OK")

    async def handle_DATA(self, _s: Any, _n: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's
        self.mails.append(envelope)
        return "250 OK"


@pytest.fixture
def mail(install: Install, monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    """A mail server that takes any password. The alerts go to two addresses."""
    port = free_port()
    server = MailServer(f"127.0.0.1:{port}")

    def authenticate(*_: Any) -> AuthResult:
        return AuthResult(success=True)

    controller = Controller(server, "127.0.0.1", port=port, authenticator=authenticate, auth_require_tls=False)
    controller.start()
    install(NOBODY, LEADS_ALERT_EMAIL="ops@agency.example,it@agency.example")
    monkeypatch.setenv("LEADS_SMTP_URL", f"smtp://apikey:made-up@{server.host}")
    yield server
    controller.stop()


@fault(18, "the first recipient is the sender")
def test_the_sender_of_a_mail_is_the_one_of_the_settings(mail: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_ALERT_FROM", "alerts@agency.example")
    assert command("alert", "--test").code == 0
    assert message_from_bytes(mail.mails[0].content)["From"] == "alerts@agency.example"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("ALL_PROXY", "socks5://127.0.0.1:9", marks=fault(51, "a SOCKS proxy", ImportError)),
        pytest.param("SSL_CERT_FILE", "/nothing.pem", marks=fault(51, "certificates", FileNotFoundError)),
    ],
)
def test_an_odd_error_of_the_webhook_does_not_keep_the_mail(
    mail: MailServer, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("LEADS_ALERT_WEBHOOK", "https://hooks.example/")
    monkeypatch.setenv(name, value)
    assert command("alert", "--test").code == 1
    assert mail.mails


@pytest.mark.parametrize("arguments", [("alert", "--test"), ("doctor",)], ids=" ".join)
@pytest.mark.parametrize("file", ["nothing.pem", "folder", "empty.pem"])
@fault(52, "a traceback instead of a sentence", (OSError, ssl.SSLError))
def test_a_certificate_file_that_cannot_be_read_is_named(
    install: Install, tmp_path: Path, file: str, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.pem").touch()
    install(NOBODY, LEADS_ALERT_WEBHOOK="https://hooks.example/", SSL_CERT_FILE=str(tmp_path / file))
    text = command(*arguments).text
    assert "SSL_CERT_FILE" in text
    assert file in text


@fault(53, "a traceback", UnicodeEncodeError)
def test_an_smtp_password_may_hold_a_letter_outside_ascii(mail: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_SMTP_URL", f"smtp://apikey:p%C3%A4ss@{mail.host}")
    assert "password" in command("alert", "--test").text or mail.mails


@fault(54, "the alert counts as sent")
def test_a_refused_recipient_is_named_and_the_others_get_the_mail(mail: MailServer) -> None:
    mail.refused["it@agency.example"] = "550 no such user"
    outcome = command("alert", "--test")
    assert mail.mails[0].rcpt_tos == ["ops@agency.example"]
    assert outcome.code == 1
    assert "it@agency.example" in outcome.text


@pytest.mark.parametrize("status", [429, 500])
@fault(58, "the address is blamed")
def test_a_webhook_that_is_busy_or_broken_is_not_called_wrong(install: Install, status: int) -> None:
    with closing(RawServer()) as server:
        server.script = respond(b"", "Connection: close", status=status)
        install(NOBODY, LEADS_ALERT_WEBHOOK=server.url)
        text = command("alert", "--test").text
    assert str(status) in text
    assert "right one" not in text


@fault(58, "greylisting counts as a refusal")
def test_greylisting_is_named(mail: MailServer) -> None:
    mail.refused = dict.fromkeys(("ops@agency.example", "it@agency.example"), "451 greylisted, try later")
    assert "451" in command("alert", "--test").text


@fault(58, "the message is blamed for its sender")
def test_a_relay_that_wants_another_sender_is_told_with_the_variable(mail: MailServer) -> None:
    mail.refused["from ops@agency.example"] = "550 not your address"
    assert "LEADS_ALERT_FROM" in command("alert", "--test").text


def test_a_proxy_that_wants_a_password_is_named(install: Install) -> None:
    with closing(RawServer()) as proxy:
        proxy.script = respond(b"", "Connection: close", status=407)
        install("https://portal.example", HTTPS_PROXY=proxy.url)
        _, message = command("doctor", "--json").findings()["token"]
    assert "proxy" in message.lower()
    assert "check the token server's address" not in message


@fault(62, "the message doesn't say which letter")
def test_an_unescaped_letter_in_the_password_is_named(install: Install) -> None:
    install(NOBODY, LEADS_ALERT_EMAIL="ops@agency.example", LEADS_SMTP_URL="smtp://apikey:made/up@127.0.0.1:25")
    assert "%2F" in command("alert", "--test").text
