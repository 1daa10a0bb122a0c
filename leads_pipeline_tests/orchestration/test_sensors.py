"""The sensors over several ticks, with a clock of their own, on a real instance and a simulator."""

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterEvent,
    DagsterEventType,
    DagsterRunStatus,
    EventLogEntry,
    RunRequest,
    RunsFilter,
)
from dagster._core.definitions.sensor_definition import SensorExecutionData
from dagster._core.utils import make_new_run_id

from leads_pipeline import credentials, retry
from leads_pipeline.contract import (
    APPLICANT,
    APPRAISAL,
    LEAD_KINDS,
    Answer,
    LeadKind,
    PushedLead,
)
from leads_pipeline.definitions import PUBLISH_JOB, PULL_JOB, PUSH_JOB, STAGE_JOB
from leads_pipeline.domain.answer import read_delivery
from leads_pipeline.lake import Lake
from leads_pipeline.partitions import RANGE_END_TAG, RANGE_START_TAG, rectangles
from leads_pipeline.portal import LeadsClient, Timing
from leads_pipeline.retry import FIRST_RETRY_SECONDS, RETRY_JITTER, FailedWindow
from leads_pipeline.sensors import (
    DEAD_AFTER,
    RetryMemory,
    catch_up_sensor,
    dead_run_sensor,
    failure_sensor,
    look_sensor,
    push_sensor,
    read_cursor,
    retry_sensor,
    write_cursor,
)
from leads_pipeline.simulator.app import Config
from leads_pipeline.simulator.faults import Rule, Then, When
from leads_pipeline.spool import Spool
from leads_pipeline.status import failed_windows, raw_key, verdicts
from leads_pipeline.window import Window
from leads_pipeline_tests.support.installation import Installation, installation

BROKEN = Then(status=500)
REFUSED = Then(status=403)
DAY = timedelta(days=1)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Installation]:
    with installation(tmp_path, first=10) as started:
        yield started


def retry_tick(here: Installation, now: datetime, cursor: str | None = None) -> SensorExecutionData:
    return here.tick(retry_sensor(here.settings, here.partitions, PULL_JOB, clock=lambda: now), cursor)


def catch_up_tick(here: Installation, now: datetime | None = None) -> SensorExecutionData:
    return here.tick(catch_up_sensor(here.settings, here.partitions, PULL_JOB, clock=lambda: now or here.now))


def the_request(tick: SensorExecutionData) -> RunRequest:
    assert tick.run_requests is not None, tick.skip_message
    [request] = tick.run_requests
    return request


def keys_in(request: RunRequest, kind: LeadKind = APPLICANT) -> list[str]:
    config: Mapping[str, Any] = request.run_config
    keys: list[str] = config["ops"].get(f"raw_{kind.table}", {}).get("config", {}).get("partition_keys", [])
    return keys


def fail(here: Installation, keys: set[str], then: Then, kinds: Sequence[LeadKind] = (APPLICANT,)) -> None:
    """Let those windows fail in one run."""
    here.simulator.set_faults(here.rules(keys, then))
    here.pull(keys, kinds)
    assert here.status().failed >= keys


# --- the retry sensor ------------------------------------------------------------------------------------------------


def test_failed_windows_are_taken_up_again_in_one_run_when_they_are_due(here: Installation) -> None:
    wanted = here.keys([2, 4], [101, 103])
    fail(here, wanted, BROKEN, LEAD_KINDS)
    now = datetime.now(UTC)
    early = retry_tick(here, now)
    assert early.skip_message
    assert early.skip_message is not None
    assert "Applicant leads: 4 wait for their next attempt, the first at" in early.skip_message

    due = retry_tick(here, now + timedelta(seconds=FIRST_RETRY_SECONDS), early.cursor)
    request = the_request(due)
    assert keys_in(request) == keys_in(request, APPRAISAL) == sorted(wanted)

    here.simulator.set_faults([])
    here.simulator.reset_counters()
    assert here.run_requested(request).success
    assert here.asked() == here.asked(APPRAISAL) == dict.fromkeys(wanted, 1)
    assert here.status().failed == here.status(APPRAISAL).failed == frozenset()
    after = retry_tick(here, now + DAY, due.cursor)
    assert after.skip_message == ("Nothing is due. Applicant leads: no window waits; appraisal leads: no window waits.")
    assert read_cursor(after.cursor)["applicant"].windows == {}


def test_each_failure_doubles_the_wait(here: Installation) -> None:
    key = here.key(3)
    fail(here, {key}, BROKEN)
    cursor: str | None = None
    for attempt in range(1, 4):
        now = datetime.now(UTC)
        delay = timedelta(seconds=FIRST_RETRY_SECONDS * 2 ** (attempt - 1))
        waiting = retry_tick(here, now + delay * RETRY_JITTER - timedelta(seconds=30), cursor)
        assert waiting.skip_message
        assert read_cursor(waiting.cursor)["applicant"].windows[key].attempts == attempt
        due = retry_tick(here, now + delay, waiting.cursor)
        assert keys_in(the_request(due)) == [key]
        assert not here.run_requested(the_request(due)).success
        cursor = due.cursor
    assert here.asked() == {key: 4}


def test_a_long_outage_ends_no_attempts_before_the_portal_deletes(here: Installation) -> None:
    key = here.key(3)
    fail(here, {key}, BROKEN)
    first = read_cursor(retry_tick(here, here.now).cursor)
    first["applicant"].windows[key] = FailedWindow(40, here.now)
    tick = retry_tick(here, here.now + 20 * DAY, write_cursor(first))
    assert keys_in(the_request(tick)) == [key]
    here.simulator.set_faults([])
    assert here.run_requested(the_request(tick)).success
    assert here.status().failed == frozenset()


@pytest.mark.parametrize("status", [308, 400, 401, 403, 404])
def test_a_portal_that_refuses_for_an_hour_loses_no_window(here: Installation, status: int) -> None:
    cursor = retry_tick(here, here.now).cursor
    refused, broken = here.key(3, 101), here.key(3, 102)
    here.simulator.set_faults([*here.rules({refused}, Then(status=status)), *here.rules({broken}, BROKEN)])
    here.pull({refused, broken})
    tick = retry_tick(here, here.now + timedelta(hours=1), cursor)
    assert keys_in(the_request(tick)) == [broken]
    here.simulator.set_faults([])
    assert here.run_requested(the_request(tick)).success

    waiting = retry_tick(here, here.now + timedelta(hours=14), tick.cursor)
    assert waiting.skip_message is not None
    assert "Applicant leads: 1 were refused and need a change of settings or rights" in waiting.skip_message
    due = retry_tick(here, here.now + timedelta(hours=31), waiting.cursor)
    assert keys_in(the_request(due)) == [refused]
    assert here.run_requested(the_request(due)).success
    assert here.status().failed == frozenset()


@pytest.mark.slow
def test_what_is_refused_all_the_time_is_asked_for_about_daily_until_the_portal_deletes_it(here: Installation) -> None:
    moment, cursor, asked = here.now, retry_tick(here, here.now).cursor, 0
    here.simulator.set_faults(here.rules(here.keys([3]), REFUSED))
    here.pull(here.keys([3]))
    while moment < here.now + 40 * DAY:
        tick = retry_tick(here, moment, cursor)
        cursor = tick.cursor
        if tick.run_requests:
            assert keys_in(the_request(tick)) == sorted(here.keys([3])), "one run for all"
            asked += 1
            memory = read_cursor(cursor)
            for key in here.keys([3]):  # what the run's verdict would be
                memory["applicant"].note(key, moment, is_permanent=True)
            cursor = write_cursor(memory)
        moment += timedelta(hours=4)
    assert 20 < asked < 40
    assert tick.skip_message is not None
    assert "3 are past what the portal keeps" in tick.skip_message


def test_a_wrong_secret_is_tried_once_a_run_and_the_right_one_at_once(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    with installation(tmp_path, first=10) as here:
        right = here.environment.pop("LEADS_CLIENT_SECRET")
        here.environment["LEADS_CLIENT_SECRET_FILE"] = str(secret)
        secret.write_text("wrong")
        cursor = retry_tick(here, here.now).cursor
        wanted = here.keys([2, 3])
        here.pull(wanted)
        assert here.status().failed == wanted
        assert here.simulator.counters().token_requests == 1
        waiting = retry_tick(here, here.now + timedelta(hours=2), cursor)
        assert waiting.skip_message is not None
        assert "Applicant leads: 6 were refused" in waiting.skip_message

        secret.write_text(right)
        credentials._file_secret.cache_clear()  # noqa: SLF001 - the next run is a process of its own
        tick = retry_tick(here, here.now + timedelta(hours=2, minutes=5), waiting.cursor)
        assert keys_in(the_request(tick)) == sorted(wanted)
        assert here.run_requested(the_request(tick)).success
        assert right not in str(tick.cursor)


def test_a_setting_that_was_missing_is_told_of_each_window_and_mended_at_once(here: Installation) -> None:
    client_id = here.environment.pop("LEADS_CLIENT_ID")
    cursor = retry_tick(here, here.now).cursor
    wanted = here.keys([2, 3])
    here.pull(wanted)
    assert {verdict.key for _, verdict in verdicts(here.instance, APPLICANT)} == wanted
    assert all("LEADS_CLIENT_ID is not set" in verdict.error for _, verdict in verdicts(here.instance, APPLICANT))
    waiting = retry_tick(here, here.now + timedelta(hours=2), cursor)
    assert waiting.skip_message is not None
    assert "Applicant leads: 6 were refused" in waiting.skip_message

    here.environment["LEADS_CLIENT_ID"] = client_id
    tick = retry_tick(here, here.now + timedelta(hours=2, minutes=5), waiting.cursor)
    assert keys_in(the_request(tick)) == sorted(wanted)
    assert here.run_requested(the_request(tick)).success


def test_a_data_folder_of_another_portal_is_told_of_each_window_and_mended_at_once(here: Installation) -> None:
    here.pull(here.keys([5]))
    cursor = retry_tick(here, here.now).cursor
    right = here.environment["LEADS_BASE_URL"]
    here.environment["LEADS_BASE_URL"] = "https://portal.example"
    here.pull(here.keys([3]))
    told = {verdict.key: verdict for _, verdict in verdicts(here.instance, APPLICANT)}
    assert told.keys() == here.keys([3])
    assert all(verdict.is_permanent and "Set LEADS_DATA_DIR" in verdict.error for verdict in told.values())

    here.environment["LEADS_BASE_URL"] = right
    tick = retry_tick(here, here.now + timedelta(minutes=25), cursor)
    assert keys_in(the_request(tick)) == sorted(here.keys([3]))
    assert here.run_requested(the_request(tick)).success


def test_what_was_refused_with_other_settings_than_the_daemons_is_taken_up_soon(here: Installation) -> None:
    cursor = retry_tick(here, here.now).cursor
    right = here.environment["LEADS_CLIENT_ID"]
    here.environment["LEADS_CLIENT_ID"] = "a slip in somebody's shell"
    here.pull(here.keys([3]))
    here.environment["LEADS_CLIENT_ID"] = right
    soon = here.now + timedelta(seconds=2 * FIRST_RETRY_SECONDS)
    assert keys_in(the_request(retry_tick(here, soon, cursor))) == sorted(here.keys([3]))


def test_a_clock_that_runs_ahead_for_one_run_loses_no_window(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = retry_tick(here, here.now).cursor
    with monkeypatch.context() as wrong:
        ahead = Timing(now=lambda: datetime.now(UTC) + 60 * DAY)
        wrong.setattr("leads_pipeline.resources.LeadsClient", partial(LeadsClient, timing=ahead))
        here.pull(here.keys([3]))
    assert {verdict.reason for _, verdict in verdicts(here.instance, APPLICANT)} == {"past retention"}
    tick = retry_tick(here, here.now + timedelta(hours=31), cursor)
    assert keys_in(the_request(tick)) == sorted(here.keys([3]))
    assert here.run_requested(the_request(tick)).success


def test_what_the_portal_has_deleted_is_never_asked_for_again(here: Installation) -> None:
    old, newer = here.key(9), here.key(3)
    fail(here, {old}, BROKEN)
    fail(here, {newer}, BROKEN)
    tick = retry_tick(here, here.now + 23 * DAY)
    assert keys_in(the_request(tick)) == [newer]
    last = retry_tick(here, here.now + 40 * DAY)
    assert last.skip_message is not None
    assert "Applicant leads: 2 are past what the portal keeps" in last.skip_message


def test_what_is_deleted_soonest_comes_first(here: Installation) -> None:
    fail(here, here.keys([1]), BROKEN)
    fail(here, here.keys([8]), BROKEN)
    fail(here, here.keys([5]), BROKEN)
    request = the_request(retry_tick(here, here.now + DAY))
    assert keys_in(request) == sorted(here.keys([1, 5, 8]))


@pytest.mark.parametrize("status", [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING])
def test_windows_of_a_retry_that_is_under_way_are_not_requested_twice(
    here: Installation, status: DagsterRunStatus
) -> None:
    fail(here, here.keys([3]), BROKEN)
    tick = retry_tick(here, here.now + DAY)
    request = the_request(tick)
    here.instance.create_run_for_job(
        here.definitions.resolve_job_def(PULL_JOB),
        run_config=dict(request.run_config),
        tags=request.tags,
        status=status,
    )
    # The tick that is repeated after a crash has the cursor from before; the next one has the new one.
    for cursor in (None, tick.cursor):
        again = retry_tick(here, here.now + DAY, cursor)
        assert again.skip_message
        assert here.status().under_way == here.keys([3])


def test_windows_of_a_pull_that_is_under_way_are_not_requested(here: Installation) -> None:
    fail(here, here.keys([3]), BROKEN)
    tags = {RANGE_START_TAG: here.key(3, 101), RANGE_END_TAG: here.key(3, 103)}
    job = here.definitions.resolve_job_def(PULL_JOB)
    run = here.instance.create_run_for_job(job, tags=tags, status=DagsterRunStatus.STARTED)
    assert retry_tick(here, here.now + DAY).skip_message
    # What the killed run leaves behind is taken up.
    here.instance.report_run_failed(run)
    assert keys_in(the_request(retry_tick(here, here.now + DAY))) == sorted(here.keys([3]))


def test_what_an_interrupted_run_never_came_to_is_asked_for_at_once_and_then_ever_later(here: Installation) -> None:
    interrupted = here.instance.get_run_by_id(started_run(here))
    assert interrupted is not None
    here.instance.report_run_failed(interrupted)
    tick = retry_tick(here, here.now)
    assert keys_in(the_request(tick)) == sorted(here.keys([2], [101]))
    # Should the windows be what kills a run:
    asked_at = here.now
    for shortest in (FIRST_RETRY_SECONDS / 2, FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS):
        assert retry_tick(here, asked_at + timedelta(seconds=shortest - 1), tick.cursor).skip_message
        asked_at += timedelta(seconds=2 * shortest)
        tick = retry_tick(here, asked_at, tick.cursor)
        assert keys_in(the_request(tick)) == sorted(here.keys([2], [101]))


def test_the_cursor_holds_15_000_failed_windows_of_each_kind() -> None:
    keys = [f"2026-01-{day:02}|branch-{branch}" for day in range(1, 31) for branch in range(500)]
    assert len(keys) == 15_000
    memory = {
        kind.name: RetryMemory(
            seen_id=10**6,
            # Each failed at a moment of its own, which is the worst for compression.
            windows={
                key: FailedWindow(
                    1 + place % 20, datetime.fromtimestamp(1_790_000_000 + 7 * place, UTC), place % 9 == 0
                )
                for place, key in enumerate(keys)
            },
        )
        for kind in LEAD_KINDS
    }
    began = time.process_time()
    cursor = write_cursor(memory)
    assert read_cursor(cursor) == memory
    seconds = time.process_time() - began
    assert len(cursor) < 500_000
    assert seconds < 2


@pytest.mark.parametrize("cursor", [None, "", "nonsense", "AAAA", "eJyrrgUAAXUA+Q=="])
def test_a_cursor_that_cannot_be_read_counts_as_empty(cursor: str | None) -> None:
    assert read_cursor(cursor) == {kind.name: RetryMemory() for kind in LEAD_KINDS}


def test_a_cursor_that_was_cut_off_counts_as_empty() -> None:
    whole = write_cursor({kind.name: RetryMemory(3, {}) for kind in LEAD_KINDS})
    assert read_cursor(whole)["applicant"].seen_id == 3
    for length in range(len(whole)):
        assert read_cursor(whole[:length]) == {kind.name: RetryMemory() for kind in LEAD_KINDS}


def test_a_lost_cursor_has_what_was_refused_asked_for_once_more(here: Installation) -> None:
    fail(here, {here.key(3)}, REFUSED)
    lost = retry_tick(here, here.now, "lost")
    assert not here.run_requested(the_request(lost)).success
    assert retry_tick(here, here.now + timedelta(hours=2), lost.cursor).skip_message


def test_verdicts_of_a_new_event_log_are_read_although_its_count_begins_anew(here: Installation) -> None:
    cursor = retry_tick(here, here.now).cursor
    fail(here, {here.key(3)}, REFUSED)
    memory = read_cursor(cursor)
    for known in memory.values():
        known.seen_id = 10**9
    assert retry_tick(here, here.now + timedelta(hours=2), write_cursor(memory)).skip_message


def test_windows_of_a_scope_that_was_removed_are_not_requested(tmp_path: Path) -> None:
    with installation(tmp_path, first=10) as before:
        fail(before, before.keys([3]), BROKEN)
        cursor = retry_tick(before, before.now).cursor
        before.environment["LEADS_BRANCH_IDS"] = "101,103"
        request = the_request(retry_tick(before, before.now + DAY, cursor))
        assert keys_in(request) == sorted(before.keys([3], [101, 103]))
        assert not before.run_requested(request).success


# --- the catch-up sensor ---------------------------------------------------------------------------------------------


def caught_up(here: Installation) -> list[RunRequest]:
    """Run what the sensor asks for until it asks for nothing more."""
    requests = []
    while (tick := catch_up_tick(here)).run_requests:
        requests.append(the_request(tick))
        here.run_requested(requests[-1])
        assert len(requests) < 20, "it doesn't end"
    return requests


def closed(here: Installation) -> list[int]:
    """Days ago of the windows that have been over for long enough."""
    over = (here.now - timedelta(hours=6)).date()
    return [ago for ago in range(1, 11) if here.day(ago) < over]


@pytest.mark.slow
def test_an_outage_is_caught_up_oldest_first_a_stretch_a_run(here: Installation) -> None:
    here.pull(here.keys([5]), LEAD_KINDS)
    here.pull(here.keys([8], [102]), LEAD_KINDS)
    here.simulator.reset_counters()
    requests = caught_up(here)
    starts = [request.tags[RANGE_START_TAG] for request in requests]
    assert starts == sorted(starts)
    assert len(requests) == 5  # days 10-9, the two scopes of day 8, days 7-6, days 4-1
    wanted = here.keys(closed(here)) - here.keys([5]) - here.keys([8], [102])
    assert here.asked() == here.asked(APPRAISAL) == dict.fromkeys(wanted, 1)
    tick = catch_up_tick(here)
    assert (
        tick.skip_message == "Every closed window that the portal still has was pulled, or has failed and is retried."
    )


def test_a_closed_day_is_the_daily_schedules_for_six_hours(here: Installation) -> None:
    midnight = datetime.combine(here.day(1), datetime.min.time(), UTC) + DAY
    for hours, last in ((5.9, 2), (6.1, 1)):
        request = the_request(catch_up_tick(here, midnight + timedelta(hours=hours)))
        assert request.tags[RANGE_END_TAG] == here.key(last, 103)


def test_nothing_is_caught_up_that_the_portal_has_deleted(here: Installation) -> None:
    # The window that the horizon runs through is still asked for: what is left of it can be had.
    later = datetime.combine(here.day(6), datetime.min.time(), UTC) + 30 * DAY + timedelta(hours=12)
    assert the_request(catch_up_tick(here, later)).tags[RANGE_START_TAG] == here.key(6)


def test_one_run_catches_up_at_a_time(here: Installation) -> None:
    request = the_request(catch_up_tick(here))
    job = here.definitions.resolve_job_def(PULL_JOB)
    here.instance.create_run_for_job(job, tags=request.tags, status=DagsterRunStatus.STARTED)
    tick = catch_up_tick(here)
    assert tick.skip_message == "A run that catches up is under way; the next stretch follows it."


def test_two_daemons_that_look_at_once_ask_for_one_run(here: Installation) -> None:
    fail(here, here.keys([3]), BROKEN)
    moments = [(here.now + DAY).replace(second=second) for second in (5, 40)]
    for look in (catch_up_tick, retry_tick):
        # Dagster launches no second run for a key, whoever asks for it.
        [key] = {the_request(look(here, moment)).run_key for moment in moments}
        assert key


def test_failed_windows_are_left_to_the_retry_sensor(here: Installation) -> None:
    here.simulator.set_faults([Rule(BROKEN, When(path="/applicant-leads"))])
    requests = caught_up(here)
    assert len(requests) == 1
    assert set(here.asked().values()) == {1}


@pytest.mark.parametrize("seconds_after_the_end", [-7200, 3, 600, 86_400])
def test_a_window_that_was_last_pulled_before_its_end_is_caught_up_however_new_its_file_is(
    here: Installation, seconds_after_the_end: int
) -> None:
    caught_up(here)
    window = Window.from_partition_key(here.key(4, 102), here.settings.zone)
    [_, path, _] = [window.path for window in here.lake.landed_windows(APPLICANT, here.day(4))]
    path.unlink()
    here.lake.land(answer_of(window, window.end - timedelta(seconds=2)), "run")
    # As a copy or a restore leaves it.
    os.utime(path, (window.end.timestamp() + seconds_after_the_end,) * 2)
    tick = catch_up_tick(here)
    assert the_request(tick).tags[RANGE_START_TAG] == the_request(tick).tags[RANGE_END_TAG] == here.key(4, 102)
    assert the_request(tick).asset_selection == [raw_key(APPLICANT)]
    here.lake.land(answer_of(window, window.end), "run")
    os.utime(path, (window.end.timestamp() + seconds_after_the_end,) * 2)
    assert catch_up_tick(here).skip_message


def answer_of(window: Window, fetched_at: datetime) -> Answer:
    return Answer(APPLICANT, window, (), fetched_at, "/", "0" * 64, 2, 1, 0.1)


def test_a_lost_file_is_pulled_again(here: Installation) -> None:
    caught_up(here)
    shutil.rmtree(here.lake.folder / "raw" / "appraisal_leads" / f"day={here.day(3)}" / "scope=branch-101")
    here.simulator.reset_counters()
    assert len(caught_up(here)) == 1
    assert here.asked(APPRAISAL) == {here.key(3): 1}
    assert here.asked() == {}


def test_a_new_scope_is_caught_up(tmp_path: Path) -> None:
    with installation(tmp_path, first=5, variables={"LEADS_BRANCH_IDS": "101,103"}) as here:
        caught_up(here)
        here.simulator.reset_counters()
        here.environment["LEADS_BRANCH_IDS"] = "101,102,103"
        caught_up(here)
        assert here.asked() == dict.fromkeys(here.keys([ago for ago in closed(here) if ago <= 5], [102]), 1)


def test_after_a_change_of_the_time_zone_each_window_is_pulled_once_more(tmp_path: Path) -> None:
    with installation(tmp_path, first=5) as here:
        caught_up(here)
        landed = here.status().landed
        here.simulator.reset_counters()
        here.environment["LEADS_TIMEZONE"] = "Asia/Tokyo"
        caught_up(here)
        assert set(here.asked().values()) == set(here.asked(APPRAISAL).values()) == {1}
        assert here.asked().keys() >= landed
        assert here.status().landed >= landed


def test_without_a_service_nothing_is_caught_up(here: Installation) -> None:
    del here.environment["LEADS_BASE_URL"]
    assert catch_up_tick(here).skip_message == "LEADS_BASE_URL is not set: there is nothing to pull from."


# --- further looks ---------------------------------------------------------------------------------------------------


def look_tick(here: Installation, now: datetime, cursor: str | None = None) -> SensorExecutionData:
    return here.tick(look_sensor(here.settings, here.partitions, PULL_JOB, clock=lambda: now), cursor)


def last_looked_at(here: Installation, key: str, moment: datetime) -> None:
    """Let the window's file hold an empty answer of that moment, and nothing else."""
    window = Window.from_partition_key(key, here.settings.zone)
    folder = here.lake.folder / "raw" / "applicant_leads" / f"day={window.day}" / f"scope={window.scope.key}"
    shutil.rmtree(folder, ignore_errors=True)
    here.lake.land(Answer(APPLICANT, window, (), moment, "/", "0" * 64, 2, 1, 0.1), "run")


def test_a_lead_that_is_listed_on_the_fifth_day_is_seen_on_the_seventh(here: Installation) -> None:
    wanted, key = here.keys([8]), here.key(8, 102)
    here.pull(wanted)
    listed_later = here.truth(APPLICANT, [8])
    window = Window.from_partition_key(key, here.settings.zone)
    for one in wanted:
        last_looked_at(here, one, window.end + 2.05 * DAY)  # as the daily schedule does
    assert look_tick(here, window.end + 7 * DAY - timedelta(seconds=1)).skip_message

    tick = look_tick(here, window.end + 7 * DAY)
    assert keys_in(the_request(tick)) == sorted(wanted), "all in one run"
    here.simulator.reset_counters()
    assert here.run_requested(the_request(tick)).success
    assert here.asked() == dict.fromkeys(wanted, 1)
    held = {
        json.loads(str(payload))["id"]
        for path in [window.path for window in here.lake.landed_windows(APPLICANT, here.day(8))]
        for payload in pq.read_table(path, columns=["payload"])["payload"].to_pylist()
    }
    assert listed_later
    assert held == listed_later
    assert look_tick(here, datetime.now(UTC), tick.cursor).skip_message == (
        "Nothing is due. Applicant leads: no window waits; appraisal leads: no window waits."
    )


@pytest.mark.slow
def test_a_landed_window_is_looked_at_after_7_14_21_and_28_days_however_long_nobody_ticked(here: Installation) -> None:
    key = here.key(9)
    here.pull({key})
    window = Window.from_partition_key(key, here.settings.zone)
    looks, moment, cursor = [], window.end, None
    last_looked_at(here, key, moment)
    while moment < window.end + 31 * DAY:
        tick = look_tick(here, moment, cursor)
        cursor = tick.cursor
        if tick.run_requests:
            looks.append((moment - window.end) / DAY)
            last_looked_at(here, key, moment)
        moment += DAY / 4
    assert looks == [7, 14, 21, 28]

    last_looked_at(here, key, window.end + DAY)
    for days, is_due in ((6.9, False), (8, True), (13, True), (29.5, True), (30, False)):
        assert bool(look_tick(here, window.end + days * DAY).run_requests) is is_due, days


def test_an_answer_of_a_clock_that_ran_ahead_is_no_look(here: Installation) -> None:
    key = here.key(9)
    here.pull({key})
    window = Window.from_partition_key(key, here.settings.zone)
    last_looked_at(here, key, window.end + 100 * DAY)
    assert keys_in(the_request(look_tick(here, window.end + 7 * DAY))) == [key]


def test_a_look_that_fails_stays_due_with_growing_pauses_and_leaves_its_window_landed(here: Installation) -> None:
    key = here.key(9)
    here.pull({key})
    window = Window.from_partition_key(key, here.settings.zone)
    last_looked_at(here, key, window.end + DAY)
    here.simulator.set_faults(here.rules({key}, BROKEN))
    now = datetime.now(UTC)
    tick = look_tick(here, now)
    assert not here.run_requested(the_request(tick)).success
    assert here.status().landed == {key}
    assert failed_windows(here.instance, here.settings, here.partitions) == {}
    retried = retry_tick(here, now + DAY)
    assert retried.skip_message, "it isn't the retry sensor's"

    early = look_tick(here, now + timedelta(minutes=2), tick.cursor)
    assert early.skip_message is not None
    assert "Applicant leads: 1 wait for their next attempt, the first at" in early.skip_message
    again = look_tick(here, now + timedelta(minutes=30), early.cursor)
    assert keys_in(the_request(again)) == [key]
    assert read_cursor(again.cursor)["applicant"].windows[key].attempts == 2
    here.simulator.set_faults([])
    assert here.run_requested(the_request(again)).success
    after = look_tick(here, datetime.now(UTC), again.cursor)
    assert after.skip_message
    assert read_cursor(after.cursor)["applicant"].windows == {}


def test_what_is_failed_missing_or_under_way_is_not_looked_at_by_the_way(here: Installation) -> None:
    landed, failed = here.key(9, 101), here.key(9, 102)
    here.pull(here.keys([9]))
    window = Window.from_partition_key(landed, here.settings.zone)
    shutil.rmtree(here.lake.folder / "raw" / "applicant_leads" / f"day={here.day(9)}")
    for key in (landed, failed):
        last_looked_at(here, key, window.end + DAY)
    fail(here, {failed}, BROKEN)
    tick = look_tick(here, here.now)
    assert keys_in(the_request(tick)) == [landed]
    here.instance.create_run_for_job(
        here.definitions.resolve_job_def(PULL_JOB),
        run_config=dict(the_request(tick).run_config),
        tags=the_request(tick).tags,
        status=DagsterRunStatus.STARTED,
    )
    assert look_tick(here, here.now + DAY, tick.cursor).skip_message


# --- both in the daemon ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_daemon_catches_up_and_retries_once_however_often_it_ticks(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_RETRY_SECONDS", 0.0)
    broken = here.key(closed(here)[0], 102)
    here.simulator.set_faults(here.rules({broken}, BROKEN))
    with here.daemon() as daemon:
        daemon.tick_sensors(here.now)
        assert here.asked() == dict.fromkeys(here.keys(closed(here)), 1)
        assert here.status().failed == {broken}
        here.simulator.set_faults([])
        for minutes in (6, 6, 12):
            daemon.tick_sensors(here.now + timedelta(minutes=minutes))
    if closed(replace(here, now=datetime.now(UTC))) != closed(here):
        pytest.skip("A further day has become one to catch up since the test began.")
    assert here.asked() == {**dict.fromkeys(here.keys(closed(here)), 1), broken: 2}
    assert here.status().landed == here.keys(closed(here))


# --- what is told of failures ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_check_rings_within_minutes_where_every_window_is_refused(here: Installation) -> None:
    with here.daemon() as daemon:
        here.simulator.set_faults(here.rules(here.keys(closed(here)), REFUSED))
        assert check_has_passed(here) is None
        for minutes in (0, 2, 4, 6):
            daemon.tick_sensors(here.now + timedelta(minutes=minutes))
    assert check_has_passed(here) is False
    assert len(here.instance.get_runs(RunsFilter(job_name=PUBLISH_JOB))) == 1


def check_has_passed(here: Installation) -> bool | None:
    """What the check said last, None where it was never made."""
    check = AssetCheckKey(AssetKey("mart_coverage"), "no_window_is_refused")
    records = here.instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    event = records[0].event if records else None
    return event.asset_check_evaluation.passed if event and event.asset_check_evaluation else None


@pytest.mark.parametrize("is_closed", [False, True], ids=["never landed before", "landed before, and closed"])
def test_what_came_of_a_failed_window_is_staged_although_nothing_landed(tmp_path: Path, is_closed: bool) -> None:
    with installation(tmp_path, Config(branches=1, leads_per_day=700), first=3) as here:
        jobs = {job.name: job for job in here.definitions.jobs or ()}
        if is_closed:
            nothing = Then(status=200, body='{"applicants": [], "appraisals": []}')
            here.simulator.set_faults([Rule(nothing, When(path=kind.path)) for kind in LEAD_KINDS])
            here.pull({here.key(2)})
            assert here.status().landed == {here.key(2)}
            assert here.run_requested(RunRequest(partition_key=str(here.day(2))), STAGE_JOB).success
        noon = datetime.combine(here.day(2), datetime.min.time(), UTC) + timedelta(hours=12)
        too_large = Rule(Then(status=413), When(path=APPLICANT.path, first=1), "too large")
        here.simulator.set_faults([too_large, Rule(Then(status=500), When(from_time=f"{noon:%Y-%m-%dT%H:%M}"))])
        here.pull({here.key(2)})
        tell = failure_sensor(jobs[STAGE_JOB], jobs[PUBLISH_JOB], here.partitions.days)  # type: ignore[arg-type]  # they are of that kind
        tick = here.tick(tell)
        assert here.run_requested(the_request(tick), the_request(tick).job_name or "").success
        [file] = here.lake.staged_files("applicant_leads")
        assert file.day == here.day(2)
        assert pq.read_metadata(file.path).num_rows > 100
        assert here.tick(tell, tick.cursor).skip_message == "No window was refused since the last time."


# --- runs whose process is gone --------------------------------------------------------------------------------------


def dead_run_tick(here: Installation, now: datetime) -> str:
    tick = here.tick(dead_run_sensor({PULL_JOB}, clock=lambda: now, sleep=lambda _: None))
    assert tick.skip_message is not None
    return tick.skip_message


def started_run(here: Installation) -> str:
    """A run of one window that Dagster believes to be working."""
    [area] = rectangles([Window.from_partition_key(here.key(2), here.settings.zone)], here.settings.scopes)
    job = here.definitions.resolve_job_def(PULL_JOB)
    run = here.instance.create_run_for_job(job, tags=area.tags, status=DagsterRunStatus.STARTING)
    here.instance.report_dagster_event(
        DagsterEvent(DagsterEventType.PIPELINE_START.value, job_name=PULL_JOB), run_id=run.run_id
    )
    return run.run_id


def test_a_run_whose_process_was_killed_is_ended_and_its_windows_count_as_failed(here: Installation) -> None:
    run_id = started_run(here)
    holder = multiprocessing.get_context("fork").Process(target=_hold, args=(here.lake, run_id), daemon=True)
    holder.start()
    while not here.lake.is_running(run_id):
        time.sleep(0.01)
    later = datetime.now(UTC) + DEAD_AFTER + timedelta(seconds=1)
    assert dead_run_tick(here, later) == "Every run has its process."
    assert here.status().under_way == here.keys([2], [101])

    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    assert dead_run_tick(here, datetime.now(UTC)) == "Every run has its process."  # it may only be slow to start
    assert dead_run_tick(here, later) == "1 runs without a process were ended."
    run = here.instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is DagsterRunStatus.FAILURE
    assert here.status().failed == here.keys([2], [101])


def test_a_run_that_has_its_lock_at_the_second_look_is_not_ended(here: Installation) -> None:
    run_id = started_run(here)
    later = datetime.now(UTC) + DEAD_AFTER + timedelta(seconds=1)
    with ExitStack() as run:

        def begin(_: float) -> None:
            run.enter_context(here.lake.running(run_id))

        tick = here.tick(dead_run_sensor({PULL_JOB}, clock=lambda: later, sleep=begin))
        assert tick.skip_message == "Every run has its process."
    assert here.status().under_way == here.keys([2], [101])


@pytest.mark.slow
def test_a_run_is_alive_in_each_of_its_steps_and_between_them_however_long_they_take(here: Installation) -> None:
    for job, tags in (
        (PULL_JOB, {RANGE_START_TAG: here.key(2, 101), RANGE_END_TAG: here.key(2, 103)}),
        (STAGE_JOB, {"dagster/partition": str(here.day(2))}),
        (PUBLISH_JOB, {}),
    ):
        run_id, seen = make_new_run_id(), list[tuple[DagsterEventType | None, bool]]()

        def look(event: EventLogEntry, run_id: str = run_id, seen: list[Any] = seen) -> None:
            seen.append((event.dagster_event_type, here.lake.is_running(run_id)))

        here.instance.add_event_listener(run_id, look)
        result = here.definitions.resolve_job_def(job).execute_in_process(
            instance=here.instance, tags=tags, run_id=run_id
        )
        assert result.success
        steps = [place for place, (event, _) in enumerate(seen) if event is DagsterEventType.STEP_START]
        ends = [place for place, (event, _) in enumerate(seen) if event is DagsterEventType.STEP_SUCCESS]
        assert len(steps) == len(ends) == 2
        assert all(alive for _, alive in seen[steps[0] : ends[-1] + 1]), job
        assert not here.lake.is_running(run_id)


def _hold(lake: Lake, run_id: str) -> None:
    with lake.running(run_id):
        time.sleep(60)


# --- pushed leads ----------------------------------------------------------------------------------------------------


def push(here: Installation, id_: str, days_ago: int, kind: LeadKind = APPLICANT) -> None:
    """A delivery as the receiver keeps it."""
    body = f'{{"{kind.name}": {{"id": "{id_}", "createdAt": "{here.day(days_ago)}T12:00Z", "portalBranchId": "101"}}}}'
    Spool(here.lake).add([PushedLead(kind, lead, here.now) for kind, lead in read_delivery(body.encode())])


def push_tick(here: Installation, now: datetime | None = None) -> SensorExecutionData:
    return here.tick(push_sensor(here.settings, PUSH_JOB, clock=lambda: now or here.now))


def test_nothing_is_taken_in_where_nothing_was_pushed(here: Installation) -> None:
    tick = push_tick(here)
    assert not tick.run_requests
    assert tick.skip_message == "Nothing was pushed since the last time."


def test_pushed_leads_are_taken_in_and_the_days_that_they_touch_are_named(here: Installation) -> None:
    push(here, "a", 2)
    push(here, "b", 5, APPRAISAL)
    request = the_request(push_tick(here))
    assert request.partition_key == str(here.day(0))

    assert here.run_requested(request, PUSH_JOB).success

    # And today, which the run was started for.
    days = {str(here.day(ago)) for ago in (0, 2, 5)}
    assert here.instance.get_materialized_partitions(AssetKey("raw_push")) == days
    assert not push_tick(here).run_requests
    # The windows of those days are still to be pulled.
    assert here.status().landed == frozenset()
    missing = the_request(catch_up_tick(here)).tags
    assert missing[RANGE_START_TAG] < here.key(5)
    assert missing[RANGE_END_TAG] >= here.key(2)


def test_a_run_that_takes_in_is_not_joined_by_another(here: Installation) -> None:
    push(here, "a", 2)
    job = here.definitions.resolve_job_def(PUSH_JOB)
    run = here.instance.create_run_for_job(job, status=DagsterRunStatus.STARTED)
    assert push_tick(here).skip_message == "A run that takes in is under way."
    here.instance.report_run_failed(run)
    assert push_tick(here).run_requests


def test_what_cannot_be_taken_in_is_tried_again_once_an_hour(here: Installation) -> None:
    push(here, "a", 2)
    # Back in time: an hour on, the day may not have begun for Dagster, whose clock stays.
    keys = [the_request(push_tick(here, here.now - timedelta(minutes=m))).run_key for m in (60, 59, 0)]
    assert 1 < len(set(keys)) < 3
