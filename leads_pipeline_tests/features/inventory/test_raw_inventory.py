"""The raw inventory in Dagster, in real runs against the simulator, and what is told if it is
missing.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetKey

from leads_pipeline.features.inventory.today import INVENTORY_JOB
from leads_pipeline.health.findings import find
from leads_pipeline.orchestration.names import PUBLISH_JOB
from leads_pipeline.simulator.app import Config
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.installation import Installation, installation


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, first=10) as started:
        yield started


def said(here: Installation) -> dict[str, Any]:
    """The asset's newest metadata."""
    [record] = here.instance.fetch_materializations(AssetKey("raw_inventory"), 1).records
    assert record.asset_materialization
    return {name: value.value for name, value in record.asset_materialization.metadata.items()}


def test_todays_inventory_is_landed(here: Installation) -> None:
    day = datetime.now(UTC).date()
    result = here.execute(INVENTORY_JOB, tags={"dagster/partition": str(day)})
    if datetime.now(UTC).date() != day:
        pytest.skip("Midnight has passed since the test began, so that its today is over.")
    assert result.success
    assert said(here)["dagster/partition_row_count"] > 0


@pytest.mark.slow
def test_on_wish_the_inventory_is_searched_for_what_leads_ask_about(tmp_path: Path) -> None:
    variables = {"INVENTORY_ADDRESSES": "", "INVENTORY_FROM_LEADS_DAYS": "3"}
    # Of a few leads a day there may be none at all.
    with installation(tmp_path, Config(branches=3, leads_per_day=20), variables=variables) as here:
        today = {"dagster/partition": str(datetime.now(UTC).date())}
        assert here.execute(INVENTORY_JOB, tags=today).success
        assert "no lead asks about one" in said(here)["not_pulled"]

        here.pull({here.key(2), here.key(5)})
        here.execute(PUBLISH_JOB)
        assert here.execute(INVENTORY_JOB, tags=today).success
        here.execute(PUBLISH_JOB)

        published = LeadsFile(here.data)
        recent = {
            postcode
            for (postcode,) in published.query(
                "select listing_details_address_postcode from applicant_leads where lead_day > $since",
                {"since": here.day(3)},
            )[1]
        }
        [(searched,)] = published.query("select list(searched_address) from inventory")[1]
        # A postcode whose listing is gone finds nothing.
        assert {*searched} <= recent
        assert said(here)["addresses"] == len(recent)


def test_a_day_that_is_over_says_why_its_inventory_is_not_pulled(here: Installation) -> None:
    assert here.execute(INVENTORY_JOB, tags={"dagster/partition": str(here.day(5))}).success
    assert "The API knows the present only" in said(here)["not_pulled"]
    assert not (here.data.folder / "raw" / "inventory").exists()


def test_an_inventory_that_was_never_pulled_is_told_after_a_day(house: House) -> None:
    def messages(hours: int) -> list[str]:
        house.now = began_at + timedelta(hours=hours)
        facts = house.facts(
            INVENTORY_BASE_URL="https://inventory.example", INVENTORY_ADDRESSES="SW1"
        )
        return [one.message for one in find(facts) if one.key == "inventory"]

    house.data.state.remember_time_zone("Europe/London")
    began_at = datetime.now(UTC)

    assert messages(26) == []
    [message] = messages(28)
    assert message.startswith("No inventory was ever pulled.")
