"""In somebody's Dagster, two installations meet none of their names and do nothing that nobody asked for."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest
from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetSelection,
    DagsterEvent,
    DagsterRunStatus,
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
from leads_pipeline.domain.window import Window
from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.orchestration.dead_runs import end_dead_runs
from leads_pipeline.orchestration.names import NEEDED, PLAIN, PUBLISH_JOB, PULL_JOB, SERVED, Names
from leads_pipeline.orchestration.publish_sensor import delete_old_runs
from leads_pipeline.orchestration.pulling import is_under_way, raw_key
from leads_pipeline.orchestration.resources import PublishedLeads
from leads_pipeline_tests.support.installation import Installation, installation

AGENCY = Names.of("agency")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, first=3) as started:
        yield started


def company() -> Definitions:
    """A company's own project. It has taken the best names, and everything runs by itself."""
    taken = ["raw_applicant_leads", "raw_inventory", "inventory", "drift", "mart_leads_daily", "leads_report"]

    def own_asset(name: str) -> object:
        @asset(name=name, group_name="marts")
        def made(context: AssetExecutionContext) -> None:
            context.log.info("made")

        return made

    @asset(deps=[AssetKey(["agency", "applicant_leads"])], group_name="reports")
    def downstream() -> None:
        """Reads the leads."""

    @sensor(name="publish_changes", job_name=PUBLISH_JOB, default_status=DefaultSensorStatus.RUNNING)
    def publish_changes() -> SkipReason:
        return SkipReason("theirs")

    publish = define_asset_job(PUBLISH_JOB, AssetSelection.assets("drift"))
    return Definitions(
        assets=[*map(own_asset, taken), downstream],  # type: ignore[list-item]
        jobs=[publish],
        schedules=[ScheduleDefinition(name="pull_daily", cron_schedule="@daily", target=publish)],
        sensors=[publish_changes],
        resources={"data": "theirs", "leads": "theirs", "inventory": "theirs"},
        executor=multiprocess_executor,
    )


@pytest.fixture
def merged(here: Installation, tmp_path: Path) -> Definitions:
    agency = build_definitions(here.environment, key_prefix="agency")
    sister = build_definitions({**here.environment, "LEADS_DATA_DIR": str(tmp_path / "sister")}, key_prefix=["a", "b"])
    return Definitions.merge(company(), agency, sister)


# --- names ------------------------------------------------------------------------------------------------------------


def test_two_installations_and_a_company_that_has_the_same_names_load_together(merged: Definitions) -> None:
    """Fault 103."""
    keys = merged.resolve_asset_graph().get_all_asset_keys()
    for prefix in ([], ["agency"], ["a", "b"]):
        assert AssetKey([*prefix, "drift"]) in keys
    assert {"publish", "agency_publish", "a_b_publish"} <= {job.name for job in merged.resolve_all_job_defs()}


def test_jobs_select_our_assets_alone(merged: Definitions) -> None:
    """Fault 102: a company's assets in groups of the same name were published, too."""
    for job in ("agency_publish", "agency_pull_leads", "agency_pull_inventory"):
        selected = merged.resolve_job_def(job).asset_layer.executable_asset_keys
        assert {key.path[0] for key in selected} == {"agency"}


def test_groups_resources_and_pools_carry_the_prefix(merged: Definitions) -> None:
    graph = merged.resolve_asset_graph()
    groups = {graph.get(key).group_name for key in graph.get_all_asset_keys() if key.path[0] == "agency"}
    assert groups == {"agency_raw", "agency_warehouse", "agency_marts", "agency_reports"}
    assert {"agency_data", "agency_leads", "agency_inventory"} <= (merged.resources or {}).keys()
    assert graph.get(raw_key(APPLICANT, AGENCY)).pools == {"agency_leads_portal"}


def test_equal_tables_of_two_installations_are_not_shown_as_one(merged: Definitions) -> None:
    """Dagster links assets with the same table name to each other."""
    graph = merged.resolve_asset_graph()
    names = [graph.get(key).metadata.get("dagster/table_name") for key in graph.get_all_asset_keys()]
    tables = [name for name in names if name is not None]
    assert "agency.main.applicant_leads" in tables
    assert "a_b.main.applicant_leads" in tables
    assert len(tables) == len(set(tables))


def test_nothing_runs_before_somebody_starts_it(merged: Definitions) -> None:
    """Fault 104."""
    repository = merged.get_repository_def()
    ours = ("agency_", "a_b_")
    schedules = [one for one in repository.schedule_defs if one.name.startswith(ours)]
    sensors = [one for one in repository.sensor_defs if one.name.startswith(ours)]
    assert len(schedules) == 2 * 3
    assert len(sensors) == 2 * 4
    assert {one.default_status for one in schedules} == {DefaultScheduleStatus.STOPPED}
    assert {one.default_status for one in sensors} == {DefaultSensorStatus.STOPPED}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("is_served", [True, False])
def test_a_code_location_that_serve_did_not_start_runs_nothing_by_itself(
    monkeypatch: pytest.MonkeyPatch, *, is_served: bool
) -> None:
    """Fault 104: a company's staging copy of the workspace pulled as well."""
    if not is_served:
        monkeypatch.delenv(SERVED)
    repository = defs().get_repository_def()
    running = {one.name for one in repository.sensor_defs if one.default_status is DefaultSensorStatus.RUNNING}
    running |= {one.name for one in repository.schedule_defs if one.default_status is DefaultScheduleStatus.RUNNING}
    assert running == ({*NEEDED, "pull_inventory_daily", "alert", "deliver"} if is_served else set())


@pytest.mark.parametrize("prefix", ["an agency", "agency/branch", "ä", ""])
def test_a_prefix_that_names_cant_begin_with_is_refused(prefix: str) -> None:
    with pytest.raises(SettingsError, match="letters, digits and underscores"):
        Names.of(["agency", prefix])


def test_the_environment_stays_as_it_is(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADS_OWNERS", "")
    variables = {**here.environment, "LEADS_OWNERS": " "}
    build_definitions(variables, key_prefix="agency")
    assert variables["LEADS_OWNERS"] == " "


@pytest.mark.parametrize("given", [{}, {"LEADS_DATA_DIR": " "}, {"LEADS_DATA_DIR": "data"}])
def test_a_guest_makes_no_data_folder_where_a_process_happens_to_start(
    here: Installation, given: dict[str, str]
) -> None:
    others = {name: value for name, value in here.environment.items() if name != "LEADS_DATA_DIR"}

    with pytest.raises(SettingsError, match="Set LEADS_DATA_DIR to an absolute path"):
        build_definitions({**others, **given}, key_prefix="agency")

    with pytest.raises(SettingsError, match="Set LEADS_WORK_DIR to an absolute path"):
        build_definitions({**others, "LEADS_DATA_DIR": "s3://bucket/leads"}, key_prefix="agency")


def test_the_tag_of_its_runs_is_the_prefix(merged: Definitions, here: Installation) -> None:
    tags = [merged.resolve_job_def(job).tags for job in ("agency_publish", "a_b_publish")]
    assert [of_job["leads_pipeline/installation"] for of_job in tags] == ["agency", "a_b"]
    assert here.definitions.resolve_job_def(PUBLISH_JOB).tags["leads_pipeline/installation"] == "no-prefix"


# --- runs -------------------------------------------------------------------------------------------------------------


def test_a_guest_pulls_and_publishes_under_its_own_keys(here: Installation, merged: Definitions) -> None:
    job = merged.resolve_job_def("agency_pull_leads")
    config = {"config": {"partition_keys": sorted(here.keys([1, 2]))}}
    key = raw_key(APPLICANT, AGENCY)
    pulled = job.execute_in_process(
        instance=here.instance, asset_selection=[key], run_config={"ops": {key.to_python_identifier(): config}}
    )
    assert pulled.success
    published = merged.resolve_job_def("agency_publish").execute_in_process(instance=here.instance)
    assert published.success
    materialized = {event.asset_key for event in published.get_asset_materialization_events()}
    assert AssetKey(["agency", "applicant_leads"]) in materialized
    assert {asset_key.path[0] for asset_key in materialized if asset_key} == {"agency"}
    assert here.data.state.landed_at() is not None
    assert here.data.state.dagster_home() == (Path(here.instance.root_directory), "agency")


def test_an_asset_of_ones_own_reads_the_published_leads(here: Installation, merged: Definitions) -> None:
    key = raw_key(APPLICANT, AGENCY)
    config = {"config": {"partition_keys": sorted(here.keys([1]))}}
    merged.resolve_job_def("agency_pull_leads").execute_in_process(
        instance=here.instance, asset_selection=[key], run_config={"ops": {key.to_python_identifier(): config}}
    )
    published = PublishedLeads(data_dir=here.environment["LEADS_DATA_DIR"])
    with pytest.raises(StorageError, match=r"leads\.duckdb is missing\. In your Dagster, start .*`agency_publish`"):
        published.query("from applicant_leads")

    merged.resolve_job_def("agency_publish").execute_in_process(instance=here.instance)

    table = published.query("select lead_id from applicant_leads where scope = $scope", {"scope": "branch-101"})
    window = Window.from_partition_key(here.key(1), here.settings.zone)
    truth = here.simulator.truth("applicant", "branch-101", window.start, window.end)
    assert sorted(table["lead_id"].to_pylist()) == sorted(truth)
    with published.connect() as db, pytest.raises(duckdb.InvalidInputException, match="read-only"):
        db.execute("create table mine as select 1")


def test_runs_of_others_are_neither_ended_nor_deleted_nor_waited_for(here: Installation, merged: Definitions) -> None:
    theirs = here.instance.create_run_for_job(merged.resolve_job_def("publish"))
    here.instance.report_dagster_event(DagsterEvent("PIPELINE_START", "publish"), theirs.run_id)
    later = datetime.now(UTC) + timedelta(hours=1)

    ended = end_dead_runs(
        here.instance, here.data, later, lambda _: None, is_own=lambda run: AGENCY.is_own(run, {AGENCY.key("drift")})
    )
    assert ended == 0
    assert not is_under_way(here.instance, PUBLISH_JOB, PLAIN)

    here.instance.report_run_failed(theirs)
    assert delete_old_runs(here.instance, later + timedelta(days=200), PLAIN) == 0
    assert here.instance.get_run_by_id(theirs.run_id) is not None


def test_a_run_of_our_assets_that_a_person_picked_is_ours(here: Installation, merged: Definitions) -> None:
    key = raw_key(APPLICANT, AGENCY)
    job = merged.resolve_implicit_global_asset_job_def()
    ours = here.instance.create_run_for_job(job, asset_selection=frozenset({key}))
    mixed = here.instance.create_run_for_job(job, asset_selection=frozenset({key, AssetKey("downstream")}))
    assert AGENCY.is_own(ours, {key})
    assert not AGENCY.is_own(mixed, {key})


def test_each_way_to_start_a_job_of_ours_tags_its_run(here: Installation) -> None:
    here.pull(here.keys([1]))
    [run] = here.runs()
    assert PLAIN.is_own(run, ())
    assert run.job_name == PULL_JOB
    assert run.status is DagsterRunStatus.SUCCESS
