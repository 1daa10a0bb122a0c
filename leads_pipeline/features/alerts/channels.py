"""The channels of alerts: webhooks, e-mail, and the heartbeat that an outside monitor waits for.

Belongs here: sending, and the errors of sending. Doesn't: when to send (alerts.py), the words (digest.py). Addresses
can hold passwords and tokens: they are read like secrets, and are in no message and no log.
"""

import base64
import json
import smtplib
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from http import HTTPStatus
from typing import Any, ClassVar, Final, Self
from urllib.parse import SplitResult, unquote, urlunsplit

from leads_pipeline.errors import LeadsPipelineError, SettingsError, UnreachableError
from leads_pipeline.features.alerts.digest import Digest
from leads_pipeline.features.alerts.settings import AlertSettings
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.portal.http import answer_to, checked_address, tls_context
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.verdicts import LATER, UNUSABLE_ADDRESS, broken_off
from leads_pipeline.settings import Secret, is_loopback

# Dagster ends a tick of a sensor after a minute.
TIMEOUT_SECONDS: Final = 10.0
# Discord takes no more than 2,000 characters.
_CHAT_CHARACTERS: Final = 1800
_SMTP_PORTS: Final = {"smtps": 465, "smtp": 587}
_JSON: Final = {"Content-Type": "application/json"}


class _Address:
    """An address that a variable holds. It is read like a secret."""

    name: ClassVar[str]

    def __init__(self, url: Secret, settings: AlertSettings) -> None:
        self._url = url
        self._settings = settings

    @classmethod
    def of(cls, settings: AlertSettings) -> Self | None:
        """Return what the settings set up, None if they don't."""
        url = getattr(settings, cls.name.removeprefix("LEADS_").lower())
        return cls(url, settings) if url else None


class Channel(_Address, ABC):
    """Somewhere that alerts go. `name` is the variable with its address, in settings.py without LEADS_."""

    @abstractmethod
    def send(self, digest: Digest) -> str | None:
        """Send it. Return a sentence if it was sent, but not to everybody.

        Raises UnreachableError, SettingsError and CredentialsError, or an error of the library.
        """


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
            f"{name} can't be used ({type(error).__name__}). Check its value and the proxy in the environment.",
        )


class Webhook(Channel):
    """Posts each message as a JSON object."""

    name = "LEADS_ALERT_WEBHOOK"

    def send(self, digest: Digest) -> None:
        """Post it (see Channel)."""
        _request("POST", self.name, read_secret(self._url).strip(), self._body(digest))

    def _body(self, digest: Digest) -> dict[str, Any]:
        return {"title": digest.title, "message": digest.text, **asdict(digest)}


class SlackWebhook(Webhook):
    """Posts each message as Slack's incoming webhooks take it, and those of Mattermost and Discord (/slack)."""

    name = "LEADS_ALERT_SLACK_WEBHOOK"

    def _body(self, digest: Digest) -> dict[str, Any]:
        text = f"*{digest.title}*\n{digest.text}"
        if len(text) > _CHAT_CHARACTERS:
            text = f"{text[:_CHAT_CHARACTERS]} …\n`leads-pipeline findings` shows the rest."
        # Slack reads these three, and only these, as its own marks (Slack's documentation on formatting text).
        for mark, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(mark, escaped)
        return {"text": text}


class Heartbeat(_Address):
    """The address of an outside monitor that rings when calls stop."""

    name = "LEADS_HEARTBEAT_URL"

    def beat(self, *, is_well: bool) -> None:
        """Call the address, or the one with /fail at the end of its path. Raises as Channel.send does."""
        url = read_secret(self._url).strip()
        parts = checked_address(self.name, url)
        if not is_well:
            url = urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/fail"))
        _request("GET", self.name, url)


class Email(Channel):
    """Sends each message through the mail server at smtps://user:password@host:465, or smtp:// with STARTTLS."""

    name = "LEADS_SMTP_URL"

    def send(self, digest: Digest) -> str | None:
        """Mail it (see Channel). Return who was refused, if not everybody was."""
        address = _mail_address(self.name, read_secret(self._url).strip())
        user, password = unquote(address.username or ""), unquote(address.password or "")
        mail = EmailMessage()
        mail["Subject"] = digest.title
        recipients = self._settings.alert_email
        mail["From"] = self._settings.alert_from or (user if "@" in user else recipients[0])
        mail["To"] = ", ".join(recipients)
        mail["Date"] = formatdate(digest.at.timestamp())
        mail["Message-ID"] = make_msgid(domain=address.hostname)
        if digest.has_new_error:
            mail["Importance"] = "high"
        mail.set_content(digest.text)
        try:
            with _connected(self.name, address) as server:
                if user:
                    _log_in(server, user, password)
                refused = server.send_message(mail)
        except OSError as error:  # smtplib's errors are OSErrors, too
            raise UnreachableError(f"The mail server of {self.name} {_smtp_verdict(error)}") from None
        return f"The mail server of {self.name} {_refused_recipients(refused)}" if refused else None


CHANNELS: Final[Sequence[type[Channel]]] = (Webhook, SlackWebhook, Email)


def channels_of(settings: AlertSettings) -> list[Channel]:
    """Return the channels that are set up."""
    return [channel for channel in (one.of(settings) for one in CHANNELS) if channel]


SET_UP: Final = (
    "Set LEADS_ALERT_EMAIL and LEADS_SMTP_URL, or one of "
    f"{', '.join(one.name for one in CHANNELS if one is not Email)}."
)


# --- HTTP -------------------------------------------------------------------------------------------------------------


def _request(method: str, name: str, url: str, body: dict[str, Any] | None = None) -> None:
    checked_address(name, url)
    content = json.dumps(body, default=datetime.isoformat) if body else None
    try:
        status = answer_to(method, url, TIMEOUT_SECONDS, content=content, headers=_JSON).status_code
    except httpx.TransportError as error:
        raise broken_off(f"The address of {name}", error) from None
    except UNUSABLE_ADDRESS:
        raise SettingsError(f"{name} holds no address that can be called. Copy it again.") from None
    if status // 100 != 2:
        raise UnreachableError(f"The address of {name} {_http_verdict(name, status)}")


def _http_verdict(name: str, status: int) -> str:
    if status // 100 == 3:
        return f"answers with a redirect ({status}), and no redirect is followed. Set {name} to the new address."
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return "is behind a proxy that refuses (407). Check the proxy in the environment, its user and its password."
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return f"can't take the message now ({status}). {LATER}"
    return f"refuses the message ({status}). Make a new address there for this kind of message, and set {name} to it."


# --- mail -------------------------------------------------------------------------------------------------------------


def _mail_address(name: str, url: str) -> SplitResult:
    """Return the parts of the mail server's address. Raises SettingsError, without the address, if it can't be one."""
    before_at = url.partition("://")[2].rpartition("@")[0]
    for character, escaped in (("/", "%2F"), ("?", "%3F"), ("#", "%23")):
        if character in before_at:
            raise SettingsError(f'{name} holds a "{character}" in the user or the password. Write it as {escaped}.')
    parts = checked_address(name, url, tuple(_SMTP_PORTS))
    if parts.query not in ("", "tls=none"):
        raise SettingsError(f"{name} holds an option that isn't known. The only one is ?tls=none, at the end.")
    return parts


def _connected(name: str, address: SplitResult) -> smtplib.SMTP:
    """Connect, with TLS unless the address asks for none or is this machine.

    Raises UnreachableError and errors of smtplib.
    """
    host, port = address.hostname or "", address.port or _SMTP_PORTS[address.scheme]
    if address.scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=tls_context())
    server = smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)
    try:
        server.ehlo()
        if address.query != "tls=none" and server.has_extn("starttls"):
            server.starttls(context=tls_context())
        elif address.query != "tls=none" and not is_loopback(host):
            raise UnreachableError(
                f"The mail server of {name} offers no encryption (STARTTLS), so nothing was sent. Write smtps://, or "
                "put ?tls=none at the end of the address to send password and messages unencrypted."
            )
    except BaseException:
        server.close()
        raise
    return server


def _log_in(server: smtplib.SMTP, user: str, password: str) -> None:
    if (user + password).isascii():
        server.login(user, password)
        return
    # smtplib sends ASCII alone; RFC 4616 says UTF-8.
    code, answer = server.docmd("AUTH", "PLAIN " + base64.b64encode(f"\0{user}\0{password}".encode()).decode())
    if code != 235:  # RFC 4954
        raise smtplib.SMTPAuthenticationError(code, answer)


def _smtp_verdict(error: OSError) -> str:
    """Say what the server did, and what to do about it. What the server wrote isn't repeated."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return _refused_recipients(error.recipients)
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return "takes no password without TLS, or none at all. Write smtps://, or leave user and password out."
    if isinstance(error, smtplib.SMTPResponseException):
        code = error.smtp_code
        if code // 100 == 4:
            return f"can't take the message now ({code}). {LATER}"
        if isinstance(error, smtplib.SMTPAuthenticationError):
            return f"refuses the user or the password ({code}). Correct them."
        return f"refuses the message ({code}). If it wants another sender, set LEADS_ALERT_FROM."
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            "has a certificate that isn't trusted. If your network has its own certificate authority, put that "
            "authority's file into SSL_CERT_FILE."
        )
    if isinstance(error, ssl.SSLError):
        return "doesn't begin with TLS. Write smtp:// with its port for STARTTLS, usually 587."
    why = error.strerror or type(error).__name__
    return f"can't be reached ({why}). Check host, port and network. smtps:// is usually port 465."


def _refused_recipients(refused: dict[str, tuple[int, bytes]]) -> str:
    codes = sorted({code for code, _ in refused.values()})
    named = f"{', '.join(sorted(refused))} ({', '.join(map(str, codes))})"
    if all(code // 100 == 4 for code in codes):
        return f"doesn't take messages for {named} yet. {LATER}"
    return f"refuses messages for {named}. Correct LEADS_ALERT_EMAIL."
