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
EMAIL = "jane.quill@people.example"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An installation's folder with one lead in one window, published."""

    def answers(_: str, parameters: Any) -> tuple[int, bytes]:
        leads = [{"id": "alone", "contact": {"email": EMAIL}}] if parameters["branch-id"] == "102" else []
        return 200, json.dumps({"applicants": leads}).encode()

    folder = tmp_path_factory.mktemp("privacy")
    with pytest.MonkeyPatch.context() as patch, portal(answers) as address:
        installed(patch, folder, address, LEADS_BRANCH_IDS="101,102", LEADS_START_DATE=YESTERDAY)
        assert command("backfill", "--from", YESTERDAY, "--to", YESTERDAY, "--kind", "applicant").code == 0
    return folder


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, folder, "http://127.0.0.1:9", LEADS_BRANCH_IDS="101,102", LEADS_START_DATE=YESTERDAY)


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
