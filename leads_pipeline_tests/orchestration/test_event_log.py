"""The batching event log records what Dagster's own does, in files that Dagster's own can read."""

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    BackfillPolicy,
    BetaWarning,
    DagsterEventType,
    DagsterInstance,
    DailyPartitionsDefinition,
    Definitions,
    EventLogEntry,
    Failure,
    MaterializeResult,
    MultiPartitionsDefinition,
    StaticPartitionsDefinition,
    asset,
    define_asset_job,
)
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from leads_pipeline.event_log import BatchingSqliteEventLogStorage, gathering, sqlite
from leads_pipeline.event_log.sqlite import OPEN_SHARDS
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG
from leads_pipeline_tests.support.installation import home, installation

WINDOWS = MultiPartitionsDefinition(
    {
        "day": DailyPartitionsDefinition("2026-11-01", end_date="2026-11-05"),
        "scope": StaticPartitionsDefinition(["a", "b"]),
    }
)
RUN_IDS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]


def definitions() -> Definitions:
    @asset(
        partitions_def=WINDOWS,
        output_required=False,
        backfill_policy=BackfillPolicy.single_run(),
        check_specs=[AssetCheckSpec("sound", asset="windows")],
    )
    def windows(context: AssetExecutionContext) -> Iterator[Any]:
        for key in context.partition_keys[1:]:
            yield AssetMaterialization(
                "windows", partition=key, metadata={"rows": 3}, tags={"dagster/partition/day": "a day"}
            )
        yield AssetObservation("windows", partition=context.partition_keys[0], metadata={"verdict": "transient"})
        yield AssetCheckResult(check_name="sound", passed=True)
        raise Failure("One window failed.", allow_retries=False)

    return Definitions([windows], jobs=[define_asset_job("pull", [windows])])


@pytest.fixture
def batched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")


def record(instance: DagsterInstance, run_ids: Sequence[str] = RUN_IDS) -> None:
    """The same little runs, whichever storage records them."""
    with pytest.warns(BetaWarning):
        job = definitions().resolve_job_def("pull")
    for run_id in run_ids:
        day = 1 + RUN_IDS.index(run_id)
        tags = {RANGE_START_TAG: f"2026-11-0{day}|a", RANGE_END_TAG: f"2026-11-0{day + 1}|b"}
        job.execute_in_process(instance=instance, run_id=run_id, tags=tags, raise_on_error=False)


def rows(folder: Path, database: str, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "history" / "runs" / f"{database}.db")) as connection:
        return connection.execute(statement).fetchall()


def content(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All that the tables hold, but for moments and the text of events, which holds moments too."""
    events = "select run_id, dagster_event_type, step_key, asset_key, partition from event_logs order by id"
    found = {f"run {run_id}": rows(folder, run_id, events) for run_id in RUN_IDS}
    found["events"] = rows(folder, "index", events.replace("order by", "where asset_key is not null order by"))
    found["asset tags"] = rows(
        folder, "index", "select event_id, asset_key, key, value from asset_event_tags order by event_id, key"
    )
    found["assets"] = rows(
        folder,
        "index",
        "select asset_key, last_run_id, asset_details, tags, wipe_timestamp, json_extract(last_materialization, "
        "'$.dagster_event.event_specific_data.materialization.partition') from asset_keys",
    )
    found["checks"] = rows(
        folder, "index", "select asset_key, check_name, partition, run_id, execution_status from asset_check_executions"
    )
    return found


def dagsters_own(folder: Path) -> Iterator[DagsterInstance]:
    """An instance on the same home, with Dagster's storage instead of ours."""
    config = (folder / "dagster.yaml").read_text()
    before, _, after = config.partition("event_log_storage:")
    (folder / "dagster.yaml").write_text(before + after[after.index("run_retries:") :])
    with DagsterInstance.from_config(str(folder)) as instance:
        assert type(instance.event_log_storage) is SqliteEventLogStorage
        yield instance


@pytest.mark.slow
@pytest.mark.usefixtures("batched")
def test_the_same_runs_are_recorded_as_dagsters_own_storage_records_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with home(tmp_path / "ours") as instance:
        assert isinstance(instance.event_log_storage, BatchingSqliteEventLogStorage)
        record(instance)
    with home(tmp_path / "theirs"):
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "theirs"))
        for instance in dagsters_own(tmp_path / "theirs"):
            record(instance)
    ours, theirs = content(tmp_path / "ours"), content(tmp_path / "theirs")
    assert len(ours["events"]) > 20
    assert ours["asset tags"]
    assert ours["checks"]
    assert ours == theirs


def schema(file: Path) -> dict[str, object]:
    with closing(sqlite3.connect(file)) as db:
        return {
            "tables": sorted(db.execute("select type, name, tbl_name, sql from sqlite_master").fetchall(), key=str),
            "form": db.execute("select version_num from alembic_version").fetchall(),
            "journal": db.execute("pragma journal_mode").fetchall(),
        }


def test_a_runs_file_has_the_tables_and_the_form_that_dagster_gives_it(tmp_path: Path) -> None:
    ours = BatchingSqliteEventLogStorage(str(tmp_path / "ours"))
    theirs = SqliteEventLogStorage(str(tmp_path / "theirs"))
    for storage in (ours, theirs):
        with storage.run_connection("a-run"):
            """It is there now."""
        storage.dispose()
    made, expected = (schema(tmp_path / whose / "a-run.db") for whose in ("ours", "theirs"))
    assert expected["journal"] == [("wal",)]
    assert made == expected


@pytest.mark.slow
def test_processes_that_make_one_runs_file_at_once_all_have_it_whole(tmp_path: Path) -> None:
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        tables = list(pool.map(tables_of_runs, [tmp_path / "runs"] * 4))
    assert len(tables[0]) == 20
    assert {len(of_run) for of_process in tables for of_run in of_process} == {len(tables[0][0])}


def tables_of_runs(folder: Path) -> list[list[str]]:
    storage, found = BatchingSqliteEventLogStorage(str(folder)), list[list[str]]()
    for number in range(20):
        with storage.run_connection(f"run-{number}") as connection:
            found.append(sqlalchemy.inspect(connection).get_table_names())
    storage.dispose()
    return found


@pytest.mark.usefixtures("batched")
def test_dagsters_own_storage_reads_the_files_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "home"
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with home(folder) as instance:
        record(instance, RUN_IDS[:1])
        expected = instance.get_materialized_partitions(AssetKey("windows"))
        logs = len(instance.all_logs(RUN_IDS[0]))
    for instance in dagsters_own(folder):
        assert instance.get_materialized_partitions(AssetKey("windows")) == expected != set()
        assert len(instance.all_logs(RUN_IDS[0])) == logs
        record(instance, RUN_IDS[1:2])
        assert len(instance.get_materialized_partitions(AssetKey("windows"))) > len(expected)


def test_the_windows_of_a_pull_are_not_stored_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored_alone: list[DagsterEventType | None] = []
    store = SqliteEventLogStorage.store_event

    def watched(self: SqliteEventLogStorage, event: EventLogEntry) -> None:
        stored_alone.append(event.dagster_event_type)
        store(self, event)

    monkeypatch.setattr(SqliteEventLogStorage, "store_event", watched)
    with installation(tmp_path) as here:
        assert here.pull(here.keys([2, 3])).success
    assert DagsterEventType.STEP_SUCCESS in stored_alone
    assert not {DagsterEventType.ASSET_MATERIALIZATION, DagsterEventType.ASSET_MATERIALIZATION_PLANNED} & {
        *stored_alone
    }
    by_type = "select dagster_event_type, count(*) from event_logs where partition is not null group by 1 order by 1"
    stored = [("ASSET_MATERIALIZATION", 6), ("ASSET_MATERIALIZATION_PLANNED", 6)]
    assert rows(tmp_path / "home", "index", by_type) == stored


@pytest.mark.usefixtures("batched")
def test_neither_outputs_nor_what_becomes_of_checks_are_stored_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored_alone: list[DagsterEventType | None] = []
    store = SqliteEventLogStorage.store_event

    def watched(self: SqliteEventLogStorage, event: EventLogEntry) -> None:
        stored_alone.append(event.dagster_event_type)
        store(self, event)

    monkeypatch.setattr(SqliteEventLogStorage, "store_event", watched)

    @asset(check_specs=[AssetCheckSpec("sound", asset="table"), AssetCheckSpec("whole", asset="table")])
    def table() -> Iterator[Any]:
        yield MaterializeResult()
        yield AssetCheckResult(check_name="sound", passed=True)
        yield AssetCheckResult(check_name="whole", passed=False)

    with home(tmp_path / "home") as instance:
        job = Definitions([table], jobs=[define_asset_job("publish", [table])]).resolve_job_def("publish")
        assert job.execute_in_process(instance=instance, run_id=RUN_IDS[0]).success
    assert DagsterEventType.STEP_SUCCESS in stored_alone
    assert not {
        DagsterEventType.STEP_OUTPUT,
        DagsterEventType.ASSET_CHECK_EVALUATION,
        DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
    } & {*stored_alone}
    by_type = "select dagster_event_type, count(*) from event_logs group by 1 having count(*) > 1 order by 1"
    of_run = rows(tmp_path / "home", RUN_IDS[0], by_type)
    assert {("ASSET_CHECK_EVALUATION", 2), ("ASSET_CHECK_EVALUATION_PLANNED", 2), ("STEP_OUTPUT", 3)} <= {*of_run}
    in_common = [("ASSET_CHECK_EVALUATION", 2), ("ASSET_CHECK_EVALUATION_PLANNED", 2)]
    assert rows(tmp_path / "home", "index", by_type) == in_common
    results = "select check_name, execution_status, evaluation_event_storage_id from asset_check_executions order by 1"
    ids = dict(
        rows(
            tmp_path / "home",
            "index",
            "select json_extract(event, '$.dagster_event.event_specific_data.check_name'), id from event_logs "
            "where dagster_event_type = 'ASSET_CHECK_EVALUATION'",
        )
    )
    assert rows(tmp_path / "home", "index", results) == [
        ("sound", "SUCCEEDED", ids["sound"]),
        ("whole", "FAILED", ids["whole"]),
    ]


@pytest.mark.usefixtures("batched")
def test_a_batch_with_other_events_is_stored_as_dagster_does(tmp_path: Path) -> None:
    with home(tmp_path / "home") as instance:
        record(instance, RUN_IDS[:1])
        log = instance.all_logs(RUN_IDS[0])
        kinds = {entry.dagster_event_type for entry in log}
        assert {DagsterEventType.RUN_START, DagsterEventType.ASSET_MATERIALIZATION} <= kinds
        # A check that is evaluated has to be planned once; the rest can be told twice, as of another run.
        told = [
            entry._replace(run_id=RUN_IDS[1]) for entry in log if "ASSET_CHECK" not in str(entry.dagster_event_type)
        ]
        instance.event_log_storage.store_event_batch(told)
        assert [entry.dagster_event_type for entry in instance.all_logs(RUN_IDS[1])] == [
            entry.dagster_event_type for entry in told
        ]


def test_few_databases_stay_open(tmp_path: Path) -> None:
    with home(tmp_path / "home") as instance:
        storage = instance.event_log_storage
        assert isinstance(storage, BatchingSqliteEventLogStorage)
        record(instance, RUN_IDS[:1])
        log = instance.all_logs(RUN_IDS[0])
        for number in range(OPEN_SHARDS + 2):
            run_id = f"00000000-0000-4000-8000-0000000001{number:02}"
            storage.store_event(log[0]._replace(run_id=run_id))
            assert len(storage._engines) <= OPEN_SHARDS  # noqa: SLF001 - what is bounded is nowhere else to be seen
        assert len(instance.all_logs(RUN_IDS[0])) == len(log)  # a closed one opens again
        storage.dispose()
        assert not storage._engines  # noqa: SLF001 - likewise


def test_threads_share_a_storage(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    with home(tmp_path / "home") as instance:
        record(instance, RUN_IDS[:1])
        log = instance.all_logs(RUN_IDS[0])[:8]

        def write(number: int) -> None:
            try:
                run_id = f"00000000-0000-4000-8000-0000000002{number:02}"
                for entry in log:
                    instance.event_log_storage.store_event(entry._replace(run_id=run_id))
            except BaseException as error:  # noqa: BLE001 - handed on to the test
                errors.append(error)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(OPEN_SHARDS + 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        for number in range(OPEN_SHARDS + 2):
            assert len(instance.all_logs(f"00000000-0000-4000-8000-0000000002{number:02}")) == len(log)


Gathering = tuple[BatchingSqliteEventLogStorage, EventLogEntry]


@pytest.fixture
def storing(tmp_path: Path) -> Iterator[Gathering]:
    """A storage, and a materialization that it holds already, to be told again as of another run."""
    with home(tmp_path / "home") as instance:
        record(instance, RUN_IDS[:1])
        log = instance.all_logs(RUN_IDS[0], DagsterEventType.ASSET_MATERIALIZATION)
        assert isinstance(instance.event_log_storage, BatchingSqliteEventLogStorage)
        yield instance.event_log_storage, log[0]._replace(run_id=RUN_IDS[1])


def stored(folder: Path) -> int:
    """How many of the other run's materializations another process sees."""
    ((count,),) = rows(folder / "home", "index", f"select count(*) from event_logs where run_id = '{RUN_IDS[1]}'")  # noqa: S608
    return int(count)


def wait_until_stored(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 20
    while stored(folder) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_materialization_that_no_other_follows_is_stored_after_a_moment(tmp_path: Path, storing: Gathering) -> None:
    storage, event = storing
    storage.store_event(event)
    wait_until_stored(tmp_path, 1)
    storage.store_event(event)
    wait_until_stored(tmp_path, 2)


def test_what_is_gathered_is_there_for_whoever_reads_or_ends(
    tmp_path: Path, storing: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "GATHERING_SECONDS", 3600)
    storage, event = storing
    storage.store_event(event)
    assert stored(tmp_path) == 0
    assert len(storage.get_records_for_run(RUN_IDS[1]).records) == 1
    for _ in range(gathering.GATHERED_EVENTS):
        storage.store_event(event)
    assert stored(tmp_path) == 1 + gathering.GATHERED_EVENTS
    storage.store_event(event)
    storage.dispose()
    assert stored(tmp_path) == 2 + gathering.GATHERED_EVENTS


def test_what_a_locked_log_did_not_take_is_stored_once_it_is_free(
    tmp_path: Path, storing: Gathering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SQLITE_BUSY_TIMEOUT_SECONDS", 0.05)
    storage, event = storing
    storage.dispose()  # connections keep the patience they were made with
    with closing(sqlite3.connect(tmp_path / "home" / "history" / "runs" / "index.db")) as other:
        other.execute("begin exclusive")
        storage.store_event(event)
        with pytest.raises(sqlalchemy.exc.OperationalError, match="locked"):
            storage.get_records_for_run(RUN_IDS[1])
        time.sleep(2 * gathering.GATHERING_SECONDS)  # nobody is told by then, and nothing is given up
        other.rollback()
    wait_until_stored(tmp_path, 1)


def test_a_power_cut_takes_the_last_moments_at_most_and_never_the_file(tmp_path: Path) -> None:
    with home(tmp_path / "home") as instance:
        storage = instance.event_log_storage
        assert isinstance(storage, BatchingSqliteEventLogStorage)
        with storage.index_connection() as connection:
            settings = {
                name: connection.exec_driver_sql(f"pragma {name}").scalar() for name in ("journal_mode", "synchronous")
            }
    # 1 is "normal" (sqlite.org/pragma.html#pragma_synchronous): safe with a write-ahead log alone.
    assert settings == {"journal_mode": "wal", "synchronous": 1}


def test_the_common_database_is_made_smaller_where_most_of_it_is_free_and_that_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with home(tmp_path / "home") as instance:
        log = instance.event_log_storage
        assert isinstance(log, BatchingSqliteEventLogStorage)
        path = Path(log.path_for_shard("index"))
        with closing(sqlite3.connect(path)) as db:
            insert = "insert into event_logs (run_id, event, timestamp) values ('a run', ?, '2026-11-01 00:00:00')"
            db.executemany(insert, [("an event" * 500,)] * 500)
            db.commit()
            assert not log.shrink(), "none of it is free"
            db.execute("delete from event_logs where id > 100")
            db.commit()
        with monkeypatch.context() as patched:
            patched.setattr(sqlite, "_QUICKLY_COPIED_BYTES", 100_000)
            assert not log.shrink(), "what stays is so much that whoever writes meanwhile would give up"
        assert log.shrink()
        assert not log.shrink()
        with closing(sqlite3.connect(path)) as db:
            db.execute("pragma wal_checkpoint(truncate)")
            assert db.execute("select count(*) from event_logs").fetchone() == (100,)
        assert path.stat().st_size < 100 * 4000 + 500_000
