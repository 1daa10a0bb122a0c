import shutil
from pathlib import Path

import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.errors import BugError
from leads_pipeline.flatten import statement
from leads_pipeline.lake import Lake
from leads_pipeline_tests.staging import DAY, land, stage, staged_leads


def test_a_folder_whose_name_reads_like_a_pattern_is_a_folder(tmp_path: Path) -> None:
    lake, decoy = Lake(tmp_path / "da[t]a * 'of' ünï=x"), Lake(tmp_path / "data z 'of' ünï=x")
    land(decoy, APPLICANT, [{"id": "of another folder"}])
    (foreign,) = [window.path for window in decoy.landed_windows(APPLICANT, DAY)]
    where_links_go = decoy.folder / ".state" / "duckdb" / f"staged-{DAY}-raw"
    where_links_go.mkdir(parents=True)
    shutil.copyfile(foreign, where_links_go / "0.parquet")

    land(lake, APPLICANT, [{"id": "of this one"}])
    stage(lake, APPLICANT)

    assert staged_leads(lake, APPLICANT).keys() == {"of this one"}


def test_an_error_of_duckdb_neither_quotes_a_lead_nor_replaces_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "data")
    land(lake, APPLICANT, [{"id": "a", "message": "secret words"}])
    stage(lake, APPLICANT)
    before = lake.staged_path("applicant_leads", DAY).read_bytes()
    monkeypatch.setattr(statement, "_plain_lead_statement", lambda _: "select body::integer from plain_leads")

    with pytest.raises(BugError, match="ConversionException") as caught:
        stage(lake, APPLICANT)

    assert "secret words" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert lake.staged_path("applicant_leads", DAY).read_bytes() == before
