"""The inventory search: listings by a free text of a place, page by page.

Belongs here: which listings match, and what a cursor means. Doesn't: HTTP (app.py), or the listings themselves
(stock.py).
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from leads_pipeline.simulator.organisation import Branch
from leads_pipeline.simulator.stock import Listing, Stock

AGENCY_REF: Final = "AGENCY-SIMULATOR"
_DEFAULT_PAGE: Final = 50
_LARGEST_PAGE: Final = 250
_CATEGORIES: Final = ("Unspecified", "Residential", "Commercial")
_RECORD_TYPES: Final = ("Unspecified", "Sale", "Rent")
# How a listing's words can be split: "14 High Street, Ashford".
_BETWEEN_WORDS: Final = re.compile(r"[\s,]+")


class SearchError(Exception):
    """A search that can't be: its text goes into the problem's `detail`."""


@dataclass(frozen=True, slots=True)
class _Search:
    address: str
    category: str
    record_type: str
    archived: bool | None

    @property
    def words(self) -> list[str]:
        return [word for word in _BETWEEN_WORDS.split(self.address.casefold()) if word]

    def finds(self, listing: Listing, text: str) -> bool:
        return (
            (self.category == "Unspecified" or listing.is_commercial == (self.category == "Commercial"))
            and (self.record_type == "Unspecified" or listing.is_rented == (self.record_type == "Rent"))
            and (self.archived is None or listing.is_archived == self.archived)
            and all(word in text for word in self.words)
        )


class Inventory:
    """The stock of all branches as one agency's inventory."""

    def __init__(self, stock: Stock, branches: Iterable[Branch]) -> None:
        self._stock = stock
        self._branches = branches
        self._searchable: list[tuple[Listing, str]] = []

    def page(self, parameters: Mapping[str, str]) -> bytes:
        """One page of a search, as JSON text. Raises SearchError."""
        search = _search(parameters)
        size = _page_size(parameters.get("maxResults"))
        matches = [listing for listing, text in self._texts() if search.finds(listing, text)]
        start = 0
        if (cursor := parameters.get("nextToken")) is not None:
            start = _offset(search, cursor, len(matches))
        end = start + size
        meta = {
            "nextToken": _cursor(search, end) if end < len(matches) else None,
            "previousToken": _cursor(search, max(0, start - size)) if start else None,
        }
        items = b",".join(listing.item for listing in matches[start:end])
        return b'{"meta":%s,"items":[%s]}' % (msgspec.json.encode(meta), items)

    def _texts(self) -> list[tuple[Listing, str]]:
        if not self._searchable:
            listings = (listing for branch in self._branches for listing in self._stock.of(branch))
            self._searchable = [(listing, _text(listing)) for listing in listings]
        return self._searchable


def _text(listing: Listing) -> str:
    place = listing.address
    parts = (place.flat, place.name_or_number, place.street, place.locality, place.town.name, place.town.county)
    # The postcode with and without its space: people write both.
    return " ".join((*parts, place.postcode, place.postcode.replace(" ", ""))).casefold()


def _search(parameters: Mapping[str, str]) -> _Search:
    archived = parameters.get("archived")
    if archived not in (None, "true", "false"):
        raise SearchError("archived must be true or false.")
    return _Search(
        address=parameters.get("address", ""),
        category=_member(parameters, "category", _CATEGORIES),
        record_type=_member(parameters, "recordType", _RECORD_TYPES),
        archived=None if archived is None else archived == "true",
    )


def _member(parameters: Mapping[str, str], name: str, members: tuple[str, ...]) -> str:
    value = parameters.get(name, "Unspecified")
    if value not in members:
        raise SearchError(f"{name} must be one of {', '.join(members)}.")
    return value


def _page_size(value: str | None) -> int:
    if value is None:
        return _DEFAULT_PAGE
    if not re.fullmatch(r"[0-9]{1,9}", value) or not 1 <= int(value) <= _LARGEST_PAGE:
        raise SearchError(f"maxResults must be a whole number from 1 to {_LARGEST_PAGE}.")
    return int(value)


def _cursor(search: _Search, offset: int) -> str:
    """A cursor is good for the search that gave it, and for no other."""
    proof = hashlib.sha256(f"{search!r}|{offset}".encode("utf-8", "backslashreplace")).hexdigest()[:16]
    return base64.urlsafe_b64encode(f"{offset}.{proof}".encode()).decode()


def _offset(search: _Search, cursor: str, count: int) -> int:
    try:
        offset = int(base64.urlsafe_b64decode(cursor.encode("ascii")).decode("ascii").partition(".")[0])
    except ValueError:
        offset = -1
    if not 0 <= offset < count or cursor != _cursor(search, offset):
        raise SearchError("nextToken is not a cursor of this search.")
    return offset
