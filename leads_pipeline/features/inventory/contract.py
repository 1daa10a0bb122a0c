"""The inventory API's contract: its paths, the fields of an item, and its answers.

It is `inventorySearch` in openapi.yaml.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from leads_pipeline.domain.bodies import parsed, received
from leads_pipeline.domain.contract import Field, FieldType
from leads_pipeline.domain.json_pieces import cut_list
from leads_pipeline.errors import InvalidAnswerError

INVENTORY_TOKEN_PATH: Final = "/token"  # noqa: S105 - a path, not a secret
INVENTORY_PATH: Final = "/inventory"

_T: Final = FieldType.TEXT

# openapi.yaml, InventoryPage. An item's own id is its item_id.
INVENTORY_FIELDS: Final = (
    Field("address.subDwelling", _T, "Flat or unit within the building"),
    Field("address.nameNo", _T, "House number or name"),
    Field("address.street", _T, "Street"),
    Field("address.locality", _T, "Locality"),
    Field("address.town", _T, "Town"),
    Field("address.county", _T, "County"),
    Field("address.postcode", _T, "Postcode"),
    Field("address.countryCode", _T, "Country code"),
)


class InventoryItem(NamedTuple):
    """An element of an inventory page as received: its id as in ReceivedLead, and exact text."""

    item_id: str
    payload: str


@dataclass(frozen=True, slots=True)
class InventoryPage:
    """One page of an inventory search. `next_token` is None on the last one."""

    items: tuple[InventoryItem, ...]
    next_token: str | None


def read_inventory_page(body: bytes) -> InventoryPage:
    """Cut a 200 body of the inventory search into its items, and find the cursor of the next page.

    A missing, null or empty `meta.nextToken` means the last page. Raises InvalidAnswerError like
    cut_leads, and for a cursor of any other shape: to stop there would lose the pages behind it.
    """
    elements, members = cut_list("items", body)
    items = tuple(InventoryItem(*received(element)) for element in elements)

    meta = parsed(dict(members).get("meta", b"null"))
    token = meta.get("nextToken") if isinstance(meta, dict) else None
    is_text = isinstance(token, str) and not re.search("[\ud800-\udfff]", token)
    if not isinstance(meta, dict | None) or not (token is None or is_text):
        raise InvalidAnswerError("'meta.nextToken' is no text.", reason="bad cursor")
    return InventoryPage(items, token or None)
