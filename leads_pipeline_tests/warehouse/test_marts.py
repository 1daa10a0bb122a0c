"""Each mart against what its question's answer is, worked out in plain Python from the portal's own leads."""

import hashlib
import hmac
import json
import re
from calendar import day_abbr
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from uuid import UUID

import pytest

from leads_pipeline.cli.demo import FIRST_QUERY
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.simulator.stock import Stock
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

BLANK = {"address": {"townOrCity": " ", "streetName": ""}, "url": "", "propertyType": " "}
# Price, what it is per, the rent of a month, its band.
PRICED = {
    "1": (Decimal(10**15), None, None, "5,000,000 or more"),
    "weekly": (300, "per week", 1300, "1,000 to 1,499"),
    "monthly": (1300, "per month", 1300, "1,000 to 1,499"),
    "free": (None, "per month", None, "unknown"),
    "of no time": (1300, None, None, "unknown"),
    "dear": (Decimal(10**9), "per month", Decimal(10**9), "20,000 or more"),
    "owed": (-5, "per month", -5, "unknown"),
    "beyond any rent": (10**16 - 1, "per week", None, "unknown"),
}

ODD: list[dict[str, Any]] = [
    {"contact": {"email": " Ann@Example.org "}, "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_LET"},
    {"contact": {"email": "ann@example.org"}, "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"},
    {"contact": {"phoneNumber": "07700 900123"}, "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"},
    {"contact": {"email": "", "phoneNumber": "+44 (0)7700 900123"}, "intent": "APPLICANT_INTENT_RENT"},
    {"consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL", "intent": "APPLICANT_INTENT_BUY"},
    {
        "consumerSituation": "Moving abroad",
        "listingDetails": {"id": "1", "pricing": {"price": 1e15}},
    },
    {},
    {"listingDetails": {"id": " ", "pricing": {"price": 1}}, "leadSource": " "},
    *(
        {"enquiryType": "ENQUIRY_TYPE_LETTINGS", "listingDetails": {**BLANK, "id": id_, "pricing": pricing}}
        for id_, pricing in {
            "weekly": {"price": 300, "rentFrequency": "RENT_FREQUENCY_PER_WEEK"},
            "monthly": {"price": 1300, "rentFrequency": "RENT_FREQUENCY_PER_MONTH"},
            "free": {"price": 0, "rentFrequency": "RENT_FREQUENCY_PER_MONTH"},
            "of no time": {"price": 1300},
            "dear": {"price": 10**9, "rentFrequency": "RENT_FREQUENCY_PER_MONTH"},
            "owed": {"price": -5, "rentFrequency": "RENT_FREQUENCY_PER_MONTH"},
            "beyond any rent": {"price": 10**16 - 1, "rentFrequency": "RENT_FREQUENCY_PER_WEEK"},
        }.items()
    ),
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

    @property
    def applicants(self) -> list[Lead]:
        return [lead for lead in self.leads if lead.kind == "applicant"]

    @property
    def appraisals(self) -> list[Lead]:
        return [lead for lead in self.leads if lead.kind == "appraisal"]

    def hash(self, lead: Lead) -> UUID | None:
        """RFC 2104 by Python's own hand, cut to a UUID."""
        key = bytes.fromhex((self.house.folder / ".state" / "person_key").read_text().strip())
        return UUID(hmac.digest(key, lead.identity.encode(), "sha256")[:16].hex()) if lead.identity else None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return self.house.query(query)

    def mart(self, name: str) -> list[tuple[Any, ...]]:
        """Its rows, but for the branch's name, which a test of its own looks at."""
        return self.rows(f"select columns(lambda name: name <> 'branch') from {name} order by all")  # noqa: S608 - a mart's


def on_offer(leads: Iterable[Lead]) -> dict[str, tuple[str, str, str]]:
    """The addresses of every third listing that people ask about, and one that nobody does."""
    addresses = {
        lead.text("listingDetails.id"): tuple(
            lead.text(f"listingDetails.address.{part}") for part in ("propertyNumberOrName", "streetName", "postcode")
        )
        for lead in leads
        if lead.text("listingDetails.address.streetName")
    }
    chosen = dict(sorted(addresses.items())[::3])
    return {**chosen, "quiet": ("99", "Quiet Street", "XZ9 9ZZ")}  # type: ignore[dict-item] # three parts each


def inventory_item(id_: str, number: Any, street: Any, postcode: Any, flat: Any = None) -> dict[str, Any]:
    return {"id": id_, "address": {"subDwelling": flat, "nameNo": number, "street": street, "postcode": postcode}}


def answered(lead: Lead) -> datetime | None:
    """Two of three leads are answered, within the minutes that their place in the alphabet gives."""
    place = int(hashlib.sha256(lead.content["id"].encode()).hexdigest()[:4], 16)
    assert lead.created_at
    return lead.created_at + timedelta(minutes=place % 300) if place % 3 else None


def write_answers(house: House, leads: list[Lead]) -> None:
    """As a CRM exports them: some in local time, a second answer to each, and rows that can't count."""
    rows = [
        "Lead_ID,answered_at,who",
        ",2026-10-25T10:00:00Z,x",
        "nobody,2026-10-25T10:00:00Z,x",
        f"{leads[0].content['id']},yesterday,x",
    ]
    rows.append(f"{leads[0].content['id']},2020-01-01T00:00:00Z,too early")
    for number, lead in enumerate(leads):
        if at := answered(lead):
            zone = LONDON if number % 2 and at.astimezone(LONDON).date() != date(2026, 10, 25) else UTC
            written = at.astimezone(zone).replace(tzinfo=None if zone is LONDON else UTC).isoformat(sep=" ")
            rows += [
                f"{lead.content['id']},{(at + timedelta(days=1)).isoformat()},x",
                f"{lead.content['id']},{written},x",
            ]
    (house.folder / "answers.csv").write_text("\n".join(rows), encoding="utf-8-sig")


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
    house.names = "".join(
        f"{scope.removeprefix('branch-')},{name}\n" for scope, name in [("id", "name"), *NAMES.items()]
    )
    leads: dict[tuple[str, str], Lead] = {}
    for kind in ("applicant", "appraisal"):
        for day in DAYS:
            start, end = (datetime.combine(midnight, time(), LONDON) for midnight in (day, day + timedelta(days=1)))
            for branch in branches:
                found = json.loads(book.answer(kind, [branch], start, end, NOW))[f"{kind}s"]
                if day == DAYS[5] and branch is branches[0]:
                    odd = ODD if kind == "applicant" else ODD_APPRAISALS
                    found += [{"id": f"odd-{number}", **lead} for number, lead in enumerate(odd)]
                house.land(kind, found, day, f"branch-{branch.id}")
                for content in found:
                    lead = Lead.received(kind, f"branch-{branch.id}", day, content, LONDON)
                    leads[kind, content["id"]] = lead
    write_answers(house, [lead for lead in leads.values() if lead.created_at])
    items = [inventory_item(number, *where) for number, where in on_offer(leads.values()).items()]
    for day, more in ((DAYS[-2], [inventory_item("sold", "1", "Gone Street", "XZ1 1ZZ")]), (DAYS[-1], [])):
        house.now = datetime.combine(day, time(12), LONDON)
        house.land_inventory({"Town": [*items, *more]})
    house.now = NOW
    house.publish()
    return Published(house, list(leads.values()))


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
    # A value in another form than the portal's members, and that one person alone has sent, may be that person's words.
    return HIDDEN if said == "moving abroad" else said


@pytest.mark.parametrize("mart", [mart.name for mart in marts() if "branch" in mart.descriptions])
def test_every_mart_of_branches_has_their_names(mart: str, published: Published) -> None:
    assert published.rows(f"select distinct scope, branch from {mart} order by all") == [  # noqa: S608 - a mart's name
        ("branch-101", "York"),
        ("branch-102", "Leeds"),
        ("branch-103", "branch-103"),
    ]


def test_leads_daily(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        return lead.day, lead.scope, lead.kind, lead.market, site(lead), product(lead)

    truth = [(*key, len(leads), people(leads)) for key, leads in groups(published.leads, key)]
    assert published.mart("mart_leads_daily") == sorted(truth)


def test_people_daily_counts_a_persons_leads(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        where = (lead.day, lead.scope, lead.kind, lead.market)
        return *where, site(lead), product(lead), situation(lead), published.hash(lead)

    truth = [(*key, len(leads)) for key, leads in groups(published.leads, key)]
    assert sorted(published.mart("mart_people_daily"), key=repr) == sorted(truth, key=repr)


@pytest.mark.parametrize("period", ["week", "month"])
def test_people_of_a_branch_and_period_come_right_in_one_plain_query(period: str, published: Published) -> None:
    def begin(day: date) -> date:
        return day.replace(day=1) if period == "month" else day - timedelta(days=day.weekday())

    truth = [
        (*key, people(leads)) for key, leads in groups(published.leads, lambda lead: (branch(lead), begin(lead.day)))
    ]
    rows = published.rows(
        f"select branch, date_trunc('{period}', lead_day)::date as first, count(distinct person) "  # noqa: S608 - a word
        "from mart_people_daily group by branch, first"
    )
    assert sorted(rows) == sorted(truth)


def test_the_demos_first_query_counts_each_person_of_a_branch_once(published: Published) -> None:
    truth = []
    for (scope,), leads in groups(published.leads, lambda lead: (lead.scope,)):
        kinds = Counter(lead.kind for lead in leads)
        truth.append((scope, kinds["applicant"], kinds["appraisal"], people(leads)))
    assert published.rows(FIRST_QUERY) == sorted(truth)


@pytest.mark.parametrize("mart", [mart.name for mart in marts() if "people" in mart.descriptions])
def test_a_count_of_different_people_says_that_it_cant_be_summed(mart: str, published: Published) -> None:
    [(comment,)] = published.rows(
        f"select comment from duckdb_columns() where (table_name, column_name) = ('{mart}', 'people')"  # noqa: S608
    )
    assert "Not additive" in comment
    advised = comment.rpartition("`count(distinct person)` of ")[2]
    [(right,)] = published.rows(f"select count(distinct person) from {advised}")  # noqa: S608 - a table of the comment's
    [(summed,)] = published.rows(f"select sum(people) from {mart}")  # noqa: S608
    of_kind = {"mart_people_daily": published.leads, "applicant_leads": published.applicants}
    assert right == people(of_kind.get(advised, published.appraisals)) < summed


def test_hidden_valuations_are_people_with_a_property_who_asked_for_no_appraisal(published: Published) -> None:
    situations = {
        "CONSUMER_SITUATION_PROPERTY_TO_SELL": "property to sell",
        "CONSUMER_SITUATION_PROPERTY_TO_LET": "property to let",
    }
    asked = {lead.identity for lead in published.appraisals}
    earliest = datetime.min.replace(tzinfo=UTC)
    truth = []
    for _, leads in groups(published.applicants, lambda lead: (lead.identity,)):
        owning = [lead for lead in leads if lead.text("consumerSituation") in situations]
        if owning and owning[0].identity and owning[0].identity not in asked:
            newest = max(owning, key=lambda lead: (lead.day, lead.created_at or earliest))
            truth.append(
                (
                    published.hash(newest),
                    newest.content["id"],
                    newest.day,
                    newest.scope,
                    newest.market,
                    situations[newest.text("consumerSituation")],
                    len(owning),
                    min(lead.day for lead in owning),
                )
            )
    found = {row[1]: row for row in published.mart("mart_hidden_valuations")}
    ann = found.pop("odd-0" if "odd-0" in found else "odd-1")
    assert (ann[6], ann[2]) == (2, DAYS[5])
    assert "odd-2" not in found  # its telephone number asked for an appraisal, written in another way
    assert sorted(found.values()) == sorted(row for row in truth if row[1] not in ("odd-0", "odd-1"))
    assert len(found) > 20


def test_people_are_the_same_over_branches_days_and_kinds(published: Published) -> None:
    truth = [
        (
            published.hash(leads[0]),
            len(leads),
            sum(lead.kind == "applicant" for lead in leads),
            sum(lead.kind == "appraisal" for lead in leads),
            len({lead.scope for lead in leads}),
            sorted({branch(lead) for lead in leads}),
            len({lead.day for lead in leads}),
            min(lead.day for lead in leads),
            max(lead.day for lead in leads),
        )
        for (identity,), leads in groups(published.leads, lambda lead: (lead.identity,))
        if identity
    ]
    assert sorted(published.mart("mart_people")) == sorted(truth)
    assert any(row[4] > 1 for row in truth)


def test_hourly_is_in_the_agencys_own_time(published: Published) -> None:
    truth: Counter[tuple[Any, ...]] = Counter()
    for lead in published.leads:
        if lead.created_at:
            local = lead.created_at.astimezone(LONDON)
            truth[local.date(), local.isoweekday(), local.hour, lead.scope, lead.kind, lead.market] += 1
    assert published.mart("mart_hourly") == sorted((*key, count) for key, count in truth.items())


def test_arrival_times_count_from_the_moment_of_each_lead(house: House) -> None:
    house.now = datetime(2026, 11, 21, 18, tzinfo=UTC)
    received = house.now  # each answer takes a minute of the clock
    moments = [received - timedelta(minutes=minutes) for minutes in (10, 20, 30, 600)]
    house.land("applicant", [{"id": str(at), "createdAt": at.isoformat()} for at in moments], received.date())
    house.land("appraisal", [{"id": "unknown", "createdAt": "0001-01-01T00:00Z"}], received.date())
    house.publish()

    [(day, scope, leads, half, nearly_all)] = house.query(
        "select lead_day, scope, leads, minutes_p50, minutes_p95 from mart_arrival_times"
    )
    assert (day, scope, leads, half) == (received.date(), "branch-101", 4, 25)
    assert 30 < nearly_all <= 600


def test_appraisals(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        urgency = words(lead.text("urgency"), "URGENCY_")
        band = words(lead.text("propertyDetails.estimate.confidenceBand"), "CONFIDENCE_BAND_")
        return lead.day, lead.scope, lead.market, urgency, band, lead.get("justCurious")

    truth = []
    for group, leads in groups(published.appraisals, key):
        values = [v for lead in leads if (v := lead.get("propertyDetails.estimate.value")) is not None]
        total = sum(values) if sum(values) < 2**63 else None  # garbage in two leads mustn't cost the publication
        lowest, highest = (min(values), max(values)) if values else (None, None)
        truth.append((*group, len(leads), people(leads), len(values), total if values else None, lowest, highest))
    assert sorted(published.mart("mart_appraisals"), key=repr) == sorted(truth, key=repr)
    assert any(row[9] is None and row[8] == 2 for row in truth)


def test_listing_demand(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        return lead.scope, lead.text("listingDetails.id")

    truth = {}
    for group, leads in groups(published.applicants, key):
        if group[1].strip():
            truth[group] = (
                len(leads),
                people(leads),
                sum(bool(lead.get("organiseViewing")) for lead in leads),
                min(lead.day for lead in leads),
                max(lead.day for lead in leads),
            )
    found = {row[:2]: row[2:] for row in published.mart("mart_listing_demand")}
    assert {group: row[-5:] for group, row in found.items()} == truth
    listings = {key(lead): lead for lead in published.applicants}
    for group, row in found.items():
        market, address, url, price, frequency, rent, band, band_from, property_type, bedrooms, town, status, *_ = row
        if group[1] in PRICED:
            assert (price, frequency, rent, band) == PRICED[group[1]]
            assert (address, url, property_type, town, status) == (None, None, "unknown", "unknown", "unknown")
            continue
        listing = listings[group].content["listingDetails"]
        where = listing["address"]
        assert price == pytest.approx(Decimal(str(listing["pricing"]["price"])))
        width = 500 if market == "lettings" else 100_000
        assert rent == (price if market == "lettings" else None)
        assert band_from <= price < band_from + width
        assert band_from % width == 0
        assert band == f"{band_from:,} to {band_from + width - 1:,}"
        assert (frequency is None) == (listing["pricing"]["rentFrequency"] == "RENT_FREQUENCY_UNSPECIFIED")
        assert property_type == words(listing["propertyType"], "PROPERTY_TYPE_")
        assert (bedrooms, town, url) == (listing["bedrooms"], where["townOrCity"], listing["url"])
        assert status == words(listing["lifeCycleStatus"], "LIFE_CYCLE_STATUS_")
        house = f"{where['propertyNumberOrName']} {where['streetName']}"
        assert address == f"{house}, {where['townOrCity']}, {where['postcode']}"
    assert PRICED.keys() <= {listing for _, listing in found}


def test_enquiry_mix(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        return lead.day, lead.scope, lead.market, situation(lead)

    truth = [
        (*group, len(leads), people(leads), sum(bool(lead.get("organiseViewing")) for lead in leads))
        for group, leads in groups(published.applicants, key)
    ]
    assert published.mart("mart_enquiry_mix") == sorted(truth)
    assert HIDDEN in {row[3] for row in truth}


def test_no_mart_holds_a_value_that_identifies_a_person(published: Published) -> None:
    personal = [field for kind in LEAD_KINDS for field in kind.fields if field.is_personal]
    private = {lead.text(field.path).strip().lower() for lead in published.leads for field in personal}
    private |= {lead.identity for lead in published.leads}
    private = {text for text in private if len(text) > 5}
    assert len(private) > 500
    for mart in marts():
        # Where a listing is, its advertisement says; test_listing_demand sees that `address` holds nothing else. An
        # owner's street and a first name are in many.
        rows = published.rows(f"select columns(lambda name: name <> 'address') from {mart.name}")  # noqa: S608 - a mart's
        assert found_in(rows, private) == set(), mart.name


def test_no_mart_holds_a_column_that_identifies_a_person(published: Published) -> None:
    personal = {field.column for kind in LEAD_KINDS for field in kind.fields if field.is_personal}
    columns = published.rows("select column_name from duckdb_columns() where table_name like 'mart_%'")
    assert personal
    assert not personal & {name for (name,) in columns}


def found_in(rows: list[tuple[Any, ...]], private: set[str]) -> set[str]:
    """Which of these texts stand in a cell, as a whole or within others."""
    cells = "\n".join(str(value).lower() for row in rows for value in row if value is not None)
    return {text for text in private if text in cells}


def test_the_key_of_people_is_private_and_not_in_the_file(published: Published) -> None:
    path = published.house.folder / ".state" / "person_key"
    key = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    content = published.house.file.read_bytes()
    pad = bytes(byte ^ 0x36 for byte in bytes.fromhex(key))
    assert not any(secret in content for secret in (key.encode(), bytes.fromhex(key), pad, pad.hex().encode()))


def test_another_key_makes_other_people(house: House) -> None:
    house.land("appraisal", [{"id": "a", "contact": {"email": "ann@example.org"}}])
    house.publish()
    first = house.query("select person from mart_people")
    (house.folder / ".state" / "person_key").write_text(hashlib.sha256(b"other").hexdigest())

    house.publish()

    assert house.query("select person from mart_people") != first


# --- mart_lead_properties ---------------------------------------------------------------------------------------------


def applicant(number: str, street: str, postcode: Any) -> dict[str, Any]:
    address = {"propertyNumberOrName": number, "streetName": street, "postcode": postcode}
    return {"listingDetails": {"address": address}}


STOCK = [
    inventory_item("house", "14", "St. John's Road", "XA1 2BC"),
    inventory_item("flat", "16", "High Street", "XA1 2BD", "Flat 2"),
    inventory_item("no street", "20", None, "XA1 2BE"),
    inventory_item("no address", None, " ", "XA1 2BF"),
    inventory_item("no number", " ", "High Street", "XA1 2BH"),
    inventory_item("no postcode", "22", "High Street", None),
    inventory_item("again", "24", "High Street", "XA1 2BG"),
    inventory_item("once more", "24", "High Street", "XA1 2BG"),
]


ADDRESSES: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    (applicant("14", "St. John's Road", "XA1 2BC"), ("address", 1, "house")),
    (applicant("14,", "ST JOHNS RD.", "xa12bc "), ("address", 1, "house")),
    (applicant("14", "Saint John’s Road, Old Town", "XA1-2BC"), ("address", 1, "house")),
    (applicant("14a", "St. John's Road", "XA1 2BC"), ("postcode only", 1, None)),
    (applicant("114", "St. John's Road", "XA1 2BC"), ("postcode only", 1, None)),
    (applicant("24", "High Stables", "XA1 2BG"), ("postcode only", 2, None)),
    (applicant("", "St. John's Road", "XA1 2BC"), ("postcode only", 1, None)),
    (applicant("14", "St. John's Road", "XA1 2BZ"), ("none", 0, None)),
    (applicant("14", "St. John's Road", None), ("none", 0, None)),
    (applicant("14", "St. John's Road", " "), ("none", 0, None)),
    (applicant("Apt. 2, 16", "High St", "XA1 2BD"), ("address", 1, "flat")),
    (applicant("16", "High Street", "XA1 2BD"), ("postcode only", 1, None)),
    (applicant("Flat 3 16", "High Street", "XA1 2BD"), ("postcode only", 1, None)),
    (applicant("20", "High Street", "XA1 2BE"), ("postcode only", 1, None)),
    (applicant("", "", "XA1 2BF"), ("postcode only", 1, None)),
    (applicant("", "High Street", "XA1 2BH"), ("postcode only", 1, None)),
    (applicant("22", "High Street", ""), ("none", 0, None)),
    (applicant("24", "High Street", "XA1 2BG"), ("address", 2, "once more")),
    ({}, ("none", 0, None)),
    (
        {
            "propertyDetails": {"address": {"line1": "16 High Street", "postcode": "XA1 2BD"}},
            "listingDetails": "broken",
        },
        ("none", 0, None),
    ),
]


def test_a_lead_meets_the_item_at_its_address(house: House) -> None:
    house.land_inventory({"Town": STOCK})
    house.land("applicant", [{"id": f"{number:02}", **lead} for number, (lead, _) in enumerate(ADDRESSES)])
    house.publish()

    found = house.query("select match, items, item_id from mart_lead_properties order by lead_id")
    assert list(zip((lead for lead, _ in ADDRESSES), found, strict=True)) == ADDRESSES


def test_an_owners_property_meets_the_item_at_its_address(house: House) -> None:
    first_day = house.today
    house.land_inventory({"Town": STOCK})
    house.later(days=1)
    house.land_inventory({"Town": STOCK[:1]})
    owners = {
        "one line": {"line1": "14 St John's Road"},
        "two lines": {"line1": "14", "line2": "St. John's Rd", "line3": "Riverside", "town": "Town"},
        "neighbour": {"line1": "15", "line2": "St. John's Rd"},
    }
    house.land(
        "appraisal",
        [
            {"id": id_, "propertyDetails": {"address": {**lines, "postcode": "XA1 2BC"}}}
            for id_, lines in owners.items()
        ],
    )
    house.publish()

    assert house.query(
        "select lead_id, match, item_id, item_first_seen_day from mart_lead_properties order by all"
    ) == [
        ("neighbour", "postcode only", None, None),
        ("one line", "address", "house", first_day),
        ("two lines", "address", "house", first_day),
    ]


def as_people_write(rng: Random, address: dict[str, Any]) -> None:
    """Change a listing's address as it changes on its way through people and other systems."""
    number, street, postcode = (address[name] for name in ("propertyNumberOrName", "streetName", "postcode"))
    if rng.random() < 0.3:
        for kind, short in {"Street": "St.", "Road": "Rd", "Avenue": "Ave", "Lane": "Ln", "Drive": "Dr"}.items():
            street = re.sub(rf" {kind}$", f" {short}", street)
    if rng.random() < 0.04:  # a letter lost
        street = street[:2] + street[3:]
    if number.startswith("Flat ") and rng.random() < 0.15:
        number = " ".join(number.split()[2:])
    if rng.random() < 0.03:
        number = ""
    if rng.random() < 0.2:
        number = f"{number},"
    if rng.random() < 0.2:
        postcode = postcode.replace(" ", "")
    if rng.random() < 0.02:
        postcode = rng.choice(["", postcode[:-1] + "Z"])
    cases: list[Callable[[str], str]] = [str, str, str.lower, str.upper]
    change = rng.choice(cases)
    address |= {"propertyNumberOrName": change(number), "streetName": change(street), "postcode": change(postcode)}


def neighbours(rng: Random, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """More items at the item's postcode, as in a real street: two houses on, another flat, the house as a whole."""
    flat, number, street, postcode = (item["address"][name] for name in ("subDwelling", "nameNo", "street", "postcode"))
    if number.isdigit():
        yield inventory_item(f"{item['id']}-two-on", str(int(number) + 2), street, postcode, flat)
        yield inventory_item(f"{item['id']}-longer", f"1{number}", street, postcode, flat)
    if flat and rng.random() < 0.5:
        yield inventory_item(f"{item['id']}-whole", number, street, postcode)
        yield inventory_item(f"{item['id']}-other-flat", number, street, postcode, f"{flat}0")


@pytest.mark.slow
@pytest.mark.parametrize("by_people", [True, False], ids=["by people", "by the portal"])
def test_the_match_is_as_good_as_its_comment_says(house: House, *, by_people: bool) -> None:
    """The listing's id, which the mart doesn't look at, is the truth."""
    rng = Random(5)  # noqa: S311 - made-up slips of the pen
    book, branches, stock = LeadBook(7, 20), Organisation(7, 30).branches, Stock(7)
    items = [json.loads(listing.item) for branch in branches for listing in stock.of(branch)]
    items = [item for item in items if rng.random() < 0.8]
    if by_people:
        items += [neighbour for item in items for neighbour in neighbours(rng, item)]
    house.first_day, house.now, house.scopes = DAYS[0], NOW, tuple(f"branch-{branch.id}" for branch in branches)
    for day in DAYS[-7:]:
        start, end = (datetime.combine(midnight, time(), LONDON) for midnight in (day, day + timedelta(days=1)))
        for branch in branches:
            leads = json.loads(book.answer("applicant", [branch], start, end, NOW))["applicants"]
            for lead in leads if by_people else ():
                as_people_write(rng, lead["listingDetails"]["address"])
            house.land("applicant", leads, day, f"branch-{branch.id}")
    house.land_inventory({"": items})
    house.publish()

    [(leads_seen, listed, matched, right)] = house.query("""
        select count(*), count(*) filter (truth.item_id is not null), count(*) filter (match = 'address'),
            count(*) filter (mart.item_id = listing_details_id)
        from mart_lead_properties as mart
        join applicant_leads using (lead_id)
        left join inventory as truth on truth.item_id = listing_details_id
    """)
    [comment] = [mart.descriptions["match"] for mart in marts() if mart.name == "mart_lead_properties"]
    said = [int(number) / 100 for number in re.findall(r"(\d+) %", str(comment))]
    assert leads_seen > 3000
    found = right / matched, right / listed
    assert found == pytest.approx(tuple(said[:2] if by_people else (said[2], said[2])), abs=0.01)


# --- the questions of docs/reference/queries.md -----------------------------------------------------------------------

QUESTIONS = Path(__file__).parents[2] / "examples" / "questions"
# A Monday, when two weeks are over; the leads are of the ten days up to the Saturday before.
ASKED_ON = date(2026, 11, 2)


def answer(published: Published, question: str) -> list[tuple[Any, ...]]:
    """What the query of that file answers on ASKED_ON."""
    statement = (QUESTIONS / f"{question}.sql").read_text(encoding="utf-8")
    return published.rows(statement.replace("current_date", f"date '{ASKED_ON}'"))


@pytest.mark.parametrize("question", sorted(path.stem for path in QUESTIONS.glob("*.sql")))
def test_every_question_is_answered(question: str, published: Published) -> None:
    assert answer(published, question)


def test_question_response_by_source(published: Published) -> None:
    truth = [
        (*key, len(leads), people(leads))
        for key, leads in groups(published.leads, lambda lead: (site(lead), product(lead), lead.kind))
    ]
    found = answer(published, "response_by_source")
    assert sorted(found) == sorted(truth)
    assert {"zoopla website", "unknown"} <= {row[0] for row in found}


def test_question_week_on_week(published: Published) -> None:
    weeks = [date(2026, 10, 19), date(2026, 10, 26)]
    truth = []
    for scope in ("branch-101", "branch-102", "branch-103"):
        before: tuple[int, int] | None = None
        for week in weeks:
            of_week = [lead for lead in published.leads if lead.scope == scope and 0 <= (lead.day - week).days < 7]
            now = len(of_week), people(of_week)
            more = (now[0] - before[0], now[1] - before[1]) if before else (None, None)
            truth.append((NAMES.get(scope, scope), week, True, now[0], more[0], now[1], more[1]))
            before = now
    assert week_on_week(published, WHOLE_WEEKS) == sorted(truth)
    as_landed = answer(published, "week_on_week")
    assert [row[2] for row in as_landed] == [False] * 6
    assert [(row[:2], row[3], row[5]) for row in as_landed] == [(row[:2], row[3], row[5]) for row in sorted(truth)]


# The windows of two weeks, as if all were landed.
WHOLE_WEEKS = """
select distinct
    scope, branch, unnest(range(date '2026-10-19', date '2026-11-02', interval 1 day))::date as day,
    'landed' as state, true as is_configured
from mart_coverage
"""


def week_on_week(published: Published, windows: str) -> list[tuple[Any, ...]]:
    """The answer, were the windows those."""
    statement = (
        (QUESTIONS / "week_on_week.sql").read_text(encoding="utf-8").replace("current_date", f"date '{ASKED_ON}'")
    )
    return published.rows(statement.replace("from mart_coverage", f"from ({windows})"))


@pytest.mark.parametrize(
    ("windows", "is_whole"),
    [
        ("from ({}) where day > '2026-10-20'", [False, True]),
        ("select * replace (if(day = '2026-10-29', 'failed', state) as state) from ({})", [True, False]),
    ],
    ids=["begun on a Wednesday", "a day that failed"],
)
def test_a_week_that_is_not_landed_as_a_whole_is_not_compared(
    published: Published, windows: str, is_whole: list[bool]
) -> None:
    rows = week_on_week(published, windows.format(WHOLE_WEEKS))
    assert [row[2] for row in rows] == is_whole * 3
    assert {(row[4], row[6]) for row in rows} == {(None, None)}


def test_question_best_hours(published: Published) -> None:
    hours: Counter[tuple[str, int, int]] = Counter()
    for lead in published.leads:
        if lead.created_at:
            local = lead.created_at.astimezone(LONDON)
            hours[lead.market, local.isoweekday(), local.hour] += 1
    truth = []
    for market in sorted({market for market, *_ in hours}):
        of_market = sorted((-leads, *key) for key, leads in hours.items() if key[0] == market)
        truth += [(market, day_abbr[weekday - 1], hour, -leads) for leads, _, weekday, hour in of_market[:5]]
    assert answer(published, "best_hours") == truth


def test_question_listings_by_viewings(published: Published) -> None:
    week = [lead for lead in published.applicants if timedelta(1) <= ASKED_ON - lead.day <= timedelta(7)]
    truth = []
    for (scope, listing), leads in groups(week, lambda lead: (lead.scope, lead.text("listingDetails.id"))):
        if listing.strip():
            viewings = sum(bool(lead.get("organiseViewing")) for lead in leads)
            truth.append((-viewings, -len(leads), listing, NAMES.get(scope, scope)))
    found = answer(published, "listings_by_viewings")
    assert [(-row[4], -row[5], row[1], row[0]) for row in found] == sorted(truth)[:20]
    addresses = {lead.text("listingDetails.id"): lead.text("listingDetails.url") for lead in published.applicants}
    assert [row[3] or "" for row in found] == [addresses[row[1]] for row in found]


def test_question_price_bands(published: Published) -> None:
    truth: dict[tuple[str, str], list[int]] = {}
    for (_, listing), leads in groups(
        published.applicants, lambda lead: (lead.scope, lead.text("listingDetails.id").strip())
    ):
        if listing:
            market, price = leads[0].market, leads[0].get("listingDetails.pricing.price")
            width = 500 if market == "lettings" else 100_000
            band = (
                PRICED[listing][3]
                if listing in PRICED
                else f"{price // width * width:,.0f} to {price // width * width + width - 1:,.0f}"
            )
            counts = truth.setdefault((market, band), [0, 0, 0])
            for at, more in enumerate((1, len(leads), sum(bool(lead.get("organiseViewing")) for lead in leads))):
                counts[at] += more
    found = answer(published, "price_bands")
    assert sorted(found) == sorted((*key, *counts) for key, counts in truth.items())
    assert ("lettings", "unknown") in truth


def test_question_first_time_buyers(published: Published) -> None:
    truth = []
    of_sales = [lead for lead in published.applicants if lead.market == "sales"]
    for (name,), leads in groups(of_sales, lambda lead: (branch(lead),)):
        buyers = [lead for lead in leads if situation(lead) == "first time buyer"]
        truth.append((name, len(buyers), people(buyers), round(100 * len(buyers) / len(leads), 1)))
    assert answer(published, "first_time_buyers") == sorted(truth)
    assert all(row[1] for row in truth)


def test_question_several_branches(published: Published) -> None:
    truth: dict[tuple[str, ...], list[int]] = {}
    for (identity,), leads in groups(published.leads, lambda lead: (lead.identity,)):
        names = tuple(sorted({branch(lead) for lead in leads}))
        if identity and len(names) > 1:
            counts = truth.setdefault(names, [0, 0])
            counts[0] += 1
            counts[1] += len(leads)
    found = answer(published, "several_branches")
    assert sorted((tuple(names), *counts) for names, *counts in found) == sorted((k, *v) for k, v in truth.items())
    assert truth


def test_question_leads_per_available_listing(published: Published) -> None:
    offered = on_offer(published.leads)
    truth = {}
    for item, where in offered.items():
        asked = [
            lead
            for lead in published.applicants
            if where
            == tuple(
                lead.text(f"listingDetails.address.{part}")
                for part in ("propertyNumberOrName", "streetName", "postcode")
            )
        ]
        truth[item] = (len(asked), sum(bool(lead.get("organiseViewing")) for lead in asked))
    found = answer(published, "leads_per_available_listing")
    assert {row[0]: row[3:5] for row in found} == truth
    assert found[0][:2] == ("quiet", "99 Quiet Street, XZ9 9ZZ")
    mean = sum(leads for leads, _ in truth.values()) / len(truth)
    assert {row[5] for row in found} == {round(mean, 2)}
    assert published.rows("select is_available, leads from mart_listing_stock where item_id = 'sold'") == [(False, 0)]


def test_question_appraisal_pipeline(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        return branch(lead), lead.market, words(lead.text("urgency"), "URGENCY_")

    truth = []
    for group, leads in groups(published.appraisals, key):
        values = [v for lead in leads if (v := lead.get("propertyDetails.estimate.value")) is not None and v < 2**60]
        mean = pytest.approx(sum(values) / len(values), abs=0.51) if values else None
        truth.append((*group, len(leads), sum(lead.get("justCurious") is True for lead in leads), mean))
    found = answer(published, "appraisal_pipeline")
    assert [row[:5] for row in found] == [row[:5] for row in sorted(truth, key=lambda row: row[:3])]
    means = {row[:3]: row[5] for row in truth if row[:3] != ("York", "unknown", "unknown")}
    assert {row[:3]: row[5] for row in found if row[:3] in means} == means


def test_question_time_to_answer(published: Published) -> None:
    truth = []
    for (name, kind), leads in groups(published.leads, lambda lead: (branch(lead), lead.kind)):
        waited = [at - lead.created_at for lead in leads if lead.created_at and (at := answered(lead))]
        minutes = sorted(wait // timedelta(minutes=1) for wait in waited)
        truth.append((name, kind, len(leads), len(minutes), median(minutes), quantile(minutes, 0.9)))
    assert answer(published, "time_to_answer") == sorted(truth)
    problems = published.rows(
        "select problem, count(*) from answers where problem is not null group by all order by all"
    )
    assert problems == [("before the lead", 1), ("no lead id", 1), ("no moment", 1), ("no such lead", 1)]


def quantile(values: list[int], part: float) -> Any:
    """Between the two values on either side, as a line goes."""
    at = part * (len(values) - 1)
    low = values[int(at)]
    return pytest.approx(low + (values[min(int(at) + 1, len(values) - 1)] - low) * (at - int(at)))
