"""What the assets land, stage, publish, say and check, in real runs against the simulator."""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetCheckSeverity,
    AssetKey,
    BetaWarning,
    DagsterEventType,
    DagsterInstance,
    DagsterRunStatus,
    ExecuteInProcessResult,
    evaluate_automation_conditions,
)
from dagster_shared.serdes import serialize_value

from leads_pipeline import duck
from leads_pipeline.assets import published as published_module
from leads_pipeline.assets import staged
from leads_pipeline.assets.raw import NAMED_FAILURES
from leads_pipeline.assets.windows import coverage_check, looks_check, refused_check
from leads_pipeline.contract import (
    APPLICANT,
    APPRAISAL,
    LEAD_KINDS,
    Field,
    FieldType,
    LeadKind,
    PushedLead,
)
from leads_pipeline.definitions import INVENTORY_JOB, PUBLISH_JOB, PUSH_JOB, STAGE_JOB
from leads_pipeline.domain.answer import read_delivery
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.flatten import raw as flatten_raw
from leads_pipeline.flatten.batches import flatten_days
from leads_pipeline.flatten.columns import staged_tables
from leads_pipeline.flatten.counts import StagedDay
from leads_pipeline.lake import Lake, LandedWindow
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.spool import Spool
from leads_pipeline.warehouse import Grid, Warehouse, marts, reading, tables
from leads_pipeline_tests.chaos.way import raw_rows
from leads_pipeline_tests.support.installation import Installation, home, installation


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, first=10) as started:
        yield started


def message(result: ExecuteInProcessResult, op: str = "raw_applicant_leads") -> str:
    failure = result.failure_data_for_node(op)
    assert failure is not None
    assert failure.user_failure_data is not None
    assert failure.user_failure_data.description is not None
    return failure.user_failure_data.description


def materializations(here: Installation, asset: str) -> dict[str | None, dict[str, Any]]:
    """The newest metadata of each partition of an asset."""
    records = here.instance.fetch_materializations(AssetKey(asset), 1000, ascending=True).records
    return {
        record.partition_key: {
            name: value.value
            for name, value in (record.asset_materialization.metadata.items() if record.asset_materialization else ())
        }
        for record in records
    }


def observations(here: Installation, asset: str) -> dict[str | None, dict[str, str]]:
    records = here.instance.fetch_observations(AssetKey(asset), 1000, ascending=True).records
    return {
        record.partition_key: {
            name: str(value.value)
            for name, value in (record.asset_observation.metadata.items() if record.asset_observation else ())
        }
        for record in records
    }


def stage(here: Installation, first: date, last: date) -> ExecuteInProcessResult:
    return here.execute(STAGE_JOB, tags={RANGE_START_TAG: str(first), RANGE_END_TAG: str(last)})


def checks(result: ExecuteInProcessResult) -> dict[tuple[str, str], bool]:
    found = {}
    for event in result.all_events:
        if event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
            evaluation = event.asset_check_evaluation_data
            found[evaluation.asset_key.to_user_string(), evaluation.check_name] = evaluation.passed
    return found


# --- raw: partial success --------------------------------------------------------------------------------------------


def test_failing_windows_neither_stop_nor_hide_the_others(here: Installation) -> None:
    verdicts = {
        here.key(2, 101): (Then(status=403), "permanent", "refused (403)"),
        here.key(2, 103): (Then(status=429), "transient", "busy (429)"),
        here.key(3, 102): (Then(status=200, body="<html>Please sign in.</html>"), "transient", "not a JSON object"),
        here.key(4, 101): (Then(status=500), "transient", "server error (500)"),
        here.key(4, 102): (Then(status=500), "transient", "server error (500)"),
    }
    here.simulator.set_faults([rule for key, (then, *_) in verdicts.items() for rule in here.rules([key], then)])
    wanted = here.keys([2, 3, 4])
    result = here.pull(wanted)

    status = here.status()
    assert status.landed == wanted - verdicts.keys() == materializations(here, "raw_applicant_leads").keys()
    assert status.failed == verdicts.keys()
    assert status.under_way == set()
    # With 403 the client can't tell a forbidden scope from an expired token: it asks once more with a new one.
    assert here.asked() == dict.fromkeys(wanted, 1) | {here.key(2, 101): 2}
    for day in (2, 3, 4):
        scopes = {window.scope for window in here.lake.landed_windows(APPLICANT, here.day(day))}
        assert scopes == {key.split("|")[1] for key in wanted - verdicts.keys() if key.startswith(str(here.day(day)))}

    observed = observations(here, "raw_applicant_leads")
    assert {key: (said["verdict"], said["reason"]) for key, said in observed.items()} == {
        key: (verdict, reason) for key, (_, verdict, reason) in verdicts.items()
    }
    assert all(
        "Asking again doesn't help" in said["error"] for said in observed.values() if said["verdict"] == "permanent"
    )

    assert not result.success
    first, *lines, last = message(result).splitlines()
    assert first == "5 of 9 windows failed; the others are landed."
    assert lines[0].startswith(f"server error (500): 2 ({here.key(4, 101)}, {here.key(4, 102)}). GET /applicant-leads")
    assert {line.split(":")[0] for line in lines} == {reason for _, _, reason in verdicts.values()}
    assert last.startswith("The retry sensor takes them up again: what can pass soon, what was refused about daily")


def test_an_answer_that_cannot_be_landed_is_a_failed_window(here: Installation) -> None:
    broken = here.key(3, 102)
    place = here.lake.folder / "raw" / "applicant_leads" / f"day={here.day(3)}" / "scope=branch-102"
    place.parent.mkdir(parents=True)
    place.write_text("a file in the folder's place")
    assert not here.pull(here.keys([3])).success
    assert here.status().failed == {broken}
    assert here.status().landed == materializations(here, "raw_applicant_leads").keys() == here.keys([3]) - {broken}
    said = observations(here, "raw_applicant_leads")[broken]
    # Whoever frees the disk has no need to tell the pipeline: the retry sensor takes it up.
    assert (said["reason"], said["verdict"]) == ("storage", "transient")


def test_a_failure_names_the_first_few_windows_and_counts_the_rest(here: Installation) -> None:
    here.simulator.set_faults(here.rules(here.keys([2, 3, 4]), Then(status=403)))
    said = message(here.pull(here.keys([2, 3, 4])))
    assert said.count("|branch-") == NAMED_FAILURES + 1  # and the one whose message is quoted
    assert f" and {9 - NAMED_FAILURES} more). GET" in said
    assert "what was refused about daily" in said


def test_a_window_past_retention_is_refused_without_a_request(tmp_path: Path) -> None:
    with installation(tmp_path, first=40) as here:
        old, new = here.key(35), here.key(5)
        here.execute(tags={"dagster/partition": old}, kinds=[APPLICANT])
        here.execute(tags={"dagster/partition": new}, kinds=[APPLICANT])
        assert here.asked() == {new: 1}
        assert here.status().failed == {old}
        assert observations(here, "raw_applicant_leads")[old]["verdict"] == "permanent"


def test_a_window_on_the_edge_of_retention_is_pulled_and_marked_partial(tmp_path: Path) -> None:
    with installation(tmp_path, first=31) as here:
        assert here.execute(tags={"dagster/partition": here.key(30)}, kinds=[APPLICANT]).success
        assert materializations(here, "raw_applicant_leads")[here.key(30)]["is_partial"] is True


def test_without_settings_the_run_says_which_variable_to_set(here: Installation) -> None:
    del here.environment["LEADS_CLIENT_ID"]
    result = here.pull({here.key(3)})
    assert message(result).startswith("No applicant leads could be pulled. LEADS_CLIENT_ID is not set.")


def test_a_refused_secret_fails_every_window_with_one_verdict(here: Installation) -> None:
    here.environment["LEADS_CLIENT_SECRET"] = os.environ["LEADS_CLIENT_SECRET"] = "wrong"
    result = here.pull(here.keys([3]))
    assert not result.success
    assert here.status().failed == here.keys([3])
    assert "credentials" in message(result).lower()
    assert {said["verdict"] for said in observations(here, "raw_applicant_leads").values()} <= {"permanent"}


@pytest.mark.slow
def test_a_killed_run_keeps_what_it_landed_and_the_rest_shows_as_failed(tmp_path: Path) -> None:
    with installation(tmp_path, first=10) as here:
        here.simulator.set_faults([Rule(Then(latency_ms=400))])
        command = [str(Path(sys.executable).with_name("leads-pipeline")), "backfill", "--kind", "applicant"]
        command += ["--from", str(here.day(9)), "--to", str(here.day(1))]
        process = subprocess.Popen(
            command,
            env=os.environ | here.environment | {"LEADS_MAX_CONCURRENCY": "1"},
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while len(here.status().landed) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()

        wanted = here.keys(range(1, 10))
        landed = here.status().landed
        assert 3 <= len(landed) < len(wanted)
        assert here.status().under_way == wanted - landed
        with here.daemon() as daemon:
            daemon.monitor_runs(datetime.now(UTC) + timedelta(hours=5))
            assert here.status().under_way == wanted - landed
            daemon.monitor_runs(datetime.now(UTC) + timedelta(hours=7))
        assert [run.status for run in here.runs()] == [DagsterRunStatus.FAILURE]
        assert here.status().landed == landed
        assert here.status().failed == wanted - landed


# --- metadata --------------------------------------------------------------------------------------------------------


def test_what_a_window_says_is_what_was_fetched(here: Installation) -> None:
    key, day = here.key(3), here.day(3)
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    truth = here.simulator.truth("applicant", "branch-101", start, start + timedelta(days=1))
    assert here.pull({key}).success
    [landed] = here.lake.landed_windows(APPLICANT, day)
    said = materializations(here, "raw_applicant_leads")[key]
    assert said.pop("duration_seconds") > 0
    assert said.pop("bytes") > 700 * len(truth)
    assert said == {
        "dagster/partition_row_count": len(truth),
        "new": len(truth),
        "changed": 0,
        "refused": 0,
        "window": f"{start:%Y-%m-%dT%H:%MZ}/{start + timedelta(days=1):%Y-%m-%dT%H:%MZ}",
        "requests": 1,
        "token_source": "endpoint",
        "is_closed": True,
        "is_partial": False,
    }
    assert landed.rows == len(truth)
    here.pull({key})
    again = materializations(here, "raw_applicant_leads")[key]
    assert (again["new"], again["token_source"]) == (0, "store")


def test_no_personal_data_reaches_dagster(here: Installation) -> None:
    here.simulator.set_faults(here.rules([here.key(2, 102)], Then(status=500)))
    here.pull(here.keys([2, 3]), LEAD_KINDS)
    stage(here, here.day(3), here.day(2))
    here.execute(PUBLISH_JOB, tags={})
    _, people = Warehouse(here.lake).query(
        "select contact_email, contact_phone_number from applicant_leads "
        "union select contact_email, contact_phone_number from appraisal_leads"
    )
    personal = {str(value).encode() for row in people for value in row if value}
    assert len(personal) > 5
    files = [path for path in Path(here.environment["DAGSTER_HOME"]).rglob("*") if path.is_file()]
    for path in files:
        content = path.read_bytes()
        assert not [value for value in personal if value in content], path


# --- staged ----------------------------------------------------------------------------------------------------------


def test_staged_days_say_how_many_rows_they_hold_and_pass_their_checks(here: Installation) -> None:
    here.pull(here.keys([2, 3]), LEAD_KINDS)
    result = stage(here, here.day(3), here.day(2))
    assert result.success
    raw, staged_days = materializations(here, "raw_applicant_leads"), materializations(here, "stg_applicant_leads")
    for ago in (2, 3):
        rows = sum(raw[key]["dagster/partition_row_count"] for key in here.keys([ago]))
        said = staged_days[str(here.day(ago))]
        assert said["dagster/partition_row_count"] == said["raw_rows"] - said["duplicates"]
        assert said["raw_rows"] == rows
        assert materializations(here, "stg_applicant_windows")[str(here.day(ago))]["dagster/partition_row_count"] == 3
    found = checks(result)
    assert found == {
        (f"stg_{kind.table}", name): True
        for kind in LEAD_KINDS
        for name in (
            "rows_add_up",
            "lead_ids_are_unique",
            "no_unexplained_problems",
            "no_values_with_problems",
        )
    }


@pytest.mark.slow
def test_a_day_that_does_not_add_up_is_no_staged_day_and_fails_the_check(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.pull(here.keys([2, 3]))
    kept = f"{flatten_raw._LEADS} where day <> '{here.day(3)}' or position > 0"  # noqa: SLF001 - broken on purpose
    monkeypatch.setattr(flatten_raw, "_LEADS", kept)
    monkeypatch.setattr(flatten_raw, "_IS_AS_RECEIVED", "select false")
    result = stage(here, here.day(3), here.day(2))
    assert not result.success
    assert materializations(here, "stg_applicant_leads").keys() == {str(here.day(2))}
    assert not checks(result)["stg_applicant_leads", "rows_add_up"]
    assert not checks(stage(here, here.day(2), here.day(2)))["stg_applicant_leads", "rows_add_up"]
    assert f"The applicant leads of {here.day(3)} don't add up" in message(result, "stg_applicant_leads")


@pytest.mark.slow
def test_each_check_of_staged_days_can_fail(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks: list[tuple[str, AssetCheckSeverity, Callable[[Any], StagedDay]]] = [
        ("rows_add_up", AssetCheckSeverity.ERROR, lambda day: replace(day, raw_rows=day.raw_rows + 1)),
        ("lead_ids_are_unique", AssetCheckSeverity.ERROR, lambda day: replace(day, lead_ids=day.lead_ids - 1)),
        ("no_unexplained_problems", AssetCheckSeverity.ERROR, lambda day: replace(day, unexplained=1)),
        ("no_values_with_problems", AssetCheckSeverity.WARN, lambda day: replace(day, problems={"dateOfBirth": 2})),
    ]
    broken = dict(zip([here.day(ago) for ago in (5, 4, 3, 2)], breaks, strict=True))
    here.pull(here.keys([2, 3, 4, 5]))
    with monkeypatch.context() as patched:
        patched.setattr(
            staged, "flatten_days", lambda *given: ((day, broken[day][2](one)) for day, one in flatten_days(*given))
        )
        result = stage(here, min(broken), max(broken))
    red = {
        one.check_name: one.severity
        for one in result.get_asset_check_evaluations()
        if not one.passed and "applicant" in str(one.asset_key)
    }
    assert red == {failing: severity for failing, severity, _ in breaks}

    # Green days hide no red ones: each check stays red until its own day is staged again, and no other turns it green.
    for day, (failing, *_) in broken.items():
        green = checks(stage(here, day, day))
        red.pop(failing)
        assert {name for (asset, name), passed in green.items() if not passed} == set(red), day


def test_a_day_that_cannot_be_staged_does_not_stop_the_others(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.pull(here.keys([2, 3, 4]))
    landed_windows = Lake.landed_windows

    def sometimes(lake: Lake, kind: LeadKind, day: date) -> list[LandedWindow]:
        if day == here.day(3):
            raise StorageError("The disk is full.")
        return landed_windows(lake, kind, day)

    monkeypatch.setattr(Lake, "landed_windows", sometimes)
    result = stage(here, here.day(4), here.day(2))
    assert not result.success
    assert message(result, "stg_applicant_leads") == (
        f"1 of 3 days could not be staged, the first is {here.day(3)}: The disk is full."
    )
    assert materializations(here, "stg_applicant_leads").keys() == {str(here.day(2)), str(here.day(4))}


# --- published -------------------------------------------------------------------------------------------------------


def published(here: Installation) -> ExecuteInProcessResult:
    here.pull(here.keys([2, 3]), LEAD_KINDS)
    assert stage(here, here.day(3), here.day(2)).success
    return here.execute(PUBLISH_JOB, tags={})


@pytest.mark.slow
def test_published_tables_say_how_many_rows_they_hold(here: Installation) -> None:
    result = published(here)
    assert result.success
    warehouse = Warehouse(here.lake)
    for asset in set(result.job_def.asset_layer.executable_asset_keys) - {AssetKey("leads_report")}:
        [said] = materializations(here, asset.to_user_string()).values()
        _, [(rows,)] = warehouse.query(f"from {asset.to_user_string()} select count(*)")
        assert said["dagster/row_count"] == rows
        assert said["file_bytes"] == warehouse.path.stat().st_size
        assert said["is_changed"] is True
        assert said["days_changed"] == 2
    assert (
        checks(result).items()
        >= {
            ("applicant_leads", "lead_ids_are_unique"): True,
            ("appraisal_leads", "lead_ids_are_unique"): True,
            ("applicant_leads", "staged_rows_add_up"): True,
            ("appraisal_leads", "staged_rows_add_up"): True,
            ("mart_coverage", "windows_are_landed_in_time"): True,
        }.items()
    )


@pytest.mark.slow
def test_a_lead_that_stands_twice_fails_the_check(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    intact = reading.Version.query

    def twice(version: reading.Version, statement: str, parameters: Mapping[str, object] | None = None) -> Any:
        if "distinct lead_id" in statement:
            return ["rows", "ids"], [(3, 2)]
        return intact(version, statement, parameters)

    monkeypatch.setattr(reading.Version, "query", twice)
    result = published(here)
    assert not result.success
    assert checks(result)["applicant_leads", "lead_ids_are_unique"] is False


def test_a_proxys_password_does_not_get_into_dagsters_records(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://agent:hunter2/x@proxy.example:3128")
    result = here.pull({here.key(2)})
    assert not result.success
    assert "HTTPS_PROXY" in str([event.event_specific_data for event in result.all_events if event.is_failure])
    records = [path.read_bytes() for path in Path(here.environment["DAGSTER_HOME"]).rglob("*") if path.is_file()]
    assert any(b"HTTPS_PROXY" in record for record in records)
    assert not any(b"hunter2" in record for record in records)


TOO_LARGE = Rule(Then(status=413), When(path=APPLICANT.path, first=1), "too large")


def test_a_window_larger_than_an_answer_may_be_is_pulled_by_hours(tmp_path: Path) -> None:
    with installation(tmp_path, Config(branches=1, leads_per_day=70), first=3) as here:
        here.simulator.set_faults([TOO_LARGE])
        assert here.pull({here.key(2)}).success
        assert set(raw_rows(here.lake)) == here.truth(APPLICANT, [2])
        [landed] = here.lake.landed_windows(APPLICANT, here.day(2))
        assert (landed.is_closed, landed.attempts) == (True, here.simulator.counters().requests[APPLICANT.path])
        assert landed.attempts >= 24


def test_an_hour_that_fails_costs_its_neighbours_nothing_and_the_window_is_not_landed(tmp_path: Path) -> None:
    with installation(tmp_path, Config(branches=1, leads_per_day=70), first=3) as here:
        key, noon = here.key(2), datetime.combine(here.day(2), datetime.min.time(), UTC) + timedelta(hours=12)
        refused = Rule(Then(status=404), When(from_time=f"{noon:%Y-%m-%dT%H:%M}"))
        here.simulator.set_faults([TOO_LARGE, refused])
        assert not here.pull({key}).success
        before = here.simulator.truth("applicant", "branch-101", noon - timedelta(hours=12), noon)
        after = here.simulator.truth("applicant", "branch-101", noon + timedelta(hours=1), noon + timedelta(hours=12))
        assert set(raw_rows(here.lake)) == {*before, *after} < here.truth(APPLICANT, [2])
        assert here.status().failed == {key}
        assert not here.status().landed
        [landed] = here.lake.landed_windows(APPLICANT, here.day(2))
        assert not landed.is_closed
        said = observations(here, "raw_applicant_leads")[key]
        assert said["verdict"] == "permanent"
        assert f"{len({*before, *after})} leads came and are kept" in said["error"]
        assert "Of 12:00 to 13:00 UTC" in said["error"]

        here.simulator.set_faults([])
        assert here.pull({key}).success
        assert sorted(raw_rows(here.lake)) == sorted(here.truth(APPLICANT, [2]))


@pytest.mark.slow
def test_a_check_that_breaks_is_told_as_such_and_leaves_the_publication_green(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    intact = reading.Version.query

    def sometimes(version: reading.Version, statement: str, parameters: Mapping[str, object] | None = None) -> Any:
        if "distinct lead_id" in statement or "is_refused" in statement or "windows_landed" in statement:
            raise StorageError("No space is left for it.")
        return intact(version, statement, parameters)

    monkeypatch.setattr(reading.Version, "query", sometimes)
    result = published(here)
    told = "The check itself broke, so nothing is known: No space is left for it. What it looks at was published whole."
    broken = [one for one in result.get_asset_check_evaluations() if one.description == told]
    assert {one.check_name for one in broken} == {"lead_ids_are_unique", "no_window_is_refused"}
    assert not any(one.passed for one in broken)
    for asset in (*(table.name for table in tables()), *(mart.name for mart in marts())):
        assert materializations(here, asset), asset
    _, [(leads,)] = Warehouse(here.lake).query("select count(*) from applicant_leads")
    assert leads


@pytest.mark.slow
def test_failed_windows_appear_in_the_coverage_with_attempts_and_last_error(here: Installation) -> None:
    broken, refused = here.key(3, 101), here.key(3, 102)
    here.simulator.set_faults([*here.rules([broken], Then(status=500)), *here.rules([refused], Then(status=403))])
    here.pull(here.keys([3]))
    here.pull({broken})
    assert published(here).success
    _, rows = Warehouse(here.lake).query(
        "select day || '|' || scope, state, failed_attempts, last_error from mart_coverage "
        "where kind = 'applicant' and state = 'failed' order by 1"
    )
    assert [row[:3] for row in rows] == [(broken, "failed", 3), (refused, "failed", 2)]
    assert "500 Internal Server Error" in rows[0][3]
    assert "403 Forbidden" in rows[1][3]


@pytest.mark.slow
def test_a_refused_window_fails_a_check_at_once_and_as_long_as_it_can_be_had(here: Installation) -> None:
    here.simulator.set_faults(here.rules([here.key(3, 101)], Then(status=500)))
    here.pull(here.keys([3]))
    assert checks(published(here))["mart_coverage", "no_window_is_refused"]
    here.simulator.set_faults(here.rules([here.key(3, 102)], Then(status=403)))
    here.pull(here.keys([3]))
    result = here.execute(PUBLISH_JOB, tags={})
    assert result.success
    assert not checks(result)["mart_coverage", "no_window_is_refused"]

    store, start = Warehouse(here.lake), datetime.combine(here.day(3), datetime.min.time(), UTC)
    told = refused_check(store, here.now)
    assert told.severity is AssetCheckSeverity.ERROR
    assert told.description is not None
    assert f"- applicant {here.key(3, 102)}: landed, 1 attempts" in told.description
    assert "403 Forbidden" in told.description
    assert not refused_check(store, start + timedelta(days=30, hours=23)).passed
    assert refused_check(store, start + timedelta(days=31)).passed


@pytest.mark.slow
def test_the_coverage_check_warns_seven_days_and_fails_three_days_before_a_window_is_deleted(
    here: Installation,
) -> None:
    published(here)
    start = datetime.combine(here.day(10), datetime.min.time(), UTC)
    deleted_from = start + timedelta(days=30)
    store = Warehouse(here.lake)

    def check(now: datetime) -> tuple[bool, AssetCheckSeverity, int]:
        result = coverage_check(store, now)
        windows = result.metadata["windows"].value
        assert isinstance(windows, int)
        return result.passed, result.severity, windows

    second = timedelta(seconds=1)
    assert check(deleted_from - timedelta(days=7) - second)[0] is True
    assert check(deleted_from - timedelta(days=7)) == (False, AssetCheckSeverity.WARN, 6)
    assert check(deleted_from - timedelta(days=3) - second)[1] == AssetCheckSeverity.WARN
    assert check(deleted_from - timedelta(days=3))[1] == AssetCheckSeverity.ERROR
    # While the portal deletes it, what is left can still be had.
    assert check(deleted_from + timedelta(hours=23))[1] == AssetCheckSeverity.ERROR
    description = coverage_check(store, deleted_from - timedelta(days=3)).description
    assert description is not None
    assert (
        f"- applicant {here.key(10)}: missing, 0 attempts, deleted from {deleted_from:%Y-%m-%d %H:%M} UTC"
        in description
    )
    assert f"leads-pipeline backfill --from {here.day(10)} --to {here.day(6)}" in description


@pytest.mark.slow
def test_a_window_pulled_before_its_end_alone_is_not_landed_in_time(here: Installation) -> None:
    published(here)
    store = Warehouse(here.lake)
    # Today's window, landed today and never again: 27 days on its last hours are about to be deleted.
    here.pull(here.keys([0]), LEAD_KINDS)
    stage(here, here.day(0), here.day(0))
    later = datetime.combine(here.day(0), datetime.min.time(), UTC) + timedelta(days=28)
    store.publish(Grid(here.settings.scopes, here.day(10), here.settings.zone), later)
    result = coverage_check(store, later)
    assert result.description is not None
    assert f"- applicant {here.key(0)}: missing" in result.description


@pytest.mark.slow
def test_a_landed_window_that_nobody_looks_at_again_fails_a_check_a_day_after_its_look_was_due(
    here: Installation,
) -> None:
    published(here)
    store = Warehouse(here.lake)
    _, rows = store.query("select distinct last_looked_at > landed_at - interval 1 minute from mart_coverage")
    assert (True,) in rows
    end = datetime.combine(here.day(2), datetime.min.time(), UTC)  # of day 3
    second = timedelta(seconds=1)
    assert looks_check(store, here.now).passed
    assert looks_check(store, end + timedelta(days=8) - second).passed
    late = looks_check(store, end + timedelta(days=8))
    assert (late.passed, late.severity, late.metadata["windows"].value) == (False, AssetCheckSeverity.WARN, 6)
    assert late.description is not None
    assert f"- applicant {here.key(3, 101)}: last looked at " in late.description
    assert f"leads-pipeline backfill --from {here.day(3)} --to {here.day(3)}" in late.description
    assert not looks_check(store, end + timedelta(days=29, hours=23)).passed
    assert looks_check(store, end + timedelta(days=40)).passed


def states(here: Installation) -> dict[str, str]:
    """What the published coverage says of each applicant window that isn't simply missing or under way."""
    _, rows = Warehouse(here.lake).query(
        "select day || '|' || scope, if(state = 'empty', 'landed', state) from mart_coverage "
        "where kind = 'applicant' and state not in ('missing', 'open')"
    )
    return dict(rows)


@pytest.mark.slow
def test_the_coverage_stays_true_when_the_log_or_the_files_are_lost(tmp_path: Path) -> None:
    with installation(tmp_path / "a", first=5) as here:
        here.simulator.set_faults(here.rules([here.key(2, 102)], Then(status=500)))
        here.pull(here.keys([2, 3]))
        stage(here, here.day(3), here.day(2))
        here.execute(PUBLISH_JOB, tags={})
        landed = here.keys([2, 3]) - {here.key(2, 102)}
        assert states(here) == dict.fromkeys(landed, "landed") | {here.key(2, 102): "failed"}
        with home(tmp_path / "another") as instance:
            anew = replace(here, instance=instance)
            anew.execute(PUBLISH_JOB, tags={})
            assert states(anew) == dict.fromkeys(landed, "landed")
        shutil.rmtree(here.lake.folder / "raw")
        shutil.rmtree(here.lake.folder / "staged")
        _, leads = Warehouse(here.lake).query("select lead_id, message from applicant_leads order by 1")
        checks = here.execute(PUBLISH_JOB, tags={}).get_asset_check_evaluations()
        assert [check.passed for check in checks if check.check_name == "files_are_whole"] == [False]
        # What is published stays, and so does what is said of it.
        assert states(here) == dict.fromkeys(landed, "landed") | {here.key(2, 102): "failed"}
        assert Warehouse(here.lake).query("select lead_id, message from applicant_leads order by 1")[1] == leads


# --- inventory -------------------------------------------------------------------------------------------------------


def test_todays_inventory_is_landed(here: Installation) -> None:
    day = datetime.now(UTC).date()
    result = here.execute(INVENTORY_JOB, tags={"dagster/partition": str(day)})
    if datetime.now(UTC).date() != day:
        pytest.skip("Midnight has passed since the test began, so that its today is over.")
    assert result.success
    [said] = materializations(here, "raw_inventory").values()
    assert said["dagster/partition_row_count"] > 0
    assert said["addresses"] == 1


@pytest.mark.slow
def test_on_wish_the_inventory_is_searched_for_what_leads_ask_about(tmp_path: Path) -> None:
    variables = {"INVENTORY_ADDRESSES": "", "INVENTORY_FROM_LEADS_DAYS": "3"}
    # Of a few leads a day there may be none at all.
    with installation(tmp_path, Config(branches=3, leads_per_day=20), variables=variables) as here:
        today = {"dagster/partition": str(datetime.now(UTC).date())}
        assert here.execute(INVENTORY_JOB, tags=today).success
        [said] = materializations(here, "raw_inventory").values()
        assert "no lead asks about one" in said["not_pulled"]

        here.pull({here.key(2), here.key(5)})
        stage(here, here.day(5), here.day(2))
        here.execute(PUBLISH_JOB, tags={})
        assert here.execute(INVENTORY_JOB, tags=today).success
        here.execute(PUBLISH_JOB, tags={})

        store = Warehouse(here.lake)
        asked = "select distinct listing_details_address_postcode from applicant_leads where lead_day"
        recent = store.query(f"{asked} > $since", {"since": here.day(3)})[1]
        older = set(store.query(f"{asked} <= $since", {"since": here.day(3)})[1]) - set(recent)
        searched = store.query("select distinct searched_address from inventory")[1]
        assert recent
        assert older
        # A postcode whose listing is gone finds nothing.
        assert set(searched) <= set(recent)
        [said] = materializations(here, "raw_inventory").values()
        assert said["addresses"] == said["requests"] == len(recent)
        found = store.query(
            "select lead_id from mart_lead_properties where match = 'address' and lead_day > $since",
            {"since": here.day(3)},
        )[1]
        assert found


def test_a_day_that_is_over_says_why_its_inventory_is_not_pulled(here: Installation) -> None:
    assert here.execute(INVENTORY_JOB, tags={"dagster/partition": str(here.day(5))}).success
    [said] = materializations(here, "raw_inventory").values()
    assert "The API knows the present only" in said["not_pulled"]
    assert here.lake.inventory_files() == []


def test_the_command_line_says_why_no_inventory_was_pulled(here: Installation) -> None:
    assert "The API knows the present only" in str(here.runner.pull_inventory(here.day(5)))


# --- automation ------------------------------------------------------------------------------------------------------


STAGED_APPLICANTS = AssetKey("stg_applicant_leads")


def requested(
    here: Installation, cursor: Any = None, *, later: timedelta = timedelta()
) -> tuple[dict[str, set[str | None]], Any]:
    """What the follow_sources sensor would request now, or `later`: partitions by asset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # evaluate_automation_conditions calls what is beta itself
        result = evaluate_automation_conditions(
            here.definitions, here.instance, cursor=cursor, evaluation_time=datetime.now(UTC) + later
        )
    graph = here.definitions.resolve_asset_graph()
    found: dict[str, set[str | None]] = {}
    for one in result.results:
        subset = one.true_subset
        if not subset.is_empty:
            keys = subset.expensively_compute_asset_partitions()
            for asset in graph.get(one.key).execution_set_asset_keys:  # what is made together is asked for together
                found.setdefault(asset.to_user_string(), set()).update(key.partition_key for key in keys)
    return found, result.cursor


def test_a_staged_day_follows_the_first_raw_window_of_the_day(here: Installation) -> None:
    nothing, cursor = requested(here)
    assert nothing == {}
    here.pull({here.key(3)})
    found, cursor = requested(here, cursor)
    assert found["stg_applicant_leads"] == found["stg_applicant_windows"] == {str(here.day(3))}
    assert "stg_appraisal_leads" not in found
    assert requested(here, cursor)[0] == {}


def test_a_staged_day_follows_each_later_window_too(here: Installation) -> None:
    here.pull({here.key(3)})
    _, cursor = requested(here)
    here.pull({here.key(3)})
    _, cursor = requested(here, cursor)
    stage(here, here.day(3), here.day(3))
    _, cursor = requested(here, cursor)
    here.pull({here.key(3, 102)})
    found, _ = requested(here, cursor)
    assert found["stg_applicant_leads"] == {str(here.day(3))}


@pytest.mark.parametrize("lands", ["while its day is staged", "before the next tick"])
@pytest.mark.slow
def test_a_window_that_lands_after_its_day_was_asked_for_is_staged_next(
    here: Installation, monkeypatch: pytest.MonkeyPatch, lands: str
) -> None:
    _, cursor = requested(here)
    here.pull({here.key(3)})
    found, cursor = requested(here, cursor)
    assert found["stg_applicant_leads"] == {str(here.day(3))}

    def landing_meanwhile(*given: Any) -> Iterator[tuple[date, StagedDay | LeadsPipelineError]]:
        done = list(flatten_days(*given))
        here.pull({here.key(3, 102)})
        yield from done

    with monkeypatch.context() as patched:
        if lands == "while its day is staged":
            patched.setattr(staged, "flatten_days", landing_meanwhile)
        assert stage(here, here.day(3), here.day(3)).success
    if lands == "before the next tick":
        here.pull({here.key(3, 102)})

    found, cursor = requested(here, cursor)
    assert found["stg_applicant_leads"] == {str(here.day(3))}
    stage(here, here.day(3), here.day(3))
    here.execute(PUBLISH_JOB, tags={})
    assert {scope for (scope,) in Warehouse(here.lake).query("select scope from landed_windows")[1]} == {
        "branch-101",
        "branch-102",
    }
    assert "stg_applicant_leads" not in requested(here, cursor)[0]


HOUR = timedelta(hours=1)


@pytest.fixture
def nothing_is_daily(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the publication of half past two out of an hour that may hold that moment."""
    monkeypatch.setattr(published_module, "_IS_DAILY", staged.FOLLOWS_ITS_SOURCES)


@pytest.mark.slow
def test_a_staging_that_failed_is_asked_for_again_within_the_hour(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.pull({here.key(4), here.key(3)})
    stage(here, here.day(4), here.day(3))
    _, cursor = requested(here)
    here.pull({here.key(4, 102), here.key(3, 102)})
    found, cursor = requested(here, cursor)
    assert found["stg_applicant_leads"] == {str(here.day(4)), str(here.day(3))}

    def full_for_a_day(*given: Any) -> Iterator[tuple[date, StagedDay | LeadsPipelineError]]:
        for day, one in flatten_days(*given):
            yield day, StorageError("No space left.") if day == here.day(3) else one

    with monkeypatch.context() as patched:
        patched.setattr(staged, "flatten_days", full_for_a_day)
        assert not stage(here, here.day(4), here.day(3)).success
    found, cursor = requested(here, cursor, later=HOUR)
    assert found["stg_applicant_leads"] == {str(here.day(3))}
    assert stage(here, here.day(3), here.day(3)).success
    found, cursor = requested(here, cursor, later=2 * HOUR)
    assert "stg_applicant_leads" not in found


@pytest.mark.usefixtures("nothing_is_daily")
@pytest.mark.slow
def test_a_publication_that_failed_is_asked_for_again_within_the_hour(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cursor = requested(here)
    here.pull({here.key(3)})
    stage(here, here.day(3), here.day(3))
    found, cursor = requested(here, cursor)
    assert found["applicant_leads"] == {None}

    def full(*_: Any) -> None:
        raise StorageError("No space left.")

    with monkeypatch.context() as patched:
        patched.setattr(Warehouse, "publish", full)
        assert not here.execute(PUBLISH_JOB, tags={}).success
    found, cursor = requested(here, cursor, later=HOUR)
    assert found["applicant_leads"] == {None}
    assert here.execute(PUBLISH_JOB, tags={}).success
    assert "applicant_leads" not in requested(here, cursor, later=2 * HOUR)[0]


@pytest.mark.usefixtures("nothing_is_daily")
def test_what_was_done_before_the_daemon_first_ran_is_followed_within_the_hour(here: Installation) -> None:
    here.pull({here.key(3)})
    found, cursor = requested(here)
    assert found == {}
    found, cursor = requested(here, cursor, later=HOUR)
    assert found == {f"stg_{table}": {str(here.day(3))} for table in staged_tables(APPLICANT)}
    stage(here, here.day(3), here.day(3))
    _, cursor = requested(here)
    assert requested(here, cursor, later=HOUR)[0]["applicant_leads"] == {None}


@pytest.mark.usefixtures("nothing_is_daily")
def test_what_a_command_landed_is_staged_though_the_daemon_first_runs_after_the_portal_has_deleted_it(
    tmp_path: Path,
) -> None:
    with installation(tmp_path, first=30) as here:
        here.pull({here.key(29)})
        _, cursor = requested(here, later=timedelta(days=12))
        found, _ = requested(here, cursor, later=timedelta(days=12) + HOUR)
        assert found["stg_applicant_leads"] == {str(here.day(29))}


def test_another_time_zone_has_every_staged_day_staged_again(here: Installation) -> None:
    here.pull({here.key(3)})
    day = str(here.day(3))
    stage(here, here.day(3), here.day(3))
    _, cursor = requested(here)
    here.environment["LEADS_TIMEZONE"] = "America/Los_Angeles"
    assert requested(here, cursor)[0]["stg_applicant_leads"] == {day}


@pytest.mark.slow
def test_the_checks_look_each_day_even_where_nothing_comes(here: Installation) -> None:
    """While nothing is landed, nothing is staged that a publication could follow."""
    here.pull({here.key(3)})
    stage(here, here.day(3), here.day(3))
    here.execute(PUBLISH_JOB, tags={})
    _, cursor = requested(here)
    days = [requested(here, cursor, later=timedelta(days=later))[0] for later in (1, 9)]
    assert [found["landed_windows"] for found in days] == [{None}, {None}]
    assert [found["leads_report"] for found in days] == [{None}, {None}]


def test_what_was_pushed_is_recorded_before_the_spool_forgets_it(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f'{{"applicant": {{"id": "pushed", "createdAt": "{here.day(4)}T12:00Z", "portalBranchId": "101"}}}}'
    Spool(here.lake).add([PushedLead(kind, lead, here.now) for kind, lead in read_delivery(body.encode())])
    recorded = []
    real = Spool.take_in

    def watched(self: Spool, *given: Any) -> Iterator[Any]:
        for taken in real(self, *given):
            yield taken
            # As another process sees it, or the next one after a kill.
            with DagsterInstance.from_config(here.environment["DAGSTER_HOME"]) as other:
                recorded.append(other.get_materialized_partitions(AssetKey("raw_push")))

    monkeypatch.setattr(Spool, "take_in", watched)
    assert here.execute(PUSH_JOB, tags={"dagster/partition": str(here.day(0))}).success
    assert recorded == [{str(here.day(4))}]


@pytest.mark.slow
def test_report_and_delta_tables_are_part_of_the_publications_run(here: Installation) -> None:
    here.environment["LEADS_TABLES"] = "delta"
    _, cursor = requested(here)
    here.pull({here.key(3)})
    stage(here, here.day(3), here.day(3))
    found, cursor = requested(here, cursor)
    assert found["applicant_leads"] == found["leads_report"] == found["delta_tables"] == {None}
    here.execute(PUBLISH_JOB, tags={})
    assert requested(here, cursor)[0] == {}


def test_all_checks_of_a_publication_look_at_one_version_and_so_does_the_report(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    link = duck.link_or_copy

    def noting(path: Path, target: Path) -> None:
        opened.append(target)
        link(path, target)

    monkeypatch.setattr(reading, "link_or_copy", noting)
    here.execute(PUBLISH_JOB, tags={})
    assert len(opened) == 2


def test_a_field_that_is_newly_declared_has_every_staged_day_staged_again(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.pull({here.key(3)})
    stage(here, here.day(3), here.day(3))
    _, cursor = requested(here)
    assert not {"stg_applicant_leads", "stg_applicant_windows"} & requested(here, cursor)[0].keys()
    declared = replace(APPLICANT, fields=(*APPLICANT.fields, Field("newlyDeclared", FieldType.TEXT, "Something new")))
    monkeypatch.setattr("leads_pipeline.assets.LEAD_KINDS", (declared, APPRAISAL))
    here.reload()
    found, _ = requested(here, cursor)
    assert found == {f"stg_{table}": {str(here.day(3))} for table in staged_tables(APPLICANT)}


@pytest.mark.slow
def test_a_pushed_lead_is_staged_and_published_with_its_day(here: Installation) -> None:
    _, cursor = requested(here)
    body = f'{{"applicant": {{"id": "pushed", "createdAt": "{here.day(4)}T12:00Z", "portalBranchId": "101"}}}}'
    Spool(here.lake).add([PushedLead(kind, lead, here.now) for kind, lead in read_delivery(body.encode())])
    assert here.execute(PUSH_JOB, tags={"dagster/partition": str(here.day(0))}).success
    found, cursor = requested(here, cursor)
    # And today, which the run was started for.
    assert found["stg_applicant_leads"] == {str(here.day(4)), str(here.day(0))}
    stage(here, here.day(4), here.day(4))
    found, _ = requested(here, cursor)
    assert found["applicant_leads"] == {None}
    here.execute(PUBLISH_JOB, tags={})
    _, rows = Warehouse(here.lake).query("select lead_id, source, scope from applicant_leads")
    assert rows == [("pushed", "push", "branch-101")]


@pytest.mark.slow
def test_the_warehouse_follows_the_staged_days(here: Installation) -> None:
    _, cursor = requested(here)
    here.pull({here.key(3)})
    _, cursor = requested(here, cursor)
    stage(here, here.day(3), here.day(3))
    found, cursor = requested(here, cursor)
    assert found["applicant_leads"] == {None}
    assert not [name for name in found if name.startswith("stg_")]
    here.execute(PUBLISH_JOB, tags={})
    assert requested(here, cursor)[0] == {}


@pytest.mark.slow
def test_of_what_one_run_makes_the_last_recorded_is_evaluated_alone(here: Installation) -> None:
    here.pull({here.key(3), here.key(3, 102)}, [APPLICANT, APPRAISAL])
    graph = here.definitions.resolve_asset_graph()
    recorded = [event.asset_key for event in stage(here, here.day(3), here.day(3)).get_asset_materialization_events()]
    recorded += [event.asset_key for event in here.execute(PUBLISH_JOB, tags={}).get_asset_materialization_events()]
    evaluated = {key for key in recorded if key and graph.get(key).automation_condition is not None}
    assert {key.to_user_string() for key in evaluated} == {
        "stg_applicant_windows",
        "stg_appraisal_windows",
        "landed_windows",
        "inventory",  # of other sources
        "leads_report",
    }
    for kind in (APPLICANT, APPRAISAL):
        staged_of_kind = [key.path[-1] for key in recorded if key and key.path[-1].startswith(f"stg_{kind.name}")]
        assert staged_of_kind[-1] == f"stg_{kind.name}_windows"
        assert len(staged_of_kind) == len(staged_tables(kind))


@pytest.mark.usefixtures("nothing_is_daily")
@pytest.mark.slow
def test_an_hour_in_which_nothing_happens_leaves_little_in_the_books(here: Installation) -> None:
    """Dagster stores each evaluation that differs from the last one, as those of a full hour do."""
    here.pull({here.key(3), here.key(3, 102)}, [APPLICANT, APPRAISAL])
    stage(here, here.day(3), here.day(3))
    here.execute(PUBLISH_JOB, tags={})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)
        cursor = requested(here)[1]
        later = evaluate_automation_conditions(
            here.definitions, here.instance, cursor=cursor, evaluation_time=datetime.now(UTC) + HOUR
        )
    assert [one for one in later.results if not one.true_subset.is_empty] == []
    assert (
        sum(len(serialize_value(one.serializable_evaluation)) for one in later.results) < 350_000
    )  # it was twice that


def test_nothing_follows_while_a_pull_is_under_way(here: Installation) -> None:
    _, cursor = requested(here)
    here.pull({here.key(3)})
    job = here.definitions.resolve_job_def("pull_leads")
    tags = {RANGE_START_TAG: here.key(3, 102), RANGE_END_TAG: here.key(3, 103)}
    run = here.instance.create_run_for_job(job, tags=tags, status=DagsterRunStatus.STARTED)
    found, cursor = requested(here, cursor)
    assert found == {}
    here.instance.report_run_failed(run)
    found, _ = requested(here, cursor)
    assert found["stg_applicant_leads"] == {str(here.day(3))}


def test_a_day_that_does_not_add_up_holds_no_other_day_back(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cursor = requested(here)
    here.pull(here.keys([2, 3]))
    kept = f"{flatten_raw._LEADS} where day <> '{here.day(3)}' or position > 0"  # noqa: SLF001 - broken on purpose
    with monkeypatch.context() as patched:
        patched.setattr(flatten_raw, "_LEADS", kept)
        patched.setattr(flatten_raw, "_IS_AS_RECEIVED", "select false")
        assert not stage(here, here.day(3), here.day(2)).success
    found, _ = requested(here, cursor)
    assert found["applicant_leads"] == {None}


def test_a_staging_that_stages_nothing_passes_no_check(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    here.pull(here.keys([2, 3]))

    def never(*_: object) -> list[LandedWindow]:
        raise StorageError("The disk is full.")

    monkeypatch.setattr(Lake, "landed_windows", never)
    assert checks(stage(here, here.day(3), here.day(2))) == {}
