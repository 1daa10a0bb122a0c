"""Each mart against what its question's answer is. The pages of questions hold them for a week."""

import hmac
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest

from leads_pipeline.domain.contract import ENUM_PREFIXES, LEAD_KINDS, member_in_words
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.warehouse.marts import marts
from leads_pipeline_tests.support.house import DAY, LONDON, NEXT_DAY, House
from leads_pipeline_tests.support.portal_leads import Lead, groups, people

Row = tuple[Any, ...]


# --- marts that count, on the simulator's leads ---------------------------------------------------

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
# The clocks go back within these days.
DAYS = [date(2026, 10, 22) + timedelta(days=number) for number in range(6)]
KINDS = ("applicant", "appraisal")


@dataclass(frozen=True)
class Published:
    house: House
    leads: list[Lead]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """Six days of three branches. The third has no name."""
    house = House(tmp_path_factory.mktemp("marts") / "data")
    house.scopes = ("branch-101", "branch-102", "branch-103")
    house.first_day = DAYS[0]
    house.now = NOW
    house.names = "id,name\n101,York\n102,Leeds\n"
    book = LeadBook(7, 12)
    found = {}
    for day in DAYS:
        start, end = (datetime.combine(day + timedelta(days=n), time(), LONDON) for n in (0, 1))
        for branch in Organisation(7, 3).branches:
            for kind in KINDS:
                scope = f"branch-{branch.id}"
                answer = json.loads(book.answer(kind, [branch], start, end, NOW))[f"{kind}s"]
                house.land(kind, answer, day, scope)
                for content in answer:
                    lead = Lead.received(kind, scope, day, content, LONDON)
                    found[kind, content["id"]] = lead
    house.publish()
    return Published(house, list(found.values()))


def words(lead: Lead, field: str, prefix: str) -> str:
    text = lead.text(field).strip().removeprefix(prefix).lower().replace("_", " ")
    return "unknown" if text in ("", "unspecified") else text


def monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


def situation(lead: Lead) -> str:
    return words(lead, "consumerSituation", "CONSUMER_SITUATION_")


def source(lead: Lead) -> str:
    return words(lead, "leadSource", f"{lead.kind.upper()}_SOURCE_")


def product(lead: Lead) -> str:
    return words(lead, "portalSource", f"{lead.kind.upper()}_PORTAL_SOURCE_")


def viewings(leads: list[Lead]) -> int:
    return sum(bool(lead.get("organiseViewing")) for lead in leads)


# Of which kinds of leads, what each row is of, and what it counts.
COUNTED: dict[
    str,
    tuple[tuple[str, ...], Callable[[Lead], Row], tuple[Callable[[list[Lead]], Any], ...]],
] = {
    "mart_leads_daily": (
        KINDS,
        lambda lead: (lead.day, lead.scope, lead.kind, lead.market, source(lead), product(lead)),
        (len, people),
    ),
    "mart_weekly": (
        KINDS,
        lambda lead: (
            monday(lead.day),
            f"{lead.day:%G-W%V}",
            lead.scope,
            lead.kind,
            lead.market,
        ),
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

    columns = "columns(lambda name: name <> 'branch')"
    found = published.house.query(f"select {columns} from {mart} order by all")  # noqa: S608

    assert found == sorted(truth)


def test_every_mart_of_branches_has_their_names(published: Published) -> None:
    named = {("branch-101", "York"), ("branch-102", "Leeds"), ("branch-103", "branch-103")}
    for mart in marts():
        if "branch" in mart.descriptions:
            names = published.house.query(f"select distinct scope, branch from {mart.name}")  # noqa: S608
            assert named >= {*names}, mart.name


def test_no_mart_holds_a_value_that_identifies_a_person(published: Published) -> None:
    personal = [field for kind in LEAD_KINDS for field in kind.fields if field.is_personal]
    private = {lead.identity for lead in published.leads}
    for lead in published.leads:
        private |= {lead.text(field.path).strip().lower() for field in personal}
    private = {text for text in private if len(text) > 5}
    assert len(private) > 500

    for mart in marts():
        # An advertisement says where its listing is.
        rows = published.house.query(f"select columns(lambda c: c <> 'address') from {mart.name}")  # noqa: S608
        shown = "\n".join(str(row).lower() for row in rows)
        assert {text for text in private if text in shown} == set(), mart.name


def test_the_columns_of_each_mart_have_the_types_that_its_file_declares(
    published: Published,
) -> None:
    made = published.house.query(
        "select table_name, column_name, data_type from duckdb_columns() where schema_name = 'main'"
    )
    with duckdb.connect() as db:
        for mart in marts():
            for column in mart.columns:
                [(type_,)] = db.execute(f"select typeof(null::{column.type})").fetchall()
                assert (mart.name, column.name, type_) in made


def test_sql_and_python_read_the_values_of_each_enumerated_field_alike(
    published: Published,
) -> None:
    """Fault 87: what isn't a member in the portal's form may be a person's words, and shows as …"""
    names = ("", "UNSPECIFIED", "NEW_1", "A" * 61, "Ann", "ANN SMITH", "ÄNN")
    values = [prefix + name for prefix in ENUM_PREFIXES for name in names]

    shown = published.house.query("select v, readable(v) from (select unnest($1) as v)", values)

    assert dict(shown) == {value: member_in_words(value) or "…" for value in values}


@pytest.mark.slow
def test_a_value_in_another_form_shows_on_all_days_while_three_people_have_sent_it(
    fresh: House,
) -> None:
    def send(person: str, day: date = DAY) -> None:
        lead = {"id": person, "contact": {"email": person}, "leadSource": "NEW_SITE"}
        fresh.push("applicant", {**lead, "createdAt": f"{day}T10:00Z"})

    def sources() -> list[Row]:
        return fresh.query("select lead_day, source from mart_leads_daily order by all")

    send("ann@example.org")
    send("bob@example.org")
    fresh.publish()
    assert sources() == [(DAY, "…")]

    send("cy@example.org", NEXT_DAY)
    fresh.publish()
    assert sources() == [(DAY, "new site"), (NEXT_DAY, "new site")]

    fresh.erase(email="cy@example.org")
    assert sources() == [(DAY, "…")]


# --- what else they say: each scope has the leads of one test, published together -----------------

LEADS: dict[tuple[str, str], list[dict[str, Any]]] = {}
OWNER = {"consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"}
ANN = {"contact": {"email": "ann@example.org"}, **OWNER}


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House(tmp_path_factory.mktemp("stories") / "data")
    for (kind, scope), leads in LEADS.items():
        house.land(kind, leads, scope=scope)
    house.publish()
    return house


LEADS["applicant", "branch-people"] = [
    {"id": address, "contact": {"email": address}}
    for address in (" Bob@Example.org ", "bob@example.org")
]


def test_a_person_is_a_keyed_hash_and_the_key_is_not_in_the_file(house: House) -> None:
    found = house.query("select person, leads from mart_people_daily where scope = 'branch-people'")

    path = house.folder / ".state" / "person_key"
    key = bytes.fromhex(path.read_text().strip())
    assert found == [(UUID(hmac.digest(key, b"bob@example.org", "sha256")[:16].hex()), 2)]
    assert path.stat().st_mode & 0o777 == 0o600
    inner_pad = bytes(byte ^ 0x36 for byte in key)
    content = house.file.read_bytes()
    for secret in (key, key.hex().encode(), inner_pad, inner_pad.hex().encode()):
        assert secret not in content


LEADS["applicant", "branch-members"] = [
    {
        "id": "a",
        "leadSource": "APPLICANT_SOURCE_NEW_SITE",
        "consumerSituation": "CONSUMER_SITUATION_UNSPECIFIED",
    }
]


def test_a_member_that_the_contract_does_not_know_shows_at_once(house: House) -> None:
    """Fault 87: marts showed … for END_TERRACE until three people had sent it."""
    shown = "select source, situation from lead_facts where scope = 'branch-members'"
    assert house.query(shown) == [("new site", "unknown")]


LEADS["applicant", "branch-owners"] = [
    {"id": "first", "createdAt": "2026-11-19T10:00Z", **ANN},
    {"id": "newest", "createdAt": "2026-11-20T10:00Z", **ANN},
    {"id": "asked", "contact": {"phoneNumber": "07700 900123"}, **OWNER},
    {"id": "renting", "contact": {"email": "renting@example.org"}},
    {"id": "nobody", **OWNER},
]
LEADS["appraisal", "branch-owners"] = [{"id": "a", "contact": {"phoneNumber": "0044 7700 900123"}}]


def test_hidden_valuations_are_people_with_a_property_who_asked_for_no_appraisal(
    house: House,
) -> None:
    columns = "lead_id, lead_day, situation, enquiries, first_lead_day"
    assert house.query(f"select {columns} from mart_hidden_valuations") == [  # noqa: S608
        ("newest", NEXT_DAY, "property to sell", 2, DAY)
    ]


LEADS["applicant", "branch-hours"] = [
    {"id": at, "createdAt": at}
    for at in ("2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-24T12:30Z")
]


def test_hours_are_in_the_agencys_own_time(house: House) -> None:
    columns = "lead_day, weekday, hour, leads"
    assert house.query(
        f"select {columns} from mart_hourly where scope = 'branch-hours' order by all"  # noqa: S608
    ) == [(date(2026, 10, 24), 6, 13, 1), (date(2026, 10, 25), 7, 1, 2)]


LEADS["appraisal", "branch-estimates"] = [
    {"id": f"{value} {n}", "urgency": urgency, "propertyDetails": {"estimate": {"value": value}}}
    for n, (urgency, value) in enumerate(
        [
            ("URGENCY_TODAY", 100_000),
            ("URGENCY_TODAY", 300_000),
            ("URGENCY_LATER", 9 * 10**18),
            ("URGENCY_LATER", 9 * 10**18),
        ]
    )
]


def test_estimates_of_appraisals_are_summed_and_garbage_costs_no_publication(house: House) -> None:
    figures = "urgency, estimates, total_estimate, lowest_estimate, highest_estimate"
    assert house.query(
        f"select {figures} from mart_appraisals where estimates > 0 order by urgency"  # noqa: S608
    ) == [("later", 2, None, 9 * 10**18, 9 * 10**18), ("today", 2, 400_000, 100_000, 300_000)]


def let(id_: str, price: int, per: str = "") -> dict[str, Any]:
    """A lead of a listing to let that says nothing else. Blanks count as nothing."""
    listing = {"id": id_, "url": "", "propertyType": " ", "address": {"townOrCity": " "}}
    pricing = {"price": price, "rentFrequency": per}
    return {
        "id": id_,
        "enquiryType": "ENQUIRY_TYPE_LETTINGS",
        "listingDetails": {**listing, "pricing": pricing},
    }


LEADS["applicant", "branch-prices"] = [
    let("weekly", 300, "RENT_FREQUENCY_PER_WEEK"),
    let("free", 0, "RENT_FREQUENCY_PER_MONTH"),
    let("of no time", 1300),
    let("beyond any rent", 10**16 - 1, "RENT_FREQUENCY_PER_WEEK"),
    {"id": "sale", "listingDetails": {"id": "sale", "pricing": {"price": 347_500}}},
]


def test_prices_of_listings_are_compared_by_the_rent_of_a_month(house: House) -> None:
    columns = "listing_id, price, monthly_rent, price_band"
    assert house.query(
        f"select {columns} from mart_listing_demand where scope = 'branch-prices' order by all"  # noqa: S608
    ) == [
        ("beyond any rent", 10**16 - 1, None, "unknown"),
        ("free", None, None, "unknown"),
        ("of no time", 1300, None, "unknown"),
        ("sale", 347_500, None, "300,000 to 399,999"),
        ("weekly", 300, 1300, "1,000 to 1,499"),
    ]


HILL = {
    "propertyNumberOrName": "14",
    "streetName": "Hill",
    "townOrCity": "York",
    "postcode": "XA1 2BC",
}
LEADS["applicant", "branch-listings"] = [
    {
        "id": "newer",
        "createdAt": "2026-11-19T10:00Z",
        "listingDetails": {"id": "1", "address": HILL, "bedrooms": 2},
    },
    {
        "id": "older",
        "createdAt": "2026-11-19T09:00Z",
        "listingDetails": {"id": "1", "url": "former"},
        "organiseViewing": True,
    },
    let("2", 300),
]


def test_a_listing_is_described_by_its_newest_lead_and_not_by_blanks(house: House) -> None:
    columns = "address, url, bedrooms, property_type, town, leads, viewings"
    assert house.query(
        f"select {columns} from mart_listing_demand where scope = 'branch-listings' order by all"  # noqa: S608
    ) == [
        ("14 Hill, York, XA1 2BC", None, 2, "unknown", "York", 2, 1),
        (None, None, None, "unknown", "unknown", 1, 0),
    ]


LEADS["applicant", "branch-searches"] = [
    {
        "id": f"search-{number}",
        "enquiryType": "ENQUIRY_TYPE_LETTINGS",
        "searchCriteria": {
            "maximumPrice": price,
            "priceFrequency": frequency,
            "location": {"outcode": outcode},
        },
    }
    for number, (price, frequency, outcode) in enumerate(
        [
            (300, "RENT_FREQUENCY_PER_WEEK", None),
            (1300, "RENT_FREQUENCY_PER_MONTH", None),
            (1300, "", "yo1"),
        ]
    )
]


def test_searches_are_counted_by_budget_and_district(house: House) -> None:
    columns = "market, budget_band, district, leads"
    assert house.query(f"select {columns} from mart_searches order by all") == [  # noqa: S608
        ("lettings", "1,000 to 1,499", "unknown", 2),
        ("lettings", "unknown", "YO1", 1),
    ]


DISTRICTS = {"yo10 4aa": "YO10", "SW1A 1AA": "SW1A", "M11AE": "M1", "near York": "unknown"}
LEADS["applicant", "branch-districts"] = [
    {"id": postcode, "listingDetails": {"address": {"postcode": postcode}}}
    for postcode in DISTRICTS
]
LEADS["appraisal", "branch-districts"] = [
    {"id": "owner", "propertyDetails": {"address": {"postcode": "YO10 5BB"}}}
]


def test_leads_are_counted_by_the_first_half_of_a_postcode(house: House) -> None:
    counted = house.query(
        "select district, sum(leads) from mart_districts where scope = 'branch-districts' "
        "group by all"
    )
    assert dict(counted) == dict.fromkeys(DISTRICTS.values(), 1) | {"YO10": 2}


# --- what changes with time, and the inventory -----------------------------------------------------


@pytest.fixture
def fresh(tmp_path: Path) -> House:
    return House(tmp_path / "data")


def test_a_week_and_a_month_are_whole_once_each_of_their_days_has_landed(fresh: House) -> None:
    fresh.first_day = date(2026, 11, 1)
    for number in range(30):
        day = fresh.first_day + timedelta(days=number)
        fresh.now = datetime(2026, 11, 2, 2, tzinfo=UTC) + timedelta(days=number)
        fresh.land("appraisal", [{"id": f"{day}", "createdAt": f"{day}T10:00Z"}], day)

    fresh.publish()

    whole = fresh.query("select iso_week from mart_weekly where is_whole order by week")
    assert [week for (week,) in whole] == ["2026-W45", "2026-W46", "2026-W47", "2026-W48"]
    assert fresh.query("select month, is_whole from mart_monthly") == [(date(2026, 11, 1), True)]


def test_arrival_times_count_from_the_moment_of_each_lead(fresh: House) -> None:
    fresh.now = datetime(2026, 11, 21, 18, tzinfo=UTC)
    day = fresh.today
    moments = [fresh.now - timedelta(minutes=minutes) for minutes in (10, 20, 30, 600)]
    fresh.land("applicant", [{"id": str(at), "createdAt": at.isoformat()} for at in moments], day)
    fresh.land("appraisal", [{"id": "unknown", "createdAt": "0001-01-01T00:00Z"}], day)
    fresh.publish()

    columns = "lead_day, scope, leads, minutes_p50, minutes_p95 between 31 and 600"
    assert fresh.query(f"select {columns} from mart_arrival_times") == [  # noqa: S608
        (day, "branch-101", 4, 25, True)
    ]


STOCK = [
    {"id": id_, "address": {"subDwelling": flat, "nameNo": no, "street": street, "postcode": code}}
    for id_, flat, no, street, code in [
        ("house", None, "14", "St. John's Road", "XA1 2BC"),
        ("flat", "Flat 2", "16", "High Street", "XA1 2BD"),
        ("again", None, "24", "High Street", "XA1 2BG"),
        ("once more", None, "24", "High Street", "XA1 2BG"),
    ]
]

# What a lead says of its listing's number, street and postcode; how it matches, how many items, and
# which one.
ADDRESSES: list[tuple[tuple[str, str, str | None], tuple[str, int, str | None]]] = [
    (("14,", "ST JOHNS RD.", "xa12bc "), ("address", 1, "house")),
    (("14a", "St. John's Road", "XA1 2BC"), ("postcode only", 1, None)),
    (("14", "St. John's Road", "XA1 2BZ"), ("none", 0, None)),
    (("14", "St. John's Road", None), ("none", 0, None)),
    (("Apt. 2, 16", "High St", "XA1 2BD"), ("address", 1, "flat")),
    (("16", "High Street", "XA1 2BD"), ("postcode only", 1, None)),
    (("24", "High Street", "XA1 2BG"), ("address", 2, "once more")),
]


def test_a_lead_meets_the_item_at_its_address(fresh: House) -> None:
    leads: list[dict[str, Any]] = []
    for number, ((name, street, postcode), _) in enumerate(ADDRESSES):
        where = {"propertyNumberOrName": name, "streetName": street, "postcode": postcode}
        leads.append({"id": f"{number:02}", "listingDetails": {"address": where}})
    fresh.land_inventory({"Town": STOCK})
    fresh.land("applicant", leads)
    fresh.publish()

    found = fresh.query("select match, items, item_id from mart_lead_properties order by lead_id")
    asked = fresh.query("select item_id, leads from mart_listing_stock where leads > 0")

    assert found == [expected for _, expected in ADDRESSES]
    assert {item for item, _ in asked} == {"house", "flat", "once more"}


def test_an_owners_property_meets_the_item_at_its_address(fresh: House) -> None:
    first_day = fresh.today
    owners = {
        "one line": {"line1": "14 St John's Road"},
        "two lines": {"line1": "14", "line2": "St. John's Rd", "town": "Town"},
        "neighbour": {"line1": "15", "line2": "St. John's Rd"},
    }
    leads = [
        {"id": id_, "propertyDetails": {"address": lines | {"postcode": "XA1 2BC"}}}
        for id_, lines in owners.items()
    ]
    fresh.land("appraisal", leads)
    fresh.land_inventory({"Town": STOCK})
    fresh.later(days=1)
    fresh.land_inventory({"Town": STOCK[:1]})
    fresh.publish()

    columns = "lead_id, match, item_id, item_first_seen_day"
    assert fresh.query(f"select {columns} from mart_lead_properties order by all") == [  # noqa: S608 - our own words
        ("neighbour", "postcode only", None, None),
        ("one line", "address", "house", first_day),
        ("two lines", "address", "house", first_day),
    ]
    available = "select item_id from mart_listing_stock where is_available"
    assert fresh.query(available) == [("house",)]


def test_macros_of_an_attached_file_work_but_for_those_that_read_a_table(
    published: Published,
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "macros.md").read_text(
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
