"""A pull without the UI: in one run, on the instance that the UI shows."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL
from leads_pipeline.orchestration.runs import PullReport, pull, run_job
from leads_pipeline.simulator.faults import Then
from leads_pipeline_tests.support.pulls import Pipeline, pipeline


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Pipeline]:
    with pipeline(tmp_path) as started:
        yield started


def test_any_list_of_windows_is_pulled_in_one_run_and_progress_is_told(here: Pipeline) -> None:
    keys = {APPLICANT: [here.key(1), here.key(3, 102)], APPRAISAL: [here.key(2, 103)]}
    steps: list[int] = []

    def progress(so_far: PullReport) -> None:
        steps.append(sum(so_far.landed.values()))

    report = pull(here.definitions, here.instance, keys, progress)

    assert report.succeeded
    assert report.landed == {"applicant_leads": 2, "appraisal_leads": 1}
    assert steps == [1, 2, 3]
    assert here.shown() == dict.fromkeys(keys[APPLICANT], "MATERIALIZED")
    assert len(here.runs()) == 1
    # What was landed before counts as landed.
    assert pull(here.definitions, here.instance, keys).landed == report.landed


def test_the_report_says_which_windows_failed_and_why(here: Pipeline) -> None:
    here.fail({here.key(1): Then(status=403)})

    report = pull(here.definitions, here.instance, {APPLICANT: [here.key(1), here.key(2)]})

    assert not report.succeeded
    assert report.landed == {"applicant_leads": 1}
    [(window, (reason, message))] = report.failed.items()
    assert window == ("applicant_leads", here.key(1))
    assert reason == "refused (403)"
    assert "Asking again doesn't help" in message


def test_a_folder_that_cannot_be_read_is_an_error_in_words(here: Pipeline) -> None:
    here.folder.folder.mkdir()
    (here.folder.folder / "raw").write_text("a file in the folder's place")

    report = pull(here.definitions, here.instance, {APPLICANT: [here.key(1)]})

    assert not report.succeeded
    assert report.failed == {}
    assert "can't be read" in str(report.error)


def test_a_run_that_ends_with_an_unforeseen_error_tells_the_error() -> None:
    @dg.op
    def read() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    @dg.job
    def reads() -> None:
        read()

    with dg.DagsterInstance.ephemeral() as instance:
        assert (
            run_job(dg.Definitions(jobs=[reads]), instance, "reads")
            == "OSError: [Errno 5] Input/output error"
        )
