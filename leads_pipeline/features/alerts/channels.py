"""The channels of alerts: webhooks, e-mail, and the heartbeat that an outside monitor waits for.

Belongs here: sending to a webhook, and its errors. Doesn't: mails (mail.py), when to send
(alerts.py), the words (digest.py). Addresses can hold passwords and tokens: they are read like
secrets, and are in no message and no log.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from http import HTTPStatus
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlunsplit

from leads_pipeline.errors import SettingsError, UnreachableError
from leads_pipeline.features.alerts.digest import Digest
from leads_pipeline.features.alerts.settings import AlertSettings
from leads_pipeline.mail import TIMEOUT_SECONDS, Mail, MailServer
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.portal.http import answer_to, checked_address
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.verdicts import LATER, UNUSABLE_ADDRESS, broken_off
from leads_pipeline.settings import Secret, Settings

# Discord takes no more than 2,000 characters.
_CHAT_CHARACTERS: Final = 1800
_JSON: Final = {"Content-Type": "application/json"}


class Channel(ABC):
    """Somewhere that alerts go. `name` is the variable with its address."""

    name: ClassVar[str]

    @abstractmethod
    def send(self, digest: Digest) -> str | None:
        """Send it. Return a sentence if it was sent, but not to everybody.

        Raises UnreachableError, SettingsError and CredentialsError, or an error of the library.
        """


class _Address:
    """An address that a variable holds, in settings.py without LEADS_. It is read like a secret."""

    name: ClassVar[str]

    def __init__(self, url: Secret) -> None:
        self._url = url

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return what the settings set up, None if they don't."""
        url = getattr(settings.of(AlertSettings), cls.name.removeprefix("LEADS_").lower())
        return cls(url) if url else None


class Webhook(_Address, Channel):
    """Posts each message as a JSON object."""

    name = "LEADS_ALERT_WEBHOOK"

    def send(self, digest: Digest) -> None:
        """Post it (see Channel)."""
        _request("POST", self.name, read_secret(self._url).strip(), self._body(digest))

    def _body(self, digest: Digest) -> dict[str, Any]:
        return {"title": digest.title, "message": digest.text, **asdict(digest)}


class SlackWebhook(Webhook):
    """Posts each message as the webhooks of Slack, Mattermost and Discord (/slack) take it."""

    name = "LEADS_ALERT_SLACK_WEBHOOK"

    def _body(self, digest: Digest) -> dict[str, Any]:
        text = f"*{digest.title}*\n{digest.text}"
        if len(text) > _CHAT_CHARACTERS:
            text = f"{text[:_CHAT_CHARACTERS]} …\n`leads-pipeline findings` shows the rest."
        # Slack reads these three, and only these, as its own marks (Slack's documentation on
        # formatting text).
        for mark, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(mark, escaped)
        return {"text": text}


class Heartbeat(_Address):
    """The address of an outside monitor that rings when calls stop."""

    name = "LEADS_HEARTBEAT_URL"

    def beat(self, *, is_well: bool) -> None:
        """Call the address, or the one with /fail at the end of its path.

        Raises as Channel.send does.
        """
        url = read_secret(self._url).strip()
        parts = checked_address(self.name, url)
        if not is_well:
            url = urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/fail"))
        _request("GET", self.name, url)


class Email(Channel):
    """Mails each message to the addresses of LEADS_ALERT_EMAIL."""

    name = MailServer.name

    def __init__(self, server: MailServer, recipients: Sequence[str]) -> None:
        self._server = server
        self._recipients = recipients

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return it if there is a mail server and somebody to mail to."""
        server = MailServer.of(settings)
        recipients = settings.of(AlertSettings).alert_email
        return cls(server, recipients) if server and recipients else None

    def send(self, digest: Digest) -> str | None:
        """Mail it (see Channel). Return who was refused, if not everybody was."""
        mail = Mail(digest.title, digest.text, is_important=digest.has_new_error)
        return self._server.send(mail, self._recipients, digest.at, variable="LEADS_ALERT_EMAIL")


CHANNELS: Final[Sequence[type[Webhook | Email]]] = (Webhook, SlackWebhook, Email)


def channels_of(settings: Settings) -> list[Channel]:
    """Return the channels that are set up."""
    return [channel for channel in (one.of(settings) for one in CHANNELS) if channel]


SET_UP: Final = (
    "Set LEADS_ALERT_EMAIL and LEADS_SMTP_URL, or one of "
    f"{', '.join(one.name for one in CHANNELS if one is not Email)}."
)


# --- HTTP -----------------------------------------------------------------------------------------


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
        return (
            f"answers with a redirect ({status}), and no redirect is followed. Set {name} to the "
            "new address."
        )
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        return (
            "is behind a proxy that refuses (407). Check the proxy in the environment, its user "
            "and its password."
        )
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return f"can't take the message now ({status}). {LATER}"
    return (
        f"refuses the message ({status}). Make a new address there for this kind of message, and "
        f"set {name} to it."
    )
