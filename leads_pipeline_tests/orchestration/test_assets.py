"""What the assets land, publish, say and check, in real runs against the simulator."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dagster import AssetKey, DagsterEventType, ExecuteInProcessResult

from leads_pipeline.domain.contract import APPLICANT, LEAD_KINDS
from leads_pipeline.domain.window import Window
from leads_pipeline.orchestration.names import PUBLISH_JOB
from leads_pipeline.orchestration.publish_sensor import NIGHTLY_TAG
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.warehouse import reading
from leads_pipeline.warehouse.reading import LeadsFile
from leads_pipeline.words import NAMED
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.serving import QuietHandler, serving

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)


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


def checks(result: ExecuteInProcessResult) -> dict[tuple[str, str], bool]:
    found = {}
    for event in result.all_events:
        if event.event_type is DagsterEventType.ASSET_CHECK_EVALUATION:
            evaluation = event.asset_check_evaluation_data
            found[evaluation.asset_key.to_user_string(), evaluation.check_name] = evaluation.passed
    return found


# --- raw windows that fail ------------------------------------------------------------------------------------------


def test_an_answer_that_cannot_be_landed_is_a_failed_window(here: Installation) -> None:
    broken = here.key(3, 102)
    place = here.data.folder / "raw" / "applicant_leads" / f"day={here.day(3)}" / "scope=branch-102"
    place.parent.mkdir(parents=True)
    place.write_text("a file in the folder's place")
    assert not here.pull(here.keys([3])).success
    wanted = dict.fromkeys(here.keys([3]), "MATERIALIZED") | {broken: "FAILED"}
    assert here.shown() == wanted
    assert materializations(here, "raw_applicant_leads").keys() == here.keys([3]) - {broken}
    said = observations(here, "raw_applicant_leads")[broken]
    # Whoever frees the disk has no need to tell the pipeline: the window is asked for again.
    assert (said["reason"], said["verdict"]) == ("storage", "temporary")


def test_a_failure_names_the_first_few_windows_and_counts_the_rest(here: Installation) -> None:
    here.simulator.set_faults(here.rules(here.keys([2, 3, 4, 5]), Then(status=403)))
    said = message(here.pull(here.keys([2, 3, 4, 5])))
    assert said.count("|branch-") == NAMED + 1  # and the one whose message is quoted
    assert f" and {12 - NAMED} more). GET" in said
    assert "The service asks for 12 windows again, from " in said


def test_without_settings_the_run_says_which_variable_to_set(here: Installation) -> None:
    del here.environment["LEADS_CLIENT_ID"]
    result = here.pull({here.key(3)})
    assert "LEADS_CLIENT_ID is not set. Put it into .env" in message(result)


def test_a_refused_secret_fails_every_window_with_one_verdict(here: Installation) -> None:
    here.environment["LEADS_CLIENT_SECRET"] = os.environ["LEADS_CLIENT_SECRET"] = "wrong"
    result = here.pull(here.keys([3]))
    assert not result.success
    assert here.shown() == dict.fromkeys(here.keys([3]), "FAILED")
    assert message(result).startswith("3 of 3 windows failed.\ncredentials")
    observed = observations(here, "raw_applicant_leads")
    assert {key: said["verdict"] for key, said in observed.items()} == dict.fromkeys(here.keys([3]), "refused")


def test_a_window_on_the_edge_of_retention_is_pulled_and_marked_partial(tmp_path: Path) -> None:
    with installation(tmp_path, first=31) as here:
        assert here.pull({here.key(30)}).success
        assert materializations(here, "raw_applicant_leads")[here.key(30)]["state"] == "partial"


# --- metadata --------------------------------------------------------------------------------------------------------


def test_what_a_window_says_is_what_was_fetched(here: Installation) -> None:
    key, day = here.key(3), here.day(3)
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    truth = here.simulator.truth("applicant", "branch-101", start, start + timedelta(days=1))
    assert here.pull({key}).success
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
        "state": "closed",
    }
    here.pull({key})
    assert materializations(here, "raw_applicant_leads")[key]["new"] == 0


# --- published -------------------------------------------------------------------------------------------------------


def published(here: Installation) -> ExecuteInProcessResult:
    here.pull(here.keys([2, 3]), LEAD_KINDS)
    return here.execute(PUBLISH_JOB, tags={})


@pytest.mark.slow
def test_published_tables_say_how_many_rows_they_hold_and_what_the_publication_did(here: Installation) -> None:
    result = published(here)
    assert result.success
    file = LeadsFile(here.data)
    tables = {name for (name,) in file.query("select table_name from duckdb_tables() where schema_name = 'main'")[1]}
    assert tables >= {"applicant_leads", "lead_facts"}
    for asset in set(result.job_def.asset_layer.executable_asset_keys) - {AssetKey("leads_report")}:
        [said] = materializations(here, name := asset.to_user_string()).values()
        _, [(rows,)] = file.query(f"from {name} select count(*)")
        assert said.get("dagster/row_count") == (rows if name in tables else None)
        assert said["file_bytes"] == file.path.stat().st_size
        assert (said["way"], said["windows_changed"]) == ("new file", 12)
        assert said["leads_changed"] == len(here.truth(APPLICANT, [2, 3])) + len(here.truth(LEAD_KINDS[1], [2, 3]))
    assert (
        checks(result).items()
        >= {
            ("applicant_leads", "lead_ids_are_unique"): True,
            ("appraisal_leads", "lead_ids_are_unique"): True,
            ("lead_facts", "marts_are_made"): True,
        }.items()
    )
    here.execute(PUBLISH_JOB, tags={})
    [said] = materializations(here, "applicant_leads").values()
    assert (said["way"], said["leads_changed"]) == ("unchanged", 0)
    assert said["dagster/row_count"] > 0


def test_what_lands_during_the_work_of_the_night_is_shown_as_landed(here: Installation) -> None:
    here.pull({here.key(2)})
    window, land = Window.from_partition_key(here.key(3), here.settings.zone), here.data.raw.land

    class Portal(QuietHandler):
        """Is asked for its clock before personal fields are cut out."""

        def do_GET(self) -> None:
            land(APPLICANT, window, [], datetime.now(UTC), "hash", "run")
            self.send_response(200)
            self.end_headers()

    with serving(Portal) as address:
        here.environment.update(LEADS_BASE_URL=address, LEADS_KEEP_PERSONAL_DAYS="40")
        assert here.execute(PUBLISH_JOB, tags={NIGHTLY_TAG: "true"}).success
    sql = "select window_day, state from landed_windows where kind = 'applicant' order by 1"
    assert LeadsFile(here.data).query(sql)[1] == [(here.day(3), "empty"), (here.day(2), "landed")]


@pytest.mark.slow
def test_a_run_records_each_own_table_that_it_made_also_of_files_that_came_after_the_start(here: Installation) -> None:
    folder = here.data.folder.with_name("marts")
    folder.mkdir()
    (folder / "names.csv").write_text("name\nAnn\nBen\n")
    here.environment["LEADS_MARTS_DIR"] = str(folder)
    assert AssetKey("names") in here.definitions.resolve_asset_graph().external_asset_keys
    (folder / "later.csv").write_text("name\nAnn\n")
    (folder / "wrong.sql").write_text("select 1")
    assert published(here).success

    rows = {name: [*materializations(here, name).values()] for name in ("names", "later", "wrong")}
    assert rows == {
        "names": [{"dagster/row_count": 2}],
        "later": [{"dagster/row_count": 1}],
        "wrong": [],
    }


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


# --- the checks on windows ------------------------------------------------------------------------------------------


def test_refused_windows_fail_the_check_of_their_kind_until_they_land(here: Installation) -> None:
    def pulled(*days: int) -> dict[str, str]:
        """Pull those days. What the check on each kind of raw leads then says, in its first line."""
        result = here.pull(here.keys(days), LEAD_KINDS)
        told = [one for one in result.get_asset_check_evaluations() if one.check_name == "windows"]
        assert all(one.passed == (one.description == "No problems.") for one in told)
        return {one.asset_key.to_user_string(): (one.description or "").splitlines()[0] for one in told}

    well = dict.fromkeys(("raw_applicant_leads", "raw_appraisal_leads"), "No problems.")
    assert pulled(2, 3) == well
    here.simulator.set_faults([Rule(Then(status=403), When(path="/applicant-leads"))])
    told = pulled(1)
    assert told["raw_applicant_leads"].startswith(
        "- The portal refuses 3 applicant windows of branch-101, branch-102, branch-103"
    )
    assert told["raw_appraisal_leads"] == "No problems."
    here.simulator.set_faults([])
    assert pulled(1) == well


# --- the report -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_checks_of_a_publication_look_at_one_version_and_so_does_the_report(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    attach = reading.attached_version

    def noting(data: DataFolder) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        opened.append(data.folder)
        return attach(data)

    monkeypatch.setattr(reading, "attached_version", noting)
    result = here.execute(PUBLISH_JOB, tags={})
    assert len(opened) == 2  # the tables with their checks, and the report
    assert [*result.get_asset_materialization_events()][-1].asset_key == AssetKey("leads_report")
    assert (here.data.folder / "reports" / "leads.html").exists()
