"""Several destinations: each gets the leads that its filter takes, and none delays another."""

from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError
from leads_pipeline.features.delivery.destinations import destinations_of
from leads_pipeline.features.delivery.ledger import ledger_path
from leads_pipeline.features.delivery.sending import Sent, deliver_to_all
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.figures import Figures
from leads_pipeline.health.findings import find
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.settings import Settings
from leads_pipeline_tests.features.delivery.agency import Agency, Destinations, lead, webhook
from leads_pipeline_tests.support import crm
from leads_pipeline_tests.support.crm import SECRET, VARIABLES

SALES = {"enquiryType": "ENQUIRY_TYPE_SALES"}
LETTINGS = {"intent": "APPLICANT_INTENT_RENT"}


# --- filters --------------------------------------------------------------------------------------


def test_each_destination_gets_the_leads_that_its_filter_takes(agency: Agency) -> None:
    here = Destinations(
        agency,
        webhook("all"),
        webhook("owners", 'kinds = ["appraisal"]'),
        webhook("north", 'branches = ["102"]'),
        webhook("lets", 'markets = ["lettings"]', 'branches = ["branch-101"]'),
    )
    agency.land(lead(1) | SALES, lead(2) | LETTINGS)
    agency.land(lead(3) | LETTINGS, scope="branch-102")
    agency.house.land("appraisal", [lead(4)])

    here.deliver()
    here.deliver()

    assert here.delivered == {
        "all": ["lead-1", "lead-2", "lead-3", "lead-4"],
        "owners": ["lead-4"],
        "north": ["lead-3"],
        "lets": ["lead-2"],
    }


def test_a_filter_that_is_widened_brings_the_leads_of_before_and_none_twice(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm", 'markets = ["sales"]'))
    agency.land(lead(1) | SALES, lead(2) | LETTINGS)
    here.deliver()

    here.write(webhook("crm"))
    here.deliver()

    assert here.delivered == {"crm": ["lead-1", "lead-2"]}


def test_what_a_wrong_filter_turned_away_is_sent_once_it_is_corrected(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm", 'markets = ["sales"]'))
    here.crms["crm"] = crm.Crm(lambda _: httpx.Response(503))
    agency.land(lead(1) | SALES)
    here.deliver()
    here.crms["crm"] = crm.Crm()

    here.write(webhook("crm", 'markets = ["lettings"]'))
    here.deliver(is_all=True)
    here.write(webhook("crm", 'markets = ["sales"]'))
    here.deliver(is_all=True)

    assert here.delivered == {"crm": ["lead-1"]}


def test_the_ledger_of_the_one_address_goes_on_under_the_name_default(agency: Agency) -> None:
    agency.land(lead(1))
    agency.deliver()
    here = Destinations(agency, webhook("default"))

    assert here.deliver()["default"].delivered == 0


# --- one delays no other --------------------------------------------------------------------------


def test_findings_and_figures_are_told_by_destination(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"), webhook("slack"))
    agency.land(lead(1))
    here.crms["slack"] = crm.Crm(lambda _: httpx.Response(503))
    here.deliver()
    agency.house.later(minutes=20)

    facts = Facts(here.settings, agency.house.data, agency.house.now)
    told = [one.key for one in find(facts) if one.key.startswith("delivery")]
    figures = Figures.of(facts).as_json()["deliveries_by_destination"]

    assert told == ["delivery/slack"]
    assert figures["crm"]["delivered"] == 1
    assert figures["slack"]["waiting"] == 1


def test_a_damaged_ledger_of_one_destination_is_no_matter_of_another(agency: Agency) -> None:
    here = Destinations(agency, webhook("crm"), webhook("slack"))
    agency.land(lead(1))
    here.deliver()
    ledger_path(agency.house.folder, "slack").write_bytes(b"no database" * 1000)
    agency.land(lead(1), lead(2))

    results = deliver_to_all(
        here.settings,
        agency.house.data,
        here.read(),
        clock=lambda: agency.house.now,
        transport=here.crms["crm"],
    )

    assert isinstance(results["crm"], Sent)
    assert "quarantine" in str(results["slack"])


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (webhook("crm", "brances = []"), "unknown key `brances`: did you mean `branches`?"),
        (webhook("crm").replace('{env = "SECRET"}', '"canary"'), "has its `secret` in the file"),
        (webhook("crm").replace("//crm", "//me:canary@crm"), "has a password in `url`"),
    ],
)
def test_a_mistake_in_the_file_is_told_without_a_secret(
    agency: Agency, table: str, said: str
) -> None:
    here = Destinations(agency, table)

    with pytest.raises(SettingsError) as told:
        here.read()

    assert said in str(told.value)
    assert "canary" not in str(told.value)


def test_a_secret_comes_from_a_file_beside_it(agency: Agency, tmp_path: Path) -> None:
    here = Destinations(
        agency, webhook("crm").replace("env", "file").replace('"SECRET"', '"crm.secret"')
    )
    (tmp_path / "crm.secret").write_text(f"{SECRET}\n")
    agency.land(lead(1))

    assert here.deliver()["crm"].delivered == 1
    assert SECRET not in repr(here.read())


def test_an_address_that_is_a_secret_shows_nowhere(agency: Agency) -> None:
    table = webhook("slack").replace('"https://slack.example/hook"', '{env = "HOOK"}')
    here = Destinations(agency, table, HOOK="https://slack.example/services/T0/very-secret")
    agency.land(lead(1))
    here.crms["slack"] = crm.Crm(
        lambda _: httpx.Response(302, headers={"location": "https://x.example/very-secret"})
    )

    [sent] = here.deliver().values()

    assert "very-secret" not in f"{here.read()} {sent}"
    assert b"very-secret" not in ledger_path(agency.house.folder, "slack").read_bytes()


def test_one_address_and_a_file_at_once_are_refused() -> None:
    settings = Settings.from_variables(
        {**VARIABLES, "LEADS_DESTINATIONS_FILE": "destinations.toml"}
    )

    with pytest.raises(
        SettingsError, match="LEADS_DESTINATIONS_FILE and LEADS_DELIVERY_URL are set"
    ):
        destinations_of(settings)
