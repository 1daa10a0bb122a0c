"""The simulator against its contract: schemathesis and openapi.yaml, and what the specification
says in words.
"""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import yaml

from leads_pipeline.simulator.app import Config, Simulator
from leads_pipeline.simulator.leads import LeadBook
from leads_pipeline.simulator.organisation import Organisation
from leads_pipeline.simulator.server import running
from leads_pipeline.warehouse.drift import PEOPLE_MIN
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS, wait_for

NOW = datetime(2026, 11, 20, 12, 30, 15, 500_000, tzinfo=UTC)
MIDNIGHT = datetime(2026, 11, 20, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SUPPORT = Path(__file__).parents[1] / "support"
CONTRACT = yaml.safe_load((SUPPORT / "openapi.yaml").read_text(encoding="utf-8"))
CONFIG = Config(seed=7, branches=9, clock=lambda: NOW)


def basic(pair: bytes) -> dict[str, str]:
    """The header of a login. As RFC 6749 section 2.3.1 says, both words are form-encoded."""
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


BASIC = basic(b"leads-simulator:made-up%3Asecret%2F100%25%2B1")
BASIC_OF_INVENTORY = basic(b"inventory-simulator:made-up%3Asecret%2F200%25%2B2")

Json = Any  # what json.loads gives


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    with running(CONFIG) as simulator:
        yield simulator


@pytest.fixture
def client(server: Simulator) -> Iterator[httpx.Client]:
    """A client that is signed in at the leads service."""
    with client_of(server) as client:
        yield client


def client_of(portal: Simulator) -> httpx.Client:
    return httpx.Client(base_url=portal.base_url, timeout=60, headers=leads_headers(portal))


def ask_for_token(
    portal: Simulator,
    form: dict[str, str],
    headers: dict[str, str] | None = None,
    path: str = "/oauth2/token",
) -> httpx.Response:
    return httpx.post(url=portal.base_url + path, data=form, headers=headers)


def leads_headers(portal: Simulator) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {ask_for_token(portal, body_form(portal)).json()['access_token']}"
    }


def inventory_headers(portal: Simulator) -> dict[str, str]:
    form = {"grant_type": "client_credentials"}
    answer = ask_for_token(portal, form, BASIC_OF_INVENTORY, "/token")
    reference = portal.environment()["INVENTORY_AGENCY_REF"]
    return {"Authorization": f"Bearer {answer.json()['access_token']}", "AgencyRef": reference}


def body_form(portal: Simulator) -> dict[str, str]:
    variables = portal.environment()
    return {
        "grant_type": "client_credentials",
        "client_id": variables["LEADS_CLIENT_ID"],
        "client_secret": variables["LEADS_CLIENT_SECRET"],
        "audience": portal.base_url,
    }


def wire(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def window(start: datetime, end: datetime, scope: str = "branch-101") -> dict[str, str]:
    kind, scope_id = scope.split("-")
    return {"from-time": wire(start), "to-time": wire(end), f"{kind}-id": scope_id}


def yesterday(scope: str = "branch-101") -> dict[str, str]:
    return window(MIDNIGHT - DAY, MIDNIGHT, scope)


def fetch(client: httpx.Client, parameters: dict[str, str], kind: str = "applicant") -> list[Json]:
    answer = client.get(f"/{kind}-leads", params=parameters)
    assert answer.status_code == 200, answer.text
    leads: list[Json] = answer.json()[f"{kind}s"]
    return leads


def fetch_ids(client: httpx.Client, parameters: dict[str, str]) -> list[str]:
    return [lead["id"] for lead in fetch(client, parameters)]


def status_of(client: httpx.Client) -> int:
    return client.get("/applicant-leads", params=yesterday()).status_code


# --- the contract ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_answer_keeps_the_contract(server: Simulator) -> None:
    program = Path(sys.executable).with_name("schemathesis")
    os.environ |= {
        "LEADS_LOGIN": BASIC["Authorization"],
        "LEADS_AUTHORIZATION": leads_headers(server)["Authorization"],
        "INVENTORY_LOGIN": BASIC_OF_INVENTORY["Authorization"],
        "INVENTORY_AUTHORIZATION": inventory_headers(server)["Authorization"],
        "INVENTORY_AGENCY_REF": server.environment()["INVENTORY_AGENCY_REF"],
    }

    settings = f"--config-file={SUPPORT / 'schemathesis.toml'}"
    done = subprocess.run(
        [program, settings, "run", SUPPORT / "openapi.yaml", f"--url={server.base_url}"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout


def with_all_fields(schema: Json) -> Json:
    """The schema, but each property that it declares has to be there."""
    if isinstance(schema, list):
        return [with_all_fields(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    stricter = {name: with_all_fields(part) for name, part in schema.items()}
    return stricter | ({"required": list(schema["properties"])} if "properties" in schema else {})


def validate(name: str, value: Json, contract: Json = CONTRACT) -> None:
    """Raise an error unless the value fits that schema of the contract."""
    schema = {**contract, "$ref": f"#/components/schemas/{name}"}
    jsonschema_rs.Draft202012Validator(schema).validate(value)


@pytest.fixture(scope="module")
def month() -> dict[str, list[Json]]:
    """All leads that a larger portal holds, by kind, as they came over the wire."""
    with (
        running(Config(seed=3, branches=8, clock=lambda: NOW)) as simulator,
        client_of(simulator) as client,
    ):
        everything = window(NOW - 40 * DAY, NOW, "group-1")
        return {kind: fetch(client, everything, kind) for kind in ("applicant", "appraisal")}


@pytest.mark.parametrize("kind", ["applicant", "appraisal"])
def test_every_lead_of_a_month_fits_the_contract_and_has_all_its_fields(
    month: dict[str, Json], kind: str
) -> None:
    assert len(month[kind]) > 800
    validate(f"{kind.title()}List", {f"{kind}s": month[kind]}, with_all_fields(CONTRACT))


def test_a_month_shows_everything_that_makes_real_leads_hard(month: dict[str, Json]) -> None:
    applicants = month["applicant"]

    forms = {re.sub(r"[0-9]", "9", lead["createdAt"]) for lead in applicants}
    assert forms == {"9999-99-99T99:99:99Z", "9999-99-99T99:99Z"}
    assert any(lead["createdAt"] == "0001-01-01T00:00Z" for lead in applicants)
    assert any(lead["listingDetails"]["uprn"] > 2**53 for lead in applicants)

    messages = "".join(lead["message"] for lead in applicants)
    for hard in ("\r\n", "<b>", "£", "👍", '"'):
        assert hard in messages

    declared = CONTRACT["components"]["schemas"]["Applicant"]["properties"].keys()
    assert any(lead.keys() - declared for lead in applicants)


def test_three_people_send_a_new_field_in_each_week_of_three_branches() -> None:
    """Fault 90: the demo says that the check of drift shows a warning, and with 7 days that
    depended on the date.
    """
    start = date(2026, 2, 23)
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


def test_people_are_nobody(month: dict[str, Json]) -> None:
    for lead in (*month["applicant"], *month["appraisal"]):
        assert re.search("@example.(com|org|net)$", lead["contact"]["email"])
        number = lead["contact"]["phoneNumber"].replace(" ", "").replace("+44", "0")
        assert re.fullmatch(r"(07700900|02079460|01614960|01632960)\d{3}", number)
    assert all(lead["consumerPostcode"].startswith("X") for lead in month["applicant"])


# --- windows, scopes, retention -------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_seed_gives_others(
    client: httpx.Client,
) -> None:
    bodies = [client.get("/applicant-leads", params=yesterday()).content]

    for seed in (CONFIG.seed, CONFIG.seed + 1):
        with (
            running(Config(seed=seed, branches=9, clock=lambda: NOW)) as other,
            client_of(other) as second,
        ):
            # Another day first: what was asked before must not matter.
            fetch(second, window(MIDNIGHT - 3 * DAY, MIDNIGHT - 2 * DAY))
            bodies.append(second.get("/applicant-leads", params=yesterday()).content)

    assert bodies[0] == bodies[1] != bodies[2]
    assert len(bodies[0]) > 1000


def test_both_ends_of_a_window_are_inclusive(client: httpx.Client) -> None:
    lead = next(lead for lead in fetch(client, yesterday()) if len(lead["createdAt"]) == 20)
    moment = datetime.fromisoformat(lead["createdAt"])

    assert lead["id"] in fetch_ids(client, window(moment - HOUR, moment))
    assert lead["id"] in fetch_ids(client, window(moment, moment + HOUR))
    assert lead["id"] not in fetch_ids(client, window(moment + SECOND, moment + HOUR))
    assert lead["id"] not in fetch_ids(client, window(moment - HOUR, moment - SECOND))


def test_a_brand_gives_the_leads_of_its_branches_and_truth_agrees(client: httpx.Client) -> None:
    served = fetch_ids(client, yesterday("brand-4"))
    truth = client.get(
        "/_simulator/truth", params={"kind": "applicant", "scope": "brand-4", **yesterday()}
    ).json()
    of_branches = [
        *fetch_ids(client, yesterday("branch-103")),
        *fetch_ids(client, yesterday("branch-104")),
    ]

    assert sorted(served) == sorted(of_branches) != []
    assert sorted(truth["ids"]) == sorted(served)


def test_only_the_last_thirty_days_up_to_now_are_there(client: httpx.Client) -> None:
    horizon = NOW - 30 * DAY
    everything = fetch(client, window(NOW - 90 * DAY, NOW + 90 * DAY))
    moments = [lead["createdAt"] for lead in everything if len(lead["createdAt"]) == 20]

    assert wire(horizon) <= min(moments) < wire(horizon + DAY)
    assert wire(NOW - DAY) < max(moments) <= wire(NOW)
    assert fetch(client, window(NOW - 90 * DAY, horizon)) == []
    assert fetch(client, window(NOW + SECOND, NOW + DAY)) == []


# --- tokens ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [None, BASIC], ids=["body", "basic"])
def test_both_forms_of_the_token_request_give_a_token_for_an_hour(
    headers: dict[str, str] | None,
) -> None:
    now = [NOW]
    with running(Config(clock=lambda: now[0])) as portal, client_of(portal) as client:
        in_header = {"grant_type": "client_credentials", "scope": "api/api_access"}
        answer = ask_for_token(portal, in_header if headers else body_form(portal), headers)
        client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"

        assert answer.json()["expires_in"] == 3600
        assert answer.headers["cache-control"] == "no-store"
        now[0] += HOUR - SECOND
        assert status_of(client) == 200
        now[0] += SECOND
        refused = client.get("/applicant-leads", params=yesterday())
        assert refused.status_code == 401
        validate("Errors", refused.json())


# --- inventory and pushes -------------------------------------------------------------------------


def test_the_inventory_can_be_paged_to_its_end_and_back(server: Simulator) -> None:
    pages: list[Json] = []
    parameters: dict[str, str] = {}
    with httpx.Client(base_url=server.base_url, headers=inventory_headers(server)) as client:
        while not pages or parameters["nextToken"]:
            pages.append(client.get("/inventory", params=parameters).json())
            validate("InventoryPage", pages[-1])
            parameters["nextToken"] = pages[-1]["meta"]["nextToken"]
        parameters["nextToken"] = pages[1]["meta"]["previousToken"]
        back = client.get("/inventory", params=parameters).json()

    assert [len(page["items"]) for page in pages] == [50, 50, 50, 50, 16]
    assert len({item["id"] for page in pages for item in page["items"]}) == 216
    assert back == pages[0]


# --- faults and counters --------------------------------------------------------------------------


def test_rules_that_cannot_be_are_refused_with_the_reason(server: Simulator) -> None:
    text = '{"rules": [{"then": {"statsu": 500}}]}'

    answer = httpx.put(url=f"{server.base_url}/_simulator/faults", content=text)

    assert answer.status_code == 400
    assert "unknown field `statsu` - at `$.rules[0].then`" in answer.json()["detail"]


# --- the server and the command -------------------------------------------------------------------


def test_the_command_prints_its_variables_and_ends_quietly(tmp_path: Path) -> None:
    ready = tmp_path / "ready.env"
    options = ["--port", "0", "--branches", "2", "--ready-file", str(ready)]
    process = subprocess.Popen(
        [sys.executable, "-m", "leads_pipeline.simulator", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what runs in the background with ctrl-C ignored, and its children with it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_for(ready.exists)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=PATIENCE_SECONDS)

    variables = ready.read_text(encoding="utf-8").splitlines()
    assert "LEADS_BRANCH_IDS=101,102" in variables
    assert re.findall(r"^export (.*)$", printed, re.MULTILINE) == variables
    assert printed.endswith("\nStopped.\n")
    assert (process.returncode, errors) == (0, "")
