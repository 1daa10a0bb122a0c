"""What Dagster knows of each window, after real runs and after what can happen to them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from dagster import DagsterRunStatus

from leads_pipeline.contract import APPLICANT, APPRAISAL, LEAD_KINDS
from leads_pipeline.definitions import PULL_JOB
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG
from leads_pipeline.simulator.faults import Then
from leads_pipeline.status import WindowState, coverage, failed_windows, verdicts
from leads_pipeline_tests.support.installation import Installation, installation

BROKEN = Then(status=500)
REFUSED = Then(status=403)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, first=5) as started:
        yield started


def attempts(here: Installation) -> dict[str, int]:
    found = failed_windows(here.instance, here.settings, here.partitions)
    return {window.partition_key: failed.attempts for (_, window), failed in found.items()}


def test_nothing_is_known_before_the_first_run(here: Installation) -> None:
    status = here.status()
    assert (status.landed, status.failed, status.under_way) == (frozenset(), frozenset(), frozenset())
    assert attempts(here) == {}


def test_a_window_that_lands_at_last_is_no_longer_failed_and_counts_anew(here: Installation) -> None:
    key = here.key(2)
    here.simulator.set_faults(here.rules([key], BROKEN))
    for _ in range(2):
        here.pull({key})
    assert attempts(here) == {key: 2}
    here.simulator.set_faults([])
    here.pull({key})
    assert attempts(here) == {}
    here.simulator.set_faults(here.rules([key], BROKEN))
    here.pull({key})
    assert here.status().failed == {key}
    assert here.status().landed == frozenset()
    assert attempts(here) == {key: 1}


def test_planned_windows_are_under_way_until_their_run_ends(here: Installation) -> None:
    tags = {RANGE_START_TAG: here.key(3, 101), RANGE_END_TAG: here.key(2, 103)}
    job = here.definitions.resolve_job_def(PULL_JOB)
    run = here.instance.create_run_for_job(job, tags=tags, status=DagsterRunStatus.STARTED)
    assert here.status().under_way == here.status(APPRAISAL).under_way == here.keys([2, 3])
    here.instance.report_run_failed(run)
    assert here.status().under_way == set()
    assert here.status().failed == here.keys([2, 3])
    [one, *others] = failed_windows(here.instance, here.settings, here.partitions).values()
    assert one.error == "The run ended before it came to this window."
    assert len(others) == 11


def test_verdicts_are_read_once_by_their_place(here: Installation) -> None:
    here.simulator.set_faults([*here.rules([here.key(2, 101)], BROKEN), *here.rules([here.key(2, 103)], REFUSED)])
    here.pull(here.keys([2]))
    found = list(verdicts(here.instance, APPLICANT))
    assert {(verdict.key, verdict.is_permanent, verdict.reason) for _, verdict in found} == {
        (here.key(2, 101), False, "server error (500)"),
        (here.key(2, 103), True, "refused (403)"),
    }
    assert list(verdicts(here.instance, APPLICANT, after_id=found[0][0])) == found[1:]
    assert list(verdicts(here.instance, APPLICANT, after_id=found[1][0])) == []
    assert list(verdicts(here.instance, APPLICANT, after_id=10**9)) == found


def test_verdicts_are_read_over_several_pages(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leads_pipeline.status._PAGE", 2)
    here.simulator.set_faults(here.rules(here.keys([2, 3]), REFUSED))
    here.pull(here.keys([2, 3]))
    assert sorted(verdict.key for _, verdict in verdicts(here.instance, APPLICANT)) == sorted(here.keys([2, 3]))


def test_a_scope_that_was_removed_is_in_no_status(here: Installation) -> None:
    here.simulator.set_faults(here.rules([here.key(2, 102)], BROKEN))
    here.pull(here.keys([2]))
    here.environment["LEADS_BRANCH_IDS"] = "101,103"
    assert here.status().failed == set()
    assert here.status().landed == here.keys([2], [101, 103])
    here.environment["LEADS_BRANCH_IDS"] = "101,102,103"
    assert here.status().failed == {here.key(2, 102)}


def test_a_changed_time_zone_forgets_nothing(here: Installation) -> None:
    wanted = here.keys([2, 3])
    here.pull(wanted)
    here.environment["LEADS_TIMEZONE"] = "America/New_York"
    assert here.status().landed == wanted


def test_coverage_knows_each_state(here: Installation) -> None:
    here.simulator.set_faults(
        [
            *here.rules([here.key(2, 101)], BROKEN),
            *here.rules([here.key(3, 101)], Then(status=200, body='{"applicants":[]}')),
        ]
    )
    here.pull(here.keys([2, 3]))
    here.pull(here.keys([0]))
    tags = {RANGE_START_TAG: here.key(4, 101), RANGE_END_TAG: here.key(4, 101)}
    here.instance.create_run_for_job(
        here.definitions.resolve_job_def(PULL_JOB), tags=tags, status=DagsterRunStatus.STARTED
    )
    now = datetime.now(UTC)
    if now.date() != here.now.date():
        pytest.skip("Midnight has passed since the test began, so that its today is over.")
    found = {
        one.window.partition_key: one
        for one in coverage(here.instance, here.settings, here.partitions, here.lake, here.day(4), now)
        if one.kind == APPLICANT
    }
    assert {key: one.state for key, one in found.items() if key.endswith("101")} == {
        here.key(4): WindowState.UNDER_WAY,
        here.key(3): WindowState.EMPTY,
        here.key(2): WindowState.FAILED,
        here.key(1): WindowState.MISSING,
        here.key(0): WindowState.OPEN,
    }
    assert found[here.key(2, 101)].failed is not None
    assert found[here.key(3, 101)].rows == 0
    assert found[here.key(1, 101)].rows is None
    later = coverage(here.instance, here.settings, here.partitions, here.lake, here.day(0), now + timedelta(days=1))
    assert {one.state for one in later if one.kind == APPLICANT and one.window.day == here.day(0)} == {
        WindowState.MISSING
    }
    assert len(found) == 15
    assert len(LEAD_KINDS) == 2
