"""The checks of what is usual, each seen passing and failing on a published file."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dagster import AssetCheckResult, AssetCheckSeverity

from leads_pipeline.assets.checks import habit_check_specs, habit_checks
from leads_pipeline.assets.published import completeness_check, known_branches, names_check
from leads_pipeline.branches import Branches, read_branches
from leads_pipeline.contract import APPLICANT, APPRAISAL
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.support.staging import DAY, LONDON, NEXT_DAY, land, stage

TODAY = date(2026, 11, 21)
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
GRID = Grid((Scope.parse("branch-101"), Scope.parse("branch-102")), TODAY - timedelta(days=40), LONDON)


@pytest.fixture
def store(usual: Lake, tmp_path: Path) -> Warehouse:
    """The usual days, to be changed."""
    return Warehouse(Lake(shutil.copytree(usual.folder, tmp_path / "data")))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Forty days of two branches and both kinds, about ten leads a day each, as usual in everything."""
    lake = Lake(tmp_path_factory.mktemp("usual") / "data")
    store = Warehouse(lake)
    store.publish(GRID, NOW)
    with changing(store) as db:
        for table in ("applicant_leads", "appraisal_leads"):
            db.execute(
                f"""
                insert into {table} by name
                select
                    uuid()::varchar as lead_id, $today - ago::integer as lead_day, scope, now() as created_at,
                    'x' as contact_email, 'x' as contact_phone_number, 'x' as intent, 'x' as enquiry_type,
                    'x' as lead_source
                from range(1, 41) as days(ago), (values ('branch-101'), ('branch-102')) as scopes(scope),
                    range(13) as leads(number)
                where number < 7 + ago * 5 % 7
                """,  # noqa: S608 - our own name
                {"today": TODAY},
            )
        db.execute(
            "update mart_coverage set state = 'landed', received = (select count(*) from applicant_leads "
            "where lead_day = day and applicant_leads.scope = mart_coverage.scope) where day < $today",
            {"today": TODAY},
        )
    return lake


@contextmanager
def changing(store: Warehouse) -> Iterator[duckdb.DuckDBPyConnection]:
    store.path.chmod(0o600)
    with duckdb.connect(store.path) as db:
        yield db


def results(store: Warehouse) -> dict[tuple[str, str], AssetCheckResult]:
    found = list(habit_checks(store))
    named = {
        (result.asset_key.to_user_string(), str(result.check_name)): result for result in found if result.asset_key
    }
    assert named.keys() == {(spec.asset_key.to_user_string(), spec.name) for spec in habit_check_specs()}
    return named


def failing(store: Warehouse) -> dict[str, Any]:
    bad = {names: result for names, result in results(store).items() if not result.passed}
    assert all(result.severity is AssetCheckSeverity.WARN for result in bad.values())
    return {f"{asset}: {name}": result.description for (asset, name), result in bad.items()}


def test_usual_days_pass(store: Warehouse) -> None:
    assert failing(store) == {}


def test_an_empty_warehouse_passes_all_but_freshness(tmp_path: Path) -> None:
    store = Warehouse(Lake(tmp_path / "data"))
    store.publish(GRID, NOW)

    assert list(failing(store)) == ["mart_coverage: every_branch_is_fresh"]


def test_a_field_that_is_suddenly_empty_fails(store: Warehouse) -> None:
    with changing(store) as db:
        db.execute("update appraisal_leads set contact_email = '' where lead_day >= '2026-11-18'")

    assert failing(store) == {
        "appraisal_leads: key_fields_are_filled_as_usual": ("- contact_email: empty in 43 % of leads, usually in 0 %")
    }


def test_a_lead_of_next_year_hides_nothing(store: Warehouse) -> None:
    with changing(store) as db:
        db.execute("update appraisal_leads set contact_email = '' where lead_day >= '2026-11-18'")
        db.execute("insert into appraisal_leads by name select '2027-11-18'::date as lead_day, 'odd' as lead_id")

    assert failing(store).keys() == {"appraisal_leads: key_fields_are_filled_as_usual"}


def test_a_field_that_was_always_empty_passes(store: Warehouse) -> None:
    with changing(store) as db:
        db.execute("update appraisal_leads set contact_email = null")

    assert failing(store) == {}


@pytest.mark.parametrize("leads", [0, 45])
def test_a_branch_that_suddenly_has_none_or_many_times_its_leads_fails(store: Warehouse, leads: int) -> None:
    with changing(store) as db:
        db.execute(
            "update mart_coverage set received = ? "
            "where day = '2026-11-20' and kind = 'applicant' and scope = 'branch-102'",
            [leads],
        )

    assert failing(store) == {
        "mart_leads_daily: volumes_are_as_usual": f"- applicant 2026-11-20|branch-102: {leads} leads, usually 10"
    }


def test_a_branch_whose_newest_day_is_old_fails(store: Warehouse) -> None:
    with changing(store) as db:
        db.execute("update mart_coverage set state = 'missing' where day >= '2026-11-20' and scope = 'branch-101'")
    assert failing(store) == {}

    with changing(store) as db:
        db.execute("update mart_coverage set state = 'failed' where day = '2026-11-19' and scope = 'branch-101'")

    assert failing(store) == {
        "mart_coverage: every_branch_is_fresh": (
            "- applicant branch-101: newest day 2026-11-18\n- appraisal branch-101: newest day 2026-11-18"
        )
    }


@pytest.fixture
def staged(tmp_path: Path) -> Lake:
    """Two published days that hold four leads; both hold the one of midnight, the later day in a newer version."""
    lake = Lake(tmp_path / "staged [data]")
    land(lake, APPLICANT, [{"id": "a"}, {"id": "b"}, {"id": "midnight"}])
    land(lake, APPLICANT, [{"id": "midnight", "message": "x"}, {"id": "c"}], day=NEXT_DAY, fetched_at=NOW)
    for day in (DAY, NEXT_DAY):
        stage(lake, APPLICANT, day)
    Warehouse(lake).publish(GRID, NOW)
    return lake


def completeness(lake: Lake) -> tuple[bool, dict[str, Any]]:
    result = completeness_check(Warehouse(lake), lake, APPLICANT)
    return result.passed, {name: value.value for name, value in result.metadata.items()}


def test_each_staged_lead_is_published_or_an_older_version_of_one_that_is(staged: Lake) -> None:
    assert completeness(staged) == (
        True,
        {"days": 2, "staged_rows": 5, "rows": 4, "leads_missing": 0, "days_with_more_than_staged": []},
    )
    assert completeness_check(Warehouse(staged), staged, APPRAISAL).passed


@pytest.mark.parametrize(
    ("harm", "missing", "more"),
    [
        ("delete from applicant_leads where lead_id = 'b'", 1, []),
        ("delete from applicant_leads", 5, []),
        ("update applicant_leads set sequence = 0 where lead_id = 'midnight'", 1, []),
        ("update applicant_leads set window_day = '2026-11-18' where lead_id = 'b'", 1, ["2026-11-18"]),
        ("insert into applicant_leads by name select '2026-11-20'::date as window_day", 0, ["2026-11-20"]),
    ],
)
def test_a_published_file_that_is_not_the_staged_leads_fails(
    staged: Lake, harm: str, missing: int, more: list[str]
) -> None:
    with changing(Warehouse(staged)) as db:
        db.execute(harm)

    passed, figures = completeness(staged)

    assert not passed
    assert (figures["leads_missing"], figures["days_with_more_than_staged"]) == (missing, more)


def test_a_day_staged_again_since_is_the_next_publications(staged: Lake) -> None:
    land(staged, APPLICANT, [{"id": "d"}], scope="branch-102")
    stage(staged, APPLICANT)

    assert completeness(staged)[0]
    assert completeness(staged)[1]["days"] == 1


def test_a_slip_in_the_file_of_names_warns_and_the_names_stay(tmp_path: Path) -> None:
    store, file = Warehouse(Lake(tmp_path / "data")), tmp_path / "branches.csv"
    file.write_text("id,name,region\n101,York,North\n102,Leeds,\n")
    branches, trouble = known_branches(file, store)
    assert (branches, names_check(trouble).passed) == (read_branches(file), True)
    store.publish(replace(GRID, branches=branches), NOW)
    file.write_text("id,name,region\n101,York,North\n101,Leeds,\n")

    branches, trouble = known_branches(file, store)

    assert not store.publish(replace(GRID, branches=branches), NOW).is_changed
    result = names_check(trouble)
    assert (result.passed, result.severity) == (False, AssetCheckSeverity.WARN)
    assert "has 101 a second time in row 3. Keep one of them. Until then the names stay as they were." in str(
        result.description
    )


def test_a_slip_in_the_file_of_names_before_the_first_publication_leaves_the_scopes(tmp_path: Path) -> None:
    assert known_branches(tmp_path, Warehouse(Lake(tmp_path / "data")))[0] == Branches()
