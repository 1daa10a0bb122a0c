"""The checks of raw leads and of the published file as Dagster shows them, and the file of names."""

from dagster import AssetCheckResult, AssetCheckSeverity

from leads_pipeline.domain.contract import lead_kind
from leads_pipeline.orchestration.asking import raw_key
from leads_pipeline.orchestration.checks import (
    published_check_specs,
    published_checks,
    raw_checks,
)
from leads_pipeline.orchestration.names import PLAIN
from leads_pipeline.orchestration.warehouse import branches_or_published_ones
from leads_pipeline.raw.branches import read_branches
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline_tests.support.house import DAY, NEXT_DAY, House

# --- raw leads ------------------------------------------------------------------------------------


def checked(house: House, kind: str) -> dict[str | None, AssetCheckResult]:
    """What the checks say of a kind of raw leads, by name."""
    of = lead_kind(kind)
    results = raw_checks(house.settings(), house.data, raw_key(of), of, house.now)
    return {one.check_name: one for one in results}


def test_refused_windows_fail_the_check_of_their_kind_until_they_land(house: House) -> None:
    for day in (DAY, NEXT_DAY):
        for scope in house.scopes:
            house.fail("applicant", day, scope)
            house.land("appraisal", [], day, scope)

    said = str(checked(house, "applicant")["windows"].description)
    assert said.startswith("- The portal refuses 4 applicant windows of ")
    assert checked(house, "appraisal")["windows"].description == "No problems."

    for day in (DAY, NEXT_DAY):
        for scope in house.scopes:
            house.land("applicant", [], day, scope)

    assert checked(house, "applicant")["windows"].description == "No problems."


def test_raw_leads_are_fresh_if_yesterdays_windows_have_landed(house: House) -> None:
    """Fault 108: a further look at any old window made the asset fresh."""
    house.land("applicant", [], NEXT_DAY)
    house.fail("applicant", NEXT_DAY, "branch-102")
    house.land("applicant", [], DAY)

    check = checked(house, "applicant")["yesterday_has_landed"]
    assert not check.passed
    said = str(check.description)
    assert "1 applicant window of branch-102, 2026-11-20" in said
    assert "leads-pipeline backfill --from 2026-11-20 --to 2026-11-20 --scope branch-102" in said

    house.land("applicant", [], NEXT_DAY, "branch-102")

    assert checked(house, "applicant")["yesterday_has_landed"].passed


# --- the published file ---------------------------------------------------------------------------


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
    blocking = {spec.name for spec in published_check_specs(PLAIN) if spec.blocking}
    assert blocking == {"lead_ids_are_unique"}


def test_a_slip_in_the_file_of_names_leaves_the_names_as_they_were(house: House) -> None:
    house.names = "id,name,region\n101,York,North\n102,Leeds,\n"
    house.publish()
    file = house.folder.parent / "branches.csv"
    store = LeadsFile(house.data)
    branches = branches_or_published_ones(file, store)
    assert branches == read_branches(file)
    file.write_text("id,name,region\n101,York,North\n101,Leeds,\n")
    assert branches_or_published_ones(file, store) == branches
