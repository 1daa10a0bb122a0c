"""Damaged files with the windows that they came from, and answers that couldn't be read."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL
from leads_pipeline.raw.quarantine import Quarantine
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.support.sample_answers import WINDOW


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(FolderStore(tmp_path / "store"), tmp_path / "here")


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

    os.utime(tmp_path / "store" / keys[0], (0, 0))
    quarantine.forget_answers(datetime.now(UTC) - timedelta(days=30))
    assert quarantine.answers() == keys[1:]
