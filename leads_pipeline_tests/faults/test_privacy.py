"""Open faults in finding and erasing a person. See the package for how the marks are used."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline_tests.faults import command, fault
from leads_pipeline_tests.faults.conftest import installed
from leads_pipeline_tests.promises.portal import portal

YESTERDAY = str(datetime.now(UTC).date() - timedelta(days=1))
PHONE, EMAIL = "07700 900123", "jane.quill@people.example"


def lead(name: str = "", phone: str = "", message: str = "") -> dict[str, Any]:
    first, _, last = name.partition(" ")
    return {"contact": {"firstName": first, "lastName": last, "phoneNumber": phone}, "message": message}


BY_PHONE = [
    *("07700900123 (work)", "07700 900123 mobile", "07700900123 after 6pm", "07700900123 (WhatsApp)"),
    "07700 900123 (eve)",
]
BY_MENTION = ['Write to "jane.quill"@people.example', "jane.quill%40people.example", "jane.quill&#64;people.example"]
LEADS = {
    "known": lead("Jane Quill", PHONE) | {"contact": {"email": EMAIL, "firstName": "Jane", "lastName": "Quill"}},
    "john": lead("John Roe", PHONE, f"My neighbour is {EMAIL}"),
    **{f"phone-{number}": lead("Jane Quill", text) for number, text in enumerate(BY_PHONE)},
    **{f"mention-{number}": lead("Ann Poe", "", text) for number, text in enumerate(BY_MENTION)},
}
# Windows by branch: all of these leads, and one lead alone.
ANSWERS = {"101": LEADS, "102": {"alone": {"contact": {"email": EMAIL}}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation's folder with these leads, published."""

    def answers(_: str, parameters: Any) -> tuple[int, bytes]:
        leads = [{"id": lead_id, **content} for lead_id, content in ANSWERS[parameters["branch-id"]].items()]
        return 200, json.dumps({"applicants": leads}).encode()

    folder = tmp_path_factory.mktemp("privacy")
    with pytest.MonkeyPatch.context() as patch, portal(answers) as address:
        installed(patch, folder, address, LEADS_BRANCH_IDS="101,102", LEADS_START_DATE=YESTERDAY)
        assert command("backfill", "--from", YESTERDAY, "--to", YESTERDAY, "--kind", "applicant").code == 0
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, folder, "http://127.0.0.1:9", LEADS_BRANCH_IDS="101,102", LEADS_START_DATE=YESTERDAY)


@pytest.fixture(scope="module")
def found(folder: Path) -> list[tuple[str, str]]:
    """Id and group of each lead that a search by address and number finds."""
    with pytest.MonkeyPatch.context() as patch:
        installed(patch, folder, "http://127.0.0.1:9", LEADS_BRANCH_IDS="101,102", LEADS_START_DATE=YESTERDAY)
        leads = command("privacy", "find", "--json", "--email", EMAIL, "--phone", PHONE).json["leads"]
        return [(one["lead_id"], one["group"]) for one in leads]


@pytest.mark.parametrize("number", range(len(BY_PHONE)), ids=lambda number: BY_PHONE[number])
@fault(59, "words beside the number hide it")
def test_a_number_is_found_whatever_stands_beside_it(found: list[tuple[str, str]], number: int) -> None:
    assert f"phone-{number}" in {lead_id for lead_id, _ in found}


@pytest.mark.parametrize("number", range(len(BY_MENTION)), ids=lambda number: BY_MENTION[number])
@fault(64, "this spelling of an address is found nowhere")
def test_a_mention_is_found_in_each_spelling_of_the_address(found: list[tuple[str, str]], number: int) -> None:
    assert f"mention-{number}" in {lead_id for lead_id, _ in found}


@fault(66, "the shared telephone hides the mention")
def test_a_lead_that_shares_the_telephone_and_mentions_the_person_has_both_reasons(
    found: list[tuple[str, str]],
) -> None:
    assert ("john", "D") in found


@pytest.mark.slow
@fault(72, "the mart counts the erased lead, and coverage does not")
def test_a_window_whose_only_lead_was_erased_has_one_state() -> None:
    assert command("privacy", "erase", "--yes", "--email", EMAIL).code in {0, 1}
    with duckdb.connect("data/leads.duckdb", read_only=True) as db:
        query = "select state from mart_coverage where scope = 'branch-102' and kind = 'applicant' and day = ?"
        state = db.execute(query, [YESTERDAY]).fetchone()
    windows = command("coverage", "--json", "--days", 1).json["windows"]
    told = {one["state"]: one["windows"] for one in windows if one["kind"] == "applicant"}
    assert state is not None
    assert told["empty"] == (1 if state[0] == "empty" else 0)
