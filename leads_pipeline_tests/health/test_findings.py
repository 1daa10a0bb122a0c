"""What is wrong is found, said once with what to do, and ends when its cause does, or when a person
takes note.
"""

import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import lead_kind
from leads_pipeline.errors import QuestionError, StorageError
from leads_pipeline.features.alerts.alerts import AlertMemory
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.finding import Finder
from leads_pipeline.health.findings import Finding, Level, acknowledge, find, find_all
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.publications import Publications
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House
from leads_pipeline_tests.support.people import lead

SIMULATOR = "http://127.0.0.1:8000"
PORTAL = "https://portal.example"
KINDS = ("applicant", "appraisal")
BRANCHES = ("branch-101", "branch-102")


def known(house: House, **variables: str) -> Facts:
    return house.facts(**{"LEADS_BASE_URL": SIMULATOR, **variables})


def found(house: House, **variables: str) -> dict[str, Finding]:
    """What is above a hint, by key."""
    return {one.key: one for one in find(known(house, **variables)) if one.level is not Level.HINT}


def land_all(house: House, *days: date) -> None:
    for day, kind, branch in product(days or (DAY, NEXT_DAY), KINDS, BRANCHES):
        house.land(kind, [{"id": f"{kind}-{day}-{branch}"}], day, branch)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House(tmp_path_factory.mktemp("published") / "data")
    land_all(house)
    house.publish()
    return house


@pytest.fixture
def healthy(published: House, tmp_path: Path) -> House:
    """Both days have landed and are published."""
    return published.copied(tmp_path / "healthy")


def remove(house: House, day: date = NEXT_DAY) -> None:
    """Remove the raw file of a window, as somebody might by hand."""
    shutil.rmtree(house.folder / Place(lead_kind("applicant"), day, "branch-101").key)


def damage(file: Path) -> None:
    content = file.read_bytes()
    file.chmod(0o600)
    file.write_bytes(bytes(100) + content[100:])


def fail(
    house: House,
    kind: str = "applicant",
    day: date = NEXT_DAY,
    branch: str = "branch-101",
    *,
    reason: str = "server error (503)",
    is_permanent: bool = False,
) -> None:
    place = Place(lead_kind(kind), day, branch)
    house.data.raw.fail(place, reason, f"It was a {reason}.", is_permanent=is_permanent)


# --- a healthy installation -----------------------------------------------------------------------


def test_an_installation_has_nothing_above_hints_before_its_first_pull_and_after_it(
    house: House, healthy: House
) -> None:
    house.folder.mkdir(parents=True)
    house.data.state.remember_time_zone("Europe/London")
    assert found(house) == {}
    assert found(healthy) == {}


def test_what_was_never_set_up_is_a_hint_with_the_simulator_and_a_warning_with_a_portal(
    healthy: House,
) -> None:
    levels = {one.key: one.level for one in find(known(healthy))}
    assert levels["backup"] == levels["alert-channels"] == Level.HINT

    real = found(healthy, LEADS_BASE_URL=PORTAL)
    assert real.keys() == {"backup", "alert-channels"}
    assert real["backup"].level is real["alert-channels"].level is Level.WARNING


def test_a_channel_that_does_not_work_is_an_error_that_may_pass(healthy: House) -> None:
    memory = AlertMemory()
    memory.note_attempt("LEADS_SMTP_URL", "The mail server can't be reached.", healthy.now)
    memory.write(healthy.data.state.path)

    [one] = found(healthy).values()
    assert (one.key, one.may_pass) == ("alert-channels/LEADS_SMTP_URL", True)
    assert "The mail server can't be reached." in one.message


# --- windows --------------------------------------------------------------------------------------


def test_a_refused_window_says_why_until_when_and_what_to_do_and_is_over_when_it_lands(
    healthy: House,
) -> None:
    remove(healthy)
    fail(healthy, reason="refused (403)", is_permanent=True)

    finding = found(healthy)["windows-refused/refused-403"]
    assert (finding.level, finding.may_pass, finding.since) == (Level.ERROR, False, healthy.now)
    assert "refuses 1 applicant window of branch-101, 2026-11-20. It was a " in finding.message
    assert "begins to delete its leads on 2026-12-20 00:00 UTC" in finding.message
    command = "leads-pipeline backfill --from 2026-11-20 --to 2026-11-20 --scope branch-101"
    assert command in finding.what_to_do

    healthy.land("applicant", [], NEXT_DAY)
    assert "windows-refused/refused-403" not in found(healthy)


def test_a_refused_branch_is_one_finding_with_the_windows_that_nobody_asked_for(
    house: House,
) -> None:
    house.first_day = DAY - timedelta(days=29)
    land_all(house)
    for kind in KINDS:
        fail(house, kind, branch="branch-103", reason="refused (403)", is_permanent=True)

    house.scopes = (*BRANCHES, "branch-103")
    [finding] = found(house).values()
    assert finding.key == "windows-refused/refused-403"
    assert "6 applicant and appraisal windows of branch-103, 2026-11-18 to" in finding.message
    assert "--from 2026-11-18 --to 2026-11-20 --scope branch-103`" in finding.what_to_do


def test_a_temporary_error_is_one_finding_for_all_windows_and_may_pass(house: House) -> None:
    land_all(house, DAY)
    fail(house)
    fail(house, "appraisal", branch="branch-102", reason="busy (429)")
    finding = found(house)["windows-failing"]
    assert finding.may_pass
    assert "2 applicant and appraisal windows of branch-101, branch-102" in finding.message
    assert "It was a busy (429)." in finding.message


def test_a_window_that_nobody_asked_for_is_late_after_a_day(house: House) -> None:
    land_all(house, DAY)
    house.now = datetime(2026, 11, 22, 1, tzinfo=UTC)
    assert "windows-missing" not in found(house)
    house.now = datetime(2026, 11, 22, 2, tzinfo=UTC)
    finding = found(house)["windows-missing"]
    assert finding.level is Level.ERROR
    assert finding.what_to_do == "Run `leads-pipeline backfill --from 2026-11-20 --to 2026-11-20`."


def test_a_landed_window_that_is_not_looked_at_again_is_a_warning(house: House) -> None:
    land_all(house)
    house.now = datetime(2026, 11, 23, 3, tzinfo=UTC)
    land_all(house, date(2026, 11, 21), date(2026, 11, 22))
    finding = found(house)["windows-missing/looks"]
    assert finding.level is Level.WARNING
    assert "Not looked at again, so that late leads would be missed: 8 " in finding.message


def test_an_installation_that_never_pulls_is_told_two_days_after_its_start(house: House) -> None:
    house.data.state.remember_time_zone("Europe/London")
    house.now = datetime.now(UTC)
    house.first_day = house.today - timedelta(days=3)  # the portal has deleted no window yet
    variables = {
        "LEADS_AUTH_URL": SIMULATOR,
        "LEADS_CLIENT_ID": "made-up",
        "LEADS_CLIENT_SECRET": "made-up-secret",
    }
    assert found(house, **variables) == {}
    house.later(days=2)
    assert "windows-missing" in found(house, **variables)


def test_the_days_before_the_first_pull_raise_no_alarm(house: House) -> None:
    house.first_day = DAY - timedelta(days=90)
    land_all(house)
    assert found(house) == {}  # nor are they lost
    hint = next(one for one in find(known(house)) if one.key == "windows-missing/first")
    assert "2026-10-22 to 2026-11-18" in hint.message  # the portal has those


@pytest.mark.slow
def test_lost_leads_stay_a_finding_until_a_person_takes_note(house: House) -> None:
    land_all(house, DAY)
    fail(house)
    house.later(days=31)
    house.publish()

    key = f"windows-lost/{NEXT_DAY}"
    finding = found(house)[key]
    assert finding.level is Level.ERROR
    assert "2026-11-20 are lost: the portal deleted applicant branch-101" in finding.message

    acknowledge(known(house), [key])
    assert key not in found(house)


# --- leads.duckdb and the files -------------------------------------------------------------------


def test_a_publication_that_fails_is_an_error_that_may_pass(healthy: House) -> None:
    publications = Publications(began_at=healthy.now, published_at=healthy.now, failures=2)
    publications.write(healthy.data.state.path)

    finding = found(healthy)["leads-duckdb"]
    assert finding.may_pass
    assert finding.message.startswith("Publishing failed 2 times")


def test_leads_that_are_not_published_within_an_hour_are_an_error(healthy: House) -> None:
    Publications(began_at=healthy.now, published_at=healthy.now).write(healthy.data.state.path)
    landed_at = (healthy.now + timedelta(minutes=1)).timestamp()
    os.utime(healthy.data.state.path / "landed", (landed_at, landed_at))
    healthy.later(minutes=59)
    assert "leads-duckdb" not in found(healthy)
    healthy.later(minutes=3)
    assert "are not published" in found(healthy)["leads-duckdb"].message


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_missing_or_damaged_leads_duckdb_is_an_error_until_it_is_published_again(
    healthy: House, harm: str
) -> None:
    if harm == "missing":
        healthy.file.unlink()
    else:
        damage(healthy.file.resolve())

    # One cause is one finding.
    [finding] = found(healthy).values()
    assert finding.key == "leads-duckdb"
    assert "leads-pipeline backfill" in finding.what_to_do
    assert {"drift", "checks"} <= find_all(known(healthy))[1]  # what they found before isn't over

    healthy.publish()
    assert "leads-duckdb" not in found(healthy)


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_damaged_or_missing_raw_file_is_told_once_with_the_command_and_the_last_day(
    healthy: House, harm: str
) -> None:
    place = Place(lead_kind("applicant"), NEXT_DAY, "branch-101")
    if harm == "missing":
        remove(healthy)
    else:
        damage(next((healthy.folder / place.key).glob("*.parquet")))
        healthy.data.raw.read(place)  # any run sets it aside
    healthy.later(days=1)
    land_all(healthy, date(2026, 11, 21))
    healthy.publish()

    [finding] = found(healthy).values()
    assert finding.key == "files-damaged"
    assert "1 applicant window of branch-101, 2026-11-20 are damaged or missing" in finding.message
    assert "leads-pipeline backfill --from 2026-11-20" in finding.what_to_do
    assert "The portal has it until 2026-12-20 UTC." in finding.what_to_do

    healthy.later(days=40)
    told = found(healthy)
    assert place.key in told["files-damaged/backup"].message
    assert "from a backup" in told["files-damaged/backup"].what_to_do
    assert f"windows-lost/{NEXT_DAY}" not in told  # its leads are published


@pytest.mark.slow
def test_drift_is_a_warning_for_each_change_until_a_person_takes_note(house: House) -> None:
    def drifted() -> set[str]:
        return {key for key in found(house) if key.startswith("drift")}

    house.land("applicant", [{"id": str(number), "a": 1, "b": 1} for number in range(3)])
    house.publish()
    assert drifted() == {"drift/applicant/a", "drift/applicant/b"}

    acknowledge(known(house), ["drift"])
    assert drifted() == set()

    house.land("applicant", [{"id": str(number), "newest": 1} for number in range(3)])
    house.publish()
    assert drifted() == {"drift/applicant/newest"}


def test_an_unknown_member_of_answers_is_told_until_a_person_acknowledges_its_name_and_type(
    house: House,
) -> None:
    state = house.data.state
    state.note_unknown_members(["applicant/meta.nextToken/text", "applicant/account/text"])
    levels = {key: one.level for key, one in found(house).items()}
    # It could lead to further pages of leads.
    assert levels["answer-members/applicant/meta.nextToken/text"] is Level.ERROR
    assert levels["answer-members/applicant/account/text"] is Level.WARNING

    acknowledge(known(house), ["answer-members"])
    state.note_unknown_members(["applicant/account/text", "applicant/account/number"])
    told = [key for key in found(house) if key.startswith("answer")]
    assert told == ["answer-members/applicant/account/number"]


def test_a_new_member_of_an_enumeration_is_a_hint_of_drift(house: House) -> None:
    """Fault 87: 37 published members that the contract didn't know were 37 warnings."""
    values = {"urgency": "URGENCY_TODAY", "intent": "today"}
    house.land("appraisal", [{"id": str(number), **values} for number in range(3)])
    house.publish()

    told = {one.key: one for one in find(known(house))}

    assert told["drift/appraisal/urgency-URGENCY_TODAY"].level is Level.HINT
    assert told["drift/appraisal/intent-today"].level is Level.WARNING


@pytest.mark.slow
def test_known_leads_that_lose_their_contact_are_told_until_it_is_back(house: House) -> None:
    def land(without: int) -> None:
        phones = ["" if number < without else "07700900123" for number in range(40)]
        house.land("applicant", [lead(str(n), phone=phone) for n, phone in enumerate(phones)])
        house.publish()

    key = f"contacts-emptied/applicant/{DAY}/{Level.ERROR}"
    land(0)
    assert key not in found(house)

    land(2)
    assert f"2 of 40 applicant leads of {DAY}" in found(house)[key].message

    house.names = "id,name\n101,York\n"  # has leads.duckdb built anew
    house.publish()
    assert key in found(house)

    land(0)
    assert key not in found(house)


# --- the machine, the service, settings -----------------------------------------------------------


def test_a_full_disk_is_told(house: House) -> None:
    land_all(house)
    facts = known(house)
    facts.__dict__["free_bytes"] = 1_000_000
    [finding] = [one for one in find(facts) if one.key == "disk"]
    assert finding.level is Level.ERROR
    assert str(house.folder) in finding.message


def test_a_backup_older_than_two_days_is_a_warning(house: House) -> None:
    land_all(house)
    house.data.state.note_backup(house.now)
    house.later(days=1.9)
    assert "backup" not in found(house, LEADS_BASE_URL=PORTAL)
    house.later(days=0.2)
    assert "backup" in found(house)


def test_a_service_that_was_not_stopped_and_is_silent_is_an_error(house: House) -> None:
    land_all(house)
    house.data.state.note_service(house.now, [])
    house.later(minutes=14)
    assert "service" not in found(house)
    house.later(minutes=2)
    assert "leads-pipeline serve" in found(house)["service"].what_to_do
    house.data.state.forget_service()
    assert "service" not in found(house)


def test_in_somebodys_dagster_findings_name_its_jobs_and_sensors_and_no_command_that_starts_runs(
    house: House, tmp_path: Path
) -> None:
    house.data.state.note_dagster_home(tmp_path / "theirs", "a/b")
    land_all(house, DAY)
    landed_at = house.now.timestamp()
    os.utime(house.data.state.path / "landed", (landed_at, landed_at))
    fail(house)

    unserved = found(house)
    house.data.state.note_service(house.now, [])
    served = found(house)
    house.later(days=3)
    silent = found(house)

    pull = "In your Dagster, start the job `a_b_pull_leads` for 2026-11-20 of branch-101"
    assert unserved["windows-failing"].what_to_do == f"{pull}."
    assert f"{pull} to ask now." in served["windows-failing"].what_to_do
    assert "job `a_b_publish`" in silent["leads-duckdb"].what_to_do
    assert "Start the daemon of your Dagster." in silent["service"].what_to_do
    assert "`a_b_retry_failed_partitions`" in silent["service"].what_to_do
    for one in (*unserved.values(), *served.values(), *silent.values()):
        assert not re.search("leads-pipeline (backfill|serve)", one.what_to_do), one.key


def test_a_sensor_that_is_needed_and_off_is_an_error(house: House) -> None:
    land_all(house)
    house.data.state.note_service(house.now, ["agency_publish_changes"])
    assert {key for key in found(house) if key.startswith("service")} == {
        "service/agency_publish_changes"
    }


def test_another_time_zone_than_that_of_the_landed_days_is_an_error(house: House) -> None:
    land_all(house)
    house.data.state.remember_time_zone("UTC")
    finding = found(house)["time-zone"]
    assert finding.level is Level.ERROR
    assert "Set LEADS_TIMEZONE=UTC." in finding.what_to_do


def test_a_file_of_names_that_cannot_be_read_is_a_warning_with_the_line(
    house: House, tmp_path: Path
) -> None:
    def told(names: str) -> str:
        (tmp_path / "branches.csv").write_text(f"id,name\n{names}")
        finding = found(house, LEADS_BRANCHES_FILE=str(tmp_path / "branches.csv"))["branch-names"]
        return finding.message

    land_all(house)
    assert "has 101 a second time in row 3" in told("101,York\n101,Leeds\n")
    # Fault 117.
    assert "no name for branch-102. It names branch-102.0" in told("101,York\n102.0,Leeds\n")


# --- the list itself ------------------------------------------------------------------------------


def test_a_finder_that_cannot_look_is_a_finding_and_the_others_look(house: House) -> None:
    def broken(_: Facts) -> Iterator[Finding]:
        raise StorageError("The disk is gone.")

    def works(_: Facts) -> Iterator[Finding]:
        yield Finding(Level.HINT, "Works.", "Nothing.")

    finders = [Finder(one.__name__, one, stays=False) for one in (broken, works)]
    findings, failed = find_all(known(house), finders)
    assert [one.key for one in findings] == ["finder-failed/broken", "works"]
    assert findings[0].message == "The disk is gone."
    assert failed == {"broken"}


def test_only_an_open_loss_or_news_can_be_acknowledged(house: House) -> None:
    land_all(house)
    with pytest.raises(QuestionError, match="ends when its"):
        acknowledge(known(house), ["backup"])
