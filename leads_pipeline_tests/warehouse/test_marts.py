"""Each mart against what its question's answer is, worked out in plain Python from the portal's own
leads.
"""

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from uuid import UUID

import duckdb
import pytest

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Branch, Organisation
from leads_pipeline.warehouse.marts import marts
from leads_pipeline_tests.support.house import LONDON, House
from leads_pipeline_tests.support.portal_leads import Lead, groups, people

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
# The clocks go back within these days.
DAYS = [date(2026, 10, 22) + timedelta(days=number) for number in range(10)]

# The third has none, and one that is named isn't configured.
NAMES = {"branch-101": "York", "branch-102": "Leeds", "branch-999": "Hull"}

# In place of a value that one person alone has sent and that the contract doesn't know.
HIDDEN = "…"

# A listing's price, what it is per, the rent of a month, its band.
PRICED = {
    "1": (Decimal(10**15), None, None, "5,000,000 or more"),
    "weekly": (300, "per week", 1300, "1,000 to 1,499"),
    "free": (None, "per month", None, "unknown"),
    "of no time": (1300, None, None, "unknown"),
    "owed": (-5, "per month", -5, "unknown"),
    "beyond any rent": (10**16 - 1, "per week", None, "unknown"),
}


def let(id_: str, price: int, per: str = "") -> dict[str, Any]:
    """A lead of a listing to let that says nothing else. Blanks count as nothing."""
    listing: dict[str, Any] = {
        "id": id_,
        "url": "",
        "propertyType": " ",
        "address": {"townOrCity": " ", "streetName": ""},
    }
    listing["pricing"] = {"price": price, "rentFrequency": per}
    return {"enquiryType": "ENQUIRY_TYPE_LETTINGS", "listingDetails": listing}


ODD: list[dict[str, Any]] = [
    {
        "contact": {"email": " Ann@Example.org "},
        "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_LET",
    },
    {
        "contact": {"email": "ann@example.org"},
        "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL",
    },
    {
        "contact": {"phoneNumber": "07700 900123"},
        "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL",
    },
    {
        "contact": {"email": "", "phoneNumber": "+44 (0)7700 900123"},
        "intent": "APPLICANT_INTENT_RENT",
    },
    {
        "consumerSituation": "Moving abroad",
        "listingDetails": {"id": "1", "pricing": {"price": 1e15}},
    },
    {},
    {"listingDetails": {"id": " ", "pricing": {"price": 1}}, "leadSource": " "},
    let("weekly", 300, "RENT_FREQUENCY_PER_WEEK"),
    let("free", 0, "RENT_FREQUENCY_PER_MONTH"),
    let("of no time", 1300),
    let("owed", -5, "RENT_FREQUENCY_PER_MONTH"),
    let("beyond any rent", 10**16 - 1, "RENT_FREQUENCY_PER_WEEK"),
]
ODD_APPRAISALS: list[dict[str, Any]] = [
    {"contact": {"email": "", "phoneNumber": "0044 7700 900123"}, "intent": "APPRAISAL_INTENT_LET"},
    {"propertyDetails": {"estimate": {"value": 9_000_000_000_000_000_000}}},
    {"propertyDetails": {"estimate": {"value": 9_000_000_000_000_000_000}}},
]


@dataclass(frozen=True)
class Published:
    house: House
    leads: list[Lead]

    def of(self, kind: str) -> list[Lead]:
        return [lead for lead in self.leads if lead.kind == kind]

    def hash(self, lead: Lead) -> UUID | None:
        """RFC 2104 by Python's own hand, cut to a UUID."""
        key = bytes.fromhex((self.house.folder / ".state" / "person_key").read_text().strip())
        return (
            UUID(hmac.digest(key, lead.identity.encode(), "sha256")[:16].hex())
            if lead.identity
            else None
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.house.query(query)

    def mart(self, name: str) -> list[tuple[Any, ...]]:
        """Its rows, but for the branch's name, which a test of its own looks at."""
        return self.rows(f"select columns(lambda name: name <> 'branch') from {name} order by all")  # noqa: S608 - a mart's


def address(lead: Lead) -> tuple[str, str, str]:
    where = lead.get("listingDetails.address") or {}
    return (
        where.get("propertyNumberOrName", ""),
        where.get("streetName", ""),
        where.get("postcode", ""),
    )


def on_offer(leads: Iterable[Lead]) -> dict[str, tuple[str, str, str]]:
    """The addresses of every third listing that people ask about, and one that nobody does."""
    addresses = {
        lead.text("listingDetails.id"): address(lead) for lead in leads if address(lead)[1]
    }
    chosen = dict(sorted(addresses.items())[::3])
    return {**chosen, "quiet": ("99", "Quiet Street", "XZ9 9ZZ")}


def inventory_item(
    id_: str, number: Any, street: Any, postcode: Any, flat: Any = None
) -> dict[str, Any]:
    return {
        "id": id_,
        "address": {"subDwelling": flat, "nameNo": number, "street": street, "postcode": postcode},
    }


def answered(lead: Lead) -> datetime | None:
    """Two of three leads are answered, within the minutes that their place in the alphabet gives."""
    place = int(hashlib.sha256(lead.content["id"].encode()).hexdigest()[:4], 16)
    assert lead.created_at
    return lead.created_at + timedelta(minutes=place % 300) if place % 3 else None


def write_answers(house: House, leads: list[Lead]) -> None:
    """As a CRM exports them: some in local time, a second answer to each, and rows that can't
    count.
    """
    one = leads[0].content["id"]
    rows = ["Lead_ID,answered_at,who", ",2026-10-25T10:00:00Z,x", "nobody,2026-10-25T10:00:00Z,x"]
    rows += [f"{one},yesterday,x", f"{one},2020-01-01T00:00:00Z,too early"]
    for number, lead in enumerate(leads):
        at = answered(lead)
        if at is None:
            continue

        written = at.isoformat()
        local = at.astimezone(LONDON)
        if number % 2 and local.date() != date(2026, 10, 25):  # on that day, an hour comes twice
            written = local.replace(tzinfo=None).isoformat(sep=" ")
        rows.append(f"{lead.content['id']},{(at + timedelta(days=1)).isoformat()},x")
        rows.append(f"{lead.content['id']},{written},x")
    (house.folder / "answers.csv").write_text("\n".join(rows), encoding="utf-8-sig")
    (house.folder / "outcomes.csv").write_text(
        f"lead_id,outcome,at\n{one},appointment,\n", encoding="utf-8"
    )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    return published_days(tmp_path_factory.mktemp("marts") / "data")


def published_days(folder: Path) -> Published:
    """Ten days of three branches with odd leads, answers and an inventory."""
    house = House(folder)
    book = LeadBook(7, 12)
    branches = Organisation(7, 3).branches
    house.scopes = tuple(f"branch-{branch.id}" for branch in branches)
    house.first_day, house.now = DAYS[0], NOW
    house.names = "id,name,opening_hours\n101,York,Mon-Fri 09:00-17:30; Sat 10:00-16:00\n102,Leeds,Mon-Sun 0-24\n999,Hull,\n"
    leads: dict[tuple[str, str], Lead] = {}
    for kind, odd in (("applicant", ODD), ("appraisal", ODD_APPRAISALS)):
        for day in DAYS:
            for branch in branches:
                found = leads_of(book, kind, day, branch)
                if day == DAYS[5] and branch is branches[0]:
                    found += [{"id": f"odd-{number}", **lead} for number, lead in enumerate(odd)]
                scope = f"branch-{branch.id}"
                house.land(kind, found, day, scope)
                for content in found:
                    leads[kind, content["id"]] = Lead.received(kind, scope, day, content, LONDON)
    write_answers(house, [lead for lead in leads.values() if lead.created_at])

    items = [inventory_item(number, *where) for number, where in on_offer(leads.values()).items()]
    sold = inventory_item("sold", "1", "Gone Street", "XZ1 1ZZ")
    for day, found_items in ((DAYS[-2], [*items, sold]), (DAYS[-1], items)):
        house.now = datetime.combine(day, time(12), LONDON)
        house.land_inventory({"Town": found_items})
    house.now = NOW
    house.publish()
    return Published(house, list(leads.values()))


def leads_of(book: LeadBook, kind: str, day: date, branch: Branch) -> list[dict[str, Any]]:
    """A branch's leads of a day, as the simulator answers."""
    start = datetime.combine(day, time(), LONDON)
    end = datetime.combine(day + timedelta(days=1), time(), LONDON)
    found: list[dict[str, Any]] = json.loads(book.answer(kind, [branch], start, end, NOW))[
        f"{kind}s"
    ]
    return found


def words(value: str, prefix: str) -> str:
    text = value.strip().removeprefix(prefix).lower().replace("_", " ")
    return "unknown" if text in ("", "unspecified") else text


def branch(lead: Lead) -> str:
    return NAMES.get(lead.scope, lead.scope)


def site(lead: Lead) -> str:
    return words(lead.text("leadSource"), f"{lead.kind.upper()}_SOURCE_")


def product(lead: Lead) -> str:
    return words(lead.text("portalSource"), f"{lead.kind.upper()}_PORTAL_SOURCE_")


def situation(lead: Lead) -> str:
    said = words(lead.text("consumerSituation"), "CONSUMER_SITUATION_")
    # A value in another form than the portal's members, and that one person alone has sent, may be
    # that person's words.
    return HIDDEN if said == "moving abroad" else said


def test_every_mart_of_branches_has_their_names(published: Published) -> None:
    named = {("branch-101", "York"), ("branch-102", "Leeds"), ("branch-103", "branch-103")}
    for mart in marts():
        if "branch" in mart.descriptions:
            names = published.rows(f"select distinct scope, branch from {mart.name}")  # noqa: S608 - a mart's
            assert named >= {*names} > set()


def monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def iso_week(day: date) -> str:
    return f"{day:%G-W%V}"


def district(lead: Lead) -> str:
    """The first half of a postcode, by its form alone: the second half is a digit and two letters."""
    listing, owners = "listingDetails.address.postcode", "propertyDetails.address.postcode"
    postcode = lead.text(listing) or lead.text(owners)
    found = re.fullmatch(r"([A-Z]{1,2}\d[A-Z\d]?)(?: *\d[A-Z]{2})?", postcode.strip().upper())
    return found[1] if found else "unknown"


def viewings(leads: list[Lead]) -> int:
    return sum(bool(lead.get("organiseViewing")) for lead in leads)


KINDS = ("applicant", "appraisal")
Key = Callable[[Lead], tuple[Any, ...]]

# What each row of a mart is of, beside the branch: of which leads, and what it counts.
COUNTED: dict[str, tuple[tuple[str, ...], Key, tuple[Callable[[list[Lead]], Any], ...]]] = {
    "mart_leads_daily": (
        KINDS,
        lambda lead: (lead.day, lead.scope, lead.kind, lead.market, site(lead), product(lead)),
        (len, people),
    ),
    "mart_weekly": (
        KINDS,
        lambda lead: (monday(lead.day), iso_week(lead.day), lead.scope, lead.kind, lead.market),
        (len, people, viewings, lambda _: False),
    ),
    "mart_monthly": (
        KINDS,
        lambda lead: (lead.day.replace(day=1), lead.scope, lead.kind, lead.market),
        (len, people, viewings, lambda _: False),
    ),
    "mart_enquiry_mix": (
        ("applicant",),
        lambda lead: (lead.day, lead.scope, lead.market, situation(lead)),
        (len, people, viewings),
    ),
    "mart_districts": (
        KINDS,
        lambda lead: (lead.day, lead.scope, lead.kind, lead.market, district(lead)),
        (len, people, viewings),
    ),
}


@pytest.mark.parametrize("mart", COUNTED)
def test_a_mart_counts_the_leads_and_people_of_each_of_its_rows(
    published: Published, mart: str
) -> None:
    kinds, key, counts = COUNTED[mart]
    leads_of_kinds = [lead for lead in published.leads if lead.kind in kinds]

    truth = []
    for group, leads in groups(leads_of_kinds, key):
        truth.append((*group, *(count(leads) for count in counts)))

    assert published.mart(mart) == sorted(truth)


def test_a_week_and_a_month_are_whole_once_each_of_their_days_has_landed(house: House) -> None:
    house.first_day = date(2026, 11, 1)
    for number in range(30):
        day = house.first_day + timedelta(days=number)
        house.now = datetime(2026, 11, 2, 2, tzinfo=UTC) + timedelta(days=number)
        house.land("appraisal", [{"id": f"{day}", "createdAt": f"{day}T10:00Z"}], day)

    house.publish()

    whole = house.query("select iso_week from mart_weekly where is_whole order by week")
    assert [week for (week,) in whole] == ["2026-W45", "2026-W46", "2026-W47", "2026-W48"]
    assert house.query("select month, is_whole from mart_monthly") == [(date(2026, 11, 1), True)]


def test_people_daily_counts_a_persons_leads(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        where = (lead.day, lead.scope, lead.kind, lead.market)
        return *where, site(lead), product(lead), situation(lead), published.hash(lead)

    truth = [(*key, len(leads)) for key, leads in groups(published.leads, key)]
    assert sorted(published.mart("mart_people_daily"), key=repr) == sorted(truth, key=repr)


def test_hidden_valuations_are_people_with_a_property_who_asked_for_no_appraisal(
    published: Published,
) -> None:
    asked = {lead.identity for lead in published.of("appraisal")}
    owning = [
        lead for lead in published.of("applicant") if situation(lead).startswith("property to ")
    ]
    truth = []
    for (identity,), leads in groups(owning, lambda lead: (lead.identity,)):
        if identity and identity not in asked:
            newest = max(
                leads,
                key=lambda lead: (lead.day, lead.created_at or datetime.min.replace(tzinfo=UTC)),
            )
            where = (
                published.hash(newest),
                newest.content["id"],
                newest.day,
                newest.scope,
                newest.market,
            )
            truth.append((*where, situation(newest), len(leads), min(lead.day for lead in leads)))

    found = {row[1]: row for row in published.mart("mart_hidden_valuations")}

    # Ann asked twice, in two spellings, at no known time: either of her leads may count as the
    # newest.
    ann = found.pop("odd-0" if "odd-0" in found else "odd-1")
    assert (ann[6], ann[2]) == (2, DAYS[5])
    # Its telephone number asked for an appraisal, written in another way.
    assert "odd-2" not in found
    assert sorted(found.values()) == sorted(
        row for row in truth if row[1] not in ("odd-0", "odd-1")
    )
    assert len(found) > 20


def test_hourly_is_in_the_agencys_own_time(published: Published) -> None:
    truth: Counter[tuple[Any, ...]] = Counter()
    for lead in published.leads:
        if lead.created_at:
            local = lead.created_at.astimezone(LONDON)
            truth[
                local.date(), local.isoweekday(), local.hour, lead.scope, lead.kind, lead.market
            ] += 1
    assert published.mart("mart_hourly") == sorted((*key, count) for key, count in truth.items())


def test_arrival_times_count_from_the_moment_of_each_lead(house: House) -> None:
    house.now = datetime(2026, 11, 21, 18, tzinfo=UTC)
    day = house.today
    moments = [house.now - timedelta(minutes=minutes) for minutes in (10, 20, 30, 600)]
    house.land("applicant", [{"id": str(at), "createdAt": at.isoformat()} for at in moments], day)
    house.land("appraisal", [{"id": "unknown", "createdAt": "0001-01-01T00:00Z"}], day)
    house.publish()

    columns = "lead_day, scope, leads, minutes_p50, minutes_p95 between 31 and 600"
    assert house.query(f"select {columns} from mart_arrival_times") == [  # noqa: S608
        (day, "branch-101", 4, 25, True)
    ]


def test_appraisals(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        urgency = words(lead.text("urgency"), "URGENCY_")
        band = words(lead.text("propertyDetails.estimate.confidenceBand"), "CONFIDENCE_BAND_")
        return lead.day, lead.scope, lead.market, urgency, band, lead.get("justCurious")

    truth = []
    for group, leads in groups(published.of("appraisal"), key):
        of_all = [lead.get("propertyDetails.estimate.value") for lead in leads]
        values = [value for value in of_all if value is not None]
        figures: tuple[Any, ...] = (0, None, None, None)
        if values:
            # Garbage in two leads mustn't cost the publication.
            total = sum(values) if sum(values) < 2**63 else None
            figures = (len(values), total, min(values), max(values))
        truth.append((*group, len(leads), people(leads), *figures))

    assert sorted(published.mart("mart_appraisals"), key=repr) == sorted(truth, key=repr)
    assert any(row[8:10] == (2, None) for row in truth)


def test_listing_demand(published: Published) -> None:
    truth = {}
    for (scope, listing), leads in groups(published.of("applicant"), by_listing):
        if listing.strip():
            days = [lead.day for lead in leads]
            truth[scope, listing] = (
                len(leads),
                people(leads),
                viewings(leads),
                min(days),
                max(days),
            )

    found = {row[:2]: row[-5:] for row in published.mart("mart_listing_demand")}

    assert found == truth


def test_prices_of_listings_are_compared_by_the_rent_of_a_month(published: Published) -> None:
    columns = "listing_id, price, rent_frequency, monthly_rent, price_band"
    rows = published.rows(f"select {columns} from mart_listing_demand")  # noqa: S608 - our own words
    found = {listing: tuple(figures) for listing, *figures in rows}
    assert {listing: found[listing] for listing in PRICED} == PRICED


def test_a_listing_is_described_by_its_newest_lead_and_not_by_blanks(house: House) -> None:
    where = {"propertyNumberOrName": "14", "streetName": "Hill", "townOrCity": "York"}
    listing = {"id": "1", "address": where | {"postcode": "XA1 2BC"}, "bedrooms": 2}
    former = {"id": "1", "url": "former"}
    house.land(
        "applicant",
        [
            {"id": "a", "createdAt": "2026-11-19T10:00Z", "listingDetails": listing},
            {"id": "b", "createdAt": "2026-11-19T09:00Z", "listingDetails": former},
            {"id": "c", **let("2", 300)},
        ],
    )
    house.publish()

    columns = "address, url, bedrooms, property_type, town"
    rows = house.query(f"select {columns} from mart_listing_demand order by listing_id")  # noqa: S608
    assert rows == [
        ("14 Hill, York, XA1 2BC", None, 2, "unknown", "York"),
        (None, None, None, "unknown", "unknown"),
    ]


def by_listing(lead: Lead) -> tuple[str, str]:
    return lead.scope, lead.text("listingDetails.id")


def band_of(market: str, price: int) -> str:
    width = 500 if market == "lettings" else 100_000
    start = price // width * width
    return f"{start:,} to {start + width - 1:,}"


def test_searches(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        price = lead.get("searchCriteria.maximumPrice")
        frequency = lead.text("searchCriteria.priceFrequency")
        if "WEEK" in frequency:
            price = price * 52 / 12
        band: tuple[str, int | None] = ("unknown", None)
        if price and (lead.market != "lettings" or frequency):
            width = 500 if lead.market == "lettings" else 100_000
            band = (band_of(lead.market, int(price)), int(price) // width * width)
        outcode = lead.text("searchCriteria.location.outcode") or "unknown"
        return lead.day, lead.scope, lead.market, *band, outcode

    searches = [
        lead
        for lead in published.of("applicant")
        if lead.get("searchCriteria.maximumPrice") or lead.get("searchCriteria.location.outcode")
    ]
    assert len(searches) > 50
    truth = [(*key, len(leads), people(leads)) for key, leads in groups(searches, key)]
    assert sorted(published.mart("mart_searches"), key=repr) == sorted(truth, key=repr)


def test_a_district_is_the_first_half_of_a_postcode(published: Published) -> None:
    districts = {"yo10 4aa": "YO10", "SW1A 1AA": "SW1A", "M11AE": "M1", "near York": None}
    for written, district in districts.items():
        assert published.house.query("select district_of($1)", written) == [(district,)], written


def test_no_mart_holds_a_value_that_identifies_a_person(published: Published) -> None:
    personal = [field for kind in LEAD_KINDS for field in kind.fields if field.is_personal]
    private = {
        lead.text(field.path).strip().lower() for lead in published.leads for field in personal
    }
    private |= {lead.identity for lead in published.leads}
    private = {text for text in private if len(text) > 5}
    assert len(private) > 500

    for mart in marts():
        # Where a listing is, its advertisement says; test_listing_demand sees that `address` holds
        # nothing else. An owner's street and a first name are in many.
        rows = published.rows(f"select columns(lambda name: name <> 'address') from {mart.name}")  # noqa: S608 - a mart's
        shown = "\n".join(str(row).lower() for row in rows)
        assert {text for text in private if text in shown} == set(), mart.name


def test_the_key_of_people_is_private_and_not_in_the_file(published: Published) -> None:
    path = published.house.folder / ".state" / "person_key"
    key = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    content = published.house.file.read_bytes()
    pad = bytes(byte ^ 0x36 for byte in bytes.fromhex(key))
    assert not any(
        secret in content for secret in (key.encode(), bytes.fromhex(key), pad, pad.hex().encode())
    )


# --- mart_lead_properties -------------------------------------------------------------------------


STOCK = [
    inventory_item("house", "14", "St. John's Road", "XA1 2BC"),
    inventory_item("flat", "16", "High Street", "XA1 2BD", "Flat 2"),
    inventory_item("no address", None, " ", "XA1 2BF"),
    inventory_item("no postcode", "22", "High Street", None),
    inventory_item("again", "24", "High Street", "XA1 2BG"),
    inventory_item("once more", "24", "High Street", "XA1 2BG"),
]


# What a lead says of its listing's number, street and postcode; how it matches, how many items, and
# which one.
ADDRESSES: list[tuple[tuple[str, str, str | None], tuple[str, int, str | None]]] = [
    (("14,", "ST JOHNS RD.", "xa12bc "), ("address", 1, "house")),
    (("14", "Saint John’s Road, Old Town", "XA1-2BC"), ("address", 1, "house")),
    (("14a", "St. John's Road", "XA1 2BC"), ("postcode only", 1, None)),
    (("24", "High Stables", "XA1 2BG"), ("postcode only", 2, None)),
    (("14", "St. John's Road", "XA1 2BZ"), ("none", 0, None)),
    (("14", "St. John's Road", None), ("none", 0, None)),
    (("Apt. 2, 16", "High St", "XA1 2BD"), ("address", 1, "flat")),
    (("16", "High Street", "XA1 2BD"), ("postcode only", 1, None)),
    (("", "", "XA1 2BF"), ("postcode only", 1, None)),
    (("24", "High Street", "XA1 2BG"), ("address", 2, "once more")),
]


def test_a_lead_meets_the_item_at_its_address(house: House) -> None:
    leads: list[dict[str, Any]] = []
    for number, ((name, street, postcode), _) in enumerate(ADDRESSES):
        where = {"propertyNumberOrName": name, "streetName": street, "postcode": postcode}
        leads.append({"id": f"{number:02}", "listingDetails": {"address": where}})
    owners = {"address": {"line1": "16 High Street", "postcode": "XA1 2BD"}}
    leads.append({"id": "without", "listingDetails": "broken", "propertyDetails": owners})
    house.land_inventory({"Town": STOCK})
    house.land("applicant", leads)
    house.publish()

    found = house.query("select match, items, item_id from mart_lead_properties order by lead_id")

    assert found == [*(expected for _, expected in ADDRESSES), ("none", 0, None)]


def test_an_owners_property_meets_the_item_at_its_address(house: House) -> None:
    first_day = house.today
    owners = {
        "one line": {"line1": "14 St John's Road"},
        "two lines": {"line1": "14", "line2": "St. John's Rd", "town": "Town"},
        "neighbour": {"line1": "15", "line2": "St. John's Rd"},
    }
    leads = [
        {"id": id_, "propertyDetails": {"address": lines | {"postcode": "XA1 2BC"}}}
        for id_, lines in owners.items()
    ]
    house.land("appraisal", leads)
    house.land_inventory({"Town": STOCK})
    house.later(days=1)
    house.land_inventory({"Town": STOCK[:1]})
    house.publish()

    columns = "lead_id, match, item_id, item_first_seen_day"
    assert house.query(f"select {columns} from mart_lead_properties order by all") == [  # noqa: S608 - our own words
        ("neighbour", "postcode only", None, None),
        ("one line", "address", "house", first_day),
        ("two lines", "address", "house", first_day),
    ]


# --- the questions of docs/reference/questions.md -------------------------------------------------

# docs/test_pages.py compares the first rows of all. Here are those whose rows there show too little.

QUESTIONS = Path(__file__).parents[2] / "examples" / "questions"
# A Monday, when two weeks are over; the leads are of the ten days up to the Saturday before.
ASKED_ON = date(2026, 11, 2)


def answer(
    published: Published, question: str, instead: Mapping[str, str] | None = None
) -> list[tuple[Any, ...]]:
    """What the query of that file answers on ASKED_ON, with these words replaced."""
    statement = (QUESTIONS / f"{question}.sql").read_text(encoding="utf-8")
    for words, others in {"current_date": f"date '{ASKED_ON}'", **(instead or {})}.items():
        statement = statement.replace(words, others)
    return published.rows(statement)


# The windows of two weeks, as if all were landed.
WHOLE_WEEKS = """
select distinct
    scope, branch, unnest(range(date '2026-10-19', date '2026-11-02', interval 1 day))::date as day,
    'landed' as state, true as is_configured
from mart_coverage
"""


def test_question_week_on_week(published: Published) -> None:
    of_whole_weeks = {"from mart_coverage": f"from ({WHOLE_WEEKS})"}
    truth: list[tuple[Any, ...]] = []
    for (name,), leads in groups(published.leads, lambda lead: (branch(lead),)):
        first, second = date(2026, 10, 19), date(2026, 10, 26)
        former = [lead for lead in leads if lead.day < second]
        latest = [lead for lead in leads if lead.day >= second]
        more, more_people = len(latest) - len(former), people(latest) - people(former)
        truth.append((name, first, True, len(former), None, people(former), None))
        truth.append((name, second, True, len(latest), more, people(latest), more_people))

    assert answer(published, "week_on_week", of_whole_weeks) == sorted(truth)


@pytest.mark.parametrize(
    ("windows", "is_whole"),
    [
        ("from ({}) where day > '2026-10-20'", [False, True]),
        (
            "select * replace (if(day = '2026-10-29', 'failed', state) as state) from ({})",
            [True, False],
        ),
    ],
    ids=["begun on a Wednesday", "a day that failed"],
)
def test_a_week_that_is_not_landed_as_a_whole_is_not_compared(
    published: Published, windows: str, is_whole: list[bool]
) -> None:
    rows = answer(
        published, "week_on_week", {"from mart_coverage": f"from ({windows.format(WHOLE_WEEKS)})"}
    )
    assert [row[2] for row in rows] == is_whole * 3
    assert {(row[4], row[6]) for row in rows} == {(None, None)}


def test_question_leads_per_available_listing(published: Published) -> None:
    truth = {}
    for item, where in on_offer(published.leads).items():
        asked = [lead for lead in published.of("applicant") if address(lead) == where]
        truth[item] = (len(asked), viewings(asked))

    found = answer(published, "leads_per_available_listing")

    assert {row[0]: row[3:5] for row in found} == truth
    assert found[0][:2] == ("quiet", "99 Quiet Street, XZ9 9ZZ")
    mean = sum(leads for leads, _ in truth.values()) / len(truth)
    assert {row[5] for row in found} == {round(mean, 2)}
    assert published.rows(
        "select is_available, leads from mart_listing_stock where item_id = 'sold'"
    ) == [(False, 0)]


def test_question_time_to_answer(published: Published) -> None:
    truth = []
    for (name, kind), leads in groups(published.leads, lambda lead: (branch(lead), lead.kind)):
        minutes = []
        for lead in leads:
            at = answered(lead) if lead.created_at else None
            if at and lead.created_at:
                minutes.append((at - lead.created_at) // timedelta(minutes=1))
        ninety = pytest.approx(quantiles(minutes, n=10, method="inclusive")[-1])
        truth.append((name, kind, len(leads), len(minutes), median(minutes), ninety))

    assert answer(published, "time_to_answer") == sorted(truth, key=lambda row: row[:2])


def test_rows_of_answers_that_cannot_count_say_why(published: Published) -> None:
    problems = published.rows("select problem from answers where problem is not null order by all")
    assert problems == [("before the lead",), ("no lead id",), ("no moment",), ("no such lead",)]


def test_macros_of_an_attached_file_work_but_for_those_that_read_a_table(
    published: Published,
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "macros.md").read_text(
        encoding="utf-8"
    )
    calls = re.findall(r"\| `(\w+)\([^`]*\)` \|.*?\| `([^`]+)` \|", page)
    failing = set()
    with duckdb.connect(config={"python_enable_replacements": False}) as db:
        db.execute(f"attach '{published.house.file}' as leads (read_only)")
        for name, call in calls:
            try:
                db.execute(f"select leads.{call}")
            except duckdb.CatalogException:
                failing.add(name)
    assert len(calls) == 10
    assert failing == {"branch_of", "readable"}
