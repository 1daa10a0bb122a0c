"""The checks that compare the published file with staged leads, and the file of names."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from dagster import AssetCheckSeverity

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
    path = Warehouse(staged).path
    path.chmod(0o600)
    with duckdb.connect(path) as db:
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
