"""A message as the Standard Webhooks specification wants it: one body, with an id and a signature.

Belongs here: secrets, signatures, headers. Doesn't: the body's members (message.py), sending it
(posting.py).
"""

import base64
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final

from standardwebhooks import Webhook

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.form import Event, EventType, HttpRequest
from leads_pipeline.features.delivery.message import encoded

# The specification allows these lengths of a secret.
_SECRET_BYTES: Final = range(24, 65)


@dataclass(frozen=True, slots=True)
class StandardWebhook:
    """Each event is posted to one address. Its `repr` shows no secret."""

    url: str = field(repr=False)
    secret: str = field(repr=False)
    authorization: str | None = field(repr=False)
    host: str
    credentials: None = None

    @property
    def address(self) -> str:
        """The address."""
        return self.url

    def sends(self, event_type: EventType) -> bool:  # noqa: ARG002 - as any form
        """All events are sent."""
        return True

    def is_done(self, event_type: EventType, status: int) -> bool:  # noqa: ARG002 - as any form
        """A success, as the specification says."""
        return 200 <= status < 300

    def is_final(self, event_type: EventType, status: int) -> bool:  # noqa: ARG002 - as any form
        """No answer is."""
        return False

    def id_path(self, event_type: EventType) -> tuple[str, ...]:  # noqa: ARG002 - as any form
        """No answer has one."""
        return ()

    def is_gone(self, event_type: EventType, status: int) -> bool:  # noqa: ARG002 - as any form
        """410, as the specification says."""
        return status == HTTPStatus.GONE

    def request(self, event: Event, now: datetime) -> HttpRequest:
        """Sign the message. Receivers refuse a timestamp that is older than five minutes."""
        body = encoded(event.message)
        at = now.astimezone(UTC)
        headers = {
            "content-type": "application/json",
            "webhook-id": event.id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": signer(self.secret).sign(event.id, at, body.decode()),
        }
        if self.authorization:
            headers["authorization"] = self.authorization
        return HttpRequest("POST", self.url, headers, body)


def signer(secret: str, name: str = "LEADS_DELIVERY_SECRET") -> Webhook:
    """Return what signs with a secret.

    Raises SettingsError, without the secret, if it can't be one.

    The library decodes as much of a text as it can, so a bad secret would sign with too few bytes.
    """
    prefix, _, text = secret.strip().rpartition("whsec_")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        key = b""
    if prefix not in ("", "v1,") or len(key) not in _SECRET_BYTES:
        raise SettingsError(
            f"{name} isn't 24 to 64 bytes in Base64. Make one: "
            '`echo "whsec_$(openssl rand -base64 32)"`. The endpoint needs the same.'
        )
    return Webhook(key)
