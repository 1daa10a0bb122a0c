"""The command line: what it pulls, what it prints, and how it exits."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leads_pipeline.features.service.alone import alone
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.settings import THIS_MACHINE
from leads_pipeline.simulator.faults import Then
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline_tests.support.command_line import FOR_ANY_COMMAND, run
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.newcomer import BIN, PATIENCE_SECONDS, wait_for
from leads_pipeline_tests.support.serving import free_port


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    # What a terminal would be wide enough for.
    os.environ["COLUMNS"] = "250"
    with installation(tmp_path, first=6) as started:
        yield started


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    """The data folder of settings whose portal nobody reaches."""
    os.environ |= FOR_ANY_COMMAND | {
        "LEADS_DATA_DIR": str(tmp_path / "data"),
        "DAGSTER_HOME": str(tmp_path / "home"),
    }
    return DataFolder.at(tmp_path / "data")


def refused(*arguments: object) -> str:
    """What a command says that can't do what it was asked for."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    return " ".join(result.output.split())


# --- backfill -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_backfill_names_its_dagster_home_and_warns_if_the_service_has_another(
    here: Installation, tmp_path: Path
) -> None:
    """Fault 105: without DAGSTER_HOME in the shell, it made a second home and said nothing."""
    of_today = ("backfill", "--last", "1d", "--kind", "applicant")

    here.data.state.note_dagster_home(tmp_path / "home")
    same = run(*of_today)
    here.data.state.note_dagster_home(tmp_path / "theirs")
    another = run(*of_today)

    assert same.exit_code == another.exit_code == 0
    assert f"Dagster home: {tmp_path / 'home'}" in same.stderr
    assert "another Dagster home" not in same.stderr
    assert f"The service works with another Dagster home, {tmp_path / 'theirs'}." in another.stderr
    assert f"DAGSTER_HOME={tmp_path / 'theirs'}" in another.stderr


def test_backfill_refuses_a_dagster_home_in_which_the_keys_have_a_prefix(
    data: DataFolder, tmp_path: Path
) -> None:
    """Without the prefix, its run would have been recorded under keys of a company's own assets."""
    data.state.note_dagster_home(tmp_path / "home", "agency")

    said = refused("backfill", "--last", "1d")

    assert "key_prefix agency" in said
    assert "unset DAGSTER_HOME" in said


@pytest.mark.slow
def test_backfill_pulls_the_last_days_and_today_as_far_back_as_there_are_partitions(
    here: Installation,
) -> None:
    assert run("backfill", "--last", "9999d", "--kind", "applicant").exit_code == 0

    assert here.asked() == dict.fromkeys(here.keys(range(7)), 1)


@pytest.mark.slow
def test_real_leads_can_follow_the_demo_whose_data_is_moved_aside(
    here: Installation, tmp_path: Path
) -> None:
    backfill = ("backfill", "--from", str(here.day(2)), "--to", str(here.day(2)))
    count = "select count(*) from lead_facts"
    assert run(*backfill).exit_code == 0
    leads = LeadsFile(here.data).query(count)
    os.environ["LEADS_BASE_URL"] = "https://leads.portal.example"
    # So that nothing is asked for.
    os.environ["LEADS_CLIENT_SECRET_FILE"] = str(tmp_path / "none")
    del os.environ["LEADS_CLIENT_SECRET"]

    assert "leads-pipeline backfill --last 10d --move-demo" in refused(*backfill)
    assert here.data.state.claimed_by() == "this machine"

    run(*backfill, "--move-demo")
    [aside] = (here.data.folder / "demo").iterdir()
    assert LeadsFile(DataFolder.at(aside)).query(count) == leads
    assert here.data.state.claimed_by() == "leads.portal.example"
    assert LeadsFile(here.data).query(count)[1] == [(0,)]


@pytest.mark.slow
def test_backfill_pulls_the_inventory_where_today_is_among_the_days(here: Installation) -> None:
    def requests() -> int:
        """How many requests the inventory API has had."""
        counts = here.simulator.counters().requests
        return sum(count for path, count in counts.items() if "/inventory" in path)

    today = ("--from", here.day(0), "--to", here.day(0))
    run("backfill", "--from", here.day(1), "--to", here.day(1))
    run("backfill", *today, "--kind", "applicant")
    assert requests() == 0

    before = here.asked()
    run("backfill", *today, "--kind", "inventory")
    of_inventory = requests()
    assert of_inventory > 0
    assert here.asked() == before

    run("backfill", *today)
    assert requests() > of_inventory


@pytest.mark.slow
def test_ctrl_c_ends_a_backfill_and_tells_what_is_landed(
    here: Installation, tmp_path: Path
) -> None:
    """Fault 109: it didn't say how many windows."""
    here.fail(dict.fromkeys(here.keys([2]), Then(latency_ms=600_000)))
    days = ("--from", str(here.day(3)), "--to", str(here.day(2)))
    command = [str(BIN / "leads-pipeline"), "backfill", "--kind", "applicant", *days]
    told = tmp_path / "told"
    with told.open("w") as file:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=file, stderr=file)
        wait_for(lambda: len(list(here.data.folder.glob("raw/*/*/*/*.parquet"))) == 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 130

    text = told.read_text()
    assert "\nCancelled. 3 windows landed and stay. To pull the others, run the command" in text
    assert "Traceback" not in text
    assert not LeadsFile(here.data).path.exists()  # it went on to nothing else


@pytest.mark.slow
def test_backfill_keeps_and_publishes_what_landed_and_names_what_did_not(
    here: Installation, tmp_path: Path
) -> None:
    (tmp_path / "branches.csv").write_text("id,name\n102,Leeds [city]\n")
    os.environ["LEADS_BRANCHES_FILE"] = str(tmp_path / "branches.csv")
    here.fail({here.key(3, 102): Then(status=403)})

    result = run("backfill", "--from", here.day(3), "--to", here.day(3), "--kind", "applicant")

    assert result.exit_code == 1
    assert "1 window failed: refused (403)" in result.output
    assert f"branch-102 (Leeds [city]): 1 applicant window, {here.day(3)}" in result.output
    assert f"Pull them again with: leads-pipeline backfill --from {here.day(3)}" in result.output
    landed = LeadsFile(here.data).query("select scope from landed_windows order by 1")[1]
    assert landed == [("branch-101",), ("branch-103",)]


def test_a_backfill_that_cannot_be_meant_is_refused(data: DataFolder) -> None:
    assert "'x' is not a number of days. Write 10d." in refused("backfill", "--last", "x")
    days = ("--from", "2001-01-02", "--to", "2001-01-01")
    assert "--to 2001-01-01 lies before --from 2001-01-02." in refused("backfill", *days)
    said = refused("backfill", "--last", "2d", "--scope", "101")
    assert "--scope: 101 is not among the scopes of LEADS_BRANCH_IDS or LEADS_SCOPES." in said

    data.state.claim(THIS_MACHINE)  # as the demo does
    os.environ["LEADS_BASE_URL"] = "https://leads.portal.example"
    assert "Name the days" in refused("backfill", "--move-demo")
    assert not (data.folder / "demo").exists()


# --- what can't work ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["receive", "backfill --last 1d"])
def test_a_folder_that_cannot_be_written_to_is_told(data: DataFolder, command: str) -> None:
    data.folder.touch()  # a file has no folder in it, for root neither

    assert f"Nothing can be written to {data.folder}" in refused(*command.split())


@pytest.mark.usefixtures("data")
def test_serve_refuses_what_cannot_work_before_it_starts_anything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("serve", "--port", port)
    assert f"Can't listen on 127.0.0.1:{port}: Address already in use. Name another host" in said

    (tmp_path / "home").mkdir()
    with alone(tmp_path / "home", "http://127.0.0.1:3000"):
        said = refused("serve", "--port", free_port())
    assert f"process {os.getpid()}, with its pages at http://127.0.0.1:3000" in said

    os.environ["LEADS_ALERT_EMAIL"] = "ops@agency.example"
    assert "LEADS_ALERT_EMAIL needs LEADS_SMTP_URL" in refused("serve", "--port", free_port())
