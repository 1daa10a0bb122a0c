"""The inventory client: all pages of a search, or the error of the first that couldn't be had."""

import contextlib
import itertools
import logging
import re
from collections.abc import Generator
from functools import partial

import httpx

from leads_pipeline.client.background import Outbox, in_background
from leads_pipeline.client.run import Run
from leads_pipeline.client.service import DEADLINE_SECONDS, MAX_BODY_BYTES, FetchStats, RequestSpec, Service, Timing
from leads_pipeline.contract import INVENTORY_PATH, InventoryItem, InventoryPage, read_inventory_page
from leads_pipeline.errors import InvalidAnswerError, SettingsError
from leads_pipeline.retry import RetryPolicy

# The largest page that the service gives (openapi.yaml, inventorySearch).
INVENTORY_PAGE_SIZE = 250
# 250,000 items for one address: more is a cursor that leads nowhere.
MAX_INVENTORY_PAGES = 1000
_INVENTORY_401 = (
    "The token is refused even after a renewal. Check INVENTORY_CLIENT_ID and INVENTORY_CLIENT_SECRET; then ask the "
    "portal whether they are still valid."
)
_INVENTORY_403 = "The token is fine, the agency isn't: check INVENTORY_AGENCY_REF against the e-mail that it came in."


class InventoryClient:
    """Searches the inventory of one agency. Keeps the address, which can be a lead's home, out of logs and messages."""

    def __init__(
        self,
        base_url: str,
        auth: httpx.Auth,
        agency_ref: str,
        *,
        policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        transport: httpx.AsyncBaseTransport | None = None,
        timing: Timing | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        if not re.fullmatch(r"[!-~](?:[ -~]*[!-~])?", agency_ref):
            raise SettingsError(
                "INVENTORY_AGENCY_REF can't be sent as a header: write plain ASCII without line breaks."
            )
        self._agency_ref = agency_ref
        self._service = Service(
            base_url=base_url.rstrip("/"),
            auth=auth,
            policy=policy,
            timing=timing or Timing(),
            transport=transport,
            max_concurrency=1,  # a page is known only from the one before
            deadline_seconds=deadline_seconds,
            max_body_bytes=max_body_bytes,
        )
        logging.getLogger("httpx").addFilter(_hide_inventory_query)

    @property
    def stats(self) -> FetchStats:
        """Requests, retries, waiting and bytes since the client was made."""
        return self._service.stats

    def search(self, address: str) -> tuple[InventoryItem, ...]:
        """All items of all pages for a place, in the service's order.

        Raises the LeadsPipelineError of the first page that couldn't be had, and InvalidAnswerError for a cursor that
        repeats or never ends: part of a search is never taken for the whole.
        """
        pages = in_background(partial(self._fetch_pages, address), capacity=2)
        return tuple(itertools.chain.from_iterable(page.items for page in pages))

    def first_page(self, address: str) -> InventoryPage:
        """The first page for a place, to see whether the API answers. Raises as `search` does."""
        pages: Generator[InventoryPage, None, None] = in_background(partial(self._fetch_pages, address), capacity=1)
        with contextlib.closing(pages):  # or the pages after it would be fetched as well
            return next(pages)

    async def _fetch_pages(self, address: str, outbox: "Outbox[InventoryPage]") -> None:
        parameters = {"address": address, "maxResults": str(INVENTORY_PAGE_SIZE)}
        seen: set[str] = set()
        run = Run(self._service)
        async with run.connection() as http:
            for number in range(1, MAX_INVENTORY_PAGES + 1):
                await outbox.has_room()
                spec = RequestSpec(
                    path=INVENTORY_PATH,
                    parameters=parameters,
                    headers={"AgencyRef": self._agency_ref},
                    about=f"page {number}",
                    hints={401: _INVENTORY_401, 403: _INVENTORY_403},
                )
                page = (await run.fetch(http, spec, partial(read_inventory_page, number=number))).value
                outbox.put(page)
                if page.next_token is None:
                    return
                if page.next_token in seen:
                    raise InvalidAnswerError(
                        f"{spec} names a next page that was had before, so the search would never end. Nothing of it "
                        "is kept; it is tried again later. If it stays so, tell the portal's contact.",
                        reason="repeating cursor",
                    )
                seen.add(page.next_token)
                parameters = {**parameters, "nextToken": page.next_token}
        raise InvalidAnswerError(
            f"The inventory search has more than {MAX_INVENTORY_PAGES} pages. Nothing of it is kept. Search for a "
            "smaller place.",
            reason="endless cursor",
        )


def _hide_inventory_query(record: logging.LogRecord) -> bool:
    """Take the query from the URLs that httpx logs: the address of a search can be a lead's home."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg.copy_with(query=None) if isinstance(arg, httpx.URL) and arg.path.endswith(INVENTORY_PATH) else arg
            for arg in record.args
        )
    return True
