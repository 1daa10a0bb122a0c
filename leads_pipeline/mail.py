"""Sending a mail: by the server of LEADS_SMTP_URL.

Belongs here: one mail, and the errors of sending it. Doesn't: when somebody is told of what
(features). The address can hold a password: it is read like a secret, and is in no message and no
log.
"""

import base64
import smtplib
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, ClassVar, Final, Self
from urllib.parse import SplitResult, unquote

from leads_pipeline.errors import (
    LeadsPipelineError,
    SettingsError,
    UnansweredError,
    UnreachableError,
)
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.portal.http import checked_address, tls_context
from leads_pipeline.portal.verdicts import LATER
from leads_pipeline.settings import Secret, Settings, is_loopback

# Dagster ends a tick of a sensor after a minute.
TIMEOUT_SECONDS: Final = 10.0
# A server may look for viruses before it answers to a whole message.
ANSWER_SECONDS: Final = 25.0
_SMTP_PORTS: Final = {"smtps": 465, "smtp": 587}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A page that a mail carries."""

    name: str
    html: str


@dataclass(frozen=True, slots=True)
class Mail:
    """What a mail says: as plain text, and as HTML for programs that show it."""

    subject: str
    text: str
    html: str | None = None
    attachment: Attachment | None = None
    is_important: bool = False


class MailServer:
    """The server that mails go to."""

    name: ClassVar[str] = "LEADS_SMTP_URL"

    def __init__(self, url: Secret, sender: str | None) -> None:
        self._url = url
        self._sender = sender

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return the server that the settings name, None if they name none."""
        return cls(settings.smtp_url, settings.mail_from) if settings.smtp_url else None

    def send(
        self,
        mail: Mail,
        recipients: Sequence[str],
        at: datetime,
        *,
        variable: str,
        shown: str | None = None,
    ) -> str | None:
        """Send it in one message.

        Return a sentence about those who were refused, if not everybody was.

        `variable` names the recipients in errors, and `shown` those who are refused, in place of
        their addresses. Raises UnreachableError, UnansweredError if the message may have arrived,
        SettingsError and CredentialsError.
        """
        address = _mail_address(self.name, read_secret(self._url).strip())
        user = unquote(address.username or "")
        password = unquote(address.password or "")

        message = EmailMessage()
        message["Subject"] = mail.subject
        message["From"] = self._sender or (user if "@" in user else recipients[0])
        message["To"] = ", ".join(recipients)
        message["Date"] = formatdate(at.timestamp())
        message["Message-ID"] = make_msgid(domain=address.hostname)
        if mail.is_important:
            message["Importance"] = "high"
        message.set_content(mail.text)
        if mail.html is not None:
            message.add_alternative(mail.html, subtype="html")
        if mail.attachment is not None:
            message.add_attachment(
                mail.attachment.html, subtype="html", filename=mail.attachment.name
            )

        try:
            server = _connect(self.name, address)
            try:
                if user:
                    _log_in(server, user, password)
                refused = server.send_message(message)
            except (smtplib.SMTPServerDisconnected, TimeoutError):
                if not server.has_message:
                    raise
                raise UnansweredError(
                    f"The mail server of {self.name} took a message and didn't answer. It may not "
                    "have arrived."
                ) from None
            finally:
                _end(server)
        except OSError as error:  # smtplib's errors are OSErrors, too
            raise UnreachableError(
                f"The mail server of {self.name} {_smtp_verdict(error, variable, shown)}"
            ) from None
        return (
            f"The mail server of {self.name} {_refused_recipients(refused, variable, shown)}"
            if refused
            else None
        )


def attempt(name: str, send: Callable[[], str | None]) -> tuple[bool, str | None]:
    """Return whether the message was sent, and a sentence about what is wrong. No error is raised.

    The libraries raise many kinds of errors, and one channel's error must not silence the others.
    """
    try:
        return True, send()
    except LeadsPipelineError as error:
        return False, str(error)
    except Exception as error:  # noqa: BLE001 - as the docstring says; its text can hold the address
        return (
            False,
            f"{name} can't be used ({type(error).__name__}). Check its value and the proxy in the "
            "environment.",
        )


def _mail_address(name: str, url: str) -> SplitResult:
    """Return the parts of the mail server's address.

    Raises SettingsError, without the address, if it can't be one.
    """
    before_at = url.partition("://")[2].rpartition("@")[0]
    for character, escaped in (("/", "%2F"), ("?", "%3F"), ("#", "%23")):
        if character in before_at:
            raise SettingsError(
                f'{name} holds a "{character}" in the user or the password. Write it as {escaped}.'
            )
    parts = checked_address(name, url, tuple(_SMTP_PORTS))
    if parts.query not in ("", "tls=none"):
        raise SettingsError(
            f"{name} holds an option that isn't known. The only one is ?tls=none, at the end."
        )
    return parts


class _Server(smtplib.SMTP):
    """Knows whether the server has a whole message, and waits longer for the answer to it."""

    has_message = False

    def send(self, s: Any) -> None:
        """Send a command, which is a str in smtplib, or a message, which is bytes."""
        super().send(s)
        if isinstance(s, bytes) and self.sock:
            self.has_message = True
            self.sock.settimeout(ANSWER_SECONDS)


class _TlsServer(_Server, smtplib.SMTP_SSL):
    """The same, with TLS from the beginning."""


def _connect(name: str, address: SplitResult) -> _Server:
    """Connect with TLS, unless the address asks for none. This machine's server may offer none.

    Raises UnreachableError and errors of smtplib.
    """
    host = address.hostname or ""
    port = address.port or _SMTP_PORTS[address.scheme]
    if address.scheme == "smtps":
        return _TlsServer(host, port, timeout=TIMEOUT_SECONDS, context=tls_context())
    server = _Server(host, port, timeout=TIMEOUT_SECONDS)
    try:
        server.ehlo()
        if address.query != "tls=none" and server.has_extn("starttls"):
            server.starttls(context=tls_context())
        elif address.query != "tls=none" and not is_loopback(host):
            raise UnreachableError(
                f"The mail server of {name} offers no encryption (STARTTLS), so nothing was sent. "
                "Write smtps://, or put ?tls=none at the end of the address to send password and "
                "messages unencrypted."
            )
    except BaseException:
        server.close()
        raise
    return server


def _end(server: _Server) -> None:
    """Say goodbye. The message is sent or not by now, whatever the server answers."""
    if server.sock:
        server.sock.settimeout(TIMEOUT_SECONDS)
    with suppress(OSError):
        server.quit()
    server.close()


def _log_in(server: smtplib.SMTP, user: str, password: str) -> None:
    if (user + password).isascii():
        server.login(user, password)
        return
    # smtplib sends ASCII alone; RFC 4616 says UTF-8.
    code, answer = server.docmd(
        "AUTH", "PLAIN " + base64.b64encode(f"\0{user}\0{password}".encode()).decode()
    )
    if code != 235:  # RFC 4954
        raise smtplib.SMTPAuthenticationError(code, answer)


def _smtp_verdict(error: OSError, variable: str, shown: str | None) -> str:
    """Say what the server did, and what to do about it. What the server wrote isn't repeated."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _refused_recipients(error.recipients, variable, shown)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return (
            "takes no password without TLS, or none at all. Write smtps://, or leave user and "
            "password out."
        )
    if isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
        if code // 100 == 4:
            return f"can't take the message now ({code}). {LATER}"
        if isinstance(error, smtplib.SMTPAuthenticationError):
            return f"refuses the user or the password ({code}). Correct them."
        return f"refuses the message ({code}). If it wants another sender, set LEADS_ALERT_FROM."
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            "has a certificate that isn't trusted. If your network has its own certificate "
            "authority, put that authority's file into SSL_CERT_FILE."
        )
    if isinstance(error, ssl.SSLError):
        return "doesn't begin with TLS. Write smtp:// with its port for STARTTLS, usually 587."
    why = error.strerror or type(error).__name__
    return f"can't be reached ({why}). Check host, port and network. smtps:// is usually port 465."


def _refused_recipients(
    refused: dict[str, tuple[int, bytes]], variable: str, shown: str | None
) -> str:
    codes = sorted({code for code, _ in refused.values()})
    named = f"{shown or ', '.join(sorted(refused))} ({', '.join(map(str, codes))})"
    if all(code // 100 == 4 for code in codes):
        return f"doesn't take messages for {named} yet. {LATER}"
    return f"refuses messages for {named}. Correct {variable}."
