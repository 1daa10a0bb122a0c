"""How the whole is doing, after real runs and after what can happen to them; `status` says it as it is."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster._daemon.types import DaemonHeartbeat

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.domain.window import RETENTION, Window
from leads_pipeline.observe.health import Health, examine_health
from leads_pipeline.simulator.faults import Then
from leads_pipeline.storage.data_folder import first_day
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import Installation, installation


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    monkeypatch.chdir(tmp_path)
    with installation(tmp_path, first=6) as started:
        yield started


def look(here: Installation, later: timedelta = timedelta(0), *, is_served: bool = False) -> Health:
    return examine_health(
        here.instance,
        here.settings,
        first_day(here.settings),
        here.data,
        Path(here.environment["DAGSTER_HOME"]),
        datetime.now(UTC) + later,
        is_served=is_served,
    )


def deleted_from(here: Installation, days_ago: int) -> datetime:
    return Window.from_partition_key(here.key(days_ago), here.settings.zone).start + RETENTION


def test_status_counts_what_is_not_landed_and_is_well_while_there_is_time(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.simulator.set_faults(
        [*here.rules([here.key(6)], Then(status=403)), *here.rules([here.key(4)], Then(status=500))]
    )
    began = datetime.now(UTC)
    here.pull(here.keys([4, 5, 6]), LEAD_KINDS)
    monkeypatch.delenv("LEADS_CLIENT_SECRET")  # it needs none
    result = run("status", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["is_well"], told["troubles"]) == (0, True, [])
    assert (told["missing"], told["failed"], told["is_pulling"]) == (2 * 3 * 3, 4, False)
    assert sorted(told["failed_by_reason"].values()) == [2, 2]
    assert any("403" in reason for reason in told["failed_by_reason"])
    assert datetime.fromisoformat(told["next_deletion_at"]) == deleted_from(here, 6)
    assert began <= datetime.fromisoformat(told["last_landing_at"]) <= datetime.now(UTC)
    assert told["last_publication_at"] is None
    assert told["bytes"]["dagster"] > 0
    text = run("status").stdout
    assert "18 missing, 4 failed" in text
    assert "Nobody has to look into anything." in text


@pytest.mark.slow
def test_published_windows_are_neither_missing_nor_old(here: Installation) -> None:
    assert run("backfill", "--from", here.day(6), "--to", here.day(0)).exit_code == 0
    health = look(here)
    assert (health.missing, health.failed, health.next_deletion_at, health.troubles) == (0, 0, None, ())
    assert health.last_publication_at is not None
    assert health.last_publication_at > here.now
    assert health.sizes["leads.duckdb"] == (here.data.folder / "leads.duckdb").stat().st_size
    # No publication for longer than from one night to the next.
    assert len(look(here, timedelta(hours=26)).troubles) == 0
    [trouble] = look(here, timedelta(hours=28)).troubles
    assert "Nothing has been published since" in trouble
    # A flipped bit.
    path = next(here.data.folder.glob(f"raw/*/*{here.day(3)}/*/*.parquet"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert run("verify").exit_code == 1
    health = look(here)
    assert (health.failed_by_reason, health.damaged, health.quarantined_files) == ({"damaged file": 1}, 1, 1)
    [trouble] = health.troubles
    assert "damaged" in trouble


def test_what_the_portal_soon_deletes_is_trouble_three_days_before(here: Installation) -> None:
    begins = deleted_from(here, 6) - datetime.now(UTC)
    assert look(here, begins - timedelta(days=3, minutes=5)).is_well
    [trouble] = look(here, begins - timedelta(days=3) + timedelta(minutes=5)).troubles
    assert f"begins on {deleted_from(here, 6):%Y-%m-%d %H:%M} UTC to delete" in trouble
    [trouble] = look(here, begins + timedelta(hours=1)).troubles
    assert "is deleting the first of them" in trouble


def test_a_daemon_that_gives_no_sign_of_life_is_trouble_where_there_ought_to_be_one(here: Installation) -> None:
    def beat(ago: timedelta) -> None:
        for kind in here.instance.get_required_daemon_types():
            here.instance.add_daemon_heartbeat(DaemonHeartbeat((datetime.now(UTC) - ago).timestamp(), kind, "daemon"))

    assert look(here).is_well
    [trouble] = look(here, is_served=True).troubles
    assert "gives no sign of life" in trouble
    beat(timedelta(minutes=1))
    assert look(here, is_served=True).is_well
    assert not look(here, timedelta(minutes=5), is_served=True).is_well


def test_a_backup_that_is_two_days_old_is_trouble_where_there_ever_was_one(here: Installation) -> None:
    assert (look(here).last_backup_at, look(here, timedelta(days=3)).is_well) == (None, True)
    here.data.state.note_backup(here.now)
    assert look(here, timedelta(days=1.9)).is_well
    late = look(here, timedelta(days=2.1))
    assert late.last_backup_at == here.now
    [trouble] = late.troubles
    assert f"The last one was made at {here.now:%Y-%m-%d %H:%M} UTC" in trouble


def test_damaged_deliveries_of_an_earlier_release_are_trouble(here: Installation) -> None:
    spool = here.data.folder / "spool"
    spool.mkdir(parents=True)
    (spool / "one.pushed").write_bytes(b"a delivery")
    health = look(here)
    assert health.former_deliveries == 1
    [trouble] = health.troubles
    assert "1 deliveries in spool/, left by an earlier release, are damaged" in trouble
    assert (spool / "one.pushed").exists()


def test_status_of_what_was_never_started_makes_nothing_and_a_broken_home_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("status").exit_code == 2  # no branches to count windows of
    monkeypatch.setenv("LEADS_BRANCH_IDS", "101")
    result = run("status", "--json")
    assert (result.exit_code, json.loads(result.stdout)["missing"]) == (1, 2 * 30)
    assert list(tmp_path.iterdir()) == []
    home = tmp_path / "data" / ".dagster"
    (home / "history").mkdir(parents=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (home / "history" / "runs.db").write_bytes(b"no database" * 1000)
    result = run("status")
    assert result.exit_code == 2
    assert "Dagster's own state in" in result.output
