"""The figures as Prometheus reads them, and the dashboard that shows them."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from leads_pipeline.errors import StorageError
from leads_pipeline.observe.health import Health
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.newcomer import ROOT, free_port

# An environment from before it was locked is tested all the same.
pytest.importorskip("prometheus_client")

from prometheus_client.parser import text_string_to_metric_families

from leads_pipeline.observe.metrics import LOOK_SECONDS, exposition, serve_metrics

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
FIGURES = Health(
    at=NOW,
    last_landing_at=NOW - timedelta(hours=1),
    last_publication_at=NOW - timedelta(hours=2),
    last_backup_at=NOW - timedelta(hours=3),
    daemon_seen_at=NOW - timedelta(minutes=1),
    missing=5,
    failed_by_reason={"server error (503)": 3, 'a "quoted" one': 1},
    is_pulling=True,
    next_deletion_at=NOW + timedelta(days=4),
    damaged=8,
    quarantined_files=9,
    former_deliveries=0,
    sizes={"leads.duckdb": 10, "tables": 11, "dagster": 12},
    free_bytes=13,
    troubles=("one",),
)


def samples(text: str) -> dict[tuple[str, str], float]:
    """Values by name and label, as Prometheus' own parser reads them."""
    return {
        (sample.name.removeprefix("leads_pipeline_"), "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_figure_is_there_with_its_value() -> None:
    found = samples(exposition(lambda: FIGURES))
    moments = {name.removesuffix("_timestamp_seconds"): value for (name, _), value in found.items() if "stamp" in name}
    assert {
        name: (datetime.fromtimestamp(value, UTC) - NOW) / timedelta(minutes=1) for name, value in moments.items()
    } == {
        "last_landing": -60,
        "last_publication": -120,
        "last_backup": -180,
        "daemon_seen": -1,
        "next_deletion": 4 * 24 * 60,
    }
    assert {key: value for key, value in found.items() if "stamp" not in key[0]} == {
        ("well", ""): 0,
        ("windows", "missing"): 5,
        ("windows", "failed"): 4,
        ("failed_windows", "server error (503)"): 3,
        ("failed_windows", 'a "quoted" one'): 1,
        ("pulling", ""): 1,
        ("damaged", ""): 8,
        ("quarantined_files", ""): 9,
        ("size_bytes", "leads.duckdb"): 10,
        ("size_bytes", "tables"): 11,
        ("size_bytes", "dagster"): 12,
        ("free_bytes", ""): 13,
    }


def test_what_never_was_has_no_moment_and_well_is_1() -> None:
    never = replace(FIGURES, last_landing_at=None, next_deletion_at=None, troubles=())
    found = samples(exposition(lambda: never))
    assert found["well", ""] == 1
    assert {name for name, _ in found if "stamp" in name} == {
        "last_publication_timestamp_seconds",
        "last_backup_timestamp_seconds",
        "daemon_seen_timestamp_seconds",
    }


def test_metrics_are_served_and_figures_that_cannot_be_had_are_not_well() -> None:
    seconds, looks = [0.0], []

    def look() -> Health:
        looks.append(seconds[0])
        if len(looks) == 2:
            raise StorageError("The disk is gone.")
        return replace(FIGURES, troubles=())

    port = free_port()
    serve_metrics(look, "127.0.0.1", port, clock=lambda: seconds[0])

    def scraped() -> dict[tuple[str, str], float]:
        return samples(httpx.get(f"http://127.0.0.1:{port}/metrics").text)

    assert [scraped()["well", ""] for _ in range(2)] == [1, 1]
    seconds[0] += LOOK_SECONDS
    assert scraped() == {("well", ""): 0}
    seconds[0] += LOOK_SECONDS
    assert scraped()["windows", "missing"] == 5
    assert looks == [0, LOOK_SECONDS, 2 * LOOK_SECONDS]


def test_the_command_prints_them_for_a_textfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEADS_BRANCH_IDS", "101,102")
    result = run("metrics")
    assert (result.exit_code, samples(result.stdout)["windows", "missing"]) == (0, 2 * 2 * 30)


def test_the_dashboard_and_the_guide_name_metrics_that_there_are() -> None:
    names = {f"leads_pipeline_{name}" for name, _ in samples(exposition(lambda: FIGURES))}
    dashboard = (ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8")
    json.loads(dashboard)
    guide = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for text in (dashboard, guide):
        assert set(re.findall(r"leads_pipeline_[a-z_]+", text)) == names
