"""The code location: it loads for any settings, says what is wrong with bad ones, and shows no
secret.
"""

import os
import resource
import signal
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from dagster import (
    RunRequest,
    build_schedule_context,
    build_sensor_context,
    serialize_value,
)
from dagster._core.remote_representation.external_data import RepositorySnap

from leads_pipeline.definitions import build_definitions, defs
from leads_pipeline_tests.support.installation import home

SECRET = "a-secret-that-nobody-may-see"


def full(tmp_path: Path) -> dict[str, str]:
    """Settings of a whole installation; nobody answers there."""
    return {
        "LEADS_DATA_DIR": str(tmp_path / "data"),
        "LEADS_BASE_URL": "https://leads.example",
        "LEADS_AUTH_URL": "https://login.example",
        "LEADS_CLIENT_ID": "client",
        "LEADS_CLIENT_SECRET": SECRET,
        "LEADS_BRANCH_IDS": "101,102",
        "LEADS_TIMEZONE": "Europe/London",
        "INVENTORY_BASE_URL": "https://inventory.example",
        "INVENTORY_CLIENT_ID": "client",
        "INVENTORY_CLIENT_SECRET": SECRET,
        "INVENTORY_AGENCY_REF": "agency",
        "INVENTORY_ADDRESSES": "Guildford",
    }


def evaluate(
    folder: Path, variables: dict[str, str], name: str, moment: datetime
) -> RunRequest | str:
    """What the schedule asks for at that moment, or why it asks for nothing."""
    definitions = build_definitions(variables)
    data = (definitions.resources or {})["data"]
    with (
        home(folder / "home") as instance,
        build_schedule_context(
            instance=instance,
            scheduled_execution_time=moment,
            resources={"data": data},
            repository_def=definitions.get_repository_def(),
        ) as context,
    ):
        result = definitions.resolve_schedule_def(name).evaluate_tick(context)
    return result.run_requests[0] if result.run_requests else str(result.skip_message)


def test_no_secret_is_in_what_the_ui_is_told(tmp_path: Path) -> None:
    environment = full(tmp_path)
    os.environ.update(environment)
    repository = build_definitions(environment).get_repository_def()

    # Dagster's own snapshot calls it.
    with pytest.warns(DeprecationWarning, match="environment_vars"):
        snapshot = serialize_value(RepositorySnap.from_def(repository))

    assert "https://leads.example" in snapshot
    assert SECRET not in snapshot


def test_dagster_without_a_home_is_told_what_it_will_forget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.environ["LEADS_DATA_DIR"] = str(tmp_path)
    defs()
    assert "leads-pipeline dev" in caplog.text

    caplog.clear()
    os.environ["DAGSTER_HOME"] = str(tmp_path)
    defs()
    assert caplog.text == ""


def test_loading_writes_nothing_and_the_first_sensor_remembers_the_first_day(
    tmp_path: Path,
) -> None:
    os.environ.update(LEADS_DATA_DIR=str(tmp_path / "data"), DAGSTER_HOME=str(tmp_path))
    loaded = defs()
    repository = loaded.get_repository_def()
    assert list(tmp_path.iterdir()) == []

    resources = {"data": (loaded.resources or {})["data"]}
    with (
        home(tmp_path / "home") as instance,
        build_sensor_context(instance, resources=resources, repository_def=repository) as tick,
    ):
        loaded.resolve_sensor_def("retry_failed_partitions").evaluate_tick(tick)

    assert date.fromisoformat((tmp_path / "data" / ".state" / "start_date").read_text().strip())


# --- schedules ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pull_daily", "pull_inventory_daily"])
def test_without_a_service_the_schedules_say_so(tmp_path: Path, name: str) -> None:
    moment = datetime(2026, 11, 19, 1, 15, tzinfo=UTC)
    assert "set" in str(evaluate(tmp_path, {"LEADS_DATA_DIR": str(tmp_path)}, name, moment))


def test_the_inventory_schedule_asks_for_the_day_in_the_settings_zone(tmp_path: Path) -> None:
    moment = datetime(2027, 6, 30, 23, 30, tzinfo=UTC)
    request = evaluate(tmp_path, full(tmp_path), "pull_inventory_daily", moment)
    assert isinstance(request, RunRequest)
    assert request.partition_key == "2027-07-01"


@pytest.mark.slow
def test_a_process_that_crashes_leaves_no_image_of_its_memory(tmp_path: Path) -> None:
    crash = (
        "import os, resource as r; from leads_pipeline.definitions import defs; defs(); "
        "print(r.getrlimit(r.RLIMIT_CORE)); "
        "os.abort()"
    )
    command = [sys.executable, "-u", "-W", "ignore", "-c", crash]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGABRT
    assert not any(tmp_path.iterdir())
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    assert ended.stdout.strip() == str((0, 0) if hard == 0 else (1, 1))
