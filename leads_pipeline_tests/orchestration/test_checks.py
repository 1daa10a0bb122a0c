"""The checks of the published file as Dagster shows them, and the file of names."""

from dagster import AssetCheckSeverity

from leads_pipeline.orchestration.checks import published_check_specs, published_checks
from leads_pipeline.orchestration.names import PLAIN
from leads_pipeline.orchestration.warehouse import branches_or_published_ones
from leads_pipeline.raw.branches import read_branches
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline_tests.support.house import House


def test_each_check_has_a_result_that_names_its_problems(house: House) -> None:
    house.land("applicant", [{"id": str(n), "mood": n} for n in range(3)])
    house.publish()

    with LeadsFile(house.data).reading() as db:
        results = list(published_checks(db, PLAIN))

    assert [(one.asset_key, one.check_name) for one in results] == [
        (spec.asset_key, spec.name) for spec in published_check_specs(PLAIN)
    ]
    [drift] = [one for one in results if one.check_name == "contract_knows_what_comes"]
    assert (drift.passed, drift.severity) == (False, AssetCheckSeverity.WARN)
    assert drift.description == "- applicant: new field mood, 3 leads since 2026-11-19"
    assert {spec.name for spec in published_check_specs(PLAIN) if spec.blocking} == {
        "lead_ids_are_unique"
    }


def test_a_slip_in_the_file_of_names_leaves_the_names_as_they_were(house: House) -> None:
    house.names = "id,name,region\n101,York,North\n102,Leeds,\n"
    house.publish()
    file = house.folder.parent / "branches.csv"
    store = LeadsFile(house.data)
    branches = branches_or_published_ones(file, store)
    assert branches == read_branches(file)
    file.write_text("id,name,region\n101,York,North\n101,Leeds,\n")
    assert branches_or_published_ones(file, store) == branches
