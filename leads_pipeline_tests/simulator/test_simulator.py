"""The simulator against its contract: schemathesis and openapi.yaml, and what the specification says in words."""

import asyncio
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

from leads_pipeline.simulator import Config, FaultError, RunningSimulator, running

NOW = datetime(2026, 11, 20, 12, 30, 15, 500_000, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
CONTRACT = yaml.safe_load((Path(__file__).parents[1] / "support" / "openapi.yaml").read_text(encoding="utf-8"))
CONFIG = Config(seed=7, branches=9, clock=lambda: NOW)

# Nothing here speaks TLS, and loading the machine's certificates takes longer than most of these tests.
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

Json = Any  # what json.loads gives


# --- talking to it -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[RunningSimulator]:
    with running(CONFIG) as simulator:
        yield simulator


@pytest.fixture
def portal(server: RunningSimulator) -> Iterator[RunningSimulator]:
    """The module's simulator without anything that an earlier test has set or counted."""
    server.set_faults([])
    server.reset_counters()
    yield server
    server.set_faults([])


@pytest.fixture
def client(portal: RunningSimulator) -> Iterator[httpx.Client]:
    """A client that is signed in at the leads service."""
    with httpx.Client(verify=PLAIN, base_url=portal.base_url) as client:
        client.headers["Authorization"] = f"Bearer {leads_token(portal)}"
        portal.reset_counters()
        yield client


@pytest.fixture
def inventory(portal: RunningSimulator) -> Iterator[httpx.Client]:
    """A client that is signed in at the inventory API, with the right agency reference."""
    with httpx.Client(verify=PLAIN, base_url=portal.base_url) as client:
        client.headers.update(inventory_sign_in(client, portal))
        yield client


@pytest.fixture(scope="module")
def leads_headers(server: RunningSimulator) -> dict[str, str]:
    return {"Authorization": f"Bearer {leads_token(server)}"}


@pytest.fixture(scope="module")
def inventory_headers(server: RunningSimulator) -> dict[str, str]:
    with httpx.Client(verify=PLAIN, base_url=server.base_url) as client:
        return inventory_sign_in(client, server)


def inventory_sign_in(client: httpx.Client, portal: RunningSimulator) -> dict[str, str]:
    environment = portal.environment()
    pair = environment["INVENTORY_CLIENT_ID"], environment["INVENTORY_CLIENT_SECRET"]
    answer = client.post("/token", data={"grant_type": "client_credentials"}, headers=basic(*pair))
    token = answer.json()["access_token"]
    return {"Authorization": f"Bearer {token}", "AgencyRef": environment["INVENTORY_AGENCY_REF"]}


def credentials(portal: RunningSimulator) -> tuple[str, str]:
    return portal.environment()["LEADS_CLIENT_ID"], portal.environment()["LEADS_CLIENT_SECRET"]


def body_form(portal: RunningSimulator) -> dict[str, str]:
    client_id, secret = credentials(portal)
    return {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret,
        "audience": portal.base_url,
    }


def basic(client_id: str, secret: str) -> dict[str, str]:
    """RFC 6749 section 2.3.1: both are form-encoded before Base64."""
    text = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


def leads_token(portal: RunningSimulator) -> str:
    token: str = httpx.post(verify=PLAIN, url=f"{portal.base_url}/oauth2/token", data=body_form(portal)).json()[
        "access_token"
    ]
    return token


def wire(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def window(start: datetime, end: datetime, **scope: str) -> dict[str, str]:
    return {"from-time": wire(start), "to-time": wire(end), **{f"{kind}-id": id_ for kind, id_ in scope.items()}}


def fetch(client: httpx.Client, kind: str, parameters: dict[str, str]) -> list[Json]:
    answer = client.get(f"/{kind}-leads", params=parameters)
    assert answer.status_code == 200, answer.text
    leads: list[Json] = answer.json()[f"{kind}s"]
    return leads


def fetch_ids(client: httpx.Client, kind: str, parameters: dict[str, str]) -> list[str]:
    return [lead["id"] for lead in fetch(client, kind, parameters)]


def yesterday(**scope: str) -> dict[str, str]:
    return window(MIDNIGHT - DAY, MIDNIGHT, **(scope or {"branch": "101"}))


def rules(then: Json, **when: Json) -> str:
    return json.dumps({"rules": [{"name": "test", "when": when, "then": then}]})


# --- the contract, by schemathesis --------------------------------------------------------------------------------

# What an answer must be, whatever was asked. Not among them: that everything which the document allows is accepted. In
# words the contract is narrower: one id alone, moments without offset, audience or scope with the credentials.
CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.unsupported_method,
    checks.ignored_auth,
]
# What is wrong in a request counts only where it is sent as it was made: with a client's headers put in, a header that
# was left out on purpose is there again.
STRANGER_CHECKS = [*CHECKS, checks.negative_data_rejection]
SCHEMA = schemathesis.openapi.from_dict(
    CONTRACT,
    config=SchemathesisConfig.from_dict(
        {"generation": {"deterministic": True, "max-examples": 40, "database": "none"}, "seed": 1}
    ),
)


@SCHEMA.parametrize()
def test_every_answer_to_a_stranger_keeps_the_contract(case: schemathesis.Case[Any], server: RunningSimulator) -> None:
    case.call_and_validate(server.base_url, checks=STRANGER_CHECKS)


@SCHEMA.include(path=["/applicant-leads", "/appraisal-leads"]).parametrize()
def test_every_answer_to_a_client_of_the_leads_service_keeps_the_contract(
    case: schemathesis.Case[Any], server: RunningSimulator, leads_headers: dict[str, str]
) -> None:
    case.call_and_validate(server.base_url, headers=leads_headers, checks=CHECKS)


@SCHEMA.include(path="/inventory").parametrize()
def test_every_answer_to_a_client_of_the_inventory_keeps_the_contract(
    case: schemathesis.Case[Any], server: RunningSimulator, inventory_headers: dict[str, str]
) -> None:
    case.call_and_validate(server.base_url, headers=inventory_headers, checks=CHECKS)


def schema_errors(name: str, value: Json) -> list[str]:
    validator = jsonschema_rs.Draft202012Validator({**CONTRACT, "$ref": f"#/components/schemas/{name}"})
    return [f"{'/'.join(map(str, error.instance_path))}: {error.message}" for error in validator.iter_errors(value)]


def paths(value: Json, schema: Json, prefix: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Every property that the schema declares inside the value: its path, the value there, its schema."""
    while "$ref" in schema:
        schema = CONTRACT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for name, inner in schema.get("properties", {}).items():
        yield f"{prefix}{name}", value.get(name, "missing"), inner
        if isinstance(value.get(name), dict):
            yield from paths(value[name], inner, f"{prefix}{name}.")
        for element in value[name] if isinstance(value.get(name), list) else ():
            yield from paths(element, inner["items"], f"{prefix}{name}[].")


@pytest.fixture(scope="module")
def month() -> dict[str, list[Json]]:
    """All leads that a larger portal holds, by kind, as they came over the wire."""
    with (
        running(Config(seed=3, branches=20, clock=lambda: NOW)) as simulator,
        httpx.Client(verify=PLAIN, timeout=60) as client,
    ):
        client.base_url = httpx.URL(simulator.base_url)
        client.headers["Authorization"] = f"Bearer {leads_token(simulator)}"
        everything = window(NOW - 40 * DAY, NOW, group="1")
        return {kind: fetch(client, kind, everything) for kind in ("applicant", "appraisal")}


@pytest.mark.parametrize("kind", ["applicant", "appraisal"])
def test_every_lead_of_a_month_fits_the_contract_and_has_all_its_fields(month: dict[str, Json], kind: str) -> None:
    assert len(month[kind]) > 2000
    assert schema_errors(f"{kind.title()}List", {f"{kind}s": month[kind]}) == []
    missing = Counter(
        path
        for lead in month[kind]
        for path, value, _ in paths(lead, CONTRACT["components"]["schemas"][kind.title()])
        if value == "missing"
    )
    assert missing == Counter()


def test_the_schema_check_sees_a_wrong_lead(month: dict[str, Json]) -> None:
    wrong = {**month["applicant"][0], "isOverseas": "no"}
    assert schema_errors("ApplicantList", {"applicants": [wrong]}) != []


def test_a_month_shows_everything_that_makes_real_leads_hard(month: dict[str, Json]) -> None:
    applicants, appraisals = month["applicant"], month["appraisal"]
    forms = Counter(re.sub(r"[0-9]", "9", lead["createdAt"]) for lead in applicants)
    assert forms["9999-99-99T99:99:99Z"] > 20 * forms["9999-99-99T99:99Z"] > 0
    assert any(lead["createdAt"] == "0001-01-01T00:00Z" for lead in applicants)
    assert {type(lead["viewingTimes"]) for lead in applicants} == {list, type(None)}
    assert {type(lead["listingDetails"]["images"]) for lead in applicants} == {list, type(None)}
    assert {type(lead["listingDetails"]["propertyId"]) for lead in applicants} == {int}
    assert {type(lead["propertyDetails"]["propertyId"]) for lead in appraisals} == {str}
    assert any(lead["listingDetails"]["uprn"] > 2**53 for lead in applicants)
    assert any(lead["propertyDetails"]["uprn"] > 2**53 for lead in appraisals)
    for found in ("\r\n", "\n\n", "<b>", "£", "👍", '"'):
        assert any(found in lead["message"] for lead in applicants), found
    known = set(CONTRACT["components"]["schemas"]["Applicant"]["properties"])
    drifted = [lead for lead in applicants if not lead.keys() <= known]
    assert 0 < len(drifted) < len(applicants) / 100


def test_prices_come_with_digits_that_a_float_would_drop(client: httpx.Client) -> None:
    text = client.get("/applicant-leads", params=yesterday(group="1")).text
    assert re.search(r'"price":\d+\.\d0[,}]', text)
    assert "\\u00a3" in text, "messages escape what isn't ASCII"


def test_people_come_back_over_days_and_branches_and_some_of_them_sell(month: dict[str, Json]) -> None:
    seen: dict[str, set[tuple[str, str]]] = {}
    for lead in month["applicant"]:
        seen.setdefault(lead["contact"]["email"], set()).add((lead["createdAt"][:10], lead["portalBranchId"]))
    assert any(len({day for day, _ in places}) > 1 for places in seen.values())
    assert any(len({branch for _, branch in places}) > 1 for places in seen.values())
    sellers = {
        lead["contact"]["email"]
        for lead in month["applicant"]
        if lead["consumerSituation"] == "CONSUMER_SITUATION_PROPERTY_TO_SELL"
    }
    assert sellers & {lead["contact"]["email"] for lead in month["appraisal"]}


def test_nobody_real_can_be_meant(month: dict[str, Json]) -> None:
    for lead in (*month["applicant"], *month["appraisal"]):
        assert lead["contact"]["email"].rpartition("@")[2] in {"example.com", "example.org", "example.net"}
        number = lead["contact"]["phoneNumber"].replace(" ", "").replace("+44", "0")
        assert re.fullmatch(r"(07700900|02079460|01614960|01632960)\d{3}", number)
    assert all(lead["consumerPostcode"].startswith("X") for lead in month["applicant"])


def test_leads_follow_the_hours_the_week_and_the_size_of_the_branch(month: dict[str, Json]) -> None:
    leads = [lead for lead in month["applicant"] if re.fullmatch(r".{19}Z", lead["createdAt"])]
    hours = Counter(lead["createdAt"][11:13] for lead in leads)
    assert hours["20"] > 1.3 * hours["14"] > 3 * hours["03"]
    # A whole number of weeks, all in winter time.
    weeks = [lead["createdAt"][:10] for lead in leads if "2026-10-26" <= lead["createdAt"] < "2026-11-16"]
    weekdays = Counter(date.fromisoformat(day).weekday() for day in weeks)
    assert weekdays[0] > 1.2 * weekdays[5]
    branches = Counter(lead["portalBranchId"] for lead in leads)
    assert max(branches.values()) > 2 * min(branches.values())
    assert len(leads) == pytest.approx(20 * 20 * 30, rel=0.25)


# --- windows, scopes, retention ------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(client: httpx.Client) -> None:
    bodies = [client.get("/applicant-leads", params=yesterday()).content]
    for seed in (CONFIG.seed, CONFIG.seed + 1):
        with running(Config(seed=seed, branches=9, clock=lambda: NOW)) as other, httpx.Client(verify=PLAIN) as second:
            headers = {"Authorization": f"Bearer {leads_token(other)}"}
            # Another day first: what was asked before must not matter.
            for day in (MIDNIGHT - 3 * DAY, MIDNIGHT - DAY):
                answer = second.get(
                    f"{other.base_url}/applicant-leads", params=window(day, day + DAY, branch="101"), headers=headers
                )
            bodies.append(answer.content)
    assert bodies[0] == bodies[1] != bodies[2]
    assert len(bodies[0]) > 1000


def test_both_ends_of_a_window_are_inclusive(client: httpx.Client) -> None:
    lead = next(lead for lead in fetch(client, "applicant", yesterday()) if len(lead["createdAt"]) == 20)
    moment = datetime.fromisoformat(lead["createdAt"])
    second = timedelta(seconds=1)

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
        at_midnight = fetch_ids(client, "applicant", window(day, day, group="1"))
        assert set(before) & set(after) == set(at_midnight)
    assert twice > 0


@pytest.mark.parametrize("kind", ["applicant", "appraisal"])
def test_truth_agrees_with_what_is_served_for_every_scope(
    client: httpx.Client, portal: RunningSimulator, kind: str
) -> None:
    for scope, parameters in {
        "branch-104": window(MIDNIGHT - 2 * DAY, MIDNIGHT, branch="104"),
        "brand-4": window(MIDNIGHT - 2 * DAY, MIDNIGHT, brand="4"),
        "company-8": window(MIDNIGHT - 2 * DAY, MIDNIGHT, company="8"),
        "group-1": window(MIDNIGHT - 2 * DAY, MIDNIGHT, group="1"),
    }.items():
        served = fetch_ids(client, kind, parameters)
        control = client.get("/_simulator/truth", params={"kind": kind, "scope": scope, **parameters}).json()
        assert served
        assert sorted(served) == sorted(control["ids"])
        assert control["count"] == len(served)
        assert sorted(served) == sorted(
            portal.truth("applicant" if kind == "applicant" else "appraisal", scope, MIDNIGHT - 2 * DAY, MIDNIGHT)
        )


def test_every_id_of_the_hierarchy_gives_the_union_of_its_branches(client: httpx.Client) -> None:
    by_branch = {str(branch): fetch(client, "applicant", yesterday(branch=str(branch))) for branch in range(101, 110)}
    for kind, field, ids in (
        ("brand", None, {"3": "101 102", "7": "109"}),
        ("company", "portalCompanyId", {"7": "101 102 103 104", "9": "109"}),
        ("group", "portalGroupId", {"1": " ".join(by_branch)}),
    ):
        for id_, branches in ids.items():
            leads = fetch(client, "applicant", yesterday(**{kind: id_}))
            assert sorted(lead["id"] for lead in leads) == sorted(
                lead["id"] for branch in branches.split() for lead in by_branch[branch]
            )
            assert field is None or {lead[field] for lead in leads} == {id_}
    for branch, leads in by_branch.items():
        assert {lead["portalBranchId"] for lead in leads} == {branch}


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
        assert moments
        assert wire(horizon) <= min(moments) <= max(moments) <= wire(NOW)


def test_without_dates_the_last_24_hours_are_answered(client: httpx.Client) -> None:
    for kind in ("applicant", "appraisal"):
        got = fetch_ids(client, kind, {"group-id": "1"})
        # Leads lie on whole seconds: the first after 12:30:15.5 is at 12:30:16.
        start = NOW.replace(microsecond=0) + timedelta(seconds=1) - DAY
        assert got == fetch_ids(client, kind, window(start, NOW, group="1"))
        assert got


def test_a_portal_without_leads_answers_empty_lists() -> None:
    quiet = Config(leads_per_day=0, clock=lambda: NOW)
    with running(quiet) as simulator, httpx.Client(verify=PLAIN, base_url=simulator.base_url) as client:
        client.headers["Authorization"] = f"Bearer {leads_token(simulator)}"
        for kind in ("applicant", "appraisal"):
            answer = client.get(f"/{kind}-leads", params=window(MIDNIGHT - 20 * DAY, MIDNIGHT, group="1"))
            assert answer.content == f'{{"{kind}s":[]}}'.encode()


def test_a_set_up_with_a_single_branch_needs_no_filter() -> None:
    with (
        running(Config(branches=1, clock=lambda: NOW)) as single,
        httpx.Client(verify=PLAIN, base_url=single.base_url) as client,
    ):
        client.headers["Authorization"] = f"Bearer {leads_token(single)}"
        day = window(MIDNIGHT - DAY, MIDNIGHT)
        assert fetch(client, "applicant", day) == fetch(client, "applicant", {**day, "branch-id": "101"}) != []
        assert single.counters().windows["applicant", "all", wire(MIDNIGHT - DAY)] == 1


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "filter_required"),
        ("branch-id=101&brand-id=3", 400, "too_many_filters"),
        ("branch-id=101&branch-id=102", 400, "too_many_filters"),
        ("branch-id=999", 403, "forbidden"),
        ("brand-id=101", 403, "forbidden"),
        ("branch-id=", 403, "forbidden"),
        ("branch-id=101&from-time=yesterday", 400, "invalid_time"),
        ("branch-id=101&from-time=2026-11-19", 400, "invalid_time"),
        ("branch-id=101&from-time=2026-11-19T00:00:00%2B00:00", 400, "invalid_time"),
        ("branch-id=101&to-time=2026-02-30T00:00:00Z", 400, "invalid_time"),
        ("branch-id=101&to-time=", 400, "invalid_time"),
        ("branch-id=101&from-time=2026-11-19T00:00:00Z&from-time=2026-11-19T00:00:00Z", 400, "invalid_time"),
        ("branch-id=101&from-time=2026-11-19T00:00:00Z&to-time=2026-11-18T00:00:00Z", 400, "invalid_time_range"),
    ],
)
def test_a_request_that_cannot_be_is_refused_with_its_code(
    client: httpx.Client, query: str, status: int, code: str
) -> None:
    answer = client.get(f"/applicant-leads?{query}")
    assert answer.status_code == status
    (error,) = answer.json()["errors"]
    assert error["code"] == code
    assert error["message"]
    assert error["links"] == []


# --- tokens ------------------------------------------------------------------------------------------------------


def test_both_forms_of_the_token_request_give_a_token_that_works(portal: RunningSimulator) -> None:
    with httpx.Client(verify=PLAIN, base_url=portal.base_url) as client:
        by_body = client.post("/oauth2/token", data=body_form(portal))
        by_basic = client.post(
            "/oauth2/token",
            data={"grant_type": "client_credentials", "scope": "api/api_access"},
            headers=basic(*credentials(portal)),
        )
        for answer in (by_body, by_basic):
            assert answer.status_code == 200
            assert answer.headers["cache-control"] == "no-store"
            granted = answer.json()
            assert (granted["expires_in"], granted["token_type"]) == (3600, "Bearer")
            headers = {"Authorization": f"Bearer {granted['access_token']}"}
            assert client.get("/applicant-leads", params=yesterday(), headers=headers).status_code == 200
        assert by_body.json()["access_token"] != by_basic.json()["access_token"]


def _without(*names: str) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda form: {name: value for name, value in form.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        (_without("grant_type"), 400, "invalid_request"),
        (_without("audience"), 400, "invalid_request"),
        (_without("client_id"), 401, "invalid_client"),
        (_without("client_secret"), 401, "invalid_client"),
        (lambda form: {**form, "grant_type": "password"}, 400, "unsupported_grant_type"),
        (lambda form: {**form, "audience": "https://elsewhere.example"}, 400, "invalid_request"),
        (lambda form: {**form, "client_secret": "wrong"}, 401, "invalid_client"),
        (lambda form: {**form, "client_id": form["client_id"] + "\u00e9"}, 401, "invalid_client"),
        (lambda form: {**form, "grant_type": ["client_credentials"] * 2}, 400, "invalid_request"),
    ],
)
def test_a_wrong_token_request_with_the_credentials_in_the_body_is_refused(
    portal: RunningSimulator, change: Callable[[dict[str, str]], dict[str, Any]], status: int, code: str
) -> None:
    answer = httpx.post(verify=PLAIN, url=f"{portal.base_url}/oauth2/token", data=change(body_form(portal)))
    assert (answer.status_code, answer.json()["error"]) == (status, code)


@pytest.mark.parametrize(
    ("form", "status", "code"),
    [
        ({"grant_type": "client_credentials"}, 400, "invalid_request"),
        ({"grant_type": "client_credentials", "scope": "everything"}, 400, "invalid_scope"),
    ],
)
def test_the_basic_form_takes_the_scope(portal: RunningSimulator, form: dict[str, str], status: int, code: str) -> None:
    answer = httpx.post(
        verify=PLAIN, url=f"{portal.base_url}/oauth2/token", data=form, headers=basic(*credentials(portal))
    )
    assert (answer.status_code, answer.json()["error"]) == (status, code)


def test_credentials_in_both_places_at_once_are_refused(portal: RunningSimulator) -> None:
    form = {**body_form(portal), "scope": "api/api_access"}
    answer = httpx.post(
        verify=PLAIN, url=f"{portal.base_url}/oauth2/token", data=form, headers=basic(*credentials(portal))
    )
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


def test_a_json_body_is_refused(portal: RunningSimulator) -> None:
    answer = httpx.post(verify=PLAIN, url=f"{portal.base_url}/oauth2/token", json=body_form(portal))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "header", ["Basic", "Basic not-base64", "Basic bm9jb2xvbg==", "Bearer abc", "Basic bGVhZHMtc2ltdWxhdG9yOng="]
)
def test_a_basic_header_that_says_nothing_right_is_refused(portal: RunningSimulator, header: str) -> None:
    form = {"grant_type": "client_credentials", "scope": "api/api_access"}
    answer = httpx.post(
        verify=PLAIN, url=f"{portal.base_url}/oauth2/token", data=form, headers={"Authorization": header}
    )
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert answer.headers["www-authenticate"].startswith("Basic")


def test_a_basic_header_with_unencoded_credentials_is_refused(portal: RunningSimulator) -> None:
    answer = httpx.post(
        verify=PLAIN,
        url=f"{portal.base_url}/oauth2/token",
        data={"grant_type": "client_credentials", "scope": "api/api_access"},
        auth=credentials(portal),
    )
    assert answer.status_code == 401


def test_a_token_is_good_for_its_own_service_alone(client: httpx.Client, inventory: httpx.Client) -> None:
    leads, stock = client.headers["Authorization"], inventory.headers["Authorization"]
    swapped = {"Authorization": stock}
    assert client.get("/applicant-leads", params=yesterday(), headers=swapped).status_code == 401
    assert inventory.get("/inventory", headers={"Authorization": leads}).status_code == 401
    assert inventory.get("/inventory").status_code == 200


def test_a_missing_or_wrong_token_is_answered_401(portal: RunningSimulator) -> None:
    for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}, {"Authorization": "Basic abc"}):
        answer = httpx.get(verify=PLAIN, url=f"{portal.base_url}/applicant-leads", params=yesterday(), headers=header)
        assert answer.status_code == 401
        assert answer.json()["errors"][0]["code"] == "unauthorized"


def test_a_token_ends_with_its_lifetime() -> None:
    now = [NOW]
    config = Config(clock=lambda: now[0], token_lifetime_seconds=60)
    with running(config) as short, httpx.Client(verify=PLAIN, base_url=short.base_url) as client:
        granted = client.post("/oauth2/token", data=body_form(short)).json()
        assert granted["expires_in"] == 60
        client.headers["Authorization"] = f"Bearer {granted['access_token']}"
        now[0] = NOW + timedelta(seconds=59)
        assert client.get("/applicant-leads", params=yesterday()).status_code == 200
        now[0] = NOW + timedelta(seconds=60)
        assert client.get("/applicant-leads", params=yesterday()).status_code == 401


# --- inventory ---------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("size", [1, 7, 50, 250])
def test_the_inventory_can_be_paged_to_its_end(inventory: httpx.Client, size: int) -> None:
    town = pages(inventory)[0]["items"][0]["address"]["town"]
    found = pages(inventory, address=town, maxResults=size)
    ids = [item["id"] for page in found for item in page["items"]]
    assert len(ids) == len(set(ids)) == 24
    assert [len(page["items"]) for page in found[:-1]] == [size] * (len(found) - 1)
    assert len(found) == -(-24 // size)


def test_a_page_has_50_items_and_knows_the_page_before_it(inventory: httpx.Client) -> None:
    first, second, *_ = found = pages(inventory)
    assert [len(page["items"]) for page in found] == [50, 50, 50, 50, 16]
    assert first["meta"]["previousToken"] is None
    back = inventory.get("/inventory", params={"nextToken": second["meta"]["previousToken"]}).json()
    assert back == first


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


def test_filters_split_the_inventory(inventory: httpx.Client) -> None:
    def ids(**parameters: str) -> set[str]:
        return {item["id"] for page in pages(inventory, **parameters, maxResults=250) for item in page["items"]}

    everything = ids()
    for name, values in (
        ("recordType", ("Sale", "Rent")),
        ("category", ("Residential", "Commercial")),
        ("archived", ("true", "false")),
    ):
        one, other = (ids(**{name: value}) for value in values)
        assert one
        assert other
        assert one | other == everything
        assert not one & other
    assert ids(recordType="Unspecified", category="Unspecified") == everything


def test_leads_ask_about_listings_of_the_inventory(client: httpx.Client, inventory: httpx.Client) -> None:
    stock = {
        item["id"]: item["address"]
        for page in pages(inventory, archived="false", maxResults=250)
        for item in page["items"]
    }
    for lead in fetch(client, "applicant", yesterday(group="1")):
        listing = lead["listingDetails"]
        assert stock[listing["id"]]["postcode"] == listing["address"]["postcode"]
        assert str(listing["branchId"]) == lead["portalBranchId"]


@pytest.mark.parametrize(
    "query",
    [
        "nextToken=unknown",
        "nextToken=",
        "nextToken=%C3%A9",
        "nextToken=NTAuMDAwMDAwMDAwMDAwMDAwMA==",
        "maxResults=0",
        "maxResults=251",
        "maxResults=ten",
        "maxResults=%C2%B2",
        "category=Castle",
        "recordType=Lease",
        "archived=maybe",
        "address=a&address=b",
    ],
)
def test_a_search_that_cannot_be_is_a_problem(inventory: httpx.Client, query: str) -> None:
    answer = inventory.get(f"/inventory?{query}")
    assert answer.status_code == 400
    assert schema_errors("Problem", answer.json()) == []
    assert answer.json()["detail"]


def test_a_cursor_is_good_for_its_own_search_alone(inventory: httpx.Client) -> None:
    token = pages(inventory)[0]["meta"]["nextToken"]
    assert inventory.get("/inventory", params={"nextToken": token}).status_code == 200
    assert inventory.get("/inventory", params={"nextToken": token, "address": "X"}).status_code == 400


def test_the_agency_reference_must_be_right(inventory: httpx.Client) -> None:
    assert inventory.get("/inventory", headers={"AgencyRef": "another"}).status_code == 403
    del inventory.headers["AgencyRef"]
    assert inventory.get("/inventory").status_code == 403


# --- faults ------------------------------------------------------------------------------------------------------


def test_a_rule_takes_the_requests_it_is_about_and_no_others(client: httpx.Client, portal: RunningSimulator) -> None:
    day, before = yesterday(), window(MIDNIGHT - 2 * DAY, MIDNIGHT - DAY, branch="101")
    for when in (
        {"path": "/applicant-leads", "scope": "branch-101", "from": "2026-11-19"},
        {"path": "/applicant-leads", "scope": "branch-101", "from": "2026-11-19T00:00:00Z"},
    ):
        portal.set_faults(rules({"status": 500}, **when))
        assert client.get("/applicant-leads", params=day).status_code == 500
        assert client.get("/applicant-leads", params=before).status_code == 200
        assert client.get("/applicant-leads", params=yesterday(branch="102")).status_code == 200
        assert client.get("/applicant-leads", params=yesterday(brand="3")).status_code == 200
        assert client.get("/appraisal-leads", params=day).status_code == 200
    assert portal.counters().faults == {"test": 2}


def statuses(client: httpx.Client, times: int, **parameters: str) -> list[int]:
    return [client.get("/applicant-leads", params={**yesterday(), **parameters}).status_code for _ in range(times)]


def test_a_rule_takes_the_nth_or_the_first_few_matches(client: httpx.Client, portal: RunningSimulator) -> None:
    portal.set_faults(rules({"status": 503}, nth=2))
    assert statuses(client, 4) == [200, 503, 200, 200]
    portal.set_faults(rules({"status": 503}, first=2))
    assert statuses(client, 4) == [503, 503, 200, 200]
    # All windows count together.
    portal.set_faults(rules({"status": 503}, first=1))
    assert statuses(client, 1) + statuses(client, 1, **{"branch-id": "102"}) == [503, 200]


def test_a_rule_can_count_each_window_for_itself(client: httpx.Client, portal: RunningSimulator) -> None:
    portal.set_faults(rules({"status": 503}, first=1, per_window=True))
    for branch in ("101", "102"):
        assert statuses(client, 2, **{"branch-id": branch}) == [503, 200]


def test_a_probability_gives_its_share_and_the_same_requests_whatever_their_order(
    client: httpx.Client, portal: RunningSimulator
) -> None:
    hours = [MIDNIGHT - back * HOUR for back in range(1, 25)]
    asked = [window(hour, hour, branch=str(branch)) for hour in hours for branch in range(101, 106)]

    def hit(order: list[dict[str, str]]) -> set[tuple[str, ...]]:
        portal.set_faults(rules({"status": 500}, probability=0.2))
        return {tuple(q.values()) for q in order if client.get("/applicant-leads", params=q).status_code == 500}

    taken = hit(asked)
    assert 0.1 < len(taken) / len(asked) < 0.3
    assert hit(asked[::-1]) == taken


def test_the_first_rule_that_fires_decides(client: httpx.Client, portal: RunningSimulator) -> None:
    portal.set_faults('{"rules": [{"when": {"nth": 2}, "then": {"status": 429}}, {"then": {"status": 500}}]}')
    assert statuses(client, 3) == [500, 429, 500]
    assert portal.counters().faults == {"rule 1": 1, "rule 2": 2}


@pytest.mark.parametrize("retry_after", [None, 7, "Wed, 21 Oct 2015 07:28:00 GMT", "soon", "-1"])
def test_429_comes_with_any_retry_after(client: httpx.Client, portal: RunningSimulator, retry_after: Json) -> None:
    portal.set_faults(rules({"status": 429} if retry_after is None else {"status": 429, "retry_after": retry_after}))
    answer = client.get("/applicant-leads", params=yesterday())
    assert answer.status_code == 429
    assert answer.headers.get("retry-after") == (None if retry_after is None else str(retry_after))
    assert answer.content == b""


def test_a_literal_answer_comes_as_written(client: httpx.Client, portal: RunningSimulator) -> None:
    portal.set_faults(rules({"status": 418, "body": "£ <tea>", "headers": {"Content-Type": "text/tea", "X-Pot": "1"}}))
    answer = client.get("/applicant-leads", params=yesterday())
    assert (answer.status_code, answer.content) == (418, "£ <tea>".encode())
    assert (answer.headers["content-type"], answer.headers["x-pot"]) == ("text/tea", "1")


@pytest.mark.parametrize(
    ("shape", "path", "status", "body"),
    [
        ("empty_object", "/applicant-leads", 200, b"{}"),
        ("null_list", "/applicant-leads", 200, b'{"applicants":null}'),
        ("null_list", "/appraisal-leads", 200, b'{"appraisals":null}'),
        ("null_list", "/inventory", 200, b'{"items":null}'),
        ("empty", "/applicant-leads", 200, b""),
        ("html", "/applicant-leads", 200, b"<!DOCTYPE html>"),
        ("error_object", "/applicant-leads", 200, b'{"errors":['),
        ("no_content", "/applicant-leads", 204, b""),
        ("redirect", "/applicant-leads", 302, b""),
    ],
)
def test_a_wrong_shape_is_what_its_name_says(
    client: httpx.Client, portal: RunningSimulator, shape: str, path: str, status: int, body: bytes
) -> None:
    portal.set_faults(rules({"shape": shape}))
    answer = client.get(path, params=yesterday())
    assert answer.status_code == status
    assert answer.content.startswith(body)
    assert bool(answer.content) == bool(body)
    assert ("location" in answer.headers) == (shape == "redirect")


@pytest.mark.parametrize(("token", "status"), [("expired", 401), ("revoked", 403)])
def test_a_good_token_is_refused_until_a_new_one_comes(
    client: httpx.Client, portal: RunningSimulator, token: str, status: int
) -> None:
    portal.set_faults(rules({"token": token}, path="/applicant-leads", first=1))
    assert statuses(client, 3) == [status, 401, 401]
    client.headers["Authorization"] = f"Bearer {leads_token(portal)}"
    assert statuses(client, 2) == [200, 200]


def test_a_late_answer_is_the_right_one(client: httpx.Client, portal: RunningSimulator) -> None:
    right = client.get("/applicant-leads", params=yesterday()).content
    portal.set_faults(rules({"latency_ms": 120}))
    began = time.monotonic()
    late = client.get("/applicant-leads", params=yesterday())
    assert time.monotonic() - began >= 0.12
    assert late.content == right


def test_latency_goes_with_another_effect(client: httpx.Client, portal: RunningSimulator) -> None:
    portal.set_faults(rules({"latency_ms": 120, "status": 503}))
    began = time.monotonic()
    assert statuses(client, 1) == [503]
    assert time.monotonic() - began >= 0.12


def test_every_answer_of_a_slow_portal_is_late() -> None:
    with running(Config(latency_ms=120)) as slow:
        began = time.monotonic()
        assert httpx.get(verify=PLAIN, url=f"{slow.base_url}/applicant-leads").status_code == 401
        assert time.monotonic() - began >= 0.12


def test_a_simulator_ends_at_once_and_quietly_while_an_answer_is_under_way(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as patient, socket.socket() as impatient:
        with running(Config(latency_ms=60_000)) as slow:
            for connection in (patient, impatient):
                connection.connect(("127.0.0.1", int(slow.base_url.rpartition(":")[2])))
                connection.sendall(b"GET /inventory HTTP/1.1\r\nHost: x\r\n\r\n")
            while slow.counters().requests["/inventory"] < 2:
                time.sleep(0.005)
            impatient.close()
            ended = time.monotonic()
        assert time.monotonic() - ended < 5
        with pytest.raises(ConnectionResetError):
            patient.recv(1)
    assert caplog.records == []


def test_a_dripped_body_comes_in_pieces_and_whole(client: httpx.Client, portal: RunningSimulator) -> None:
    right = client.get("/applicant-leads", params=yesterday()).content
    portal.set_faults(rules({"drip_bytes_per_second": len(right) * 5}))
    began = time.monotonic()
    with client.stream("GET", "/applicant-leads", params=yesterday()) as answer:
        arrivals = [(time.monotonic() - began, len(chunk)) for chunk in answer.iter_raw()]
    assert sum(size for _, size in arrivals) == len(right)
    assert len(arrivals) > 1
    assert arrivals[-1][0] - arrivals[0][0] > 0.1


@pytest.mark.parametrize(
    ("cut_off", "error"),
    [("length", httpx.RemoteProtocolError), ("chunked", httpx.RemoteProtocolError), ("reset", httpx.ReadError)],
)
def test_a_body_breaks_off_half_way(
    client: httpx.Client, portal: RunningSimulator, cut_off: str, error: type[Exception]
) -> None:
    right = client.get("/applicant-leads", params=yesterday()).content
    portal.set_faults(rules({"cut_off": cut_off}, first=1))
    received = b""

    def read() -> None:
        nonlocal received
        with client.stream("GET", "/applicant-leads", params=yesterday()) as answer:
            assert answer.status_code == 200
            assert ("content-length" in answer.headers) == (cut_off != "chunked")
            for chunk in answer.iter_raw():
                received += chunk

    with pytest.raises(error):
        read()
    assert right.startswith(received)
    assert 0 < len(received) <= len(right) // 2 + 1
    assert statuses(client, 1) == [200], "the next request is served as usual"


def test_token_endpoints_can_fail_as_well(portal: RunningSimulator) -> None:
    portal.set_faults(rules({"status": 429, "retry_after": 1}, path="/oauth2/token", first=1))
    answers = [
        httpx.post(verify=PLAIN, url=f"{portal.base_url}/oauth2/token", data=body_form(portal)) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [429, 200]
    assert portal.counters().token_requests == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "JSON"),
        ("[]", "Expected `object`"),
        ('{"rules": [{"then": {"status": 500}, "wehn": {}}]}', "unknown field `wehn`"),
        ('{"rules": [{"then": {"statsu": 500}}]}', "unknown field `statsu` - at `$.rules[0].then`"),
        ('{"rules": [{"when": {"path": "/applicants"}, "then": {"status": 500}}]}', "'/applicants' is none of"),
        ('{"rules": [{"when": {"nth": 1, "first": 1}, "then": {"status": 500}}]}', "one of nth, first"),
        ('{"rules": [{"when": {"probability": 5}, "then": {"status": 500}}]}', "<= 1"),
        ('{"rules": [{"then": {}}]}', "give one of status"),
        ('{"rules": [{"then": {"status": 500, "shape": "html"}}]}', "give one of status"),
        ('{"rules": [{"then": {"status": 99}}]}', ">= 200"),
        ('{"rules": [{"then": {"shape": "round"}}]}', "Invalid enum value 'round'"),
        ('{"rules": [{"then": {"shape": "html", "body": "x"}}]}', "need a status"),
        ('{"rules": [{"then": {"status": 204, "body": "x"}}]}', "has no body"),
        ('{"rules": [{"then": {"status": 429, "retry_after": "1\\nX: y"}}]}', "printable ASCII"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_the_reason(portal: RunningSimulator, text: str, says: str) -> None:
    with pytest.raises(FaultError, match=re.escape(says)):
        portal.set_faults(text)
    answer = httpx.put(verify=PLAIN, url=f"{portal.base_url}/_simulator/faults", content=text)
    assert answer.status_code == 400
    assert says in answer.json()["detail"]


def test_faults_are_set_and_cleared_over_http(client: httpx.Client) -> None:
    text = rules({"status": 503, "retry_after": 3}, path="/applicant-leads", scope="branch-101")
    assert client.put("/_simulator/faults", content=text).status_code == 200
    assert client.get("/_simulator/faults").json() == json.loads(text)
    assert statuses(client, 1) == [503]
    assert client.delete("/_simulator/faults").json() == {"rules": []}
    assert statuses(client, 1) == [200]


# --- counters ----------------------------------------------------------------------------------------------------


def test_counters_tell_what_was_asked_and_answered(client: httpx.Client, portal: RunningSimulator) -> None:
    leads_token(portal)
    portal.set_faults(rules({"status": 429}, scope="branch-102"))
    statuses(client, 2)
    statuses(client, 1, **{"branch-id": "102"})
    client.get("/appraisal-leads", params={"branch-id": "101", "brand-id": "3"})
    client.get("/_simulator/counters")

    counters = portal.counters()
    assert counters.requests == {"/oauth2/token": 1, "/applicant-leads": 3, "/appraisal-leads": 1}
    assert counters.token_requests == 1
    assert counters.statuses == {200: 3, 429: 1, 400: 1}
    assert counters.faults == {"test": 1}
    day = wire(MIDNIGHT - DAY)
    assert counters.windows == {
        ("applicant", "branch-101", day): 2,
        ("applicant", "branch-102", day): 1,
        ("appraisal", "several", ""): 1,
    }
    told = client.get("/_simulator/counters").json()
    assert told["token_requests"] == 1
    assert told["statuses"] == {"200": 3, "400": 1, "429": 1}
    assert {"kind": "applicant", "scope": "branch-101", "from_time": day, "requests": 2} in told["windows"]
    client.delete("/_simulator/counters")
    assert client.get("/_simulator/counters").json()["requests"] == {}


# --- the command -------------------------------------------------------------------------------------------------


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
        lines = [process.stdout.readline() for _ in range(12)]
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
        deadline = time.monotonic() + 5
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert ready.read_text(encoding="utf-8").splitlines() == [f"{name}={text}" for name, text in printed.items()]
    finally:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert out == "\nStopped.\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--branches", "0"], "--branches"), (["--port", "99999"], "--port"), (["--faults", "nowhere.json"], "--faults")],
)
def test_the_command_refuses_options_that_cannot_be(arguments: list[str], says: str) -> None:
    process = simulate(*arguments)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert says in err


def test_the_command_refuses_a_broken_fault_file_and_a_taken_port(tmp_path: Path, server: RunningSimulator) -> None:
    faults = tmp_path / "faults.json"
    faults.write_text('{"rules": [{"then": {"statsu": 500}}]}', encoding="utf-8")
    _, err = simulate("--faults", faults).communicate(timeout=20)
    assert "unknown field `statsu` - at `$.rules[0].then`" in err
    taken = simulate("--port", server.base_url.rpartition(":")[2])
    _, err = taken.communicate(timeout=20)
    assert taken.returncode == 2
    assert "Name another" in err
    assert "Traceback" not in err


# --- how fast ----------------------------------------------------------------------------------------------------


def test_parallel_requests_get_the_answers_that_they_asked_for(client: httpx.Client, portal: RunningSimulator) -> None:
    asked = [(kind, str(branch)) for kind in ("applicant", "appraisal") for branch in range(101, 110)] * 5
    expected = {(kind, branch): fetch_ids(client, kind, yesterday(branch=branch)) for kind, branch in asked[:18]}

    async def fetch_all() -> list[httpx.Response]:
        async with httpx.AsyncClient(verify=PLAIN, base_url=portal.base_url, headers=client.headers) as parallel:
            return await asyncio.gather(
                *(parallel.get(f"/{kind}-leads", params=yesterday(branch=branch)) for kind, branch in asked)
            )

    for (kind, branch), answer in zip(asked, asyncio.run(fetch_all()), strict=True):
        assert [lead["id"] for lead in answer.json()[f"{kind}s"]] == expected[kind, branch]
