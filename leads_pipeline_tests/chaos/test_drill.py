"""A data folder is destroyed and restored, and its windows are pulled again by the portal's own book."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.simulator.app import Config
from leads_pipeline.transform.reading import LeadsFile
from leads_pipeline_tests.support.command_line import run
from leads_pipeline_tests.support.installation import Installation, installation


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, Config(branches=2, leads_per_day=4)) as started:
        yield started


def pull(here: Installation, first: int, last: int) -> None:
    result = run("backfill", "--from", here.day(first), "--to", here.day(last))
    assert result.exit_code == 0, result.output


def published(here: Installation) -> list[str]:
    _, rows = LeadsFile(here.data).query(
        "select lead_id from applicant_leads union all select lead_id from appraisal_leads"
    )
    return [lead for (lead,) in rows]


def test_a_window_that_the_history_says_is_landed_is_pulled_again_where_its_file_is_not_in_the_backup(
    here: Installation, tmp_path: Path
) -> None:
    pull(here, 2, 1)
    raw = here.settings.data_dir / "raw" / "applicant_leads" / f"day={here.day(1)}" / "scope=branch-101"
    shutil.rmtree(raw)
    assert run("backup", tmp_path / "target").exit_code == 1  # and the backup is made
    shutil.rmtree(here.settings.data_dir)
    shutil.rmtree(tmp_path / "home")
    assert run("restore", tmp_path / "target").exit_code == 0
    assert run("coverage", "--days", 2).exit_code == 1
    pull(here, 2, 1)
    assert set(published(here)) >= here.truth(APPLICANT, [1, 2])
    assert run("coverage", "--days", 2).exit_code == 0
