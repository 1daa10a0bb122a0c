"""The inventory client: all pages of a search, or the error of the first page that failed."""

import itertools
from collections.abc import Iterator
from typing import Final

from leads_pipeline.errors import InvalidAnswerError
from leads_pipeline.features.inventory.contract import (
    INVENTORY_PATH,
    InventoryItem,
    InventoryPage,
    read_inventory_page,
)
from leads_pipeline.portal.http import checked_header
from leads_pipeline.portal.run import Requests, RequestSpec, Service

# The largest page that the service gives (openapi.yaml, inventorySearch).
INVENTORY_PAGE_SIZE: Final = 250
# 250,000 items for one address. More pages mean that the cursor never ends.
MAX_INVENTORY_PAGES: Final = 1000

_ADVICE: Final = {
    401: (
        "If it stays so for an hour, ask the portal whether this client may read the inventory. "
        "INVENTORY_CLIENT_ID and INVENTORY_CLIENT_SECRET are right, because the token server gives "
        "tokens for them."
    ),
    403: "The token is accepted, but not for this agency. Compare INVENTORY_AGENCY_REF with the "
    "portal's e-mail.",
}


class InventoryClient:
    """Searches the inventory of one agency.

    Keeps the address, which can be a lead's home, out of messages.
    """

    def __init__(self, service: Service, agency_ref: str) -> None:
        self._service = service
        self._agency_ref = checked_header("INVENTORY_AGENCY_REF", agency_ref)

    @property
    def requests_made(self) -> int:
        """The requests since the client was made, without those for tokens."""
        return self._service.requests_made

    def search(self, address: str) -> tuple[InventoryItem, ...]:
        """Return all items of all pages for a place, in the service's order.

        Raises the LeadsPipelineError of the first page that failed, and InvalidAnswerError if the
        pages never end: a part of a search is never taken for the whole.
        """
        return tuple(itertools.chain.from_iterable(page.items for page in self._pages(address)))

    def first_page(self, address: str) -> InventoryPage:
        """Return the first page for a place, to see if the API answers. Raises as `search` does."""
        return next(self._pages(address))

    def _pages(self, address: str) -> Iterator[InventoryPage]:
        parameters = {"address": address, "maxResults": str(INVENTORY_PAGE_SIZE)}
        run = Requests(self._service)

        try:
            for number in range(1, MAX_INVENTORY_PAGES + 1):
                spec = RequestSpec(
                    path=INVENTORY_PATH,
                    parameters=parameters,
                    headers={"AgencyRef": self._agency_ref},
                    about=f"page {number}",
                    advice=_ADVICE,
                )
                page = run.fetch(spec, read_inventory_page).value
                yield page
                if page.next_token is None:
                    return
                parameters = {**parameters, "nextToken": page.next_token}
        finally:
            run.close()

        raise InvalidAnswerError(
            f"The inventory search has more than {MAX_INVENTORY_PAGES} pages. Nothing of it is "
            "kept. Search for a smaller place. If it stays so, tell the portal's technical "
            "contact.",
            reason="endless cursor",
        )
