"""`status`, `findings`, `acknowledge`, `metrics`: what they print, how they end, and that they make nothing."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from leads_pipeline.domain.contract import lead_kind
from leads_pipeline.storage.raw import Place
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import Quick
from leads_pipeline_tests.support.newcomer import free_port

LOOKING = (("status",), ("status", "--json"), ("findings",), ("findings", "--json"), ("coverage",), ("metrics",))
NOW = datetime.now(UTC)
YESTERDAY = NOW.date() - timedelta(days=1)


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quick:
    """An installation with yesterday of one branch, published. `make demo` leaves no settings, either."""
    monkeypatch.chdir(tmp_path)
    house = Quick(tmp_path / "data")
    house.scopes, house.first_day, house.now = ("branch-101",), YESTERDAY, NOW - timedelta(minutes=5)
    for kind in ("applicant", "appraisal"):
        house.land(kind, [{"id": f"{kind}-{number}"} for number in range(3)], YESTERDAY)
    house.publish()
    house.data.state.remember_start_date(YESTERDAY)
    house.data.state.remember_time_zone("Europe/London")
    return house


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_folder_without_settings_can_be_looked_at_and_stays_as_it_is(house: Quick, command: tuple[str, ...]) -> None:
    before = files(house.folder.parent)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert files(house.folder.parent) == before


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_mistyped_folder_is_refused_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEADS_DATA_DIR", "mistyped")
    result = run(*command)
    assert result.exit_code == 2
    assert "correct LEADS_DATA_DIR" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_status_says_each_figure_once(house: Quick) -> None:
    text = run("status").stdout
    assert "leads             3 applicant, 3 appraisal\n" in text
    assert "windows           2 landed, 2 not over yet, of the last 30 days\n" in text
    assert "service           not running\n" in text
    assert text.endswith("No errors or warnings. 3 hints.\n")
    told = json.loads(run("status", "--json").stdout)
    assert (told["is_well"], told["leads"]) == (True, {"applicant": 3, "appraisal": 3})
    assert told["last_publication_at"] is None  # this test published without a run
    assert told["size_bytes"]["leads.duckdb"] == house.file.stat().st_size


def test_an_open_error_is_shown_with_what_to_do_and_ends_with_1(house: Quick) -> None:
    house.data.raw.fail(
        Place(lead_kind("applicant"), YESTERDAY, "branch-102"), "refused (403)", "No such branch.", is_permanent=True
    )
    house.file.unlink()
    for command in ("status", "findings"):
        result = run(command)
        assert result.exit_code == 1
        assert "error    leads-duckdb\n         leads.duckdb is missing." in result.stdout
        assert "→ Run `leads-pipeline backfill --last 1d`: it publishes, or prints why it can't.\n" in result.stdout
        assert "errors, " in result.stdout.splitlines()[-1]
    assert "leads             unknown: leads.duckdb can't be read" in run("status").stdout
    assert "leads.duckdb is missing. No day can be read." in run("coverage").stdout
    [found, *_] = json.loads(run("findings", "--json").stdout)["findings"]
    assert found.keys() == {"key", "level", "message", "since", "what_to_do", "link", "may_pass"}
    assert not json.loads(run("status", "--json").stdout)["is_well"]
    assert "leads_pipeline_well 0.0" in run("metrics").stdout


def test_a_damaged_dagster_database_keeps_no_command_from_looking(house: Quick) -> None:
    home = house.folder / ".dagster"
    (home / "history").mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (home / "history" / "runs.db").write_bytes(b"no database" * 1000)
    for command in LOOKING:
        assert run(*command).exit_code == 0


def test_a_loss_is_noted_by_its_key_and_a_wrong_key_is_refused(house: Quick) -> None:
    lost = YESTERDAY - timedelta(days=40)
    place = Place(lead_kind("applicant"), lost, "branch-101")
    house.data.raw.fail(place, "deleted", "The portal has deleted it.", is_permanent=True)
    (house.folder / ".state" / "start_date").write_text(f"{lost}\n")
    assert f"windows-lost/{lost}" in run("findings").stdout
    refused = run("acknowledge", "windows-lost/2020-01-01")
    assert (refused.exit_code, "No open finding has the key" in refused.stderr) == (2, True)
    noted = run("acknowledge", f"windows-lost/{lost}")
    assert (noted.exit_code, noted.stdout) == (0, f"Hidden: windows-lost/{lost}\n")
    assert f"windows-lost/{lost}" not in run("findings").stdout


@pytest.mark.usefixtures("house")
def test_metrics_are_the_figures_of_status() -> None:
    samples = run("metrics").stdout.splitlines()
    assert "leads_pipeline_well 1.0" in samples
    assert 'leads_pipeline_leads{kind="applicant"} 3.0' in samples
    assert 'leads_pipeline_windows{state="landed"} 2.0' in samples
    assert 'leads_pipeline_findings{level="error"} 0.0' in samples
    assert not [line for line in samples if line.startswith("leads_pipeline_last_backup_timestamp_seconds")]
    assert any(line.startswith('leads_pipeline_size_bytes{what="leads.duckdb"} ') for line in samples)


@pytest.mark.slow
def test_metrics_are_served_as_they_are_at_each_request(house: Quick) -> None:
    port = free_port()
    command = [sys.executable, "-c", f"from leads_pipeline.cli import main; main(['metrics', '--port', '{port}'])"]
    with subprocess.Popen(command, cwd=house.folder.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "(ctrl-C stops it)" in process.stdout.readline()
        try:
            assert "leads_pipeline_well 1.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text
            house.file.unlink()
            assert "leads_pipeline_well 0.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "findings", "coverage", "metrics"])
def test_commands_that_look_do_not_import_dagster(house: Quick, command: str) -> None:
    program = f"import sys; from leads_pipeline.cli import main; main(['{command}'])"
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program], cwd=house.folder.parent, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines() if line.startswith("import time")}
    assert "leads_pipeline.observe.findings" in imported
    assert "dagster" not in imported
