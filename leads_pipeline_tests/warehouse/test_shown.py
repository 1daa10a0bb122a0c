"""What a publication asks the gatekeeper, in an installation without the feature `privacy`."""

from dataclasses import replace
from pathlib import Path

import pytest

from leads_pipeline.errors import StorageError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.gatekeeper import OpenGate
from leads_pipeline.warehouse.shown import ShowEverybody


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    """A data folder without the feature."""
    return replace(DataFolder.at(tmp_path), gate=OpenGate(tmp_path))


def test_nothing_is_published_if_there_is_a_list(data: DataFolder) -> None:
    guard = data.folder / ".state" / "privacy"
    guard.parent.mkdir()
    guard.write_text("1 mark")

    with pytest.raises(StorageError, match=r"There is a suppression list .* Nothing is landed"):
        ShowEverybody(data).forgets_if()


def test_a_new_file_is_built_when_raw_files_were_rewritten(data: DataFolder) -> None:
    step = ShowEverybody(data)
    before = step.forgets_if()
    assert step.forgets_if() == before

    data.state.note_rewriting()

    assert step.forgets_if() != before
