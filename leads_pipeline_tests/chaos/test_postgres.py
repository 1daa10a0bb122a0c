"""Dagster's state in a real PostgreSQL, where one is installed."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline_tests.support.newcomer import Newcomer, newcomer, wait_for
from leads_pipeline_tests.support.postgres import Postgres, running_postgres
from leads_pipeline_tests.support.serving import free_port

pytest.importorskip(
    "dagster_postgres", reason="dagster-postgres isn't installed (make lint installs it)"
)

KINDS = ("applicant", "appraisal")


def query(me: Newcomer, server: Postgres, text: str) -> list[str]:
    """The rows of the database, with a | between columns."""
    asked = ["psql", "--no-psqlrc", "--tuples-only", "--no-align", "--command", text]
    found = subprocess.check_output(asked, env=me.environment | server.variables, text=True)
    return found.splitlines()


def runs(me: Newcomer, server: Postgres) -> dict[str, str]:
    """Every run that has ended and how, as the database has them.

    The next start ends those that were under way.
    """
    ended = "select run_id, status from runs where status in ('SUCCESS', 'FAILURE', 'CANCELED')"
    return dict(line.split("|") for line in query(me, server, ended))


def wait_for_the_daemon(me: Newcomer, server: Postgres) -> None:
    """Wait for the next sign of life of Dagster's daemon."""
    began = datetime.now(UTC).replace(tzinfo=None)
    sign = f"select 1 from daemon_heartbeats where timestamp > '{began}'"  # noqa: S608
    wait_for(lambda: query(me, server, sign) != [])


def test_serve_lands_every_lead_over_a_restart_of_the_server_and_keeps_its_history(
    tmp_path: Path,
) -> None:
    with (
        running_postgres() as server,
        newcomer(tmp_path, "--branches", "2", "--leads-per-day", "3") as me,
    ):
        today = datetime.now(ZoneInfo("Europe/London")).date()
        # Yesterday is the night's.
        first = today - timedelta(days=5)
        last = today - timedelta(days=2)
        address = tmp_path / "address"
        address.write_text(f"{server.url}\n")
        address.chmod(0o600)
        me.fill_in(LEADS_DAGSTER_POSTGRES_URL_FILE=str(address), LEADS_START_DATE=str(first))
        me.run("leads-pipeline", "backfill", "--from", str(first), "--to", str(first))
        before = runs(me, server)
        assert set(before.values()) == {"SUCCESS"}

        serve = ("leads-pipeline", "serve", "--port", str(free_port()))
        with me.running(*serve):
            wait_for(
                lambda: all(me.published(kind) >= me.truth(kind, first, last) for kind in KINDS),
                400,
            )
            server.stop()
            server.start()
            wait_for_the_daemon(me, server)
        landed = runs(me, server)
        assert before.items() < landed.items()

        with me.running(*serve):
            wait_for_the_daemon(me, server)
            assert landed.items() <= runs(me, server).items()
        assert not list((tmp_path / "data" / ".dagster").rglob("*.db"))

        server.stop()
        refused = me.run("leads-pipeline", "backfill", "--last", "1d")
        server.start()
        assert refused.returncode == 2
        assert "can't be reached" in " ".join(refused.stderr.split())
