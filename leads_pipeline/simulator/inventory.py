"""The inventory search: listings by a free text of a place, page by page."""

import re
import zlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final

import msgspec

from leads_pipeline.simulator.organisation import Branch
from leads_pipeline.simulator.stock import Listing, Stock

AGENCY_REF: Final = "AGENCY-SIMULATOR"
_DEFAULT_PAGE: Final = 50
_LARGEST_PAGE: Final = 250


class SearchError(Exception):
    """A search that can't be answered; its text goes into the problem's `detail`."""


class Inventory:
    """The stock of all branches as one agency's inventory."""

    def __init__(self, stock: Stock, branches: Iterable[Branch]) -> None:
        self._stock = stock
        self._branches = branches

    def page(self, parameters: Mapping[str, str]) -> bytes:
        """Return one page of a search, as JSON text. Raises SearchError.

        The parameters are `address`, `maxResults` and `nextToken`.
        """
        address = parameters.get("address", "")
        size = parameters.get("maxResults", str(_DEFAULT_PAGE))
        if not re.fullmatch(r"[0-9]{1,3}", size) or not 1 <= int(size) <= _LARGEST_PAGE:
            raise SearchError(f"maxResults must be a whole number from 1 to {_LARGEST_PAGE}.")

        words = re.split(r"[\s,]+", address.casefold())
        matches = [item for item, text in self._searchable if all(word in text for word in words)]
        start = 0

        if (cursor := parameters.get("nextToken")) is not None:
            number = cursor.partition("-")[0]
            start = int(number) if re.fullmatch(r"[0-9]{1,9}", number) else -1
            if not 0 <= start < len(matches) or cursor != _cursor(address, start):
                raise SearchError("nextToken is not a cursor of this search.")

        end = start + int(size)
        meta = {
            "nextToken": _cursor(address, end) if end < len(matches) else None,
            "previousToken": _cursor(address, max(0, start - int(size))) if start else None,
        }
        return b'{"meta":%s,"items":[%s]}' % (
            msgspec.json.encode(meta),
            b",".join(matches[start:end]),
        )

    @cached_property
    def _searchable(self) -> list[tuple[bytes, str]]:
        """Each listing ready to send, and the text that it is found by."""
        return [
            (listing.item, _searched_text(listing))
            for branch in self._branches
            for listing in self._stock.of(branch)
        ]


def _searched_text(listing: Listing) -> str:
    place = listing.address
    parts = (
        place.flat,
        place.name_or_number,
        place.street,
        place.locality,
        place.town.name,
        place.town.county,
    )
    # The postcode with and without its space: people write both.
    return " ".join((*parts, place.postcode, place.postcode.replace(" ", ""))).casefold()


def _cursor(address: str, start: int) -> str:
    """A cursor is good for the search that gave it, and for no other."""
    return f"{start}-{zlib.crc32(address.encode(errors='backslashreplace')):08x}"
