"""The sensor `deliver`: what was pulled and pushed is at the agency's endpoint after its next tick."""

from pathlib import Path

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.features.delivery.sensor import deliver_sensor
from leads_pipeline_tests.support import crm
from leads_pipeline_tests.support.installation import Installation, installation


def tick(here: Installation) -> str:
    skipped = here.tick(deliver_sensor(here.settings)).skip_message
    assert skipped
    return skipped


def test_each_pulled_lead_is_delivered_by_a_tick(tmp_path: Path) -> None:
    with crm.running() as (address, applied):
        variables = {"LEADS_DELIVERY_URL": address, "LEADS_DELIVERY_SECRET": crm.SECRET}
        with installation(
            tmp_path, variables={**variables, "LEADS_DELIVERY_FROM": "2000-01-01"}
        ) as here:
            here.pull(here.keys((2,)))
            assert "0 are left" in tick(here)
            ids = {message["data"]["lead_id"] for message in applied.values()}
            assert ids >= here.truth(APPLICANT, [2])
            assert "delivered 0" in tick(here)


def test_without_an_endpoint_the_sensor_says_so(tmp_path: Path) -> None:
    with installation(tmp_path) as here:
        assert tick(here) == "LEADS_DELIVERY_URL is not set."
