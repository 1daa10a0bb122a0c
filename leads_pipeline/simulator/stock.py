"""The agent's listings: what people ask about, and what the inventory search finds.

Belongs here: a branch's listings, each made once and ready to send. Doesn't: the search itself
(inventory.py) or the leads about a listing (leads.py).
"""

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Final

import msgspec

from leads_pipeline.simulator.made_up import Address, address, pick
from leads_pipeline.simulator.organisation import Branch

LISTINGS_PER_BRANCH: Final = 24
_RENTED: Final = 0.35  # share of listings to let
_ARCHIVED: Final = 0.15
_WITHOUT_IMAGES: Final = 0.1
_SEARCHES_PER_LISTING: Final = 4
# Real numbers have at most 12 digits. Now and then one lies beyond 2^53, where a client that reads
# integers as floats changes it. The contract calls it a 64-bit integer.
_HUGE_UPRN: Final = 0.03
_EXACT_IN_A_FLOAT: Final = 2**53

# The 45 published property types, by how often they come.
_HOMES: Final = (
    (60, "FLAT"),
    (40, "TERRACED SEMI_DETACHED"),
    (30, "DETACHED"),
    (12, "END_TERRACE BUNGALOW"),
    (
        6,
        "MAISONETTE DETACHED_BUNGALOW MID_TERRACE COTTAGE TOWN_HOUSE SEMI_DETACHED_BUNGALOW STUDIO",
    ),
    (3, "UNSPECIFIED LINK_DETACHED MEWS BARN_CONVERSION PARK_HOME"),
    (2, "FARMHOUSE COUNTRY_HOUSE TERRACED_BUNGALOW CHALET"),
    (1, "VILLA LODGE HOUSEBOAT EQUESTRIAN CHATEAU FINCA LONGERE RIAD"),
)
_GROUND: Final = ((4, "LAND PARKING"), (1, "FARM FARM_BARN BLOCK_OF_FLATS JUNK"))
_COMMERCIAL: Final = (
    (4, "OFFICE RETAIL"),
    (1, "RESTAURANT PUB_BAR HOTEL LEISURE INDUSTRIAL LIGHT_INDUSTRIAL WAREHOUSE"),
)


def _often(*weighted: tuple[int, str]) -> tuple[str, ...]:
    """Return each name as many times as it counts, for `pick`."""
    return tuple(name for weight, names in weighted for name in names.split() * weight)


HOMES: Final = _often(*_HOMES)
PROPERTY_TYPES: Final = _often(*_HOMES, *_GROUND, *_COMMERCIAL)
_COMMERCIAL_TYPES: Final = {*_often(*_COMMERCIAL)}
_WITHOUT_BEDROOMS: Final = {"STUDIO", "LAND", "PARKING", *_COMMERCIAL_TYPES}


@dataclass(frozen=True, slots=True)
class Listing:
    """A property for sale or to let.

    `details` is the listing as a lead carries it, `item` as the inventory does, `searches` what
    those who ask about it have searched for. They are made once: writing them is most of the work
    of a lead.
    """

    address: Address
    is_rented: bool
    is_archived: bool
    is_commercial: bool
    price: int
    details: msgspec.Raw
    searches: tuple[msgspec.Raw, ...]
    item: bytes


class Stock:
    """Listings of all branches, made when first asked for."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        # Bounded by the number of branches; a listing is about 4 kB.
        self.of = lru_cache(maxsize=None)(self._of)

    def _of(self, branch: Branch) -> tuple[Listing, ...]:
        """The listings of a branch; the first are those that most people ask about."""
        rng = Random(f"{self._seed}|stock|{branch.id}")  # noqa: S311 - made-up data, no secret
        return tuple(_listing(rng, branch, number) for number in range(LISTINGS_PER_BRANCH))


def estimate(rng: Random, value: int) -> dict[str, Any]:
    """The portal's own estimate around a price."""
    margin = pick(rng, (4, 8, 15))
    return {
        "lowerRange": value * (100 - margin) // 100,
        "upperRange": value * (100 + margin) // 100,
        "value": value,
        "confidence": 100 - 3 * margin,
        "confidenceBand": {
            4: "CONFIDENCE_BAND_HIGH",
            8: "CONFIDENCE_BAND_MEDIUM",
            15: "CONFIDENCE_BAND_LOW",
        }[margin],
    }


def amount(rng: Random, value: int) -> msgspec.Raw:
    """A sum of money as the portal writes it: 250000, 250000.00 or 250000.10.

    A float would shorten it.
    """
    return msgspec.Raw(f"{value}{pick(rng, ('', '', '', '.00', '.10', '.50'))}".encode())


def uprn(rng: Random) -> int:
    """A property reference number."""
    if rng.random() < _HUGE_UPRN:
        return _EXACT_IN_A_FLOAT + 1 + 2 * int(rng.random() * 10**12)
    return 10**9 + int(rng.random() * (10**12 - 10**9))


def _listing(rng: Random, branch: Branch, number: int) -> Listing:
    place = address(rng, branch.town)
    is_rented = rng.random() < _RENTED
    # Nobody asks about what is gone: archived listings stand at the unpopular end (leads.py picks
    # from the front).
    is_archived = number >= LISTINGS_PER_BRANCH * (1 - _ARCHIVED)
    kind = pick(rng, PROPERTY_TYPES)
    bedrooms = 0 if kind in _WITHOUT_BEDROOMS else 1 + int(rng.random() * 5)
    price = (
        425 + 25 * int(rng.random() * 80) if is_rented else 95_000 + 2_500 * int(rng.random() * 300)
    )
    listing_id = str(50_000_000 + branch.number * 1000 + number)
    offer = "to-rent" if is_rented else "for-sale"
    details = {
        "id": listing_id,
        "branchId": branch.number,
        "bedrooms": bedrooms,
        "bathrooms": 1 + bedrooms // 3,
        "receptions": 1 + bedrooms // 4,
        "lifeCycleStatus": _life_cycle(rng, is_rented, is_archived),
        "address": {
            "propertyNumberOrName": " ".join(filter(None, (place.flat, place.name_or_number))),
            "streetName": place.street,
            "locality": place.locality,
            "townOrCity": place.town.name,
            "postcode": place.postcode,
            "countryCode": "gb",
        },
        "pricing": {
            "transactionType": "TRANSACTION_TYPE_RENT" if is_rented else "TRANSACTION_TYPE_SALE",
            "currencyCode": "gbp",
            "price": amount(rng, price),
            "rentFrequency": "RENT_FREQUENCY_PER_MONTH"
            if is_rented
            else "RENT_FREQUENCY_UNSPECIFIED",
        },
        "estimate": estimate(rng, price),
        "propertyId": 4_000_000 + branch.number * 1000 + number,
        "uprn": uprn(rng),
        "propertyType": f"PROPERTY_TYPE_{kind}",
        "sourceBranchId": branch.source_id,
        "sourceId": f"{branch.source_id}-{number:04}",
        "url": f"https://portal.example/{offer}/details/{listing_id}/",
        "images": _images(rng, listing_id),
    }

    return Listing(
        address=place,
        is_rented=is_rented,
        is_archived=is_archived,
        is_commercial=kind in _COMMERCIAL_TYPES,
        price=price,
        searches=tuple(
            msgspec.Raw(msgspec.json.encode(_search(rng, place, is_rented, bedrooms, price, kind)))
            for _ in range(_SEARCHES_PER_LISTING)
        ),
        details=msgspec.Raw(msgspec.json.encode(details)),
        item=msgspec.json.encode(_item(listing_id, place)),
    )


def _search(
    rng: Random, place: Address, is_rented: bool, bedrooms: int, price: int, kind: str
) -> dict[str, Any]:
    """A search that finds such a listing."""
    has_street = rng.random() < 0.2
    has_incode = rng.random() < 0.2
    return {
        "location": {
            "alias": f"{place.town.name}, {place.town.county}",
            "area": place.town.name,
            "areaStreet": place.street if has_street else "",
            "country": "England",
            "countryCode": "gb",
            "countyArea": place.town.county,
            "district": place.locality,
            "incode": place.incode if has_incode else "",
            "outcode": place.town.outcode,
            "postTown": place.town.name,
            "postalArea": place.town.postal_area,
            "region": place.town.region,
        },
        "radius": pick(rng, (0, 0.25, 0.5, 1, 3, 5, 10)),
        "minimumBedrooms": max(0, bedrooms - pick(rng, (0, 1, 1, 2))),
        "maximumBedrooms": bedrooms + pick(rng, (0, 1, 1, 2)),
        "minimumPrice": amount(rng, price * pick(rng, (5, 7, 8, 9)) // 10),
        "maximumPrice": amount(rng, price * pick(rng, (10, 11, 12, 15)) // 10),
        "priceFrequency": "RENT_FREQUENCY_PER_MONTH" if is_rented else "RENT_FREQUENCY_UNSPECIFIED",
        "propertyType": f"PROPERTY_TYPE_{kind}",
        "propertySubType": "",
    }


def _life_cycle(rng: Random, is_rented: bool, is_archived: bool) -> str:
    if is_archived:
        return "LIFE_CYCLE_STATUS_LET" if is_rented else "LIFE_CYCLE_STATUS_SOLD"
    if rng.random() < 0.12:
        return (
            "LIFE_CYCLE_STATUS_LET_AGREED"
            if is_rented
            else "LIFE_CYCLE_STATUS_SOLD_SUBJECT_TO_CONTRACT"
        )
    return "LIFE_CYCLE_STATUS_TO_LET" if is_rented else "LIFE_CYCLE_STATUS_FOR_SALE"


def _images(rng: Random, listing_id: str) -> list[dict[str, str]] | None:
    if rng.random() < _WITHOUT_IMAGES:
        return None

    names = [f"{listing_id}_{position:02}.jpg" for position in range(1 + int(rng.random() * 5))]
    return [
        {
            "original": f"https://agent.example/photos/{name}",
            "cdnUrl": f"https://images.portal.example/u/1024/768/{name}",
            "filename": name,
        }
        for name in names
    ]


def _item(listing_id: str, place: Address) -> dict[str, Any]:
    return {
        "id": listing_id,
        "address": {
            "subDwelling": place.flat or None,
            "nameNo": place.name_or_number,
            "street": place.street,
            "locality": place.locality or None,
            "town": place.town.name,
            "county": place.town.county,
            "postcode": place.postcode,
            "countryCode": "GB",
        },
    }
