"""Every way to start a run, and what it asks of the portal."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from leads_pipeline.cli.session import Session
from leads_pipeline.errors import SettingsError
from leads_pipeline.features.quick_event_log.settings import POSTGRES_VARIABLE
from leads_pipeline.features.service.dagster_compat import forget_future_ticks
from leads_pipeline.orchestration.home import dagster_home
from leads_pipeline.settings import Settings
from leads_pipeline.simulator.faults import Rule, Then
from leads_pipeline_tests.support.installation import Installation, installation


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path) as started:
        yield started


# --- what runs side by side, by the dagster.yaml that users get -----------------------------------


@pytest.mark.slow
def test_sensors_and_schedules_that_ticked_while_the_clock_ran_ahead_tick_again_after_a_start(
    here: Installation,
) -> None:
    later = here.clock.now + timedelta(days=2)
    with here.daemon() as daemon:
        for moment in (here.clock.now, here.clock.now + timedelta(days=400)):
            daemon.tick(moment)

        forget_future_ticks(here.instance, later)  # each night's tick was missed

        daemon.tick(later + timedelta(minutes=1))

    ticked = set()
    for state in here.instance.all_instigator_state():
        for tick in here.instance.get_ticks(state.instigator_origin_id, state.selector_id):
            if here.clock.now.timestamp() < tick.timestamp <= later.timestamp() + 60:
                ticked.add(state.instigator_name)
    assert ticked >= {"retry_failed_partitions", "publish_changes", "alert", "pull_daily"}


@pytest.mark.slow
def test_without_a_limit_of_the_pool_two_runs_pull_one_after_the_other(
    here: Installation, tmp_path: Path
) -> None:
    """Fault 106: on one machine the lock of the data folder does it, whatever Dagster allows."""
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}")
    here.simulator.set_faults([Rule(Then(latency_ms=300))])

    program = str(Path(sys.executable).with_name("leads-pipeline"))
    backfill = [program, "backfill", "--kind", "applicant"]
    one_at_a_time = {**os.environ, "LEADS_MAX_CONCURRENCY": "1"}

    pulls = []
    for first in (3, 6):
        days = ["--from", str(here.day(first)), "--to", str(here.day(first - 2))]
        pulls.append(subprocess.Popen([*backfill, *days], cwd=tmp_path, env=one_at_a_time))
    assert [pull.wait() for pull in pulls] == [0, 0]

    is_of_first = [key >= str(here.day(3)) for key in here.asked()]
    assert is_of_first in ([True] * 9 + [False] * 9, [False] * 9 + [True] * 9)


def test_the_dagster_home_ends_endless_runs_retries_none_and_sends_no_telemetry(
    here: Installation,
) -> None:
    """The client and the retry sensor decide by one verdict; a third mechanism would repeat what is
    refused.
    """
    assert "MONITORING" in here.instance.get_required_daemon_types()
    assert here.instance.run_monitoring_max_runtime_seconds == 6 * 3600
    assert not here.instance.telemetry_enabled
    assert not here.instance.run_retries_enabled


def test_the_first_start_writes_where_dagsters_state_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("dagster_postgres")
    address = {POSTGRES_VARIABLE: "postgresql://u:p@db/dagster"}
    file = {f"{POSTGRES_VARIABLE}_FILE": "/run/address"}

    def written_with(folder: str, **variables: str) -> str:
        home = dagster_home(
            Settings.from_variables({"LEADS_DATA_DIR": str(tmp_path / folder), **variables})
        )
        return (home / "dagster.yaml").read_text()

    assert "{env: DAGSTER_HOME}" in written_with("sqlite")
    config = yaml.safe_load(written_with("postgres", **file))["storage"]["custom"]["config"]
    assert config == {"postgres_url_file": {"env": f"{POSTGRES_VARIABLE}_FILE"}}
    with pytest.raises(SettingsError, match="mean the same"):
        written_with("both", **address, **file)


def test_a_dagster_yaml_that_exists_is_neither_read_nor_changed(tmp_path: Path) -> None:
    file = tmp_path / "dagster.yaml"
    file.write_bytes(b"\xff")
    variables = {"DAGSTER_HOME": f" {tmp_path} ", POSTGRES_VARIABLE: "postgresql://u:p@db/dagster"}

    assert dagster_home(Settings.from_variables(variables)) == tmp_path

    assert file.read_bytes() == b"\xff"


def test_a_dagster_yaml_that_dagster_refuses_is_told_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(
        "storage: {postgres: {postgres_url: hidden-secret, no_such_key: 1}}\n"
    )
    os.environ.update(
        DAGSTER_HOME=str(tmp_path), LEADS_DATA_DIR=str(tmp_path / "data"), LEADS_BRANCH_IDS="101"
    )
    with (
        pytest.raises(SettingsError, match=r"Dagster refuses .*/dagster\.yaml") as error,
        Session.opened(),
    ):
        pass
    assert "hidden-secret" not in str(error.value)


def test_an_address_that_is_none_is_told_without_repeating_it() -> None:
    postgres = pytest.importorskip("leads_pipeline.orchestration.event_log_postgres")
    address = "postgresql://u:hid@den@db:x/y"
    with pytest.raises(SettingsError, match="is no address of a Postgres") as told:
        postgres.PostgresStorage.from_config_value(None, {"postgres_url": address})
    assert "hid" not in str(told.value)


def test_a_sensor_that_somebody_stopped_is_noted_for_the_findings(here: Installation) -> None:
    with here.daemon() as daemon:
        location = daemon.workspace.create_request_context().get_code_location("leads_pipeline")
        [repository] = location.get_repositories().values()
        for sensor in repository.get_sensors():
            here.instance.stop_sensor(sensor.get_remote_origin_id(), sensor.selector_id, sensor)

    here.tick("retry_failed_partitions")

    noted = here.data.state.service()
    assert noted
    # `alert` and `deliver` have nothing to do here.
    assert {*noted[1]} == {"retry_failed_partitions", "publish_changes"}
