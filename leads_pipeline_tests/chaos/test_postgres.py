"""Dagster's state in a real PostgreSQL, where one is installed: the main job, what is kept, what is forgotten."""

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from dagster import AssetKey

from leads_pipeline import retry
from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.event_log import GatheringEventLog
from leads_pipeline.event_log.gathering import GATHERED_EVENTS
from leads_pipeline.settings import POSTGRES_VARIABLE
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Then
from leads_pipeline_tests.orchestration.test_housekeeping import (
    check_that_no_state_is_read_from_what_is_forgotten,
    some_history,
)
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.newcomer import Newcomer, free_port, newcomer, wait_for
from leads_pipeline_tests.support.postgres import Postgres, running_postgres

pytest.importorskip("dagster_postgres", reason="dagster-postgres isn't installed (make venv-dev)")

KINDS = ("applicant", "appraisal")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running_postgres() as running:
        yield running


@pytest.fixture
def here(tmp_path: Path, server: Postgres) -> Iterator[Installation]:
    given = in_postgres(server, tmp_path)
    with installation(tmp_path, Config(branches=3, leads_per_day=3), variables=given, first=4) as made:
        yield made


def in_postgres(server: Postgres, folder: Path) -> dict[str, str]:
    """The address of a database that nobody has used."""
    name = "".join(character for character in folder.name.lower() if character.isalnum())
    make = ["psql", "--quiet", "--command", f"create database {name}"]
    subprocess.run(make, env={"PATH": "/usr/bin:/bin", **server.variables}, check=True)
    return {POSTGRES_VARIABLE: server.url.replace("/postgres?", f"/{name}?")}


def test_no_state_is_read_from_what_is_forgotten(here: Installation) -> None:
    assert isinstance(here.instance.event_log_storage, GatheringEventLog)
    some_history(here)
    check_that_no_state_is_read_from_what_is_forgotten(here)


def test_the_retry_sensor_takes_up_what_failed(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_RETRY_SECONDS", 0.0)
    here.simulator.set_faults(here.rules([here.key(2)], Then(status=500)))
    here.pull(here.keys([2]), LEAD_KINDS)
    assert here.status().failed == {here.key(2)}
    here.simulator.set_faults([])
    with here.daemon() as daemon:
        for minutes in (0, 6):
            daemon.tick_sensors(here.now + timedelta(minutes=minutes))
    assert here.key(2) in here.status().landed


def test_what_is_gathered_is_stored_together_and_survives_a_restart_of_the_server(
    here: Installation, server: Postgres
) -> None:
    log = here.instance.event_log_storage
    here.pull([here.key(2)])
    assert isinstance(log, GatheringEventLog)
    [event] = here.instance.fetch_materializations(AssetKey("raw_applicant_leads"), limit=2).records
    transactions: list[object] = []
    store = log.index_transaction
    log.index_transaction = lambda: transactions.append(None) or store()  # type: ignore[method-assign,func-returns-value]
    for _ in range(GATHERED_EVENTS - 1):
        log.store_event(event.event_log_entry)
    server.stop()
    server.start()
    log.store_event(event.event_log_entry)
    assert len(transactions) == 1
    assert len(here.instance.fetch_materializations(AssetKey("raw_applicant_leads"), limit=99).records) == 51


def runs(me: Newcomer, server: Postgres) -> dict[str, str]:
    """Every run and its state, as the database has them."""
    query = "select run_id, status from runs"
    asked = ["psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", query]
    found = subprocess.run(asked, env=me.environment | server.variables, check=True, capture_output=True, text=True)
    return dict(line.split("|") for line in found.stdout.splitlines())


def seen(me: Newcomer) -> datetime:
    """When Dagster's daemon gave its last sign of life."""
    return datetime.fromisoformat(json.loads(me.run("leads-pipeline", "status", "--json").stdout)["daemon_seen_at"])


def test_serve_lands_every_lead_over_a_restart_of_the_server_and_keeps_its_history(tmp_path: Path) -> None:
    with running_postgres() as server, newcomer(tmp_path, "--branches", "2", "--leads-per-day", "3") as me:
        today = datetime.now(ZoneInfo("Europe/London")).date()
        first, last = today - timedelta(days=5), today - timedelta(days=2)  # yesterday is the night's
        address = tmp_path / "address"
        address.write_text(f"{server.url}\n")
        address.chmod(0o600)
        me.fill_in(LEADS_DAGSTER_POSTGRES_URL_FILE=str(address), LEADS_START_DATE=str(first))
        assert me.run("leads-pipeline", "backfill", "--from", str(first), "--to", str(first)).returncode == 0
        before = runs(me, server)
        assert set(before.values()) == {"SUCCESS"}
        serve = ("leads-pipeline", "serve", "--port", str(free_port()))
        with me.running(*serve):
            wait_for(lambda: all(me.published(kind) >= me.asked(kind, first, last) for kind in KINDS), 400)
            server.stop()
            server.start()
            began = datetime.now(UTC)
            wait_for(lambda: seen(me) > began)
        landed = runs(me, server)
        assert before.items() < landed.items()
        with me.running(*serve) as log:
            wait_for(lambda: "daemon started" in log.read_text())
            assert landed.items() <= runs(me, server).items()
        assert not list((tmp_path / "data" / ".dagster").rglob("*.db"))
        backup = me.run("leads-pipeline", "backup", str(tmp_path / "backup"))
        assert "Dagster's history is in Postgres, and in no backup of ours" in backup.stdout
        server.stop()
        refused = me.run("leads-pipeline", "coverage")
        server.start()
        assert (refused.returncode, "can't be reached" in " ".join(refused.stderr.split())) == (2, True)
