"""What a publication asks the gatekeeper, in an installation without the feature `privacy`."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import StorageError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.gatekeeper import OpenGate
from leads_pipeline.warehouse.shown import NoteObjections, ShowEverybody
from leads_pipeline.warehouse.step import Changes, Draft


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    """A data folder without the feature."""
    return replace(DataFolder.at(tmp_path), gate=OpenGate(tmp_path))


def test_a_new_file_is_built_when_raw_files_were_rewritten(data: DataFolder) -> None:
    step = ShowEverybody(data)
    before = step.shown_by()
    assert step.shown_by() == before

    data.state.note_rewriting()

    assert step.shown_by() != before


def test_nothing_is_published_if_there_is_a_list(data: DataFolder) -> None:
    guard = data.folder / ".state" / "privacy"
    guard.parent.mkdir()
    guard.write_text("1 mark")

    with pytest.raises(StorageError, match=r"There is a suppression list .* Nothing is landed"):
        ShowEverybody(data).shown_by()


def test_nobody_objects(data: DataFolder) -> None:
    with closing(duckdb.connect()) as db:
        db.execute("create schema pipeline")
        for kind in LEAD_KINDS:
            db.execute(f"create table {kind.table} (lead_id varchar, person uuid)")
            db.execute(f"insert into {kind.table} values (?, uuid())", ["a lead"])  # noqa: S608 - our own names

        NoteObjections(data).fill(Draft(data.folder, db, Changes(1, {}, is_new=True)))

        assert db.execute("from pipeline.objected").fetchall() == []
