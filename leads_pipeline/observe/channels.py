"""Where alerts go: e-mail, webhooks, and the heartbeat that an outside monitor waits for.

Belongs here: sending, and what went wrong with it. Doesn't: what is told when (observe/alerts.py). Addresses can hold
passwords and tokens, so they are read like secrets and appear in no message.
"""

import logging
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from leads_pipeline.errors import AlertError, SettingsError
from leads_pipeline.observe.alerts import Alert, Level
from leads_pipeline.portal.credentials import SecretSource
from leads_pipeline.settings import is_loopback

# A sensor's tick sends several, and has a minute.
TIMEOUT_SECONDS: Final = 10.0

_SMTP_PORTS: Final = {"smtps": 465, "smtp": 587}


class Channel(Protocol):
    """Somewhere that alerts go. `name` is the variable that set it up."""

    name: str

    def send(self, alert: Alert) -> None:
        """Send it. Raises AlertError, or SettingsError where the channel's address can't be right."""
        ...


class Webhook:
    """Posts each alert as a JSON object."""

    def __init__(self, name: str, url: SecretSource) -> None:
        self.name = name
        self._url = url

    def send(self, alert: Alert) -> None:
        """Post it (see Channel)."""
        _request("POST", self.name, self._url.read().strip(), self._body(alert))

    def _body(self, alert: Alert) -> dict[str, Any]:
        return {
            "occasion": alert.occasion.value,
            "level": alert.level.name.lower(),
            "title": alert.title,
            "message": alert.message,
            "causes": list(alert.keys),
            "since": alert.since.isoformat(),
            "at": alert.at.isoformat(),
        }


class SlackWebhook(Webhook):
    """Posts each alert as Slack's incoming webhooks take it, and those of Mattermost, Discord (/slack) and others."""

    def _body(self, alert: Alert) -> dict[str, Any]:
        text = f"*{alert.headline}*\n{alert.message}"
        # Slack reads these three, and only these, as its own marks (Slack's documentation on formatting text).
        for mark, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(mark, escaped)
        return {"text": text}


class Email:
    """Sends each alert as an e-mail through the server at smtps://user:password@host:465, or smtp:// with STARTTLS."""

    def __init__(self, name: str, url: SecretSource, recipients: tuple[str, ...]) -> None:
        self.name = name
        self._url = url
        self._recipients = recipients

    def send(self, alert: Alert) -> None:
        """Mail it (see Channel)."""
        address = _split(self.name, self._url.read().strip(), tuple(_SMTP_PORTS))
        user = unquote(address.username or "")
        mail = EmailMessage()
        mail["Subject"] = alert.headline
        mail["From"] = user if "@" in user else self._recipients[0]
        mail["To"] = ", ".join(self._recipients)
        mail["Date"] = formatdate(alert.at.timestamp())
        mail["Message-ID"] = make_msgid(domain=address.hostname)
        if alert.level is Level.ERROR:
            mail["Importance"] = "high"
        mail.set_content(alert.message)
        try:
            with _server(address) as server:
                if user:
                    server.login(user, unquote(address.password or ""))
                server.send_message(mail)
        except smtplib.SMTPNotSupportedError:
            raise AlertError(
                f"The mail server of {self.name} takes no password without TLS, or none at all. Write smtps://, or "
                "leave user and password out."
            ) from None
        except smtplib.SMTPResponseException as error:
            raise AlertError(f"The mail server of {self.name} refused the message with {error.smtp_code}.") from None
        except smtplib.SMTPRecipientsRefused:
            raise AlertError(f"The mail server of {self.name} refused every address of LEADS_ALERT_EMAIL.") from None
        except (OSError, smtplib.SMTPException) as error:
            raise AlertError(
                f"The mail server of {self.name} can't be reached ({type(error).__name__}). Check host, port and TLS."
            ) from None


def _server(address: SplitResult) -> smtplib.SMTP:
    host, port = address.hostname or "", address.port or _SMTP_PORTS[address.scheme]
    context = ssl.create_default_context()
    if address.scheme == "smtps":
        return smtplib.SMTP_SSL(host, port, timeout=TIMEOUT_SECONDS, context=context)
    server = smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS)
    try:
        server.ehlo()
        if server.has_extn("starttls"):
            server.starttls(context=context)
        elif not is_loopback(host):
            raise smtplib.SMTPNotSupportedError
    except BaseException:
        server.close()
        raise
    return server


def beat(name: str, url: SecretSource, path: str) -> None:
    """Call the heartbeat's address, with /start or /fail behind it, as the common dead man's switches have it.

    Raises AlertError, or SettingsError where the address can't be right.
    """
    _request("GET", name, url.read().strip().rstrip("/") + path)


def _request(method: str, name: str, url: str, body: dict[str, Any] | None = None) -> None:
    _split(name, url, ("https", "http"))
    log = logging.getLogger("httpx")
    hidden = _Hidden(url)
    log.addFilter(hidden)
    try:
        answer = httpx.request(method, url, json=body, timeout=TIMEOUT_SECONDS)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise AlertError(
            f"The address of {name} can't be reached ({type(error).__name__}). Check the address and the network."
        ) from None
    finally:
        log.removeFilter(hidden)
    if not answer.is_success:
        raise AlertError(f"The address of {name} answered {answer.status_code}. Check that it is the right one.")


class _Hidden(logging.Filter):
    """Keeps an address out of httpx's log: whoever knows it can write to the channel."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may be logged."""
        return not any(arg == self._url for arg in record.args or () if isinstance(arg, httpx.URL))


def _split(name: str, url: str, schemes: tuple[str, ...]) -> SplitResult:
    """The parts of an address. Raises SettingsError, without the address, where it can't be one."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that don't close, a port that is no number
        is_address = False
    if not is_address:
        raise SettingsError(f"{name} is no address. It begins with {' or '.join(f'{one}://' for one in schemes)}.")
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise SettingsError(f"{name} begins with http://, so that anybody on the way could read it. Write https://.")
    return parts
