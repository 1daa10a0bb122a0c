"""Runs as jobs of Kubernetes, whose API is played: one is killed, and everything comes in all the same."""

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.launching import IMAGE_VARIABLE
from leads_pipeline.runs import dagster_home
from leads_pipeline.settings import LAUNCHER_VARIABLE, POSTGRES_VARIABLE
from leads_pipeline_tests.chaos.kubernetes_api import KubernetesApi, playing
from leads_pipeline_tests.newcomer import free_port, newcomer, wait_for
from leads_pipeline_tests.postgres import running_postgres

pytestmark = pytest.mark.chaos

KINDS = ("applicant", "appraisal")
PATIENCE_SECONDS = 600


def test_a_job_that_is_killed_is_noticed_and_its_windows_land_by_themselves(tmp_path: Path) -> None:
    options = ("--branches", "3", "--leads-per-day", "10", "--latency-ms", "2000")
    with running_postgres() as postgres, newcomer(tmp_path, *options) as me:
        data = tmp_path / "data"
        mine = {
            LAUNCHER_VARIABLE: "kubernetes",
            POSTGRES_VARIABLE: postgres.url,
            IMAGE_VARIABLE: "registry.example/leads-pipeline:1",
            "LEADS_DATA_DIR": str(data),
        }
        me.exported.update(mine)
        me.fill_in()
        api = KubernetesApi({**me.credentials, **mine, "HOME": str(tmp_path)})
        # Of days that are over and that the portal keeps for longer than this takes.
        today = datetime.now(ZoneInfo("Europe/London")).date()
        wanted = {kind: me.asked(kind, today - timedelta(days=28), today - timedelta(days=1)) for kind in KINDS}
        assert all(wanted.values())
        with playing(api, tmp_path) as kubeconfig:
            # Looked at each ten seconds, so that this takes minutes less.
            file = dagster_home(mine, data) / "dagster.yaml"
            text = file.read_text()
            for old, new in (
                (
                    "  config:\n    job",
                    f"  config:\n    load_incluster_config: false\n    kubeconfig_file: {kubeconfig}\n    job",
                ),
                ("  start_timeout_seconds:", "  poll_interval_seconds: 10\n  start_timeout_seconds:"),
            ):
                assert old in text
                text = text.replace(old, new)
            file.write_text(text)
            with me.running("leads-pipeline", "serve", "--port", str(free_port())):
                wait_for(lambda: len(list(data.glob("raw/**/*.parquet"))) > 10, PATIENCE_SECONDS)
                [first] = api.alive()
                api.processes[first].kill()
                wait_for(lambda: all(wanted[kind] <= me.published(kind) for kind in KINDS), PATIENCE_SECONDS)
        assert api.refused == []
        assert len(api.processes) > 3
