"""Without the feature `privacy` everybody is let in, unless there is a suppression list.

Then nothing lands.
"""

from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.errors import StorageError
from leads_pipeline.raw.gatekeeper import OpenGate
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, TWENTY, WINDOW

PLACE = place_of(APPLICANT, WINDOW)
SENTENCE = (
    r"There is a suppression list .* lacks the feature `privacy`.* Nothing is landed or published"
)

# Each file by itself shows that somebody is on a list.
OF_A_LIST = {
    "the list": "privacy/list/00000001",
    "a list of an earlier version": "privacy/suppressed",
    "entries of an earlier version": "privacy/entries/00000001",
    "the guard of a list that is elsewhere": ".state/privacy",
}


def write(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("entry")


def test_everybody_is_let_in_if_nobody_is_on_a_list(tmp_path: Path) -> None:
    for key in ("privacy/key", "privacy/.lock", "privacy/receipts/1.txt"):
        write(tmp_path / key)
    gate = OpenGate(tmp_path)
    raw = Raw(FolderStore(tmp_path), gate)

    raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "body", "run")

    assert len(raw.read(PLACE).rows) == 20
    assert gate.newest_entry == 0
    assert gate.kept_out(APPLICANT, ["lead-01"]) == gate.objecting(APPLICANT, ["lead-01"]) == set()


@pytest.mark.parametrize("key", OF_A_LIST.values(), ids=OF_A_LIST)
def test_nothing_lands_if_there_is_a_list(tmp_path: Path, key: str) -> None:
    write(tmp_path / key)
    gate = OpenGate(tmp_path)
    raw = Raw(FolderStore(tmp_path), gate)

    with pytest.raises(StorageError, match=SENTENCE):
        raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "body", "run")
    with pytest.raises(StorageError, match=SENTENCE):
        raw.add(PLACE, TWENTY, CLOSED_AT)
    with pytest.raises(StorageError, match=SENTENCE):
        gate.objecting_people()

    assert raw.read(PLACE).rows == []


def test_a_list_in_the_bucket_is_named_when_machines_exchange_what_they_know(
    tmp_path: Path,
) -> None:
    bucket = FolderStore(tmp_path / "bucket")
    gate = OpenGate(tmp_path / "work", bucket)
    gate.exchange_with_bucket()

    bucket.create("privacy/list/00000001", b"entry")

    with pytest.raises(StorageError, match=SENTENCE):
        gate.exchange_with_bucket()


def test_a_list_in_a_backup_is_named(tmp_path: Path) -> None:
    gate = OpenGate(tmp_path / "data")
    gate.take_over(tmp_path / "backup")

    write(tmp_path / "backup" / "privacy" / "list" / "00000001")

    with pytest.raises(StorageError, match=SENTENCE):
        gate.take_over(tmp_path / "backup")
