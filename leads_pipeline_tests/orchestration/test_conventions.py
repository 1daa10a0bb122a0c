"""What a data engineer looks for in Dagster's catalog and on the page of a run is there."""

from pathlib import Path
from typing import Any

import pytest
from dagster import AssetSpec

from leads_pipeline.definitions import build_definitions
from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.simulator.faults import Then
from leads_pipeline_tests.support.pulls import pipeline, text_of_failure

VARIABLES = {
    "LEADS_BASE_URL": "https://leads.example",
    "LEADS_TIMEZONE": "Europe/London",
    "LEADS_BRANCH_IDS": "101",
}


def specs(folder: Path, **variables: str) -> dict[str, AssetSpec]:
    definitions = build_definitions({"LEADS_DATA_DIR": str(folder), **VARIABLES, **variables})
    return {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AssetSpec]:
    return specs(tmp_path_factory.mktemp("data"))


def test_each_asset_has_the_owners_of_the_settings_and_a_layer(tmp_path: Path) -> None:
    found = specs(tmp_path, LEADS_OWNERS="data, me@agency.example").values()
    assert {tuple(spec.owners) for spec in found} == {("team:data", "me@agency.example")}
    assert {spec.tags["layer"] for spec in found} == {"raw", "warehouse", "marts", "reports"}
    assert all(spec.tags["layer"] == spec.group_name and spec.kinds for spec in found)


def test_what_holds_leads_or_knows_who_asked_is_tagged_as_personal(
    assets: dict[str, AssetSpec],
) -> None:
    personal = {name for name, spec in assets.items() if "pii" in spec.tags}
    for kind in LEAD_KINDS:
        assert personal >= {kind.table, f"raw_{kind.table}"}
    assert personal >= {"lead_facts", "applicant_viewing_times", "mart_people"}
    assert personal.isdisjoint({"inventory", "branches", "mart_leads_daily", "leads_report"})


def test_marts_and_files_of_ones_own_are_assets_with_what_they_read(tmp_path: Path) -> None:
    mart = "-- One row per scope\n-- scope varchar: Scope\n\nselect scope from Negotiators"
    (tmp_path / "a.sql").write_text(f"{mart} join lead_facts using (scope)")
    (tmp_path / "negotiators.csv").write_text("scope,name\n")
    (tmp_path / "no_header.sql").write_text("select 1")

    found = specs(tmp_path / "data", LEADS_MARTS_DIR=str(tmp_path))

    own = {name: spec for name, spec in found.items() if spec.group_name == "own"}
    assert own.keys() == {"a", "negotiators", "no_header"}
    assert all("pii" in spec.tags for spec in own.values())
    assert {dep.asset_key.path[0] for dep in own["a"].deps} == {"negotiators", "lead_facts"}


def test_assets_have_to_be_fresh_each_morning_of_the_agency(
    assets: dict[str, AssetSpec], tmp_path: Path
) -> None:
    """Fault 108: of raw leads, the check `yesterday_has_landed` says it.

    A policy counts any old window.
    """
    policies: dict[str, Any] = {name: spec.freshness_policy for name, spec in assets.items()}
    assert policies.pop("raw_inventory") is None  # it isn't set up
    assert [policies.pop(f"raw_{kind.table}") for kind in LEAD_KINDS] == [None, None]
    found = {(policy.deadline_cron, policy.timezone) for policy in policies.values()}
    assert found == {("0 6 * * *", "Europe/London")}
    assert {spec.freshness_policy for spec in specs(tmp_path, LEADS_BASE_URL="").values()} == {None}


def test_each_asset_names_the_lines_that_make_it_and_its_table(
    assets: dict[str, AssetSpec],
) -> None:
    for spec in assets.values():
        assert spec.metadata["dagster/code_references"].code_references

    mart = assets["mart_people"].metadata
    [file, *_] = mart["dagster/code_references"].code_references
    assert Path(file.file_path).is_file()
    assert Path(file.file_path).name == "mart_people.sql"
    assert mart["dagster/table_name"] == "leads.main.mart_people"


# --- runs -----------------------------------------------------------------------------------------


def test_a_failed_run_says_who_asked_for_how_many_windows_and_which_command_explains_the_failure(
    tmp_path: Path,
) -> None:
    """Fault 110: it named a page that a wheel doesn't have."""
    with pipeline(tmp_path) as here:
        key = here.key(1)
        here.fail({key: Then(status=403)})

        result = here.run(here.tick())

        [run] = here.instance.get_runs()
        assert run.tags["leads_pipeline/windows"] == "18"
        assert run.tags["leads_pipeline/reason"] == "retry"
        assert text_of_failure(result).endswith(
            "\nWhat to do: `leads-pipeline explain windows-refused`"
        )
        page = f"/assets/raw_applicant_leads?partition={key.replace('|', '%7C')}"
        failure: Any = result.failure_data_for_node("raw_applicant_leads")
        assert failure.user_failure_data.metadata["partition"].value == page
