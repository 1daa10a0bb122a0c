"""Open faults in what analysts read. See the package for how the marks are used."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as pads
import pytest

from leads_pipeline_tests.faults import command, fault
from leads_pipeline_tests.faults.conftest import installed
from leads_pipeline_tests.promises.portal import portal

pytestmark = pytest.mark.slow  # two publications

YESTERDAY = str(datetime.now(UTC).date() - timedelta(days=1))
JANE = {"firstName": "Jane", "lastName": "Quill", "email": "jane@people.example", "phoneNumber": "07700 900123"}
NOBODY = dict.fromkeys(JANE, None)


def asked_about(number: int, contact: Any) -> dict[str, Any]:
    rent = {"price": 500 * number + 10, "transactionType": "TRANSACTION_TYPE_RENT"}
    listing = {"id": f"listing-{number}", "pricing": {**rent, "rentFrequency": "RENT_FREQUENCY_PER_MONTH"}}
    return {
        "id": f"lead-{number}",
        "enquiryType": "ENQUIRY_TYPE_LETTINGS",
        "contact": contact,
        "listingDetails": listing,
    }


@dataclass(frozen=True)
class Seen:
    """What is seen after two pulls, of which the second brings each lead with an empty contact."""

    folder: Path
    by_an_open_process: tuple[Any, ...] | None
    troubles: list[str]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    contacts: list[dict[str, Any]] = [{**JANE}]

    def answers(*_: Any) -> tuple[int, bytes]:
        leads = [asked_about(number, contacts[-1]) for number in range(80)]
        return 200, json.dumps({"applicants": leads}).encode()

    days = ("--from", YESTERDAY, "--to", YESTERDAY, "--kind", "applicant")
    query = "select count(*) from applicant_leads where contact_email is null"
    folder = tmp_path_factory.mktemp("seen")
    with pytest.MonkeyPatch.context() as patch, portal(answers) as address:
        installed(patch, folder, address, LEADS_START_DATE=YESTERDAY)
        assert command("backfill", *days).code == 0
        with duckdb.connect("data/leads.duckdb", read_only=True) as older:
            assert older.execute(query).fetchone() == (0,)
            contacts.append({**NOBODY})
            assert command("backfill", *days).code == 0
            with duckdb.connect("data/leads.duckdb", read_only=True) as newer:
                rows = newer.execute(query).fetchone()
        yield Seen(folder, rows, [one["message"] for one in command("status", "--json").json["findings"]])


def test_a_second_connection_of_a_process_sees_the_new_version(seen: Seen) -> None:
    assert seen.by_an_open_process == (80,)


def test_known_leads_that_lose_their_contact_are_told(seen: Seen) -> None:
    assert any("contact" in trouble for trouble in seen.troubles)


def test_raw_files_are_readable_as_a_hive_dataset(seen: Seen) -> None:
    raw = seen.folder / "data" / "raw" / "applicant_leads"
    assert pads.dataset(raw, partitioning="hive", exclude_invalid_files=True).to_table().num_rows >= 80


@fault(49, "rent bands are 500 wide without end")
def test_rent_bands_end(seen: Seen) -> None:
    with duckdb.connect() as db:
        db.execute(f"attach '{seen.folder / 'data' / 'leads.duckdb'}' as leads (read_only)")
        bands = db.execute("select count(distinct price_band) from leads.mart_listing_demand").fetchone()
    assert bands is not None
    assert 1 < bands[0] <= 30
