"""What is told of deliveries."""

from datetime import UTC, datetime

from leads_pipeline.health.facts import Facts
from leads_pipeline.health.findings import find
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.settings import Settings
from leads_pipeline_tests.features.delivery.agency import Agency, lead


def told(agency: Agency) -> dict[str, str]:
    settings = Settings.from_variables(
        agency.variables | {"LEADS_DATA_DIR": str(agency.house.folder)}
    )
    findings = find(Facts(settings, agency.house.data, agency.house.now))
    of_deliveries = [
        one for one in findings if one.key.startswith("deliver") or one.key == "receiver"
    ]
    return {one.key: f"{one.message} {one.what_to_do}" for one in of_deliveries}


def test_an_endpoint_that_is_away_is_told_until_all_is_delivered(agency: Agency) -> None:
    agency.land(lead(1), lead(2))
    agency.endpoint_answers(503)
    agency.deliver()
    assert told(agency) == {}
    agency.house.later(minutes=20)
    assert (
        "2 versions of leads wait to be delivered. crm.example answered 503"
        in told(agency)["delivery"]
    )
    agency.endpoint_answers(200)
    agency.deliver(is_all=True)
    assert told(agency) == {}


def test_an_endpoint_that_is_gone_is_told_at_once(agency: Agency) -> None:
    agency.land(lead(1))
    agency.endpoint_answers(410)
    agency.deliver()
    assert "is gone (410)" in told(agency)["delivery"]
    assert "deliver retry" in told(agency)["delivery"]


def test_leads_that_were_given_up_and_held_are_told(agency: Agency) -> None:
    agency.land(lead(1), lead(2))
    agency.crm.answer = lambda message: httpx.Response(
        400 if message["data"]["lead_id"] == "lead-1" else 200
    )
    for _ in range(8):
        agency.deliver()
        agency.house.later(hours=12)
    agency.land(lead(1), lead(2, phoneNumber=" "))
    agency.deliver()
    assert told(agency).keys() == {"delivery/given-up", "delivery/held"}


def test_leads_that_nobody_looks_for_are_told(agency: Agency) -> None:
    agency.house.now = datetime.now(UTC)
    agency.land(lead(1))
    agency.deliver()
    agency.house.later(hours=1)
    assert told(agency) == {}
    agency.land(lead(2))
    assert "Nobody looks for new leads to deliver to crm.example." in told(agency)["delivery"]


def test_a_receiver_that_was_down_for_a_day_is_told(agency: Agency) -> None:
    agency.variables["LEADS_RECEIVE_KEY"] = "a-key-of-16-characters"
    agency.house.now = datetime.now(UTC)
    agency.house.data.state.touch("receiver")
    agency.house.later(hours=19)
    assert told(agency) == {}
    agency.house.later(hours=2)
    assert "has not run for more than 20 hours" in told(agency)["receiver"]
