"""`status`, `findings`, `acknowledge`, `metrics`: what they print, how they end, and that they make
nothing.
"""

import json
import os
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from leads_pipeline.domain.contract import lead_kind
from leads_pipeline.raw.names import Place
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import AT_NOON, House
from leads_pipeline_tests.support.newcomer import BIN, PATIENCE_SECONDS
from leads_pipeline_tests.support.serving import free_port

NOW = datetime.now(AT_NOON)
YESTERDAY = NOW.date() - timedelta(days=1)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """An installation with yesterday of one branch, published.

    `make demo` leaves no settings, either.
    """
    house = House(tmp_path_factory.mktemp("published") / "data")
    house.scopes = ("branch-101",)
    house.first_day = YESTERDAY
    house.zone = AT_NOON
    house.now = NOW - timedelta(minutes=5)
    for kind in ("applicant", "appraisal"):
        house.land(kind, [{"id": f"{kind}-{number}"} for number in range(3)], YESTERDAY)
    house.publish()
    house.data.state.remember_start_date(YESTERDAY)
    house.data.state.remember_time_zone(AT_NOON.key)
    return house


@pytest.fixture
def house(published: House, tmp_path: Path) -> House:
    """A copy of it to work in."""
    return published.copied(tmp_path / "data")


def refused(*command: object) -> str:
    """The error of a command that can't do what it was asked for."""
    result = run(*command)
    assert result.exit_code == 2, result.output
    return result.stderr


def text_of(command: str) -> str:
    """What a command prints, whether it finds errors or not."""
    return run(*command.split()).stdout


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def test_a_folder_without_settings_can_be_looked_at_and_stays_as_it_is(house: House) -> None:
    before = files(house.folder.parent)

    for command in ("status", "findings", "metrics"):
        assert run(command).exit_code == 0, command
    coverage = run("coverage")

    assert coverage.exit_code == 0
    assert coverage.output.endswith("Every window that is due has landed and is published.\n")
    assert files(house.folder.parent) == before


@pytest.mark.parametrize("command", ["status", "verify", "acknowledge drift", "backup to"])
def test_a_folder_that_does_not_exist_is_refused_in_the_same_words_and_not_made(
    tmp_path: Path, command: str
) -> None:
    os.environ["LEADS_DATA_DIR"] = "mistyped"

    said = refused(*command.split())

    assert said.startswith(
        f"Error: The data folder {tmp_path}/mistyped doesn't exist. If that is the wrong folder, "
    )
    assert list(tmp_path.iterdir()) == []


def test_doctor_and_the_commands_that_pull_name_the_settings_that_are_missing_and_make_nothing(
    tmp_path: Path,
) -> None:
    os.environ["LEADS_BASE_URL"] = "http://127.0.0.1:9"
    missing = "LEADS_AUTH_URL, LEADS_CLIENT_ID, LEADS_CLIENT_SECRET, LEADS_BRANCH_IDS"

    assert f"Settings are missing: {missing}." in refused("backfill", "--last", "3d")
    assert f"Settings are missing: {missing}." in refused("serve")
    doctor = run("doctor")
    assert missing in doctor.stdout
    assert doctor.exit_code == 2
    settings = json.loads(text_of("settings --json"))
    assert {name for name, row in settings.items() if row["is_missing"]} == set(missing.split(", "))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_backup_is_restored_without_any_settings_in_the_time_zone_of_its_folder(
    house: House,
) -> None:
    (house.folder / ".state" / "time_zone").write_text("Pacific/Auckland\n")
    house.land("applicant", [{"id": "noon", "createdAt": f"{YESTERDAY}T12:00Z"}], YESTERDAY)
    target = house.folder.parent / "target"
    restored = house.folder.parent / "restored"
    assert run("backup", target).exit_code == 0
    os.environ["LEADS_DATA_DIR"] = str(restored)

    result = run("restore", target)

    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(
        "Next, pull the leads that came since: leads-pipeline backfill --last 30d\n"
    )
    house.folder = restored
    assert house.leads("applicant")["noon"]["lead_day"] == YESTERDAY + timedelta(days=1)


def test_status_says_each_figure_once(house: House) -> None:
    text = text_of("status")
    assert "leads             3 applicant, 3 appraisal\n" in text
    assert "windows           2 landed, 2 open (not due yet), since " in text
    assert "service           not running: nothing is pulled by itself\n" in text
    assert text.endswith("No errors or warnings. 3 hints.\n")

    told = json.loads(text_of("status --json"))
    assert told["is_well"]
    assert told["leads"] == {"applicant": 3, "appraisal": 3}
    assert told["size_bytes"]["leads.duckdb"] == house.file.stat().st_size


@pytest.mark.parametrize("command", ["status", "findings"])
def test_an_open_error_is_shown_with_what_to_do_and_ends_with_1(house: House, command: str) -> None:
    house.file.unlink()

    result = run(command)

    assert result.exit_code == 1
    assert "error    leads-duckdb\n         leads.duckdb is missing." in result.stdout
    assert "→ Run `leads-pipeline backfill --last 1d`: it publishes" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("1 error, ")


def test_each_command_that_looks_says_that_the_published_file_is_missing(house: House) -> None:
    house.file.unlink()

    assert "leads             unknown: leads.duckdb can't be read" in text_of("status")
    assert "leads.duckdb is missing. The figures above are" in text_of("coverage")
    assert not json.loads(text_of("status --json"))["is_well"]
    assert "leads_pipeline_well 0.0" in text_of("metrics")
    [found, *_] = json.loads(text_of("findings --json"))["findings"]
    assert found.keys() == {"key", "level", "message", "since", "what_to_do", "link", "may_pass"}
    assert found["link"] == "leads-pipeline explain leads-duckdb"


@pytest.mark.slow
def test_a_loss_is_noted_by_its_key_and_a_wrong_key_is_refused(house: House) -> None:
    lost = YESTERDAY - timedelta(days=32)
    place = Place(lead_kind("applicant"), lost, "branch-101")
    house.data.raw.fail(place, "deleted", "The portal has deleted it.", is_permanent=True)
    (house.folder / ".state" / "start_date").write_text(f"{lost}\n")
    assert f"windows-lost/{lost}" in text_of("findings")

    assert "No open finding has the key" in refused("acknowledge", "windows-lost/2020-01-01")

    assert text_of(f"acknowledge windows-lost/{lost}") == f"Hidden: windows-lost/{lost}\n"
    assert f"windows-lost/{lost}" not in text_of("findings")


@pytest.mark.usefixtures("house")
def test_metrics_are_the_figures_of_status() -> None:
    metrics = text_of("metrics")

    assert "\nleads_pipeline_well 1.0\n" in metrics
    assert '\nleads_pipeline_leads{kind="applicant"} 3.0\n' in metrics
    assert '\nleads_pipeline_windows{state="landed"} 2.0\n' in metrics
    assert "\nleads_pipeline_last_backup_timestamp_seconds" not in metrics  # there is none


@pytest.mark.slow
def test_metrics_are_served_as_they_are_at_each_request(house: House) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/metrics"
    command = [str(BIN / "leads-pipeline"), "metrics", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=house.folder.parent, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert "(ctrl-C stops it)" in process.stdout.readline()
        try:
            assert "leads_pipeline_well 1.0" in httpx.get(address, timeout=PATIENCE_SECONDS).text
            house.file.unlink()
            assert "leads_pipeline_well 0.0" in httpx.get(address, timeout=PATIENCE_SECONDS).text
        finally:
            process.terminate()
