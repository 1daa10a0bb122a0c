"""The settings of the inventory."""

from functools import partial
from typing import Annotated, Final

from pydantic import PlainValidator

from leads_pipeline.settings import (
    Address,
    ClientId,
    FeatureSettings,
    Secret,
    list_of,
    setting,
    whole_number,
)

_INVENTORY: Final = "The inventory API; everything else runs without it"


class InventorySettings(FeatureSettings):
    """The inventory API, and what is searched for."""

    inventory_base_url: Address = setting("INVENTORY_BASE_URL", _INVENTORY)
    """Address of the inventory API: https://api.alto.zoopla.co.uk for Alto's,
    https://api.alto.zoopladev.co.uk for its sandbox. `/token` is appended for its tokens"""
    inventory_client_id: ClientId = setting("INVENTORY_CLIENT_ID", _INVENTORY)
    """The client id of the integration that you made in the developer portal"""
    inventory_client_secret: Secret | None = setting("INVENTORY_CLIENT_SECRET", _INVENTORY)
    """Its client secret"""
    inventory_agency_ref: str | None = setting("INVENTORY_AGENCY_REF", _INVENTORY)
    """The agency reference that came by e-mail"""
    inventory_addresses: Annotated[
        tuple[str, ...], PlainValidator(partial(list_of, separator=";"))
    ] = setting("INVENTORY_ADDRESSES", _INVENTORY, ())
    """The places to search for, separated by semicolons: York; Leeds LS1"""
    inventory_from_leads_days: Annotated[int, whole_number(0, 90)] = setting(
        "INVENTORY_FROM_LEADS_DAYS", _INVENTORY, 0
    )
    """Also search for the postcodes of listings that applicants asked about in this many days: 0 to
    90. Each postcode takes at least one request a day, up to 500. One search for a town finds them
    all"""

    @property
    def reason_against(self) -> str | None:
        """Why there is no inventory to pull; None if there is one."""
        if self.inventory_base_url is None:
            return "INVENTORY_BASE_URL is not set: there is no inventory to pull."
        if not self.inventory_addresses and not self.inventory_from_leads_days:
            return (
                "Neither INVENTORY_ADDRESSES nor INVENTORY_FROM_LEADS_DAYS says what to search for."
            )
        return None
