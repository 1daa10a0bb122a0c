"""Damaged files with the windows that they came from, and answers that couldn't be read."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import RawFile, place_of
from leads_pipeline.raw.quarantine import Quarantine, Quarantined
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, LATER, TWENTY, WINDOW

PLACE = place_of(APPLICANT, WINDOW)


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


@pytest.fixture
def quarantine(tmp_path: Path, store: FolderStore) -> Quarantine:
    return Quarantine(store, tmp_path / "here")


def test_a_damaged_raw_file_is_listed_with_its_window_and_when_it_was_set_aside(
    store: FolderStore, quarantine: Quarantine, tmp_path: Path
) -> None:
    raw = Raw(store, KeptOut(tmp_path / "kept_out"), lambda: LATER)
    raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "hash", "run-1")
    [key] = store.list(PLACE.key)
    store.create(key, b"damaged")
    raw.read(PLACE)

    [entry] = quarantine.files()
    assert entry == Quarantined(entry.key, PLACE, RawFile.parse(key), LATER)
    assert entry.file
    assert (entry.file.state, entry.file.leads) == ("closed", 20)
    assert quarantine.get(entry.key) == b"damaged"
    quarantine.delete([entry.key])
    assert quarantine.files() == []


def test_the_newest_answer_that_cannot_be_read_is_kept_for_each_window_until_it_is_forgotten(
    quarantine: Quarantine, tmp_path: Path
) -> None:
    for body in (b"<html>", b"<html>again"):
        quarantine.keep_answer(APPLICANT, WINDOW, body)
    quarantine.keep_answer(APPRAISAL, WINDOW, b"<html>")
    keys = [
        f"quarantine/answers/{kind}_leads/day=2026-11-19/scope=branch-101"
        for kind in ("applicant", "appraisal")
    ]
    assert quarantine.answers() == keys
    assert quarantine.get(keys[0]) == b"<html>again"
    assert quarantine.files() == []

    os.utime(tmp_path / "store" / keys[0], (0, 0))
    quarantine.forget_answers(datetime.now(UTC) - timedelta(days=30))
    assert quarantine.answers() == keys[1:]
