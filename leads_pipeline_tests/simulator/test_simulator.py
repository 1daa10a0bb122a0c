"""The simulator against its contract: schemathesis and openapi.yaml, and what the specification says in words."""

import base64
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import httpx
import jsonschema_rs
import pytest
import schemathesis
import yaml
from schemathesis import checks
from schemathesis.config import SchemathesisConfig
from standardwebhooks import Webhook

from leads_pipeline.domain.contract import ENUMERATIONS
from leads_pipeline.simulator.app import CRM_PATH, CRM_SECRET, Config, Simulator
from leads_pipeline.simulator.faults import FaultError
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.simulator.server import running
from leads_pipeline.simulator.stock import Stock
from leads_pipeline.warehouse.drift import PEOPLE_MIN
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS, wait_for
from leads_pipeline_tests.support.raw_server import RawServer, respond

NOW = datetime(2026, 11, 20, 12, 30, 15, 500_000, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
CONTRACT = yaml.safe_load((Path(__file__).parents[1] / "support" / "openapi.yaml").read_text(encoding="utf-8"))
CONFIG = Config(seed=7, branches=9, clock=lambda: NOW)

# Nothing here speaks TLS, and loading the machine's certificates takes longer than most of these tests.
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

Json = Any  # what json.loads gives


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    with running(CONFIG) as simulator:
        yield simulator


@pytest.fixture
def portal(server: Simulator) -> Simulator:
    """The module's simulator without anything that an earlier test has set or counted."""
    server.set_faults([])
    server.reset_counters()
    return server


@pytest.fixture
def client(portal: Simulator) -> Iterator[httpx.Client]:
    """A client that is signed in at the leads service."""
    with client_of(portal) as client:
        portal.reset_counters()
        yield client


@pytest.fixture
def inventory(portal: Simulator) -> Iterator[httpx.Client]:
    """A client that is signed in at the inventory API, with the right agency reference."""
    with httpx.Client(verify=PLAIN, base_url=portal.base_url) as client:
        client.headers.update(inventory_headers(portal))
        yield client


def client_of(portal: Simulator) -> httpx.Client:
    client = httpx.Client(verify=PLAIN, base_url=portal.base_url, timeout=60)
    client.headers.update(leads_headers(portal))
    return client


def leads_headers(portal: Simulator) -> dict[str, str]:
    answer = httpx.post(verify=PLAIN, url=f"{portal.base_url}/oauth2/token", data=body_form(portal))
    return {"Authorization": f"Bearer {answer.json()['access_token']}"}


def inventory_headers(portal: Simulator) -> dict[str, str]:
    said = portal.environment()
    sent = basic(said["INVENTORY_CLIENT_ID"], said["INVENTORY_CLIENT_SECRET"])
    form = {"grant_type": "client_credentials"}
    answer = httpx.post(verify=PLAIN, url=f"{portal.base_url}/token", data=form, headers=sent)
    return {"Authorization": f"Bearer {answer.json()['access_token']}", "AgencyRef": said["INVENTORY_AGENCY_REF"]}


def credentials(portal: Simulator) -> tuple[str, str]:
    return portal.environment()["LEADS_CLIENT_ID"], portal.environment()["LEADS_CLIENT_SECRET"]


def body_form(portal: Simulator) -> dict[str, Any]:
    client_id, secret = credentials(portal)
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
    return {**form, "audience": portal.base_url}


def basic(client_id: str, secret: str) -> dict[str, str]:
    """RFC 6749 section 2.3.1: both are form-encoded before Base64."""
    text = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def wire(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def window(start: datetime, end: datetime, **scope: str) -> dict[str, str]:
    return {"from-time": wire(start), "to-time": wire(end), **{f"{kind}-id": id_ for kind, id_ in scope.items()}}


def yesterday(**scope: str) -> dict[str, str]:
    return window(MIDNIGHT - DAY, MIDNIGHT, **(scope or {"branch": "101"}))


def fetch(client: httpx.Client, kind: str, parameters: dict[str, str]) -> list[Json]:
    answer = client.get(f"/{kind}-leads", params=parameters)
    assert answer.status_code == 200, answer.text
    leads: list[Json] = answer.json()[f"{kind}s"]
    return leads


def fetch_ids(client: httpx.Client, kind: str, parameters: dict[str, str]) -> list[str]:
    return [lead["id"] for lead in fetch(client, kind, parameters)]


def statuses(client: httpx.Client, times: int, **parameters: str) -> list[int]:
    return [client.get("/applicant-leads", params={**yesterday(), **parameters}).status_code for _ in range(times)]


def rules(then: Json, **when: Json) -> str:
    return json.dumps({"rules": [{"name": "test", "when": when, "then": then}]})


# --- the contract, by schemathesis --------------------------------------------------------------------------------

# What an answer must be, whatever was asked. Not among them: that everything which the document allows is accepted. In
# words the contract is narrower: one id alone, moments without offset, audience or scope with the credentials. Nor that
# a wrong filter of the inventory, which the pipeline never sends, is refused.
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
    checks.ignored_auth,
]
SCHEMA = schemathesis.openapi.from_dict(
    CONTRACT,
    config=SchemathesisConfig.from_dict(
        {"generation": {"deterministic": True, "max-examples": 40, "database": "none"}, "seed": 1}
    ),
)


@SCHEMA.parametrize()
def test_every_answer_keeps_the_contract(case: schemathesis.Case[Any], server: Simulator) -> None:
    case.call_and_validate(server.base_url, checks=CHECKS)
    if case.path.endswith("-leads"):
        case.call_and_validate(server.base_url, headers=leads_headers(server), checks=CHECKS)
    elif case.path == "/inventory":
        case.call_and_validate(server.base_url, headers=inventory_headers(server), checks=CHECKS)


def schema_errors(name: str, value: Json) -> list[str]:
    validator = jsonschema_rs.Draft202012Validator({**CONTRACT, "$ref": f"#/components/schemas/{name}"})
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(value)]


def missing_fields(value: Json, schema: Json, prefix: str = "") -> Iterator[str]:
    """Every property that the schema declares and the value lacks."""
    while "$ref" in schema:
        schema = CONTRACT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for name, inner in schema.get("properties", {}).items():
        if name not in value:
            yield f"{prefix}{name}"
        elif isinstance(value[name], dict):
            yield from missing_fields(value[name], inner, f"{prefix}{name}.")
        for element in value[name] if isinstance(value.get(name), list) else ():
            yield from missing_fields(element, inner["items"], f"{prefix}{name}[].")


@pytest.fixture(scope="module")
def month() -> dict[str, list[Json]]:
    """All leads that a larger portal holds, by kind, as they came over the wire."""
    with running(Config(seed=3, branches=20, clock=lambda: NOW)) as simulator, client_of(simulator) as client:
        everything = window(NOW - 40 * DAY, NOW, group="1")
        return {kind: fetch(client, kind, everything) for kind in ("applicant", "appraisal")}


@pytest.mark.parametrize("kind", ["applicant", "appraisal"])
def test_every_lead_of_a_month_fits_the_contract_and_has_all_its_fields(month: dict[str, Json], kind: str) -> None:
    assert len(month[kind]) > 2000
    assert schema_errors(f"{kind.title()}List", {f"{kind}s": month[kind]}) == []
    assert schema_errors(f"{kind.title()}List", {f"{kind}s": [{**month[kind][0], "isOverseas": "no"}]}) != []
    declared = CONTRACT["components"]["schemas"][kind.title()]
    assert [path for lead in month[kind] for path in missing_fields(lead, declared)] == []


def test_a_month_shows_everything_that_makes_real_leads_hard(month: dict[str, Json], client: httpx.Client) -> None:
    applicants, appraisals = month["applicant"], month["appraisal"]
    forms = Counter(re.sub(r"[0-9]", "9", lead["createdAt"]) for lead in applicants)
    assert forms["9999-99-99T99:99:99Z"] > 20 * forms["9999-99-99T99:99Z"] > 0
    assert any(lead["createdAt"] == "0001-01-01T00:00Z" for lead in applicants)
    assert {type(lead["viewingTimes"]) for lead in applicants} == {list, type(None)}
    assert {type(lead["listingDetails"]["images"]) for lead in applicants} == {list, type(None)}
    assert {type(lead["listingDetails"]["propertyId"]) for lead in applicants} == {int}
    assert {type(lead["propertyDetails"]["propertyId"]) for lead in appraisals} == {str}
    assert any(lead["listingDetails"]["uprn"] > 2**53 for lead in applicants)
    for found in ("\r\n", "\n\n", "<b>", "£", "👍", '"'):
        assert any(found in lead["message"] for lead in applicants), found
    known = set(CONTRACT["components"]["schemas"]["Applicant"]["properties"])
    assert 0 < len([lead for lead in applicants if not lead.keys() <= known]) < len(applicants) / 10
    text = client.get("/applicant-leads", params=yesterday(group="1")).text
    assert re.search(r'"price":\d+\.\d0[,}]', text), "digits that a float would drop"
    assert "\\u00a3" in text, "messages escape what isn't ASCII"


def test_listings_have_all_45_published_property_types_and_the_usual_ones_most_often() -> None:
    """Fault 87: the simulator sent 8 of them."""
    stock = Stock(seed=1)
    types: Counter[str] = Counter()
    for branch in Organisation(1, 80).branches:
        for listing in stock.of(branch):
            details = json.loads(bytes(listing.details))
            assert listing.is_commercial or details["propertyType"] != "PROPERTY_TYPE_OFFICE"
            types[details["propertyType"]] += 1

    assert types.keys() == {*ENUMERATIONS["listingDetails.propertyType"]}
    assert types["PROPERTY_TYPE_FLAT"] > 10 * types["PROPERTY_TYPE_RIAD"]


@pytest.mark.parametrize("start", [date(2026, 2, 23), date(2027, 2, 3), date(2027, 3, 21), date(2028, 2, 26)])
def test_three_people_send_a_new_field_in_each_week_of_three_branches(start: date) -> None:
    """Fault 90: the demo says that the check of drift shows a warning, and with 7 days that depended on the date."""
    config = Config()
    book = LeadBook(config.seed, config.leads_per_day)
    branches = Organisation(config.seed, config.branches).branches
    for week in range(4):
        first_day = (start - date(1970, 1, 1)).days + 7 * week
        senders = set()
        for day in range(first_day, first_day + 7):
            for branch in branches:
                leads = [json.loads(body) for _, body in book.leads("applicant", branch, day)]
                senders |= {lead["contact"]["email"] for lead in leads if "affordability" in lead}
        assert len(senders) >= PEOPLE_MIN


def test_people_look_real_and_are_nobody(month: dict[str, Json]) -> None:
    selling = "CONSUMER_SITUATION_PROPERTY_TO_SELL"
    sellers = {lead["contact"]["email"] for lead in month["applicant"] if lead["consumerSituation"] == selling}
    assert sellers & {lead["contact"]["email"] for lead in month["appraisal"]}
    for lead in (*month["applicant"], *month["appraisal"]):
        assert lead["contact"]["email"].rpartition("@")[2] in {"example.com", "example.org", "example.net"}
        number = lead["contact"]["phoneNumber"].replace(" ", "").replace("+44", "0")
        assert re.fullmatch(r"(07700900|02079460|01614960|01632960)\d{3}", number)
    assert all(lead["consumerPostcode"].startswith("X") for lead in month["applicant"])


# --- windows, scopes, retention ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(client: httpx.Client) -> None:
    bodies = [client.get("/applicant-leads", params=yesterday()).content]
    for seed in (CONFIG.seed, CONFIG.seed + 1):
        with running(Config(seed=seed, branches=9, clock=lambda: NOW)) as other, client_of(other) as second:
            # Another day first: what was asked before must not matter.
            fetch(second, "applicant", window(MIDNIGHT - 3 * DAY, MIDNIGHT - 2 * DAY, branch="101"))
            bodies.append(second.get("/applicant-leads", params=yesterday()).content)
    assert bodies[0] == bodies[1] != bodies[2]
    assert len(bodies[0]) > 1000


def test_both_ends_of_a_window_are_inclusive(client: httpx.Client) -> None:
    lead = next(lead for lead in fetch(client, "applicant", yesterday()) if len(lead["createdAt"]) == 20)
    moment, second = datetime.fromisoformat(lead["createdAt"]), timedelta(seconds=1)

    def found(start: datetime, end: datetime) -> bool:
        return lead["id"] in fetch_ids(client, "applicant", window(start, end, branch="101"))

    assert found(moment, moment)
    assert found(moment - HOUR, moment)
    assert found(moment, moment + HOUR)
    assert not found(moment + second, moment + HOUR)
    assert not found(moment - HOUR, moment - second)


def test_a_lead_at_midnight_is_in_the_answers_of_both_days(client: httpx.Client) -> None:
    twice = 0
    for back in range(2, 12):
        day = MIDNIGHT - back * DAY
        before = fetch_ids(client, "applicant", window(day - DAY, day, group="1"))
        after = fetch_ids(client, "applicant", window(day, day + DAY, group="1"))
        twice += len(set(before) & set(after))
        assert set(before) & set(after) == set(fetch_ids(client, "applicant", window(day, day, group="1")))
    assert twice > 0


@pytest.mark.parametrize("kind", ["applicant", "appraisal"])
def test_every_scope_gives_the_union_of_its_branches_and_truth_agrees(client: httpx.Client, kind: str) -> None:
    scopes = {"branch-104": [104], "brand-4": [103, 104], "company-9": [109], "group-1": range(101, 110)}
    for scope, branches in scopes.items():
        name, id_ = scope.split("-")
        served = fetch_ids(client, kind, yesterday(**{name: id_}))
        of_branches = [lead for one in branches for lead in fetch(client, kind, yesterday(branch=str(one)))]
        assert sorted(served) == sorted(lead["id"] for lead in of_branches) != []
        assert {lead["portalBranchId"] for lead in of_branches} <= set(map(str, branches))
        told = client.get("/_simulator/truth", params={"kind": kind, "scope": scope, **yesterday()}).json()
        assert (told["count"], sorted(told["ids"])) == (len(served), sorted(served))


def test_only_the_last_thirty_days_up_to_now_are_there(client: httpx.Client) -> None:
    horizon = NOW - 30 * DAY
    everything = fetch_ids(client, "applicant", window(NOW - 90 * DAY, NOW + 90 * DAY, branch="101"))
    kept = fetch_ids(client, "applicant", window(horizon + timedelta(seconds=1), NOW, branch="101"))
    assert everything == kept != []
    assert fetch_ids(client, "applicant", window(NOW - 90 * DAY, horizon, group="1")) == []
    assert fetch_ids(client, "applicant", window(NOW + timedelta(seconds=1), NOW + DAY, group="1")) == []
    # The day under way and the day at the horizon are there in part.
    for day in (MIDNIGHT, MIDNIGHT - 30 * DAY):
        part = fetch(client, "applicant", window(day, day + DAY, group="1"))
        moments = [lead["createdAt"] for lead in part if len(lead["createdAt"]) == 20]
        assert wire(horizon) <= min(moments) <= max(moments) <= wire(NOW)


def test_without_dates_the_last_24_hours_are_answered(client: httpx.Client) -> None:
    # Leads lie on whole seconds: the first after 12:30:15.5 is at 12:30:16.
    start = NOW.replace(microsecond=0) + timedelta(seconds=1) - DAY
    got = fetch_ids(client, "applicant", {"group-id": "1"})
    assert got == fetch_ids(client, "applicant", window(start, NOW, group="1")) != []


def test_a_single_branch_needs_no_filter_and_may_have_no_leads() -> None:
    with running(Config(branches=1, clock=lambda: NOW)) as single, client_of(single) as client:
        day = window(MIDNIGHT - DAY, MIDNIGHT)
        assert fetch(client, "applicant", day) == fetch(client, "applicant", {**day, "branch-id": "101"}) != []
        assert single.counters().windows["applicant", "all", wire(MIDNIGHT - DAY)] == 1
    with running(Config(branches=1, leads_per_day=0, clock=lambda: NOW)) as quiet, client_of(quiet) as client:
        assert client.get("/applicant-leads", params=day).content == b'{"applicants":[]}'


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "filter_required"),
        ("branch-id=101&brand-id=3", 400, "too_many_filters"),
        ("branch-id=999", 403, "forbidden"),
        ("branch-id=101&from-time=2026-11-19", 400, "invalid_time"),
        ("branch-id=101&to-time=2026-02-30T00:00:00Z", 400, "invalid_time"),
        ("branch-id=101&from-time=2026-11-19T00:00:00Z&to-time=2026-11-18T00:00:00Z", 400, "invalid_time_range"),
    ],
)
def test_a_request_that_cannot_be_is_refused_with_its_code(
    client: httpx.Client, query: str, status: int, code: str
) -> None:
    answer = client.get(f"/applicant-leads?{query}")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (status, code)


# --- tokens ------------------------------------------------------------------------------------------------------


def test_both_forms_of_the_token_request_give_a_token_for_an_hour() -> None:
    now = [NOW]
    with (
        running(Config(clock=lambda: now[0])) as portal,
        httpx.Client(verify=PLAIN, base_url=portal.base_url) as client,
    ):
        form = {"grant_type": "client_credentials", "scope": "api/api_access"}
        for answer in (
            client.post("/oauth2/token", data=body_form(portal)),
            client.post("/oauth2/token", data=form, headers=basic(*credentials(portal))),
        ):
            granted = answer.json()
            assert (granted["expires_in"], granted["token_type"]) == (3600, "Bearer")
            assert answer.headers["cache-control"] == "no-store"
            client.headers["Authorization"] = f"Bearer {granted['access_token']}"
            assert statuses(client, 1) == [200]
            now[0] += HOUR - timedelta(seconds=1)
            assert statuses(client, 1) == [200]
            now[0] += timedelta(seconds=1)
            assert statuses(client, 1) == [401]
            now[0] = NOW
            del client.headers["Authorization"]


def _without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda form: {name: value for name, value in form.items() if name not in names}


RIGHT_BASIC = basic("leads-simulator", "made-up:secret/100%+1")
UNENCODED = {"Authorization": f"Basic {base64.b64encode(b'leads-simulator:made-up:secret/100%+1').decode()}"}


@pytest.mark.parametrize(
    ("change", "headers", "status", "code"),
    [
        (_without("grant_type"), {}, 400, "invalid_request"),
        (_without("audience"), {}, 400, "invalid_request"),
        (_without("client_id"), {}, 401, "invalid_client"),
        (lambda form: {**form, "grant_type": "password"}, {}, 400, "unsupported_grant_type"),
        (lambda form: {**form, "audience": "https://elsewhere.example"}, {}, 400, "invalid_request"),
        (lambda form: {**form, "client_secret": "wr\u00f6ng"}, {}, 401, "invalid_client"),
        (lambda _: {"grant_type": "client_credentials"}, RIGHT_BASIC, 400, "invalid_scope"),
        (lambda form: form, {"Content-Type": "application/json"}, 400, "invalid_request"),
        (lambda _: {"grant_type": "client_credentials"}, UNENCODED, 401, "invalid_client"),
        (lambda _: {"grant_type": "client_credentials"}, {"Authorization": "Basic not-base64"}, 401, "invalid_client"),
    ],
)
def test_a_wrong_token_request_is_refused_with_its_code(
    portal: Simulator,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    address, form = f"{portal.base_url}/oauth2/token", change(body_form(portal))
    answer = httpx.post(verify=PLAIN, url=address, data=form, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (status, code)
    assert ("www-authenticate" in answer.headers) == (status == 401)


def test_a_token_is_good_for_its_own_service_alone(client: httpx.Client, inventory: httpx.Client) -> None:
    leads, stock = client.headers["Authorization"], inventory.headers["Authorization"]
    for header in (stock, "Bearer wrong", "Bearer", leads.replace("Bearer", "Basic")):
        answer = client.get("/applicant-leads", params=yesterday(), headers={"Authorization": header})
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (401, "unauthorized")
    assert inventory.get("/inventory", headers={"Authorization": leads}).status_code == 401
    assert inventory.get("/inventory", headers={"AgencyRef": "another"}).status_code == 403
    assert inventory.get("/inventory").status_code == 200


# --- inventory and pushes ----------------------------------------------------------------------------------------


def pages(client: httpx.Client, **parameters: str | int) -> list[Json]:
    found, token = [], None
    while True:
        asked = parameters if token is None else {**parameters, "nextToken": token}
        page = client.get("/inventory", params=asked).raise_for_status().json()
        assert schema_errors("InventoryPage", page) == []
        found.append(page)
        token = page["meta"]["nextToken"]
        if token is None:
            return found


def test_the_inventory_can_be_paged_to_its_end(inventory: httpx.Client) -> None:
    first, second, *_ = found = pages(inventory)
    assert [len(page["items"]) for page in found] == [50, 50, 50, 50, 16]
    assert len({item["id"] for page in found for item in page["items"]}) == 216
    back = inventory.get("/inventory", params={"nextToken": second["meta"]["previousToken"]}).json()
    assert back == first
    town = first["items"][0]["address"]["town"]
    assert [len(page["items"]) for page in pages(inventory, address=town, maxResults=7)] == [7, 7, 7, 3]


def test_the_inventory_is_found_by_postcode_town_and_street_in_any_case(inventory: httpx.Client) -> None:
    everything = [item for page in pages(inventory, maxResults=250) for item in page["items"]]
    item = everything[30]
    for text in (
        item["address"]["postcode"],
        item["address"]["postcode"].replace(" ", "").lower(),
        item["address"]["town"].upper(),
        f"{item['address']['street']}, {item['address']['town']}",
    ):
        found = [item for page in pages(inventory, address=text) for item in page["items"]]
        assert item in found
        assert len(found) < len(everything)
    assert pages(inventory, address="Atlantis") == [{"meta": {"nextToken": None, "previousToken": None}, "items": []}]


def test_leads_ask_about_listings_of_the_inventory(client: httpx.Client, inventory: httpx.Client) -> None:
    items = [item for page in pages(inventory, maxResults=250) for item in page["items"]]
    postcodes = {item["id"]: item["address"]["postcode"] for item in items}
    for lead in fetch(client, "applicant", yesterday(group="1")):
        listing = lead["listingDetails"]
        assert postcodes[listing["id"]] == listing["address"]["postcode"]
        assert str(listing["branchId"]) == lead["portalBranchId"]


def test_a_search_that_cannot_be_is_a_problem(inventory: httpx.Client) -> None:
    """A cursor is good for its own search alone."""
    token = pages(inventory)[0]["meta"]["nextToken"]
    for query in ("nextToken=unknown", "maxResults=0", f"nextToken={token}&address=X"):
        answer = inventory.get(f"/inventory?{query}")
        assert answer.status_code == 400
        assert schema_errors("Problem", answer.json()) == []


def test_leads_are_pushed_to_a_receiver_as_they_are_answered(client: httpx.Client) -> None:
    right = client.get("/applicant-leads", params=yesterday()).content
    with closing(RawServer()) as receiver:
        receiver.script = respond(b"", status=200)
        asked = {"to": f"{receiver.url}/leads", "key": "a-key", "kind": "applicant", "scope": "branch-101"}
        told = client.post("/_simulator/push", params={**asked, **yesterday()})
        assert told.json() == {"status": 200}
        receiver.script = respond(b"", status=401)
        assert client.post("/_simulator/push", params={**asked, **yesterday()}).json() == {"status": 401}
    [head, *_] = receiver.requests
    assert head.startswith(b"POST /leads ")
    assert b"authorization: a-key\r\n" in head.lower()
    assert f"content-length: {len(right)}\r\n".encode() in head.lower()
    assert client.post("/_simulator/push", params=asked).status_code == 400, "nobody listens"


# --- faults and counters -----------------------------------------------------------------------------------------


def test_a_rule_takes_the_requests_it_is_about_and_counters_tell_of_them(
    client: httpx.Client, portal: Simulator
) -> None:
    text = rules({"status": 503}, path="/applicant-leads", scope="branch-101", **{"from": "2026-11-19"})
    assert client.put("/_simulator/faults", content=text).status_code == 200
    assert statuses(client, 2) == [503, 503]
    assert client.get("/applicant-leads", params=yesterday(branch="102")).status_code == 200
    assert client.get("/applicant-leads", params=yesterday(brand="3")).status_code == 200
    before = window(MIDNIGHT - 2 * DAY, MIDNIGHT - DAY, branch="101")
    assert client.get("/applicant-leads", params=before).status_code == 200
    assert client.get("/appraisal-leads", params=yesterday()).status_code == 200
    assert client.get("/appraisal-leads", params={"branch-id": "101", "brand-id": "3"}).status_code == 400
    leads_headers(portal)
    counters, day = portal.counters(), wire(MIDNIGHT - DAY)
    assert counters.faults == {"test": 2}
    assert counters.requests == {"/oauth2/token": 1, "/applicant-leads": 5, "/appraisal-leads": 2}
    assert counters.token_requests == 1
    assert counters.statuses == {200: 5, 503: 2, 400: 1}
    assert counters.windows["applicant", "branch-101", day] == 2
    assert counters.windows["appraisal", "several", ""] == 1
    assert client.put("/_simulator/faults", content='{"rules": []}').status_code == 200
    assert statuses(client, 1) == [200]


def test_a_rule_takes_the_first_few_of_all_or_of_each_window(client: httpx.Client, portal: Simulator) -> None:
    other = {"branch-id": "102"}
    portal.set_faults(rules({"status": 503}, first=2))
    assert statuses(client, 1) + statuses(client, 2, **other) == [503, 503, 200]
    portal.set_faults(rules({"status": 503}, first=1, per_window=True))
    assert statuses(client, 2) + statuses(client, 2, **other) == [503, 200, 503, 200]
    # The first rule that takes a request decides.
    portal.set_faults('{"rules": [{"when": {"first": 1}, "then": {"status": 429}}, {"then": {"status": 500}}]}')
    assert statuses(client, 3) == [429, 500, 500]
    assert portal.counters().faults["rule 2"] == 2


def test_a_probability_gives_its_share_and_the_same_requests_whatever_their_order(
    client: httpx.Client, portal: Simulator
) -> None:
    hours = [MIDNIGHT - back * HOUR for back in range(1, 25)]
    asked = [window(hour, hour, branch=str(branch)) for hour in hours for branch in range(101, 106)]

    def hit(order: list[dict[str, str]]) -> set[tuple[str, ...]]:
        portal.set_faults(rules({"status": 500}, probability=0.2))
        return {tuple(q.values()) for q in order if client.get("/applicant-leads", params=q).status_code == 500}

    taken = hit(asked)
    assert 0.1 < len(taken) / len(asked) < 0.3
    assert hit(asked[::-1]) == taken


def test_an_answer_comes_as_written_and_a_late_one_late(client: httpx.Client, portal: Simulator) -> None:
    right = client.get("/applicant-leads", params=yesterday()).content
    portal.set_faults(rules({"status": 418, "body": "£ <tea>", "headers": {"Content-Type": "text/tea", "X-Pot": "1"}}))
    answer = client.get("/applicant-leads", params=yesterday())
    assert (answer.status_code, answer.content) == (418, "£ <tea>".encode())
    assert (answer.headers["content-type"], answer.headers["x-pot"]) == ("text/tea", "1")
    portal.set_faults(rules({"latency_ms": 120}))
    began = time.monotonic()
    assert client.get("/applicant-leads", params=yesterday()).content == right
    assert time.monotonic() - began >= 0.12


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSON"),
        ('{"rules": [{"then": {"statsu": 500}}]}', "unknown field `statsu` - at `$.rules[0].then`"),
        ('{"rules": [{"when": {"path": "/applicants"}, "then": {"status": 500}}]}', "'/applicants' is none of"),
        ('{"rules": [{"when": {"probability": 0.5, "first": 1}, "then": {"status": 500}}]}', "first or probability"),
        ('{"rules": [{"then": {"latency_ms": 5, "body": "x"}}]}', "give a status"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_the_reason(portal: Simulator, text: str, says: str) -> None:
    with pytest.raises(FaultError, match=re.escape(says)):
        portal.set_faults(text)
    answer = httpx.put(verify=PLAIN, url=f"{portal.base_url}/_simulator/faults", content=text)
    assert answer.status_code == 400
    assert says in answer.json()["detail"]


# --- the server and the command ----------------------------------------------------------------------------------


def test_a_simulator_ends_at_once_and_quietly_while_an_answer_is_under_way(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as patient, socket.socket() as impatient:
        with running() as slow:
            slow.set_faults(rules({"latency_ms": 60_000}))
            for connection in (patient, impatient):
                connection.connect(("127.0.0.1", int(slow.base_url.rpartition(":")[2])))
                connection.sendall(b"GET /inventory HTTP/1.1\r\nHost: x\r\n\r\n")
            while slow.counters().requests["/inventory"] < 2:
                time.sleep(0.005)
            impatient.close()
            ended = time.monotonic()
        assert time.monotonic() - ended < 30
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))


def simulate(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "leads_pipeline.simulator", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
        # A shell starts what runs in the background with ctrl-C ignored, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def test_the_command_prints_variables_that_work_and_ends_quietly(tmp_path: Path) -> None:
    faults, ready = tmp_path / "faults.json", tmp_path / "ready.env"
    faults.write_text(rules({"status": 503}, path="/inventory"), encoding="utf-8")
    arguments = ("--port", "0", "--branches", "2", "--leads-per-day", "5", "--faults", faults, "--ready-file", ready)
    process = simulate(*arguments)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(14)]
        printed = dict(re.findall(r"^export (\w+)=(.*)$", "".join(lines), re.MULTILINE))
        form = {
            "grant_type": "client_credentials",
            "client_id": printed["LEADS_CLIENT_ID"],
            "client_secret": printed["LEADS_CLIENT_SECRET"],
            "audience": printed["LEADS_BASE_URL"],
        }
        assert httpx.post(verify=PLAIN, url=f"{printed['LEADS_AUTH_URL']}/oauth2/token", data=form).status_code == 200
        assert printed["LEADS_BASE_URL"].startswith("http://127.0.0.1:")
        assert printed["LEADS_BRANCH_IDS"] == "101,102"
        assert httpx.get(verify=PLAIN, url=f"{printed['INVENTORY_BASE_URL']}/inventory").status_code == 503
        wait_for(ready.exists)
        assert ready.read_text(encoding="utf-8").splitlines() == [f"{name}={text}" for name, text in printed.items()]
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err, out) == (0, "", "\nStopped.\n")


def test_the_command_refuses_a_broken_fault_file_and_a_taken_port(tmp_path: Path, server: Simulator) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text('{"rules": [{"then": {"statsu": 500}}]}', encoding="utf-8")
    _, err = simulate("--faults", faults).communicate(timeout=PATIENCE_SECONDS)
    assert "unknown field `statsu` - at `$.rules[0].then`" in err
    taken = simulate("--port", server.base_url.rpartition(":")[2])
    _, err = taken.communicate(timeout=PATIENCE_SECONDS)
    assert taken.returncode == 2
    assert "Name another" in err
    assert "Traceback" not in err


def test_a_made_up_crm_takes_what_is_signed_and_refuses_the_rest(client: httpx.Client) -> None:
    at, body = datetime.now(UTC), '{"type":"lead.created"}'
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(CRM_SECRET).sign("msg_1", at, body),
    }
    assert client.post(CRM_PATH, content=body, headers=headers).status_code == 204
    assert client.post(CRM_PATH, content=body + " ", headers=headers).status_code == 400
