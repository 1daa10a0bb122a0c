"""`status`, `findings`, `acknowledge`, `metrics`: what they print, how they end, and that they make nothing."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import httpx
import pytest

from leads_pipeline.domain.contract import lead_kind
from leads_pipeline.storage.raw import Place
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.house import LONDON, House
from leads_pipeline_tests.support.newcomer import PATIENCE_SECONDS
from leads_pipeline_tests.support.serving import free_port

LOOKING = (("status",), ("status", "--json"), ("findings",), ("findings", "--json"), ("coverage",), ("metrics",))
NOW = datetime.now(UTC)
YESTERDAY = NOW.astimezone(LONDON).date() - timedelta(days=1)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> House:
    """An installation with yesterday of one branch, published. `make demo` leaves no settings, either."""
    house = House(tmp_path_factory.mktemp("published") / "data")
    house.scopes, house.first_day, house.now = ("branch-101",), YESTERDAY, NOW - timedelta(minutes=5)
    for kind in ("applicant", "appraisal"):
        house.land(kind, [{"id": f"{kind}-{number}"} for number in range(3)], YESTERDAY)
    house.publish()
    house.data.state.remember_start_date(YESTERDAY)
    house.data.state.remember_time_zone("Europe/London")
    return house


@pytest.fixture
def house(published: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    """A copy of it to work in."""
    monkeypatch.chdir(tmp_path)
    return published.copied(tmp_path / "data")


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_a_folder_without_settings_can_be_looked_at_and_stays_as_it_is(house: House, command: tuple[str, ...]) -> None:
    before = files(house.folder.parent)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert files(house.folder.parent) == before


@pytest.mark.parametrize("command", [*LOOKING, ("verify",), ("acknowledge", "drift"), ("backup", "to")], ids=" ".join)
def test_a_folder_that_does_not_exist_is_refused_in_the_same_words_and_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEADS_DATA_DIR", "mistyped")
    result = run(*command)
    assert result.exit_code == 2
    told = f"Error: The data folder {tmp_path}/mistyped doesn't exist. If that is the wrong folder, correct LEADS_DATA_"
    assert result.stderr.startswith(told)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_leads_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / ".state").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    result = run("status")
    assert (result.exit_code, f"The data folder {tmp_path}/data has no leads." in result.stderr) == (2, True)


def test_doctor_and_the_commands_that_pull_name_the_settings_that_are_missing_and_make_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEADS_BASE_URL", "http://127.0.0.1:9")
    missing = "LEADS_AUTH_URL, LEADS_CLIENT_ID, LEADS_CLIENT_SECRET, LEADS_BRANCH_IDS"
    for command in (("backfill", "--last", "3d"), ("serve",)):
        result = run(*command)
        assert (result.exit_code, result.stderr.startswith(f"Error: Settings are missing: {missing}.")) == (2, True)
    result = run("doctor")
    assert (result.exit_code, missing in result.stdout) == (2, True)
    assert list(tmp_path.iterdir()) == []
    required = {name for name, row in json.loads(run("settings", "--json").stdout).items() if row["is_missing"]}
    assert required == set(missing.split(", "))


def test_each_backup_tells_of_damaged_files_and_of_a_target_on_the_same_disk(house: House) -> None:
    target = house.folder.parent / "target"
    assert run("backup", target).exit_code == 0
    [raw] = house.folder.glob(f"raw/applicant_leads/day={YESTERDAY}/*/*.parquet")
    damaged = house.folder / "quarantine" / raw.relative_to(house.folder / "raw")
    damaged.parent.mkdir(parents=True)
    raw.rename(damaged.with_name(f"{raw.name}.20261127T094542.713126Z"))
    for day in (1, 2):
        max(target.iterdir()).rename(target / f"2026-11-0{day}T000000Z")
        result = run("backup", target)
        assert result.exit_code == 1, result.stderr
        assert "It is on the same disk as the data folder." in result.stderr
        assert f"Damaged or missing in the data folder: {damaged.relative_to(house.folder)}" in result.stderr
        assert "`leads-pipeline verify` says what to do." in result.stderr


@pytest.mark.slow
def test_a_backup_is_restored_without_any_settings_in_the_time_zone_of_its_folder(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    (house.folder / ".state" / "time_zone").write_text("Pacific/Auckland\n")
    house.land("applicant", [{"id": "noon", "createdAt": f"{YESTERDAY}T12:00Z"}], YESTERDAY)
    assert run("backup", house.folder.parent / "target").exit_code == 0
    monkeypatch.setenv("LEADS_DATA_DIR", str(house.folder.parent / "restored"))
    result = run("restore", house.folder.parent / "target")
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith("Next, pull the leads that came since: leads-pipeline backfill --last 30d\n")
    with duckdb.connect(str(house.folder.parent / "restored" / "leads.duckdb"), read_only=True) as db:
        found = db.execute("select lead_day from applicant_leads where lead_id = 'noon'").fetchall()
    assert found == [(YESTERDAY + timedelta(days=1),)]


def test_status_says_each_figure_once(house: House) -> None:
    text = run("status").stdout
    assert "leads             3 applicant, 3 appraisal\n" in text
    assert "windows           2 landed, 2 open (today), since " in text
    assert "service           not running: nothing is pulled by itself\n" in text
    assert text.endswith("No errors or warnings. 3 hints.\n")
    told = json.loads(run("status", "--json").stdout)
    assert (told["is_well"], told["leads"]) == (True, {"applicant": 3, "appraisal": 3})
    assert told["last_publication_at"] is None  # this test published without a run
    assert told["size_bytes"]["leads.duckdb"] == house.file.stat().st_size


def test_an_open_error_is_shown_with_what_to_do_and_ends_with_1(house: House) -> None:
    house.data.raw.fail(
        Place(lead_kind("applicant"), YESTERDAY, "branch-102"), "refused (403)", "No such branch.", is_permanent=True
    )
    house.file.unlink()
    for command in ("status", "findings"):
        result = run(command)
        assert result.exit_code == 1
        assert "error    leads-duckdb\n         leads.duckdb is missing." in result.stdout
        assert "→ Run `leads-pipeline backfill --last 1d`: it publishes, or says why it can't.\n" in result.stdout
        assert "errors, " in result.stdout.splitlines()[-1]
    assert "leads             unknown: leads.duckdb can't be read" in run("status").stdout
    assert "leads.duckdb is missing. The figures above are those of raw files." in run("coverage").stdout
    [found, *_] = json.loads(run("findings", "--json").stdout)["findings"]
    assert found.keys() == {"key", "level", "message", "since", "what_to_do", "link", "may_pass"}
    assert found["link"] == f"leads-pipeline explain {found['key'].partition('/')[0]}"
    assert not json.loads(run("status", "--json").stdout)["is_well"]
    assert "leads_pipeline_well 0.0" in run("metrics").stdout


@pytest.mark.slow
def test_a_loss_is_noted_by_its_key_and_a_wrong_key_is_refused(house: House) -> None:
    lost = YESTERDAY - timedelta(days=32)
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
def test_metrics_are_served_as_they_are_at_each_request(house: House) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/metrics"
    command = [sys.executable, "-c", f"from leads_pipeline.cli import main; main(['metrics', '--port', '{port}'])"]
    with subprocess.Popen(command, cwd=house.folder.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "(ctrl-C stops it)" in process.stdout.readline()
        try:
            assert "leads_pipeline_well 1.0" in httpx.get(address, timeout=PATIENCE_SECONDS).text
            house.file.unlink()
            assert "leads_pipeline_well 0.0" in httpx.get(address, timeout=PATIENCE_SECONDS).text
        finally:
            process.terminate()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "findings", "coverage", "metrics"])
def test_commands_that_look_do_not_import_dagster(house: House, command: str) -> None:
    program = f"import sys; from leads_pipeline.cli import main; main(['{command}'])"
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program], cwd=house.folder.parent, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stdout
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines() if line.startswith("import time")}
    assert "leads_pipeline.observe.known" in imported
    assert "dagster" not in imported
