import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest

from leads_pipeline.contract import APPLICANT
from leads_pipeline.duck import connection, write_anew
from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.flatten import statement
from leads_pipeline.lake import Lake
from leads_pipeline_tests.support.staging import DAY, land, stage, staged_leads


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
    monkeypatch.setattr(statement, "statements_of", statement.statements_of.__wrapped__)  # what isn't cached

    with pytest.raises(BugError, match="ConversionException") as caught:
        stage(lake, APPLICANT)

    assert "secret words" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert lake.staged_path("applicant_leads", DAY).read_bytes() == before


def test_a_file_that_a_failing_disk_does_not_show_is_not_taken_for_an_empty_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, anew, connect = tmp_path / "draft", tmp_path / "anew", duckdb.connect
    with connect(draft) as db:
        db.execute("create table leads as select 1 as one")

    def unseen(database: Path, **settings: Any) -> duckdb.DuckDBPyConnection:
        database.unlink()  # where its look for the file fails, DuckDB begins a new one
        return connect(database, **settings)

    monkeypatch.setattr(duckdb, "connect", unseen)
    with pytest.raises(StorageError, match="finds no table"):
        write_anew(Lake(tmp_path / "data"), draft, anew)
    assert not anew.exists()


def test_a_checkpoint_writes_little_anew_of_what_has_not_changed(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "data"), tmp_path / "file.duckdb"
    with duckdb.connect(path) as db:
        db.execute("set max_vacuum_tasks = 0")
        db.execute("create table other (number integer)")
        db.execute("create table large as select range as number from range(40 * 122_880)")
        db.execute("delete from large where number % 2 = 0")  # so two groups of rows would fit into one
        db.execute("checkpoint")

    def groups() -> set[tuple[int, int]]:
        """Where they lie in the file, of the column itself."""
        rows = "select block_id, block_offset from pragma_storage_info('large') where segment_type <> 'VALIDITY'"
        with duckdb.connect(path, read_only=True) as db:
            return {*db.execute(rows).fetchall()}

    before = groups()
    assert len(before) >= 40

    with connection(lake, "checkpoint", path) as db:
        db.execute("insert into other values (1)")
        db.execute("checkpoint")

    assert len(before - groups()) <= 8
