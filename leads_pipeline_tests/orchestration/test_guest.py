"""In somebody's Dagster, two installations meet none of their names and do nothing that nobody
asked for.
"""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetKey,
    AssetSelection,
    AssetSpec,
    DagsterEvent,
    DagsterRun,
    DefaultScheduleStatus,
    DefaultSensorStatus,
    Definitions,
    ScheduleDefinition,
    SkipReason,
    asset,
    define_asset_job,
    multiprocess_executor,
    sensor,
)

from leads_pipeline.definitions import build_definitions, defs
from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.errors import SettingsError
from leads_pipeline.orchestration.asking import is_under_way, raw_key
from leads_pipeline.orchestration.dead_runs import end_dead_runs
from leads_pipeline.orchestration.names import NEEDED, PLAIN, PUBLISH_JOB, SERVED, Names
from leads_pipeline.orchestration.publish_sensor import delete_old_runs
from leads_pipeline_tests.support.installation import Installation, installation
from leads_pipeline_tests.support.newcomer import FIRST_SIX

AGENCY = Names.of("agency")
RAW = raw_key(APPLICANT, AGENCY)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, first=3) as started:
        yield started


def company() -> Definitions:
    """A company's own project. It has taken the best names, and everything runs by itself."""
    names = ("raw_applicant_leads", "inventory", "drift", "leads_report")
    taken = [AssetSpec(name, group_name="marts") for name in names]

    @asset(deps=[AssetKey(["agency", "applicant_leads"])], group_name="reports")
    def downstream() -> None:
        """Reads the leads."""

    @sensor(
        name="publish_changes", job_name=PUBLISH_JOB, default_status=DefaultSensorStatus.RUNNING
    )
    def publish_changes() -> SkipReason:
        return SkipReason("theirs")

    publish = define_asset_job(PUBLISH_JOB, AssetSelection.assets("downstream"))
    return Definitions(
        assets=[*taken, downstream],
        jobs=[publish],
        schedules=[ScheduleDefinition(name="pull_daily", cron_schedule="@daily", target=publish)],
        sensors=[publish_changes],
        resources={"data": "theirs", "leads": "theirs", "inventory": "theirs"},
        executor=multiprocess_executor,
    )


def merged_with_two(variables: Mapping[str, str], folder: Path) -> Definitions:
    """The company's own project with two installations."""
    agency = build_definitions(variables, key_prefix="agency")
    sister = build_definitions(
        {**variables, "LEADS_DATA_DIR": str(folder / "sister")}, key_prefix=["a", "b"]
    )
    return Definitions.merge(company(), agency, sister)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Definitions:
    """They are loaded, and nobody answers them."""
    folder = tmp_path_factory.mktemp("company")
    variables = {
        **dict.fromkeys(FIRST_SIX, "http://127.0.0.1:9"),
        "LEADS_BRANCH_IDS": "101",
        "LEADS_TIMEZONE": "UTC",
        "LEADS_DATA_DIR": str(folder / "data"),
    }
    return merged_with_two(variables, folder)


# --- names ----------------------------------------------------------------------------------------


def test_two_installations_and_a_company_that_has_the_same_names_load_together(
    loaded: Definitions,
) -> None:
    """Fault 103."""
    keys = loaded.resolve_asset_graph().get_all_asset_keys()
    for prefix in ([], ["agency"], ["a", "b"]):
        assert AssetKey([*prefix, "drift"]) in keys
    assert {"publish", "agency_publish", "a_b_publish"} <= {
        job.name for job in loaded.resolve_all_job_defs()
    }


def test_jobs_select_our_assets_alone(loaded: Definitions) -> None:
    """Fault 102: a company's assets in groups of the same name were published, too."""
    for job in ("agency_publish", "agency_pull_leads"):
        selected = loaded.resolve_job_def(job).asset_layer.executable_asset_keys
        assert {key.path[0] for key in selected} == {"agency"}

    graph = loaded.resolve_asset_graph()
    ours = [key for key in graph.get_all_asset_keys() if key.path[0] == "agency"]
    groups = {graph.get(key).group_name for key in ours}
    assert groups == {"agency_raw", "agency_warehouse", "agency_marts", "agency_reports"}
    assert graph.get(RAW).pools == {"agency_leads_portal"}


def test_nothing_runs_before_somebody_starts_it(loaded: Definitions) -> None:
    """Fault 104."""
    repository = loaded.get_repository_def()
    both: list[Any] = [*repository.schedule_defs, *repository.sensor_defs]

    statuses = {one.default_status for one in both if one.name.startswith(("agency_", "a_b_"))}

    assert statuses == {DefaultScheduleStatus.STOPPED, DefaultSensorStatus.STOPPED}


@pytest.mark.usefixtures("here")
def test_a_code_location_that_serve_did_not_start_runs_nothing_by_itself() -> None:
    """Fault 104: a company's staging copy of the workspace pulled as well."""

    def running() -> set[str]:
        repository = defs().get_repository_def()
        is_running = DefaultSensorStatus.RUNNING, DefaultScheduleStatus.RUNNING
        both: list[Any] = [*repository.schedule_defs, *repository.sensor_defs]
        return {one.name for one in both if one.default_status in is_running}

    assert running() == {*NEEDED, "pull_inventory_daily", "alert", "deliver", "mail_report"}
    del os.environ[SERVED]
    assert running() == set()


@pytest.mark.parametrize(
    ("folder", "variable"),
    [("data", "LEADS_DATA_DIR"), ("s3://bucket/leads", "LEADS_WORK_DIR")],
)
def test_a_guest_makes_no_data_folder_where_a_process_happens_to_start(
    folder: str, variable: str
) -> None:
    with pytest.raises(SettingsError, match=f"Set {variable} to an absolute path"):
        build_definitions({"LEADS_DATA_DIR": folder}, key_prefix="agency")


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_guest_pulls_and_publishes_under_its_own_keys(here: Installation) -> None:
    agency = build_definitions(here.environment, key_prefix="agency")
    merged = Definitions.merge(company(), agency)
    pull = merged.resolve_job_def("agency_pull_leads")
    publish = merged.resolve_job_def("agency_publish")
    windows = {RAW.to_python_identifier(): {"config": {"partition_keys": [here.key(1)]}}}

    pulled = pull.execute_in_process(
        instance=here.instance, asset_selection=[RAW], run_config={"ops": windows}
    )
    published = publish.execute_in_process(instance=here.instance)

    assert pulled.success
    materialized = [event.asset_key for event in published.get_asset_materialization_events()]
    assert AssetKey(["agency", "applicant_leads"]) in materialized
    assert {key.path[0] for key in materialized if key} == {"agency"}
    # Fault 105: `backfill` compares it with its own.
    assert here.data.state.dagster_home() == (Path(here.instance.root_directory), "agency")


def test_runs_of_others_are_neither_ended_nor_deleted_nor_waited_for(
    here: Installation, loaded: Definitions
) -> None:
    theirs = here.instance.create_run_for_job(loaded.resolve_job_def("publish"))
    here.instance.report_dagster_event(DagsterEvent("PIPELINE_START", "publish"), theirs.run_id)
    later = datetime.now(UTC) + timedelta(hours=1)

    def is_own(run: DagsterRun) -> bool:
        return AGENCY.is_own(run, {AGENCY.key("drift")})

    assert end_dead_runs(here.instance, here.data, later, lambda _: None, is_own=is_own) == 0
    assert not is_under_way(here.instance, PUBLISH_JOB, PLAIN)

    here.instance.report_run_failed(theirs)
    assert delete_old_runs(here.instance, later + timedelta(days=200), PLAIN) == 0
