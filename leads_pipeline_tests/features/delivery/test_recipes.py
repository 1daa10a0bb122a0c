"""Each recipe of examples/destinations/ against a stand-in of that API, written from its public
description.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from leads_pipeline.features.delivery.ledger import VersionState
from leads_pipeline.features.delivery.people import DeliveredLeads
from leads_pipeline.features.delivery.sending import Sent
from leads_pipeline.portal.http_library import httpx
from leads_pipeline_tests.features.delivery.agency import Agency, Api, Destinations, lead
from leads_pipeline_tests.support.crm import SECRET
from leads_pipeline_tests.support.house import DAY
from leads_pipeline_tests.support.serving import QuietHandler, serving

RECIPES = Path(__file__).parents[3] / "examples" / "destinations"
VARIABLES = {
    **dict.fromkeys(("ALTO_CLIENT_ID", "ALTO_AGENCY_REF", "SALESFORCE_CLIENT_ID"), "an-id"),
    **dict.fromkeys(("ALTO_CLIENT_SECRET", "SALESFORCE_CLIENT_SECRET"), "a-secret"),
    "HUBSPOT_AUTHORIZATION": "Bearer of-hubspot",
    "SLACK_YORK": "https://hooks.slack.com/services/T0/B0/york",
    "SLACK_LEEDS": "https://hooks.slack.com/services/T0/B0/leeds",
    "N8N_URL": "https://n8n.example/webhook/leads",
    "N8N_SECRET": SECRET,
}
Answer = tuple[int, Any]


class TokenServer(QuietHandler):
    """Gives a token for client credentials in the form that the API wants, without a lifetime, as
    Salesforce does.
    """

    def do_POST(self) -> None:
        fields = self.rfile.read(int(self.headers["content-length"])).decode()
        is_basic = self.headers.get("authorization", "").startswith("Basic ")
        is_right = "grant_type=client_credentials" in fields and is_basic != (
            "client_secret=a-secret" in fields
        )
        self.answer(
            200 if is_right else 400, b'{"access_token": "of-the-api", "token_type": "Bearer"}'
        )


def run(
    agency: Agency, recipe: str, answer: Callable[[httpx.Request, Any], Answer]
) -> dict[str, Sent]:
    """Deliver by a recipe. `answer` is of the stand-in, which gets requests and their JSON."""

    def answered(request: httpx.Request) -> httpx.Response:
        status, body = answer(request, json.loads(request.content or b"null"))
        return httpx.Response(status, json=body)

    here = Destinations(agency, **VARIABLES)
    here.api = Api(answered)
    with serving(TokenServer) as address:
        text = (RECIPES / f"{recipe}.toml").read_text()
        text = re.sub(r'(\[destination.token\]\nurl = ").*(?=")', rf"\g<1>{address}/token", text)
        here.file.write_text(text.replace("[[destination]]\n", f"[[destination]]\nfrom = {DAY}\n"))
        return here.deliver(is_all=True)


def erase_everybody(agency: Agency) -> None:
    for number in (1, 2):
        agency.house.erase(email=f"j{number}@example.org")
    assert DeliveredLeads(agency.house.data).forget(lambda _: True) == []


def test_each_file_of_the_guide_can_be_used(agency: Agency) -> None:
    guide = (RECIPES.parents[1] / "docs" / "guides" / "deliver-leads.md").read_text()
    for text in re.findall(r"```toml\n(.*?)```", guide, re.DOTALL):
        here = Destinations(agency, CRM_SECRET=SECRET, CRM_AUTHORIZATION="Bearer x")
        here.file.write_text(text)
        assert len(here.read()) == 1


# --- Alto, whose API takes no member that it doesn't know -----------------------------------------


def is_lead_of_alto(body: dict[str, Any]) -> bool:
    """Whether Alto takes it: texts have a most, a forename is there, an address is one."""
    person = body["enquirerDetails"]
    return (
        len(body["sourceIdentifier"]) <= 50
        and len(body.get("comment") or "") <= 2000
        and bool(person["forename"])
        and "@" in (person.get("email") or "@")
    )


def test_alto_takes_each_lead_once(agency: Agency) -> None:
    taken: dict[str, Any] = {"lead-2": "from before"}

    def alto(request: httpx.Request, body: Any) -> Answer:
        assert (request.method, request.url.path) == ("POST", "/leads")
        assert request.headers["agencyref"] == "an-id"
        assert request.headers["authorization"] == "Bearer of-the-api"
        if not is_lead_of_alto(body):
            return 400, {"errors": [{"code": "bad_request"}]}
        if body["branchId"] == 2:
            return 422, {"errors": [{"code": "unknown_branch"}]}
        if body["sourceIdentifier"] in taken:
            return 409, {"errors": [{"code": "duplicate_lead"}]}
        taken[body["sourceIdentifier"]] = body
        return 201, {"id": "76543"}

    asked_about = {"bedrooms": 2, "address": {"postcode": "YO1 7HH"}}
    agency.land(
        lead(1, "x" * 3000, firstName="", email="none") | {"id": "sha256:" + "0" * 64},
        lead(2),
        lead(4) | {"intent": "APPLICANT_INTENT_RENT", "listingDetails": asked_about},
        {"id": "lead-5"},
    )
    agency.land(lead(3), scope="branch-102")
    agency.house.land("appraisal", [lead(6) | {"intent": "APPRAISAL_INTENT_SELL"}])
    [sent] = run(agency, "alto", alto).values()

    assert "answered 422 (application/json, unknown_branch)" in str(sent.trouble)
    assert agency.states("alto") == {VersionState.DELIVERED: 5, VersionState.DEAD: 1}
    assert taken.keys() == {"lead-2", "lead-4", "lead-5", "lead-6", "sha256:" + "0" * 43}
    assert taken["lead-6"]["enquiryType"] == "LookingToSell"
    assert taken["lead-4"] == {
        "branchId": 1,
        "sourceIdentifier": "lead-4",
        "enquiryDate": f"{DAY}T10:00:00Z",
        "enquiryType": "LookingToRent",
        "enquirerDetails": {
            "forename": "Jane",
            "surname": "Quill",
            "email": "j4@example.org",
            "phoneNumberDay": "07700 900123",
        },
        "propertyEnquiries": [{"postcode": "YO1 7HH", "bedrooms": 2}],
        "comment": "rent: first",
    }


# --- the others -----------------------------------------------------------------------------------


def test_hubspot_has_a_deal_for_each_lead(agency: Agency) -> None:
    deals: dict[str, dict[str, str]] = {}

    def hubspot(request: httpx.Request, body: Any) -> Answer:
        assert (request.method, request.url.path) == ("POST", "/crm/v3/objects/deals/batch/upsert")
        assert request.headers["authorization"] == "Bearer of-hubspot"
        [one] = body["inputs"]
        assert one["idProperty"] == "portal_lead_id"
        assert {type(value) for value in one["properties"].values()} == {str}
        deals.setdefault(one["id"], {}).update(one["properties"])
        return 200, {"status": "COMPLETE"}

    agency.land(lead(1), lead(2) | {"contact": {}})
    run(agency, "hubspot", hubspot)
    agency.land(lead(1, "second"))
    run(agency, "hubspot", hubspot)

    assert deals["lead-1"] == {
        "dealname": "Jane Quill, branch-101",
        "description": "second",
        "enquirer_email": "j1@example.org",
        "enquirer_phone": "07700 900123",
    }
    assert agency.states("hubspot") == {VersionState.DELIVERED: 3}


def test_salesforce_has_a_lead_for_each_and_deletes_the_erased(agency: Agency) -> None:
    leads: dict[str, Any] = {}
    asked = []

    def salesforce(request: httpx.Request, body: Any) -> Answer:
        assert request.headers["authorization"] == "Bearer of-the-api"
        folder, _, external_id = request.url.path.rpartition("/")
        assert folder == "/services/data/v62.0/sobjects/Lead/Portal_Lead_Id__c"
        asked.append(request.method)
        is_new = external_id not in leads
        if request.method == "DELETE":
            leads.pop(external_id, None)
            return (404, [{"errorCode": "NOT_FOUND"}]) if is_new else (204, None)
        if is_new:
            assert body["LastName"]
            assert body["Company"]
        leads.setdefault(external_id, {}).update(body)
        return (201, {"success": True}) if is_new else (204, None)

    agency.land(lead(1), lead(2, lastName=""))
    run(agency, "salesforce", salesforce)
    agency.land(lead(1, "second"))
    run(agency, "salesforce", salesforce)
    assert leads["lead-1"]["Description"] == "second"
    assert leads["lead-2"]["LastName"] == "Unknown"

    del leads["lead-2"]  # somebody did so by hand
    erase_everybody(agency)
    run(agency, "salesforce", salesforce)
    assert leads == {}
    assert asked.count("DELETE") == 2


def test_slack_has_a_line_in_the_channel_of_each_branch_that_names_nobody(agency: Agency) -> None:
    lines: dict[str, list[str]] = {"york": [], "leeds": []}

    def slack(request: httpx.Request, body: Any) -> Answer:
        [block] = body["blocks"]
        assert block["text"]["type"] == "plain_text"
        lines[request.url.path.rpartition("/")[2]].append(block["text"]["text"])
        return 200, "ok"

    agency.land(lead(1) | {"enquiryType": "ENQUIRY_TYPE_SALES"})
    agency.land(lead(2), scope="branch-102")
    agency.land(lead(1, "second"))
    run(agency, "slack", slack)

    assert lines == {
        "york": ["New applicant lead for branch-101: sales, from unknown"],
        "leeds": ["New applicant lead for branch-102: unknown, from unknown"],
    }


def test_a_spreadsheet_by_n8n_has_a_row_for_each_lead(agency: Agency) -> None:
    rows: dict[str, list[str]] = {}

    def n8n(request: httpx.Request, body: Any) -> Answer:
        headers = request.headers
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        signature = Webhook(SECRET).sign(headers["webhook-id"], at, request.content.decode())
        assert headers["webhook-signature"] == signature
        data = body["data"]
        if body["type"] == "lead.erased":
            rows.pop(data["lead_id"], None)
        else:
            rows[data["lead_id"]] = [data["branch"], data["words"]["intent"], data["message"]]
        return 200, {}

    agency.land(lead(1), lead(2))
    run(agency, "spreadsheet", n8n)
    assert rows["lead-1"] == ["branch-101", "unknown", "first"]

    erase_everybody(agency)
    run(agency, "spreadsheet", n8n)
    assert rows == {}
