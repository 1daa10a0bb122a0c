"""The destinations of leads: the one of LEADS_DELIVERY_URL, or those of LEADS_DESTINATIONS_FILE.

Belongs here: which there are, and which leads each wants. Doesn't: reading the file
(destinations_file.py), the form of what is sent (webhook.py, request_form.py).
"""

from dataclasses import dataclass
from datetime import date

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.form import Event, EventType, Form, HttpRequest
from leads_pipeline.features.delivery.ledger import DEFAULT
from leads_pipeline.features.delivery.settings import DeliverySettings
from leads_pipeline.features.delivery.webhook import StandardWebhook, signer
from leads_pipeline.portal.credentials import read_secret
from leads_pipeline.portal.http import checked_address, checked_header
from leads_pipeline.settings import Settings


@dataclass(frozen=True, slots=True)
class Filter:
    """Which versions of leads a destination gets. An empty set means: all."""

    kinds: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    markets: frozenset[str] = frozenset()

    def takes_window(self, kind: str, scope: str) -> bool:
        """Whether leads of that kind and scope may be sent."""
        return (not self.kinds or kind in self.kinds) and (not self.scopes or scope in self.scopes)

    def takes_market(self, market: str) -> bool:
        """Whether leads of that market may be sent."""
        return not self.markets or market in self.markets

    @property
    def text(self) -> str:
        """A text that differs if other leads may be sent. Empty if all may."""
        parts = [sorted(self.kinds), sorted(self.scopes), sorted(self.markets)]
        return repr(parts) if any(parts) else ""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where leads are sent to. Each has a ledger, pauses and findings of its own.

    `first_day` is the first day whose leads are sent. Without it, that of the first delivery.
    `outcomes` is the request that Alto answers with what came of leads, None if nobody asks.
    """

    name: str
    form: Form
    filter: Filter = Filter()
    first_day: date | None = None
    outcomes: HttpRequest | None = None

    def wants(self, event: Event) -> bool:
        """Whether the event may be sent.

        The filter may have been narrowed since the version was noted.
        """
        data = event.message["data"]
        is_of_filter = event.type is EventType.ERASED or (
            self.filter.takes_window(data["kind"], data["scope"])
            and self.filter.takes_market(data["market"])
        )
        return is_of_filter and self.form.sends(event.type)

    @property
    def shown(self) -> str:
        """Its name for people."""
        return self.form.host if self.name == DEFAULT else f"{self.name} ({self.form.host})"


def destinations_of(settings: Settings) -> list[Destination]:
    """Return all destinations, none if delivery is off.

    Raises SettingsError and CredentialsError.
    """
    given = settings.of(DeliverySettings)
    if given.destinations_file is None:
        return _of_variables(given)

    both = [
        name for name in ("LEADS_DELIVERY_URL", "LEADS_DELIVERY_SECRET") if name in settings.given
    ]
    if both:
        raise SettingsError(
            f"LEADS_DESTINATIONS_FILE and {both[0]} are set. Keep one. To go on in the file, give "
            f'that destination the name "{DEFAULT}": then nothing is sent again.'
        )
    from leads_pipeline.features.delivery.destinations_file import read_destinations

    return read_destinations(given.destinations_file, settings.given)


def _of_variables(given: DeliverySettings) -> list[Destination]:
    url = given.delivery_url
    secret = given.delivery_secret
    header = given.delivery_authorization
    if bool(url) != bool(secret):
        raise SettingsError(
            "LEADS_DELIVERY_URL and LEADS_DELIVERY_SECRET go together. Set both, or none."
        )
    if url is None or secret is None:
        return []

    address = read_secret(url).strip()
    key = read_secret(secret)
    host = checked_address("LEADS_DELIVERY_URL", address).hostname or ""
    signer(key)
    authorization = (
        checked_header("LEADS_DELIVERY_AUTHORIZATION", read_secret(header)) if header else None
    )
    form = StandardWebhook(address, key, authorization, host)
    return [Destination(DEFAULT, form, first_day=given.delivery_from)]
