"""The sensor `deliver`: what was landed is at the agency's endpoint after its next tick."""

from dagster import build_sensor_context

from leads_pipeline.features.delivery.sensor import deliver_sensor
from leads_pipeline.settings import Settings
from leads_pipeline_tests.features.delivery.agency import Agency, lead
from leads_pipeline_tests.support import crm


def tick(agency: Agency, **variables: str) -> str:
    settings = Settings.from_variables({"LEADS_TIMEZONE": "Europe/London", **variables})
    context = build_sensor_context(resources={"data": agency.house.data})
    return str(deliver_sensor(settings).evaluate_tick(context).skip_message)


def test_each_landed_lead_is_delivered_by_a_tick(agency: Agency) -> None:
    agency.land(lead(1), lead(2))
    with crm.running() as (address, applied):
        variables = {"LEADS_DELIVERY_URL": address, "LEADS_DELIVERY_SECRET": crm.SECRET}
        first = tick(agency, **variables, LEADS_DELIVERY_FROM="2000-01-01")
        second = tick(agency, **variables, LEADS_DELIVERY_FROM="2000-01-01")

    assert "delivered 2 versions of leads, 0 are left" in first
    assert "delivered 0" in second
    ids = {message["data"]["lead_id"] for message in applied.values()}
    assert ids == {"lead-1", "lead-2"}


def test_without_an_endpoint_the_sensor_says_so(agency: Agency) -> None:
    assert tick(agency) == "LEADS_DELIVERY_URL is not set."
