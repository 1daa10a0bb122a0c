"""The settings of delivery."""

from datetime import date
from typing import Annotated, Final

from pydantic import PlainValidator

from leads_pipeline.settings import AbsolutePath, FeatureSettings, Secret, day_of, setting

_DELIVERY: Final = "Leads that the pipeline delivers to a system of yours, for example a CRM"


class DeliverySettings(FeatureSettings):
    """Where new leads are sent to."""

    delivery_url: Secret | None = setting("LEADS_DELIVERY_URL", _DELIVERY)
    """The address that each new lead, and each new version of one, is posted to.

    If it is empty, nothing is sent
    """
    delivery_secret: Secret | None = setting("LEADS_DELIVERY_SECRET", _DELIVERY)
    """The secret that signs each message, by the Standard Webhooks specification: `echo
    "whsec_$(openssl rand -base64 32)"`
    """
    delivery_authorization: Secret | None = setting("LEADS_DELIVERY_AUTHORIZATION", _DELIVERY)
    """The header `Authorization` of each message, if the address wants one: Bearer and a token, for
    example
    """
    delivery_from: Annotated[date | None, PlainValidator(day_of)] = setting(
        "LEADS_DELIVERY_FROM", _DELIVERY
    )
    """The first day whose leads are delivered, as 2026-11-19; the day of the first delivery if it
    is empty
    """
    destinations_file: AbsolutePath = setting(
        "LEADS_DESTINATIONS_FILE", _DELIVERY, link="guides/deliver-leads.md#several-destinations"
    )
    """Instead of the four above: a TOML file with several destinations, each with its own filter
    and form
    """

    @property
    def is_on(self) -> bool:
        """Whether leads are delivered anywhere."""
        return self.delivery_url is not None or self.destinations_file is not None
