"""Windows that are due are asked for, pulled, and shown in Dagster.

Nothing is decided by Dagster's events.
"""

import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from dagster import (
    AssetKey,
    DagsterEvent,
    DagsterRunStatus,
    SkipReason,
)
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from leads_pipeline.domain.contract import APPLICANT, APPRAISAL, LeadKind
from leads_pipeline.features.privacy.gatekeeper import list_of
from leads_pipeline.orchestration.asking import pull_request
from leads_pipeline.orchestration.dead_runs import MACHINE_TAG, end_dead_runs
from leads_pipeline.orchestration.names import PLAIN, PULL_JOB
from leads_pipeline.portal import LeadsClient
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.raw.windows import WindowState
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline_tests.support.people import listed
from leads_pipeline_tests.support.pulls import (
    DAY,
    HOUR,
    MINUTE,
    Pipeline,
    pipeline,
    text_of_failure,
)

RAW = AssetKey("raw_applicant_leads")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Pipeline]:
    with pipeline(tmp_path) as started:
        yield started


def verdict(here: Pipeline, key: str, kind: LeadKind = APPLICANT) -> str:
    """The verdict on a window that failed."""
    failure = here.row(key, kind).failure
    return failure.verdict if failure else "none"


# --- what is asked for ----------------------------------------------------------------------------


def test_windows_that_are_due_are_pulled_in_one_run_soonest_deleted_first(here: Pipeline) -> None:
    request = here.tick("pull_daily")
    wanted = sorted(here.keys([1, 2, 3]))
    assert here.asked_for() == {"applicant": wanted, "appraisal": wanted}

    assert here.run(request).success

    assert here.shown(APPLICANT) == here.shown(APPRAISAL) == dict.fromkeys(wanted, "MATERIALIZED")
    assert here.tick() == SkipReason("No window is due.")


def test_the_hourly_schedule_pulls_the_day_under_way(here: Pipeline) -> None:
    assert here.run(here.tick("pull_hourly")).success

    assert here.shown() == dict.fromkeys(here.keys([0]), "MATERIALIZED")
    assert here.row(here.key(0)).state is WindowState.OPEN


def test_while_a_pull_is_under_way_or_waits_nothing_is_asked_for(here: Pipeline) -> None:
    with here.data.state.pulling():
        assert "under way" in str(here.tick())

    here.clock.now = datetime.now(UTC)  # Dagster's own
    run_of(here, DagsterRunStatus.NOT_STARTED)

    assert "under way" in str(here.tick())
    assert "under way" in str(here.tick("pull_daily"))


def run_of(here: Pipeline, status: DagsterRunStatus) -> None:
    """Have a pull of that status, by Dagster's own clock."""
    location = RegisteredCodeLocationOrigin("leads_pipeline.definitions")
    repository = RemoteRepositoryOrigin(location, "__repository__")
    here.instance.create_run_for_job(
        here.definitions.resolve_job_def(PULL_JOB),
        status=status,
        tags=PLAIN.run_tags,
        remote_job_origin=RemoteJobOrigin(repository, PULL_JOB),
    )


def test_a_pull_whose_process_was_killed_is_ended_and_what_it_left_is_asked_for(
    here: Pipeline,
) -> None:
    run_of(here, DagsterRunStatus.STARTED)
    here.clock.now = datetime.now(UTC) + 9 * MINUTE
    assert "under way" in str(here.tick())

    here.clock.now += 2 * MINUTE

    assert here.asked_for().keys() == {"applicant", "appraisal"}
    assert [run.status for run in here.instance.get_runs()] == [DagsterRunStatus.FAILURE]


def test_a_pull_of_a_clock_that_ran_ahead_keeps_no_other_waiting(here: Pipeline) -> None:
    """Fault 76: such a run stayed "under way" until the clock was there again."""
    run_of(here, DagsterRunStatus.QUEUED)
    run_of(here, DagsterRunStatus.STARTING)
    here.clock.now = datetime.now(UTC) - DAY

    assert here.asked_for().keys() == {"applicant", "appraisal"}
    assert [run.status for run in here.instance.get_runs()] == [DagsterRunStatus.FAILURE] * 2


def test_a_command_of_another_machine_with_the_same_bucket_is_not_ended(
    here: Pipeline, tmp_path: Path
) -> None:
    data = DataFolder.at(tmp_path / "work", bucket=FolderStore(tmp_path / "bucket"))
    here_too = platform.node()
    for machine in ("another", here_too):
        run = here.instance.create_run_for_job(
            here.definitions.resolve_job_def(PULL_JOB), tags={MACHINE_TAG: machine}
        )
        here.instance.report_dagster_event(DagsterEvent("PIPELINE_START", PULL_JOB), run.run_id)

    end_dead_runs(here.instance, data, datetime.now(UTC) + HOUR, lambda _: None)

    statuses = {run.tags[MACHINE_TAG]: run.status for run in here.instance.get_runs()}
    assert statuses == {"another": DagsterRunStatus.STARTED, here_too: DagsterRunStatus.FAILURE}


def test_a_pull_lands_nobody_who_was_erased_on_another_machine_with_the_same_bucket(
    here: Pipeline, tmp_path: Path
) -> None:
    bucket = FolderStore(tmp_path / "bucket")
    other = DataFolder.at(tmp_path / "other", bucket=bucket, clock=here.clock)
    here.bucket = bucket
    here.start()
    ids = here.truth(APPLICANT, [here.key(1)])
    listed(list_of(other), emails=(), leads=[("applicant", ids.pop())])

    assert here.run(here.tick("pull_daily")).success

    place = place_of(APPLICANT, here.window(here.key(1)))
    assert {row.lead_id for row in here.data.raw.read(place).rows} == ids


# --- what fails -----------------------------------------------------------------------------------


def test_failed_windows_are_red_say_why_and_cost_the_others_nothing(here: Pipeline) -> None:
    """And the run says when they are asked for again (fault 107)."""
    refused = here.key(1)
    busy = here.key(2, 102)
    broken = here.key(3, 103)
    here.fail(
        {refused: Then(status=403), busy: Then(status=500), broken: Then(status=200, body="<html>")}
    )

    result = here.run(here.tick())

    assert not result.success
    failed = dict.fromkeys((refused, busy, broken), "FAILED")
    assert here.shown() == dict.fromkeys(here.keys([1, 2, 3]), "MATERIALIZED") | failed
    assert set(here.shown(APPRAISAL).values()) == {"MATERIALIZED"}
    said = {}
    for record in here.instance.fetch_observations(RAW, 10).records:
        if record.asset_observation:
            said[record.partition_key] = record.asset_observation.metadata["verdict"].value
    assert said == {refused: "refused", busy: "temporary", broken: "temporary"}
    text = text_of_failure(result)
    checks = {(one.asset_key, one.check_name): one for one in result.get_asset_check_evaluations()}
    assert not checks[RAW, "windows"].passed
    assert text.startswith("3 of 9 windows failed.")
    assert "refused (403): 1 (" in text
    assert "The service asks for 3 windows again, from 2026-11-21 06:10 UTC on." in text


def test_a_failed_window_is_asked_for_after_its_wait_and_turns_green(here: Pipeline) -> None:
    here.fail({here.key(1): Then(status=500), here.key(2): Then(status=403)})
    here.run(here.tick())
    assert here.tick() == SkipReason("No window is due.")

    here.clock.now += 11 * MINUTE
    here.fail({})
    assert here.asked_for() == {"applicant": [here.key(1)]}
    here.run(here.tick())
    assert here.shown()[here.key(1)] == "MATERIALIZED"

    here.clock.now += DAY
    assert here.key(3) in here.asked_for()["applicant"]  # two days ago at the start


def test_a_client_without_the_right_to_one_kind_is_named_at_the_second_run_and_gets_the_other_kind(
    here: Pipeline,
) -> None:
    """Fault 75: the first 401 may pass. A second one, with another token, is a refusal."""
    here.simulator.set_faults([Rule(Then(status=401), When(path="/appraisal-leads"))])
    key = here.key(1)

    here.run(here.tick())
    assert set(here.shown(APPLICANT).values()) == {"MATERIALIZED"}
    assert verdict(here, key, APPRAISAL) == "temporary"

    here.clock.now += 11 * MINUTE
    assert here.asked_for().keys() == {"appraisal"}
    here.run(here.tick())
    assert verdict(here, key, APPRAISAL) == "refused"
    assert "appraisal leads of branch-101" in str(here.row(key, APPRAISAL).failure)


def test_a_401_beside_accepted_requests_for_the_same_branch_is_temporary(here: Pipeline) -> None:
    """Fault 75: another 401 in the next run is the first one of which nothing was accepted."""
    here.fail({here.key(1): Then(status=401)})

    here.run(here.tick())
    here.clock.now += HOUR
    here.run(here.tick())

    assert verdict(here, here.key(1)) == "temporary"


@pytest.mark.slow
def test_a_corrected_secret_has_refused_windows_asked_for_at_the_first_tick(here: Pipeline) -> None:
    right = here.environment["LEADS_CLIENT_SECRET"]
    here.start(LEADS_CLIENT_SECRET="wrong")
    assert not here.run(here.tick()).success
    assert set(here.shown().values()) == {"FAILED"}
    here.clock.now += HOUR
    assert here.tick() == SkipReason("No window is due.")

    here.start(LEADS_CLIENT_SECRET=right)
    here.clock.now += MINUTE
    assert here.run(here.tick()).success
    assert set(here.shown().values()) == {"MATERIALIZED"}


def test_windows_that_a_run_never_came_to_count_as_no_failure_and_are_asked_for_next(
    here: Pipeline,
) -> None:
    here.simulator.set_faults([Rule(Then(status=503, headers={"retry-after": "600"}))])

    assert not here.run(here.tick()).success

    waiting = {key for key in here.keys([1, 2, 3]) if here.row(key).failure is None}
    assert 0 < len(waiting) < 9
    assert set(here.asked_for()["applicant"]) == waiting


def test_the_hours_that_arrive_of_a_large_window_are_kept_and_it_stays_failed(
    here: Pipeline,
) -> None:
    window = here.window(here.key(1))
    path = "/applicant-leads"
    midnight = f"{window.start:%Y-%m-%dT%H:%M}"
    noon = f"{window.start + 12 * HOUR:%Y-%m-%dT%H:%M}"
    whole_day = When(path=path, scope=window.scope.key, from_time=midnight, first=1)
    one_hour = When(path=path, scope=window.scope.key, from_time=noon)
    here.simulator.set_faults([Rule(Then(status=413), whole_day), Rule(Then(status=500), one_hour)])

    assert not here.run(here.tick()).success

    row = here.row(here.key(1))
    assert row.state is WindowState.FAILED
    assert row.leads > 0
    assert here.shown()[here.key(1)] == "FAILED"


# --- what is shown --------------------------------------------------------------------------------


def test_a_person_gets_each_window_that_was_asked_for_also_a_landed_one(here: Pipeline) -> None:
    first = here.key(2, 101)
    last = here.key(1, 102)
    here.pull([first])
    here.fail({last: Then(status=403)})
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}

    before = here.asked()

    assert not here.execute(tags=tags, assets=[RAW]).success

    asked = {first, here.key(2, 102), here.key(1, 101), last}
    assert (here.asked() - before).keys() == asked
    assert here.shown()[last] == "FAILED"


class KilledClient(LeadsClient):
    """A client whose run is killed after two windows."""

    def fetch_windows(self, *arguments: Any) -> Iterator[Any]:
        yield from islice(super().fetch_windows(*arguments), 2)
        raise KilledError


class KilledError(BaseException):
    """A run's process ends here."""


def test_what_a_killed_run_has_landed_is_shown_by_the_next_automatic_run(here: Pipeline) -> None:
    here.client = KilledClient
    assert not here.run(here.tick()).success
    here.client = LeadsClient
    landed = {key for key in here.keys([1, 2, 3]) if here.row(key).fetched_at}
    assert len(here.shown()) < len(landed)

    # Nothing is decided by what Dagster shows: only the others are asked for.
    assert set(here.asked_for().get("applicant", ())) == here.keys([1, 2, 3]) - landed

    here.clock.now += DAY
    here.run(here.tick())
    assert here.shown() == dict.fromkeys(here.keys([1, 2, 3, 4]), "MATERIALIZED")


def test_a_landed_window_that_the_portal_has_deleted_stays_green_and_a_missing_one_is_red(
    here: Pipeline,
) -> None:
    landed = here.key(2)
    missing = here.key(3)
    here.pull([landed])
    here.clock.now += 40 * DAY
    before = here.asked()

    result = here.pull([missing, landed])

    assert here.asked() == before
    assert here.shown() == {landed: "MATERIALIZED", missing: "FAILED"}
    assert here.row(missing).state is WindowState.MISSING
    # Fault 107: it was promised within 12 hours.
    assert "Nobody asks for 1 window again: the portal has deleted them." in text_of_failure(result)


# --- what a failed run says of its windows --------------------------------------------------------


def test_a_landed_window_that_a_person_fails_to_pull_again_is_green_after_the_next_automatic_run(
    here: Pipeline,
) -> None:
    """Fault 107: the run promised another request within 12 hours, no tick made one, and the window
    stayed red.
    """
    here.run(here.tick())
    landed = here.key(3)
    here.fail({landed: Then(status=500)})

    text = text_of_failure(here.pull([landed]))
    assert "Landed before: 1 window." in text
    assert "asks for" not in text
    assert here.shown()[landed] == "FAILED"
    assert here.tick() == SkipReason("No window is due.")

    here.clock.now += DAY
    assert landed not in here.asked_for()["applicant"]
    here.run(here.tick())
    assert here.shown()[landed] == "MATERIALIZED"


@pytest.mark.slow
def test_a_further_look_that_fails_stays_red_until_it_succeeds(here: Pipeline) -> None:
    """Fault 107: a window that waits for another request isn't shown as landed meanwhile."""
    here.run(here.tick())
    here.clock.now += DAY
    again = here.key(2)
    here.fail({again: Then(status=500)})
    here.run(here.tick())

    here.run(pull_request({APPLICANT: [here.key(0)]}, "hourly", here.clock()))
    assert here.shown()[again] == "FAILED"

    here.fail({})
    here.clock.now += HOUR
    here.run(here.tick())
    assert here.shown()[again] == "MATERIALIZED"
