"""What is told of requests and of the suppression list."""

import shutil
from pathlib import Path

import pytest

from leads_pipeline.features.privacy.carrying_out import CarriedOut, carry_out
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.health.findings import Finding, Level, find
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.people import listed

SIMULATOR = "http://127.0.0.1:8000"
PORTAL = "https://portal.example"


def found(house: House, base_url: str = SIMULATOR) -> dict[str, Finding]:
    """What is above a hint, by key."""
    findings = find(house.facts(LEADS_BASE_URL=base_url))
    return {one.key: one for one in findings if one.level is not Level.HINT}


def lost_corrections(house: House) -> list[str]:
    return [key for key in found(house) if key.startswith("corrections-lost")]


@pytest.mark.slow
def test_a_correction_that_a_restored_backup_lacks_is_told_until_it_is_repeated(
    house: House, tmp_path: Path
) -> None:
    wrong = [{"id": "theirs", "contact": {"email": "wrong@example.com"}}]
    house.land("applicant", wrong)
    house.publish()
    house.back_up(tmp_path / "backup")
    house.correct("applicant/theirs", email="right@example.com")
    shutil.copytree(house.folder / "privacy", tmp_path / "new" / "privacy")
    house = house.restore(tmp_path / "backup", tmp_path / "new")

    house.land("applicant", wrong, scope="branch-102")

    assert lost_corrections(house) == ["corrections-lost/1"]
    house.publish()
    assert lost_corrections(house) == ["corrections-lost/1"]
    house.correct("applicant/theirs", email="right@example.com")
    assert house.leads("applicant")["theirs"]["contact_email"] == "right@example.com"
    assert lost_corrections(house) == []


@pytest.mark.slow
def test_a_request_that_nobody_finished_is_told_and_is_an_error_once_it_is_due(
    house: House,
) -> None:
    house.land("applicant", [{"id": "theirs", "contact": {"email": "jane@example.com"}}])
    house.publish()
    house.erase(email="jane@example.com")  # as a command that is killed before it looks again
    levels = []
    for days in (0, 2, 40):
        house.later(days=days)
        levels += [one.level for key, one in found(house).items() if key == "requests-open/1"]
    assert levels == [Level.WARNING, Level.ERROR]
    assert carry_out(house.data, lambda: None, house.now) == CarriedOut({})
    assert found(house).keys().isdisjoint({"requests-open/1", "sweep"})

    house.data.state.note_swept(0)
    assert "privacy apply" in found(house)["sweep"].what_to_do


def test_a_suppression_list_in_the_data_folder_is_told_once_somebody_is_on_it(house: House) -> None:
    house.land("applicant", [{"id": "theirs", "contact": {"email": "jane@example.com"}}])
    assert "suppression-list" not in found(house, PORTAL)
    listed(list_of(house.data))
    assert "LEADS_PRIVACY_DIR" in found(house, PORTAL)["suppression-list"].what_to_do
