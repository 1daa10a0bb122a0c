"""Each mart against what its question's answer is, worked out in plain Python from the portal's own leads."""

import hashlib
import hmac
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest

from leads_pipeline.branches import Branches
from leads_pipeline.cli.demo import FIRST_QUERY
from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.flatten.trees import HIDDEN
from leads_pipeline.lake import Lake
from leads_pipeline.report.figures import mart_figures
from leads_pipeline.simulator.book import LeadBook
from leads_pipeline.simulator.leads import LeadFactory
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.simulator.stock import Stock
from leads_pipeline.warehouse import Grid, Warehouse, marts
from leads_pipeline.window import Scope, day_interval
from leads_pipeline_tests.portal_leads import Lead, groups, people
from leads_pipeline_tests.staging import LONDON, land

NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)
# The clocks go back within these days.
DAYS = [date(2026, 10, 22) + timedelta(days=number) for number in range(10)]

# The third has none, and one that is named isn't configured.
NAMES = Branches({"branch-101": "York", "branch-102": "Leeds", "branch-999": "Hull"})

ODD: list[dict[str, Any]] = [
    {"contact": {"email": " Ann@Example.org "}, "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_LET"},
    {"contact": {"email": "ann@example.org"}, "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"},
    {"contact": {"phoneNumber": "07700 900123"}, "consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL"},
    {"contact": {"email": "", "phoneNumber": "+44 (0)7700 900123"}, "intent": "APPLICANT_INTENT_RENT"},
    {"consumerSituation": "CONSUMER_SITUATION_PROPERTY_TO_SELL", "intent": "APPLICANT_INTENT_BUY"},
    {
        "consumerSituation": "CONSUMER_SITUATION_MOVING_ABROAD",
        "listingDetails": {"id": "1", "pricing": {"price": 1e15}},
    },
    {},
]
ODD_APPRAISALS: list[dict[str, Any]] = [
    {"contact": {"email": "", "phoneNumber": "0044 7700 900123"}, "intent": "APPRAISAL_INTENT_LET"},
    {"propertyDetails": {"estimate": {"value": 9_000_000_000_000_000_000}}},
    {"propertyDetails": {"estimate": {"value": 9_000_000_000_000_000_000}}},
]


@dataclass(frozen=True)
class Published:
    lake: Lake
    leads: list[Lead]

    @property
    def applicants(self) -> list[Lead]:
        return [lead for lead in self.leads if lead.kind == "applicant"]

    @property
    def appraisals(self) -> list[Lead]:
        return [lead for lead in self.leads if lead.kind == "appraisal"]

    def hash(self, lead: Lead) -> UUID | None:
        """RFC 2104 by Python's own hand, cut to a UUID."""
        key = bytes.fromhex((self.lake.folder / ".state" / "person_key").read_text().strip())
        return UUID(hmac.digest(key, lead.identity.encode(), "sha256")[:16].hex()) if lead.identity else None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(Warehouse(self.lake).path, read_only=True) as db:
            return db.execute(query).fetchall()

    def mart(self, name: str) -> list[tuple[Any, ...]]:
        """Its rows, but for the branch's name, which a test of its own looks at."""
        return self.rows(f"select columns(lambda name: name <> 'branch') from {name} order by all")  # noqa: S608 - a mart's


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    lake = Lake(tmp_path_factory.mktemp("marts") / "data")
    book = LeadBook(LeadFactory(7, 12, Stock(7)))
    branches = Organisation(7, 3).branches
    leads: dict[tuple[str, str], Lead] = {}
    for kind in LEAD_KINDS:
        for day in DAYS:
            start, end = day_interval(day, LONDON)
            for branch in branches:
                found = json.loads(book.answer(kind.name, [branch], start, end, NOW))[kind.list_key]  # type: ignore[arg-type] # the simulator's own two names
                if day == DAYS[5] and branch is branches[0]:
                    odd = ODD if kind is APPLICANT else ODD_APPRAISALS
                    found += [{"id": f"odd-{number}", **lead} for number, lead in enumerate(odd)]
                land(lake, kind, found, day=day, scope=f"branch-{branch.id}", fetched_at=NOW)
                for content in found:
                    lead = Lead.received(kind.name, f"branch-{branch.id}", day, content, LONDON)
                    leads[kind.name, content["id"]] = lead
            flatten_day(lake, kind, day, LONDON)
    scopes = tuple(Scope.parse(f"branch-{branch.id}") for branch in branches)
    Warehouse(lake).publish(Grid(scopes, DAYS[0], LONDON, branches=NAMES), NOW)
    return Published(lake, list(leads.values()))


def words(value: str, prefix: str) -> str:
    text = value.removeprefix(prefix).lower().replace("_", " ")
    return "unknown" if text in ("", "unspecified") else text


def test_the_portal_sent_enough_to_tell_right_from_wrong(published: Published) -> None:
    assert len(published.applicants) > 200
    assert len(published.appraisals) > 50
    assert people(published.leads) < len(published.leads) - 20
    assert any(lead.created_at is None for lead in published.leads)
    assert published.rows("select count(*) from applicant_leads") == [(len(published.applicants),)]


@pytest.mark.parametrize("mart", [mart.name for mart in marts() if "scope" in mart.columns and mart.name != "branches"])
def test_every_mart_of_branches_has_their_names(mart: str, published: Published) -> None:
    assert published.rows(f"select distinct scope, branch from {mart} order by all") == [  # noqa: S608 - a mart's name
        ("branch-101", "York"),
        ("branch-102", "Leeds"),
        ("branch-103", "branch-103"),
    ]


def test_leads_daily(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        return lead.day, lead.scope, lead.kind, lead.market, lead.text("leadSource") or "unknown"

    truth = [(*key, len(leads), people(leads)) for key, leads in groups(published.leads, key)]
    assert published.mart("mart_leads_daily") == sorted(truth)


def test_people_daily_counts_a_persons_leads(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        return lead.day, lead.scope, lead.kind, lead.market, lead.text("leadSource") or "unknown", published.hash(lead)

    truth = [(*key, len(leads)) for key, leads in groups(published.leads, key)]
    assert sorted(published.mart("mart_people_daily"), key=repr) == sorted(truth, key=repr)


def test_the_demos_first_query_counts_each_person_of_a_branch_once(published: Published) -> None:
    truth = []
    for (scope,), leads in groups(published.leads, lambda lead: (lead.scope,)):
        kinds = Counter(lead.kind for lead in leads)
        truth.append((scope, kinds["applicant"], kinds["appraisal"], people(leads)))
    assert published.rows(FIRST_QUERY) == sorted(truth)


@pytest.mark.parametrize("mart", [mart.name for mart in marts() if "people" in mart.columns])
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
            truth[lead.scope, lead.kind, local.isoweekday(), local.hour] += 1
    assert published.mart("mart_hourly") == sorted((*key, count) for key, count in truth.items())


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
        if group[1]:
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
    for group, (market, price, frequency, band, band_from, property_type, bedrooms, town, status, *_) in found.items():
        if group[1] == "1":
            assert (market, price, band) == (
                "unknown",
                Decimal(10**15),
                "1,000,000,000,000,000 to 1,000,000,000,099,999",
            )
            continue
        listing = listings[group].content["listingDetails"]
        assert price == pytest.approx(Decimal(str(listing["pricing"]["price"])))
        width = 500 if market == "lettings" else 100_000
        assert band_from <= price < band_from + width
        assert band_from % width == 0
        assert band == f"{band_from:,} to {band_from + width - 1:,}"
        assert (frequency is None) == (listing["pricing"]["rentFrequency"] == "RENT_FREQUENCY_UNSPECIFIED")
        assert property_type == words(listing["propertyType"], "PROPERTY_TYPE_")
        assert (bedrooms, town) == (listing["bedrooms"], listing["address"]["townOrCity"])
        assert status == words(listing["lifeCycleStatus"], "LIFE_CYCLE_STATUS_")


def test_enquiry_mix(published: Published) -> None:
    def key(lead: Lead) -> tuple[Any, ...]:
        situation = words(lead.text("consumerSituation"), "CONSUMER_SITUATION_")
        # A member that the contract doesn't know, and that one person alone has sent, may be that person's words.
        return lead.day, lead.scope, lead.market, HIDDEN if situation == "moving abroad" else situation

    truth = [
        (*group, len(leads), people(leads), sum(bool(lead.get("organiseViewing")) for lead in leads))
        for group, leads in groups(published.applicants, key)
    ]
    assert published.mart("mart_enquiry_mix") == sorted(truth)
    assert HIDDEN in {row[3] for row in truth}


def test_the_figures_of_each_mart_are_the_leads_own(published: Published) -> None:
    found = mart_figures(Warehouse(published.lake))

    assert found.keys() == {mart.name for mart in marts()}
    last = [lead for lead in published.leads if lead.day == DAYS[-1]]
    assert found["mart_leads_daily"] == {
        "leads_of_last_full_day": len(last),
        "applicant_leads": len(published.applicants),
        "appraisal_leads": len(published.appraisals),
    }
    assert found["mart_people_daily"] == {
        "people_of_last_full_day": people(last),
        "people_of_last_7_full_days": people(lead for lead in published.leads if lead.day >= DAYS[-7]),
    }
    by_person = [leads for (identity,), leads in groups(published.leads, lambda lead: (lead.identity,)) if identity]
    assert found["mart_people"] == {
        "people": people(published.leads),
        "returning_people": sum(len(leads) > 1 for leads in by_person),
        "people_of_several_branches": sum(len({lead.scope for lead in leads}) > 1 for leads in by_person),
    }
    hours = Counter(lead.created_at.astimezone(LONDON).hour for lead in published.leads if lead.created_at)
    assert found["mart_hourly"]["leads_of_busiest_hour"] == max(hours.values())
    assert hours[int(found["mart_hourly"]["busiest_hour"])] == max(hours.values())
    assert found["mart_coverage"]["windows_landed"] + found["mart_coverage"]["windows_empty"] == 60
    assert (found["mart_coverage"]["windows_open"], found["mart_coverage"]["windows_missing"]) == (6, 12)
    buyers = sum("FIRST_TIME_BUYER" in lead.text("consumerSituation") for lead in published.applicants)
    assert found["mart_enquiry_mix"]["first_time_buyers_percent"] == round(100 * buyers / len(published.applicants), 1)
    owners = sum(
        "_PROPERTY_TO_" in lead.text("consumerSituation").replace("NO_PROPERTY", "") for lead in published.applicants
    )
    assert found["mart_enquiry_mix"]["owners_percent"] == round(100 * owners / len(published.applicants), 1)
    hidden = published.rows("select count(*) from mart_hidden_valuations")[0][0]
    assert found["mart_hidden_valuations"] == {"people": hidden, "hidden_valuations": hidden}
    listings = Counter((lead.scope, lead.text("listingDetails.id")) for lead in published.applicants)
    listings = Counter({listing: leads for listing, leads in listings.items() if listing[1]})
    assert found["mart_listing_demand"] == {
        "listings": len(listings),
        "leads_of_most_wanted_listing": max(listings.values()),
    }
    assert found["branches"] == {"scopes": 4, "scopes_with_a_name": 3}
    assert found["mart_appraisals"]["leads_of_last_full_day"] == sum(lead.kind == "appraisal" for lead in last)


def test_an_empty_warehouse_has_figures_all_the_same(tmp_path: Path) -> None:
    store = Warehouse(Lake(tmp_path / "data"))
    store.publish(Grid((Scope.parse("branch-101"),), DAYS[0], LONDON), NOW)

    found = mart_figures(store)

    assert found.keys() == {mart.name for mart in marts()}
    assert found["mart_leads_daily"]["leads_of_last_full_day"] == found["drift"]["contract_changes"] == 0
    assert found["mart_hourly"] == {}


def test_no_mart_holds_a_value_that_identifies_a_person(published: Published) -> None:
    personal = [field for kind in LEAD_KINDS for field in kind.fields if field.is_personal]
    private = {lead.text(field.path).strip().lower() for lead in published.leads for field in personal}
    private |= {lead.identity for lead in published.leads}
    private = {text for text in private if len(text) > 5}
    assert len(private) > 500
    for mart in marts():
        assert found_in(published.mart(mart.name), private) == set(), mart.name


def found_in(rows: list[tuple[Any, ...]], private: set[str]) -> set[str]:
    """Which of these texts stand in a cell, as a whole or within others."""
    cells = "\n".join(str(value).lower() for row in rows for value in row if value is not None)
    return {text for text in private if text in cells}


def test_a_name_within_a_cell_is_found() -> None:
    assert found_in([(1, None, "viewing for Annabel Smith, Leeds")], {"annabel", "robert"}) == {"annabel"}


def test_the_key_of_people_is_private_and_not_in_the_file(published: Published) -> None:
    path = published.lake.folder / ".state" / "person_key"
    key = path.read_text().strip()
    assert path.stat().st_mode & 0o777 == 0o600
    content = Warehouse(published.lake).path.read_bytes()
    pad = bytes(byte ^ 0x36 for byte in bytes.fromhex(key))
    assert not any(secret in content for secret in (key.encode(), bytes.fromhex(key), pad, pad.hex().encode()))


def test_another_key_makes_other_people(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "data")
    lead = {"id": "a", "contact": {"email": "ann@example.org"}}
    land(lake, APPRAISAL, [lead])
    flatten_day(lake, APPRAISAL, date(2026, 11, 19), LONDON)
    grid = Grid((Scope.parse("branch-101"),), date(2026, 11, 19), LONDON)
    Warehouse(lake).publish(grid, NOW)
    (first,) = Warehouse(lake).query("select person from mart_people")[1]
    (lake.folder / ".state" / "person_key").write_text(hashlib.sha256(b"other").hexdigest())

    assert Warehouse(lake).publish(grid, NOW).is_rebuilt

    assert Warehouse(lake).query("select person from mart_people")[1] != [first]
