"""Open faults in what commands tell of a data folder. See the package for how the marks are used."""

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from leads_pipeline_tests.faults import command
from leads_pipeline_tests.faults.conftest import Install, installed
from leads_pipeline_tests.promises.portal import portal

NOBODY = "http://127.0.0.1:9"  # nothing listens there
TODAY = datetime.now(UTC).date()
YESTERDAY = str(TODAY - timedelta(days=1))
REFUSED = b'{"errors": [{"code": "forbidden", "message": "no", "links": []}]}'


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a healthy installation: one branch, yesterday alone, published."""
    folder = tmp_path_factory.mktemp("filled")
    leads = ",".join(f'{{"id":"lead-{number}","message":"{number * 7919}"}}' for number in range(3000))

    def answers(path: str, _: object) -> tuple[int, bytes]:
        return 200, f'{{"applicants":[{leads}]}}'.encode() if "applicant" in path else b'{"appraisals":[]}'

    with pytest.MonkeyPatch.context() as patch, portal(answers) as address:
        installed(patch, folder, address, LEADS_START_DATE=YESTERDAY)
        assert command("backfill", "--from", YESTERDAY, "--to", YESTERDAY).code == 0
    return folder


@pytest.fixture
def healthy(filled: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """That folder to work in. A test may destroy its leads.duckdb: the file is put back."""
    installed(monkeypatch, filled, NOBODY, LEADS_START_DATE=YESTERDAY)
    published, kept = filled / "data" / "leads.duckdb", filled / "kept"
    os.link(published, kept)
    yield published
    published.unlink(missing_ok=True)
    kept.rename(published)


def damage(published: Path) -> None:
    """Put a copy without its head in the published file's place."""
    content = published.read_bytes()
    published.unlink()
    published.write_bytes(bytes(4096) + content[4096:])


# --- leads.duckdb -----------------------------------------------------------------------------------------------------


def breaks_a_query(published: Path) -> bool:
    try:
        with duckdb.connect(published, read_only=True) as db:
            for (table,) in db.execute("select table_name from duckdb_tables() where not internal").fetchall():
                db.table(table).fetchall()
    except duckdb.Error:
        return True
    return False


@pytest.mark.slow
def test_verify_finds_each_byte_that_breaks_a_query(healthy: Path) -> None:
    whole = healthy.read_bytes()
    places = range(20_000, len(whole), len(whole) // 60)
    verdicts = {}
    for place in places:
        content = bytearray(whole)
        content[place] ^= 0xFF
        healthy.unlink()
        healthy.write_bytes(content)
        if breaks_a_query(healthy):
            verdicts[place] = command("verify").code
    assert verdicts
    assert set(verdicts.values()) == {1}


def test_status_tells_that_the_published_file_is_gone(healthy: Path) -> None:
    assert command("status").code == 0
    healthy.unlink()
    assert command("status").code == 1


def test_status_tells_that_the_published_file_is_damaged(healthy: Path) -> None:
    damage(healthy)
    assert command("status").code == 1


def test_doctor_says_what_mends_a_damaged_published_file(healthy: Path) -> None:
    damage(healthy)
    found = command("doctor", "--json").findings().values()
    [message] = [message for light, message in found if light == "red" and "duckdb" in message.lower()]
    assert "untouched" not in message
    assert "leads-pipeline" in message


# --- copies and backups -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("healthy")
def test_a_copied_folder_verifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["cp", "-a", "data", tmp_path / "data"], check=True)
    monkeypatch.setenv("LEADS_DATA_DIR", str(tmp_path / "data"))
    outcome = command("verify")
    assert outcome.code == 0, outcome.text


@pytest.fixture
def restored(healthy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert healthy.exists()
    assert command("backup", tmp_path / "backups").code == 0
    monkeypatch.setenv("LEADS_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    outcome = command("restore", tmp_path / "backups")
    assert outcome.code == 0, outcome.text
    return tmp_path / "data"


@pytest.mark.usefixtures("restored")
def test_a_restored_folder_verifies() -> None:
    outcome = command("verify")
    assert outcome.code == 0, outcome.text


def test_status_of_a_restored_folder_tells_what_is_there(restored: Path) -> None:
    assert command("status", "--json").json["last_publication_at"] is None or (restored / "leads.duckdb").exists()


# --- what a new or a foreign folder is told ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("findings",),
        ("coverage",),
        ("privacy", "log"),
        ("privacy", "erase", "--yes", "--email", "jane@example.org"),
        ("privacy", "object", "--email", "jane@example.org"),
        ("privacy", "restrict", "--email", "jane@example.org"),
        ("privacy", "correct", "--email", "jane@example.org", "--new-email", "j@example.org"),
        ("privacy", "retain", "--dry-run"),
        ("privacy", "apply"),
        ("privacy", "lift", "1"),
    ],
    ids=" ".join,
)
def test_a_mistyped_folder_is_refused_and_not_made(install: Install, arguments: tuple[str, ...]) -> None:
    data = install(NOBODY, LEADS_DATA_DIR="mistyped").with_name("mistyped")
    outcome = command(*arguments)
    assert not data.exists()
    assert outcome.code == 2


@pytest.mark.parametrize("arguments", ["status", "findings", "coverage"])
@pytest.mark.usefixtures("healthy")
def test_a_folder_can_be_looked_at_without_branches_in_the_settings(
    monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    monkeypatch.delenv("LEADS_BRANCH_IDS")
    outcome = command(arguments)
    assert outcome.code != 2, outcome.text


def test_a_first_day_that_nobody_set_is_not_blamed_on_the_settings(install: Install) -> None:
    install(NOBODY)
    text = command("backfill", "--from", TODAY - timedelta(days=90), "--to", TODAY).text
    assert "LEADS_START_DATE sets" not in text


def test_the_first_day_of_a_new_installation_can_be_had_whole(install: Install) -> None:
    with portal(lambda *_: (200, b'{"applicants": [], "appraisals": []}')) as address:
        install(address)
        assert command("backfill", "--from", TODAY, "--to", TODAY).code == 0
    windows = command("coverage", "--json", "--days", 60).json["not_landed"]
    assert min(one["deleted_from_at"] for one in windows) > datetime.now(UTC).isoformat()


# --- failures and losses ----------------------------------------------------------------------------------------------


def test_doctor_asks_for_the_time_zone_of_british_branches(install: Install, tmp_path: Path) -> None:
    (tmp_path / "branches.csv").write_text("id,name\n101,York\n")
    with portal(lambda *_: (200, b'{"applicants": [], "appraisals": []}')) as address:
        install(address, LEADS_BRANCHES_FILE=str(tmp_path / "branches.csv"))
        findings = command("doctor", "--json").findings()
    assert "Europe/London" in str(findings)


def test_a_failure_does_not_promise_a_daemon_that_was_never_seen(install: Install) -> None:
    with portal(lambda *_: (503, b"")) as address:
        install(address)
        _, message = command("doctor", "--json").findings()["applicant leads"]
    assert "daemon" not in message


def test_a_failed_backfill_tells_the_cause_before_the_windows(install: Install) -> None:
    with portal(lambda *_: (403, REFUSED)) as address:
        install(address)
        text = " ".join(command("backfill", "--last", "3d", "--kind", "applicant").text.split())
    assert text.index("may read it") < text.index("branch-101: 4 applicant windows, ")


# --- full disks -------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_named_and_not_the_database(install: Install, small_disk: Path) -> None:
    install(NOBODY, DAGSTER_HOME=str(small_disk / "home"))
    (small_disk / "home").mkdir()
    (small_disk / "fill").write_bytes(bytes(900_000))
    outcome = command("backfill", "--last", "1d")
    assert outcome.code == 2
    assert str(small_disk) in outcome.text


@pytest.mark.usefixtures("healthy")
def test_a_database_of_dagster_that_cannot_be_opened_is_named(install: Install) -> None:
    (install(NOBODY).with_name("home") / "history" / "runs.db").mkdir(parents=True)
    outcome = command("backfill", "--last", "1d")
    assert (outcome.code, "Dagster's database in" in outcome.text) == (2, True), outcome.text
    assert "Traceback" not in outcome.text


@pytest.mark.usefixtures("healthy")
def test_a_full_backup_target_is_named(small_disk: Path) -> None:
    (small_disk / "fill").write_bytes(bytes(900_000))
    outcome = command("backup", small_disk / "backups")
    assert outcome.code != 0
    assert "full" in outcome.text
    assert str(small_disk) in outcome.text


@pytest.mark.usefixtures("healthy")
def test_a_dangling_link_as_backup_target_is_explained(tmp_path: Path) -> None:
    (tmp_path / "backups").symlink_to(tmp_path / "unplugged")
    outcome = command("backup", tmp_path / "backups")
    assert outcome.code != 0
    assert "File exists" not in outcome.text
    assert "unplugged" in outcome.text
