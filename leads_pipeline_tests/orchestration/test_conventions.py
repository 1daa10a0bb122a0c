"""What a data engineer looks for in Dagster's catalog and on the page of a run is there."""

import re
from pathlib import Path
from typing import Any

import pytest
from dagster import AssetSpec

from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.orchestration.names import PUBLISH_JOB
from leads_pipeline.simulator.faults import Then
from leads_pipeline_tests.support.installation import installation
from leads_pipeline_tests.support.pulls import Pipeline, pipeline

VARIABLES = {
    "LEADS_BASE_URL": "https://leads.example",
    "LEADS_TIMEZONE": "Europe/London",
    "LEADS_BRANCH_IDS": "101",
}


def specs(folder: Path, **variables: str) -> dict[str, AssetSpec]:
    definitions = build_definitions({"LEADS_DATA_DIR": str(folder), **VARIABLES, **variables})
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


def test_each_asset_has_the_owners_of_the_settings(tmp_path: Path) -> None:
    found = specs(tmp_path, LEADS_OWNERS="data, me@agency.example").values()
    assert {tuple(spec.owners) for spec in found} == {("team:data", "me@agency.example")}


def test_what_holds_leads_or_knows_who_asked_is_tagged_as_personal(tmp_path: Path) -> None:
    found = specs(tmp_path)
    personal = {name for name, spec in found.items() if "pii" in spec.tags}
    assert personal >= {
        "raw_applicant_leads",
        "raw_appraisal_leads",
        *(kind.table for kind in LEAD_KINDS),
    }
    assert personal >= {"lead_facts", "applicant_viewing_times", "mart_people"}
    assert personal.isdisjoint(
        {"raw_inventory", "inventory", "branches", "mart_leads_daily", "leads_report"}
    )


def test_marts_and_files_of_ones_own_are_assets_with_what_they_read_whatever_is_wrong_with_them(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "marts"
    assert "a" not in specs(tmp_path, LEADS_MARTS_DIR=str(folder))  # there is no folder
    folder.mkdir()
    header = "-- One row per scope\n-- scope varchar: Scope\n\n"
    (folder / "a.sql").write_text(
        f"{header}select scope from Negotiators join lead_facts using (scope)"  # noqa: S608
    )
    (folder / "negotiators.csv").write_text("scope,name\n")
    (folder / "no_header.sql").write_text("select 1")
    (folder / "circle.sql").write_text(f"{header}from circle")
    (folder / "mart_people.sql").write_text(header)
    (folder / "not a name.csv").write_text("")

    found = specs(tmp_path, LEADS_MARTS_DIR=str(folder))

    own = {name: spec for name, spec in found.items() if spec.group_name == "own"}
    assert own.keys() == {"a", "negotiators", "no_header", "circle"}
    assert all("pii" in spec.tags for spec in own.values())
    assert {dep.asset_key.to_user_string() for dep in own["a"].deps} == {
        "negotiators",
        "lead_facts",
    }
    assert str(own["a"].description).startswith("One row per scope")
    [column] = own["a"].metadata["dagster/column_schema"].columns
    assert (column.name, column.type, column.description) == ("scope", "VARCHAR", "Scope")


def test_groups_and_tags_name_the_layer_and_kinds_the_technology(tmp_path: Path) -> None:
    found = specs(tmp_path).values()
    assert {spec.tags["layer"] for spec in found} == {"raw", "warehouse", "marts", "reports"}
    assert all(spec.tags["layer"] == spec.group_name and spec.kinds for spec in found)


def test_assets_have_to_be_fresh_each_morning_of_the_agency(tmp_path: Path) -> None:
    """Fault 108: of raw leads, the check `yesterday_has_landed` says it.

    A policy counts any old window.
    """
    policies: dict[str, Any] = {
        name: spec.freshness_policy for name, spec in specs(tmp_path).items()
    }
    assert policies.pop("raw_inventory") is None  # it isn't set up
    assert [policies.pop(f"raw_{kind.table}") for kind in LEAD_KINDS] == [None, None]
    assert {(policy.deadline_cron, policy.timezone) for policy in policies.values()} == {
        ("0 6 * * *", "Europe/London")
    }
    assert {spec.freshness_policy for spec in specs(tmp_path, LEADS_BASE_URL="").values()} == {None}


def test_each_asset_names_the_lines_that_make_it(tmp_path: Path) -> None:
    for name, spec in specs(tmp_path).items():
        files = [
            Path(one.file_path) for one in spec.metadata["dagster/code_references"].code_references
        ]
        assert files
        assert all(file.is_file() for file in files)
        if name.startswith("mart_"):
            assert files[0].name == f"{name}.sql"


def test_each_asset_says_where_its_data_lies(tmp_path: Path) -> None:
    for name, spec in specs(tmp_path).items():
        if spec.group_name == "raw":
            folder = {"raw_inventory": "inventory"}.get(name, name.removeprefix("raw_"))
            assert spec.metadata["dagster/uri"] == str(tmp_path / "raw" / folder)
        elif spec.group_name != "reports":  # the run says where the page is
            assert spec.metadata["dagster/table_name"] == f"leads.main.{name}"


def test_the_lineage_of_a_column_ends_at_columns_that_are_there(tmp_path: Path) -> None:
    columns = {}
    lineage = {}
    for name, spec in specs(tmp_path).items():
        if "dagster/column_schema" in spec.metadata:
            columns[name] = {
                column.name for column in spec.metadata["dagster/column_schema"].columns
            }
        if "dagster/column_lineage" in spec.metadata:
            lineage[name] = spec.metadata["dagster/column_lineage"].deps_by_column

    for name, deps_by_column in lineage.items():
        assert deps_by_column.keys() <= columns[name]
        for sources in deps_by_column.values():
            assert all(
                one.column_name in columns[one.asset_key.to_user_string()] for one in sources
            )
    people_are_from = {one.asset_key.to_user_string() for one in lineage["lead_facts"]["person"]}
    assert people_are_from == {kind.table for kind in LEAD_KINDS}


# --- runs -----------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path: Path) -> Any:
    with pipeline(tmp_path) as started:
        yield started


def test_a_run_says_how_many_windows_it_is_for_and_who_asked(here: Pipeline) -> None:
    here.run(here.tick())
    [run] = here.runs()
    assert (run.tags["leads_pipeline/windows"], run.tags["leads_pipeline/reason"]) == (
        "18",
        "retry",
    )


@pytest.mark.slow
def test_each_step_logs_what_it_begins_with_and_how_it_ends(tmp_path: Path) -> None:
    with installation(tmp_path) as here:
        here.pull(here.keys([2]))
        here.execute(PUBLISH_JOB, tags={})
        logs = []
        for run in here.runs():
            entries = here.instance.all_logs(run.run_id)
            logs.append([entry.user_message for entry in entries if entry.dagster_event is None])

    pull, publish = logs
    assert re.fullmatch(r"Pulling 3 windows of applicant leads, .*\.", pull[0])
    assert re.fullmatch(
        r"Landed 3 windows of applicant leads, \d+ new and 0 changed, in \d+\.\d s\. .*", pull[1]
    )
    assert publish[0].startswith("Publishing leads.duckdb")
    assert re.fullmatch(
        r"Published leads.duckdb \(new file\): 3 windows and \d+ leads changed, .* in \d.*",
        publish[1],
    )


def test_a_failure_links_to_the_page_of_the_partition_and_names_the_command_that_explains_it(
    here: Pipeline,
) -> None:
    """Fault 110: it named a page that a wheel doesn't have."""
    here.fail({here.key(1): Then(status=403)})

    failure = here.run(here.tick()).failure_data_for_node("raw_applicant_leads")

    assert failure is not None
    said = failure.user_failure_data
    assert said is not None
    assert str(said.description).endswith("\nWhat to do: `leads-pipeline explain windows-refused`")
    assert said.metadata["runbook"].value == "`leads-pipeline explain windows-refused`"
    key = here.key(1).replace("|", "%7C")
    assert said.metadata["partition"].value == f"/assets/raw_applicant_leads?partition={key}"
