"""The event log over kept connections records what Dagster's own does, in files that Dagster's own
reads.
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    Definitions,
    EventLogEntry,
    Failure,
    StaticPartitionsDefinition,
    asset,
    define_asset_job,
)
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from leads_pipeline.errors import StorageError
from leads_pipeline.features.quick_event_log.sqlite import SqliteEventLog, is_quick
from leads_pipeline_tests.support.installation import home
from leads_pipeline_tests.support.newcomer import wait_for
from leads_pipeline_tests.support.postgres import running_postgres

KEYS = ["a", "b", "c"]
RUN = "00000000-0000-4000-8000-000000000000"
OTHER_RUN = "00000000-0000-4000-8000-000000000001"

# Needs the variable LEADS_DAGSTER_POSTGRES_URL.
POSTGRES_YAML = """\
telemetry: {enabled: false}
storage:
  custom:
    module: leads_pipeline.orchestration.event_log_postgres
    class: PostgresStorage
    config: {postgres_url: {env: LEADS_DAGSTER_POSTGRES_URL}}
"""


@asset(
    partitions_def=StaticPartitionsDefinition(KEYS),
    output_required=False,
    check_specs=[AssetCheckSpec("sound", asset="windows")],
)
def windows() -> Any:
    for key in KEYS[1:]:
        yield AssetMaterialization(
            "windows", partition=key, metadata={"rows": 3}, tags={"a": "tag"}
        )
    yield AssetObservation("windows", partition="a", metadata={"verdict": "temporary"})
    yield AssetCheckResult(check_name="sound", passed=True)
    raise Failure("One window failed.", allow_retries=False)


def record(instance: DagsterInstance, run_id: str) -> None:
    job = Definitions([windows], jobs=[define_asset_job("pull", [windows])]).resolve_job_def("pull")
    job.execute_in_process(
        instance=instance, run_id=run_id, partition_key="a", raise_on_error=False
    )


def content(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that the tables hold, but for moments and the text of events, which holds moments too."""
    events = (
        "select run_id, dagster_event_type, step_key, asset_key, partition from event_logs "
        "order by id"
    )
    found = {name: rows(folder, name, events) for name in (RUN, "index")}
    for table in ("asset_event_tags", "asset_keys", "asset_check_executions"):
        found[table] = rows(folder, "index", f"select count(*) from {table}")  # noqa: S608
    return found


def rows(folder: Path, database: str, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "history" / "runs" / f"{database}.db")) as connection:
        return connection.execute(statement).fetchall()


def test_the_same_run_is_recorded_as_dagsters_own_storage_records_it(tmp_path: Path) -> None:
    with home(tmp_path / "ours") as instance:
        assert isinstance(instance.event_log_storage, SqliteEventLog)
        record(instance, RUN)
        ours = content(tmp_path / "ours")
    with home(tmp_path / "theirs", "telemetry: {enabled: false}\n") as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
        record(instance, RUN)
        assert content(tmp_path / "theirs") == ours
    with home(tmp_path / "ours", "telemetry: {enabled: false}\n") as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
        assert set(instance.get_materialized_partitions(AssetKey("windows"))) == {"b", "c"}


def test_the_event_of_a_window_is_shown_soon_even_if_no_other_follows(tmp_path: Path) -> None:
    with home(tmp_path / "home") as instance:
        record(instance, RUN)
        log = instance.all_logs(RUN)
        [first, last, of_failed] = filter(is_of_window, log)
        for entry in (first, of_failed, last):
            instance.event_log_storage.store_event(entry._replace(run_id=OTHER_RUN))

        def shown() -> list[str | None]:
            return [entry.get_dagster_event().partition for entry in instance.all_logs(OTHER_RUN)]

        wait_for(lambda: shown() == ["b", "a", "c"])


def test_an_open_page_of_the_run_shows_each_event_soon(tmp_path: Path) -> None:
    """It showed the first ones, and the others after a reload."""
    shown: list[str] = []
    with home(tmp_path / "home") as instance:
        instance.create_run_for_job(
            Definitions([windows]).resolve_implicit_global_asset_job_def(), run_id=RUN
        )
        page = instance.event_log_storage
        page.watch(RUN, None, lambda event, _: shown.append(event.message))
        for number in range(3):
            instance.report_engine_event(f"step {number}", run_id=RUN, job_name="pull")
            wait_for(lambda number=number: f"step {number}" in shown, 10)  # type: ignore[misc]
        instance.report_runless_asset_event(AssetMaterialization("windows"))


def test_a_run_fails_if_the_event_of_a_window_cant_be_stored_when_a_log_line_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster goes on after an error at a log line."""

    def is_locked(*_: Any) -> None:
        raise sqlite3.OperationalError("database is locked")

    @asset(partitions_def=windows.partitions_def, output_required=False)
    def logged(context: AssetExecutionContext) -> Any:
        yield AssetMaterialization("logged", partition="a")
        context.log.info("Landed 1 window.")

    monkeypatch.setattr(SqliteEventLog, "store_alike", is_locked)
    job = Definitions([logged], jobs=[define_asset_job("pull", [logged])]).resolve_job_def("pull")
    with home(tmp_path / "home") as instance:
        result = job.execute_in_process(instance=instance, partition_key="a", raise_on_error=False)

    assert not result.success


def is_of_window(entry: EventLogEntry) -> bool:
    told = entry.dagster_event
    return told is not None and told.event_type_value in (
        "ASSET_MATERIALIZATION",
        "ASSET_OBSERVATION",
    )


# Longer than Python's sqlite3 waits by itself, which is five seconds.
LOCKING = """
import sqlite3, sys, time
with sqlite3.connect(sys.argv[1], isolation_level=None) as other:
    other.execute("begin exclusive")
    print("locked", flush=True)
    time.sleep(7)
    other.execute("rollback")
"""


@pytest.mark.slow
def test_a_log_that_another_program_locks_for_a_while_loses_nothing(tmp_path: Path) -> None:
    with home(tmp_path / "home") as instance:
        record(instance, RUN)
        before = content(tmp_path / "home")["index"]
        database = tmp_path / "home" / "history" / "runs" / "index.db"
        command = [sys.executable, "-c", LOCKING, str(database)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout
            assert other.stdout.readline() == "locked\n"
            record(instance, OTHER_RUN)
        assert other.returncode == 0
    after = content(tmp_path / "home")["index"]
    assert [row[1:] for row in after[len(before) :]] == [row[1:] for row in before]


@pytest.mark.slow
def test_in_postgres_a_run_is_recorded_over_connections_that_stay_open(tmp_path: Path) -> None:
    with running_postgres() as postgres:
        os.environ["LEADS_DAGSTER_POSTGRES_URL"] = postgres.url
        with home(tmp_path / "home", POSTGRES_YAML) as instance:
            record(instance, RUN)
            storage: Any = instance.event_log_storage
            with storage.index_connection() as connection:
                own = connection.exec_driver_sql("select pg_backend_pid()").scalar()
            [entry, *_] = instance.all_logs(RUN)
            instance.event_log_storage.store_event(entry)
            with storage.index_connection() as connection:
                assert connection.exec_driver_sql("select pg_backend_pid()").scalar() == own
            assert set(instance.get_materialized_partitions(AssetKey("windows"))) == {"b", "c"}
            instance.event_log_storage.dispose()
        os.environ["LEADS_DAGSTER_POSTGRES_URL"] = postgres.url.replace(postgres.folder, "/nowhere")
        with (
            pytest.raises(StorageError, match="can't be reached"),
            home(tmp_path / "other", POSTGRES_YAML),
        ):
            pass


def test_a_dagster_that_has_moved_what_a_quick_log_needs_gets_its_own_log() -> None:
    """Fault 103: the class that an existing dagster.yaml names works with each Dagster of the
    range.
    """
    assert is_quick(SqliteEventLogStorage)
    assert not is_quick(object)
