"""Each channel against a real socket: what arrives, and what is told if it doesn't."""

import json
import logging
import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leads_pipeline.cli import main
from leads_pipeline.features.alerts.channels import Channel, Email, Heartbeat, SlackWebhook, Webhook
from leads_pipeline.features.alerts.digest import Digest
from leads_pipeline.health.findings import Finding, Level
from leads_pipeline.mail import attempt
from leads_pipeline.settings import Secret, Settings
from leads_pipeline_tests.support.raw_server import unknown_authority
from leads_pipeline_tests.support.sinks import MailSink, WebSink, mail_server, web_sink

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)
FULL = Finding(
    Level.ERROR,
    "The disk gets full.",
    "Make <room> & soon. £",
    NOON,
    "leads-pipeline explain disk",
    key="disk",
)
DIGEST = Digest(NOON, [FULL], [])
TOKEN = "T0KEN"


@pytest.fixture
def web() -> Iterator[WebSink]:
    with web_sink() as sink:
        yield sink


def webhook(url: str) -> Channel:
    return Webhook(Secret("A_SECRET", url))


def test_a_webhook_gets_the_message_as_json(web: WebSink) -> None:
    webhook(f"{web.url}/hook?key={TOKEN}").send(DIGEST)

    [(method, path, body)] = web.requests
    assert (method, path) == ("POST", f"/hook?key={TOKEN}")
    noon = "2026-11-22T12:00:00+00:00"
    disk = {
        "key": "disk",
        "level": "error",
        "message": "The disk gets full.",
        "what_to_do": "Make <room> & soon. £",
        "since": noon,
        "link": "leads-pipeline explain disk",
        "may_pass": False,
    }
    assert json.loads(body) == {
        "title": "[leads_pipeline] New problem: The disk gets full.",
        "message": DIGEST.text,
        "at": noon,
        "new": [disk],
        "over": [],
        "still_open": [],
    }


def test_slack_gets_a_text_without_marks(web: WebSink) -> None:
    SlackWebhook(Secret("A_SECRET", f"{web.url}/{TOKEN}")).send(DIGEST)

    [(_, _, body)] = web.requests
    text = json.loads(body)["text"]
    assert text.startswith("*[leads_pipeline] New problem: The disk gets full.*\n")
    assert "Make &lt;room&gt; &amp; soon. £" in text


def test_the_heartbeat_fails_by_its_path_and_keeps_its_query(web: WebSink) -> None:
    heartbeat = Heartbeat(Secret("A_SECRET", f"{web.url}/beat/?key=1&x=%2F"))

    heartbeat.beat(is_well=True)
    heartbeat.beat(is_well=False)

    assert [path for _, path, _ in web.requests] == ["/beat/?key=1&x=%2F", "/beat/fail?key=1&x=%2F"]


def test_a_redirect_is_not_followed_and_told_without_the_address(web: WebSink) -> None:
    web.status = 302

    is_sent, trouble = attempt("", lambda: webhook(f"{web.url}/{TOKEN}").send(DIGEST))

    assert not is_sent
    assert "no redirect is followed. Set LEADS_ALERT_WEBHOOK" in str(trouble)
    assert TOKEN not in str(trouble)
    assert len(web.requests) == 1


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:9/T0KEN", "found no connection: "),
        ("http://hooks.example/T0KEN", "anybody on the way"),
        ("https://[T0KEN", "isn't an address"),
    ],
)
def test_an_address_that_cannot_be_used_is_told_without_it(address: str, words: str) -> None:
    is_sent, trouble = attempt("", lambda: webhook(address).send(DIGEST))

    assert not is_sent
    assert words in str(trouble)
    assert TOKEN not in str(trouble)


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_no_request_is_logged_whichever_library_sends_it(
    library: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, library):
        logging.getLogger(library).info("HTTP Request: POST https://hooks.example/%s", TOKEN)

    assert TOKEN not in caplog.text


# --- mail -----------------------------------------------------------------------------------------


@pytest.fixture
def mail() -> Iterator[MailSink]:
    with mail_server(auth_require_tls=False) as sink:
        yield sink


OPS = "ops@agency.example"
IT = "it@agency.example"


def mailed(address: str, sender: str | None = None) -> tuple[bool, str]:
    """Send the message. Give whether it was sent, and what is told."""
    given = {
        "LEADS_ALERT_EMAIL": f"{OPS},{IT}",
        "LEADS_ALERT_FROM": sender or "",
        "LEADS_SMTP_URL": address,
    }
    channel = Email.of(Settings.from_variables(given))
    assert channel
    is_sent, trouble = attempt(channel.name, lambda: channel.send(DIGEST))
    assert "p%40ss" not in str(trouble)
    assert "p@ss" not in str(trouble)
    return is_sent, trouble or ""


def test_a_mail_reaches_everybody_from_the_sender_of_the_settings(mail: MailSink) -> None:
    sender = "Leads <leads@agency.example>"

    assert mailed(f"smtp://apikey:p%40ss@{mail.host}", sender) == (True, "")

    [envelope] = mail.mails
    message = message_from_bytes(envelope.content, policy=default)
    assert message["Subject"] == DIGEST.title
    assert message["From"] == sender
    assert message["To"] == f"{OPS}, {IT}"
    assert envelope.rcpt_tos == [OPS, IT]
    body = message.get_body()
    assert body is not None
    assert body.get_content().split() == DIGEST.text.split()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("smtp://alerts:wr0ng@{host}", "refuses the user or the password (535)"),
        ("smtp://alerts:p%40ss@127.0.0.1:1", "can't be reached (Connection refused)"),
        ("smtp://alerts:wr0ng/p@{host}", 'a "/" in the user or the password. Write it as %2F'),
    ],
)
def test_a_mail_server_that_cannot_be_used_is_told_without_the_password(
    mail: MailSink, address: str, words: str
) -> None:
    is_sent, trouble = mailed(address.format(host=mail.host))

    assert not is_sent
    assert words in trouble
    assert "wr0ng" not in trouble


def test_a_server_that_does_not_take_the_mail_says_whose_turn_it_is(mail: MailSink) -> None:
    mail.answers = {"MAIL": "550 not your address"}

    is_sent, trouble = mailed(f"smtp://{mail.host}")

    assert not is_sent
    assert "If it wants another sender, set LEADS_ALERT_FROM" in trouble


def test_a_server_of_another_machine_needs_tls_unless_the_address_says_none(mail: MailSink) -> None:
    # This address leads to this machine and doesn't look so.
    host = mail.host.replace("127.0.0.1", "0.0.0.0")  # noqa: S104 - nothing listens there

    is_sent, trouble = mailed(f"smtp://alerts:p%40ss@{host}")
    assert not is_sent
    assert "put ?tls=none" in trouble
    assert mailed(f"smtp://alerts:p%40ss@{host}?tls=none") == (True, "")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("is_trusted", [True, False])
def test_starttls_trusts_the_authorities_of_ssl_cert_file(
    tmp_path: Path, *, is_trusted: bool
) -> None:
    context = unknown_authority(tmp_path)
    if is_trusted:
        os.environ["SSL_CERT_FILE"] = str(tmp_path / "certificate.pem")

    with mail_server(tls_context=context, require_starttls=True) as sink:
        is_sent, trouble = mailed(f"smtp://alerts:p%40ss@{sink.host}")

    assert is_sent == is_trusted
    assert ("a certificate that isn't trusted" in trouble) == (not is_trusted)


# --- leads-pipeline alert --test ------------------------------------------------------------------


def alert_test(**variables: str) -> Result:
    result = CliRunner().invoke(main, ["alert", "--test"], env=variables)
    assert isinstance(result.exception, SystemExit | None)
    return result


def test_the_command_tries_every_channel_and_the_heartbeat(
    web: WebSink, mail: MailSink, tmp_path: Path
) -> None:
    mail.answers = {IT: "550 no such user"}

    result = alert_test(
        LEADS_ALERT_WEBHOOK=f"{web.url}/hook",
        LEADS_ALERT_SLACK_WEBHOOK=f"{web.url}/slack",
        LEADS_HEARTBEAT_URL=f"{web.url}/beat",
        LEADS_ALERT_EMAIL=f"{OPS}, {IT}",
        LEADS_SMTP_URL=f"smtp://apikey:p%40ss@{mail.host}",
    )

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "sent   LEADS_ALERT_WEBHOOK",
        "sent   LEADS_ALERT_SLACK_WEBHOOK",
        "failed LEADS_SMTP_URL: The mail server of LEADS_SMTP_URL refuses messages for "
        "it@agency.example (550). Correct LEADS_ALERT_EMAIL.",
        "sent   LEADS_HEARTBEAT_URL",
    ]
    assert len(web.requests) == 3
    assert "This is a test. Nothing is wrong." in json.loads(web.requests[0][2])["title"]
    assert len(mail.mails) == 1
    assert [*tmp_path.iterdir()] == [], "a test makes no data folder"


def test_the_command_says_what_is_not_set_up() -> None:
    result = alert_test(LEADS_ALERT_EMAIL=OPS)
    assert result.exit_code == 2
    assert "LEADS_ALERT_EMAIL needs LEADS_SMTP_URL" in " ".join(result.output.split())
