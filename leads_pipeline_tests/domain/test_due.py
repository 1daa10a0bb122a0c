"""When a window is asked for."""

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest

from leads_pipeline.domain.due import Failure, due_at, windows_to_ask_for
from leads_pipeline.domain.window import RETENTION, Scope, Window
from leads_pipeline_tests.support.fetches import Weeks

ZONE = ZoneInfo("Europe/London")
WINDOW = Window.of(date(2026, 11, 19), Scope.parse("branch-101"), ZONE)
END = WINDOW.end
STARTED = END - timedelta(days=100)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def failure(failed_at: datetime, attempts: int = 1, **changes: object) -> Failure:
    noted = Failure(
        reason="busy (429)",
        verdict="temporary",
        attempts=attempts,
        first_failed_at=failed_at,
        failed_at=failed_at,
    )
    return msgspec.structs.replace(noted, **changes)


def next_fetch(
    looked_at: datetime | None = None,
    failed: Failure | None = None,
    *,
    started_at: datetime = STARTED,
    now: datetime = END + 2 * HOUR,
) -> datetime | None:
    return due_at(WINDOW, looked_at, failed, started_at, now)


def test_a_closed_day_is_asked_for_75_minutes_after_its_end() -> None:
    assert next_fetch() == END + 75 * MINUTE


def test_a_window_is_looked_at_again_after_days() -> None:
    looks = []
    looked_at = END + 2 * HOUR
    while at := next_fetch(looked_at):
        looks.append(at - END - 75 * MINUTE)
        looked_at = at + MINUTE
    assert looks == [timedelta(days=days) for days in (1, 2, 7, 14, 21, 28)]


def test_looks_that_were_missed_are_made_up_for_by_one() -> None:
    assert next_fetch(END - HOUR, now=END + 10 * DAY) == END + 75 * MINUTE
    assert next_fetch(END + 10 * DAY, now=END + 10 * DAY) == END + 14 * DAY + 75 * MINUTE


def test_what_the_portal_has_deleted_is_not_asked_for() -> None:
    assert next_fetch(now=END + RETENTION - MINUTE) is not None
    assert next_fetch(now=END + RETENTION) is None


def test_after_a_temporary_failure_the_wait_doubles_up_to_12_hours() -> None:
    failed_at = END + 2 * HOUR
    for attempts, wait in ((1, 10 * MINUTE), (7, 640 * MINUTE), (8, 12 * HOUR)):
        assert next_fetch(failed=failure(failed_at, attempts)) == failed_at + wait


def test_a_refused_window_waits_a_day_or_until_the_service_is_started_anew() -> None:
    refused = failure(END + 2 * HOUR, verdict="refused")
    assert next_fetch(failed=refused) == END + 26 * HOUR
    assert next_fetch(failed=refused, started_at=END + 3 * HOUR) == END + 75 * MINUTE


def test_no_wait_is_longer_than_half_of_the_time_that_is_left() -> None:
    failed_at = END + RETENTION - 4 * HOUR
    refused = failure(failed_at, verdict="refused")
    assert next_fetch(failed=refused, now=failed_at) == failed_at + 2 * HOUR
    assert next_fetch(failed=failure(failed_at, 9), now=failed_at) == failed_at + 2 * HOUR


def test_a_failure_before_the_newest_look_or_of_the_future_is_none() -> None:
    assert (
        next_fetch(END + 3 * HOUR, failure(END + 2 * HOUR, verdict="refused"))
        == END + DAY + 75 * MINUTE
    )
    assert next_fetch(failed=failure(END + 9 * HOUR)) == END + 75 * MINUTE


def test_a_damaged_window_is_due_at_once_though_it_was_looked_at() -> None:
    looked_at = END + 2 * HOUR
    damaged_at = END + 3 * HOUR
    damaged = failure(damaged_at, 0, damaged_at=damaged_at)
    assert next_fetch(looked_at, damaged, now=END + 4 * HOUR) == damaged_at
    # A run that fails for it then waits as usual, and doesn't make it forgotten.
    failed = failure(damaged_at + MINUTE, damaged_at=damaged_at)
    assert next_fetch(looked_at, failed, now=END + 4 * HOUR) == damaged_at + 11 * MINUTE
    assert next_fetch(damaged_at + HOUR, failed) == END + DAY + 75 * MINUTE


def test_the_window_that_is_deleted_soonest_comes_first() -> None:
    later = Window.of(date(2026, 11, 20), WINDOW.scope, ZONE)

    windows = [(later, None, None), (WINDOW, None, None)]
    asked = windows_to_ask_for(windows, STARTED, later.end + DAY)

    assert asked == [WINDOW, later]


@pytest.mark.parametrize("seed", range(2))
def test_each_look_happens_within_a_day_of_good_time(seed: int) -> None:
    """A sample. chaos/test_due.py lets more weeks pass."""
    Weeks(seed, branches=1).pass_and_judge()
