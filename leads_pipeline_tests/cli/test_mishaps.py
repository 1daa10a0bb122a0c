"""Commands beside full disks, odd folders and a portal that fails: each names the cause and what to
do.
"""

import os
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from leads_pipeline.portal import Service
from leads_pipeline_tests.support.command_line import FOR_ANY_COMMAND, run
from leads_pipeline_tests.support.house import House
from leads_pipeline_tests.support.installation import IMPATIENT
from leads_pipeline_tests.support.newcomer import BIN

# Dagster calls functions of its own that it has deprecated.
pytestmark = pytest.mark.filterwarnings(r"ignore::DeprecationWarning:dagster\.")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of an installation in the test's own folder, whose portal doesn't answer."""
    os.environ.update(FOR_ANY_COMMAND)
    impatient = partial(Service, policy=IMPATIENT)
    monkeypatch.setattr("leads_pipeline.orchestration.resources.Service", impatient)
    return tmp_path / "data"


@pytest.fixture
def healthy(data: Path) -> Path:
    """A data folder with yesterday's lead of one branch, published."""
    house = House(data)
    house.scopes = ("branch-101",)
    house.now = datetime.now(UTC) - timedelta(minutes=5)
    house.first_day = house.today - timedelta(days=1)
    house.land("applicant", [{"id": "a"}], house.first_day)
    house.publish()
    return data


def refused(*command: object) -> str:
    """What a command says that can't do what it was asked for."""
    result = run(*command)
    assert result.exit_code == 2, result.output
    return result.output


@pytest.mark.usefixtures("data")
def test_a_disk_that_fills_up_during_a_run_is_told_in_our_sentence_alone(small_disk: Path) -> None:
    """Fault 109: Dagster's error with its SQL came first."""
    os.environ["DAGSTER_HOME"] = str(small_disk / "home")
    (small_disk / "fill").write_bytes(bytes(450_000))

    result = run("backfill", "--last", "1d")

    dagster_home, _, sentence = result.stderr.partition("\n")
    assert dagster_home == f"Dagster home: {small_disk / 'home'}"
    assert sentence.startswith(("Pulling", f"Error: The file system {small_disk} is full")), (
        result.output
    )
    assert "Exception" not in sentence
    assert "SQL" not in sentence


def test_a_full_backup_target_is_named(data: Path, small_disk: Path) -> None:
    House(data).land("applicant", [{"id": "a"}])
    (small_disk / "fill").write_bytes(bytes(1_040_000))

    said = refused("backup", small_disk / "backups")

    assert f"{small_disk}/backups is full: a new backup needs about " in said
    assert " MB are free. " in said


@pytest.mark.slow
def test_nothing_takes_a_folder_for_whole_whose_restore_found_the_disk_full(
    healthy: Path, small_disk: Path, tmp_path: Path
) -> None:
    assert run("backup", tmp_path / "backups").exit_code == 0
    os.environ.update(
        LEADS_DATA_DIR=str(small_disk / "data"), DAGSTER_HOME=str(healthy.with_name("home"))
    )
    said = refused("restore", tmp_path / "backups")
    assert f"The disk of {small_disk}/data is full: the backup needs about " in said

    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    for command in ("status", "backfill --last 1d", "serve", "receive --port 0"):
        assert "isn't finished" in refused(*command.split())
    assert "data folder: The restore into " in run("doctor").output

    assert run("restore", tmp_path / "backups").exit_code == 0
    assert "isn't finished" not in run("status").output


def test_an_output_that_cannot_be_written_is_not_taken_for_the_data_folders_disk() -> None:
    """Fault 85: it said that the file system of the data folder was full."""
    command = [str(BIN / "leads-pipeline"), "settings"]
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment
        )
        silent = subprocess.run(command, stdout=full, stderr=full, env=environment)

    assert done.stderr.startswith("Error: The output can't be written: No space left on device.")
    assert done.returncode == silent.returncode == 2


@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("command", ["receive", "metrics"])
def test_an_ipv6_address_is_shown_in_brackets(command: str) -> None:
    """Fault 85: the colons of the address and that of the port looked alike."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        said = refused(command, "--host", "::1", "--port", port)

    assert f"Can't listen on [::1]:{port}: " in said


def test_an_argument_that_is_not_utf_8_is_refused(data: Path) -> None:
    assert "An argument isn't UTF-8" in refused(
        "privacy", "erase", "--yes", "--lead", "jane\udcff@home.example"
    )
    assert not (data / "privacy").exists()
