from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline.retry import (
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    RETRY_JITTER,
    FailedWindow,
    RetryPlan,
    last_look_due_at,
    plan_retries,
)
from leads_pipeline.window import RETENTION, Scope, Window

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


# --- what is still failed after a run --------------------------------------------------------------------------------


def window_of(day: int, branch: int = 101) -> Window:
    return Window.of(date(2026, 11, day), Scope.parse(f"branch-{branch}"), ZoneInfo("UTC"))


def plan(failures: dict[Window, FailedWindow], now: datetime = NOW) -> RetryPlan:
    return plan_retries({window.partition_key: (window, failure) for window, failure in failures.items()}, now)


@pytest.mark.parametrize("is_permanent", [False, True])
def test_a_window_that_failed_by_a_clock_that_ran_ahead_is_due(is_permanent: bool) -> None:
    window = Window.of(date(2026, 11, 18), Scope.parse("branch-101"), ZoneInfo("UTC"))
    failure = FailedWindow(1, NOW + timedelta(days=365), is_permanent)
    assert plan({window: failure}).due == (window.partition_key,)


@pytest.mark.parametrize("attempts", [*range(1, 24), 135])
def test_each_attempt_waits_twice_as_long_within_its_jitter(attempts: int) -> None:
    longest = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** (attempts - 1))
    waits = [
        (FailedWindow(attempts, NOW).next_attempt_at(f"2026-11-{day:02}|branch-1") - NOW).total_seconds()
        for day in range(1, 31)
    ]
    assert RETRY_JITTER * longest <= min(waits) < 0.7 * longest
    assert 0.8 * longest < max(waits) <= longest


def test_the_next_attempt_stays_where_it_is_until_then() -> None:
    failure, key = FailedWindow(3, NOW), window_of(10).partition_key
    due_at = failure.next_attempt_at(key)
    assert {failure.next_attempt_at(key) for _ in range(10)} == {due_at}
    assert plan({window_of(10): failure}, due_at - timedelta(seconds=1)).next_at == due_at
    assert plan({window_of(10): failure}, due_at).due == (key,)


def test_attempts_go_on_until_the_portal_deletes_and_no_longer() -> None:
    window = window_of(10)
    failure = FailedWindow(1, window.end)
    while (due_at := failure.next_attempt_at(window.partition_key)) < window.end + RETENTION:
        assert plan({window: failure}, due_at).due == (window.partition_key,)
        failure = FailedWindow(failure.attempts + 1, due_at)
    assert plan({window: failure}, due_at).due == ()
    assert 60 < failure.attempts < 135


def test_what_is_deleted_soonest_is_due_first() -> None:
    long_ago = FailedWindow(1, NOW - timedelta(days=1))
    windows = [window_of(18), window_of(2, 102), window_of(2, 101), window_of(9)]
    assert plan(dict.fromkeys(windows, long_ago)).due == (
        "2026-11-02|branch-101",
        "2026-11-02|branch-102",
        "2026-11-09|branch-101",
        "2026-11-18|branch-101",
    )


@pytest.mark.parametrize("attempts", [1, 2, 12])
def test_what_was_refused_is_due_about_daily_at_changing_hours_and_together(attempts: int) -> None:
    waits = []
    for day in range(30):
        refused_at = NOW + timedelta(days=day)
        failure = FailedWindow(attempts, refused_at, is_permanent=True)
        [due_at] = {failure.next_attempt_at(window_of(10, branch).partition_key) for branch in range(100)}
        waits.append((due_at - refused_at).total_seconds() / 3600)
    assert 15 <= min(waits) < 18
    assert 27 < max(waits) <= 30


def test_windows_that_cannot_be_had_now_are_counted_by_why() -> None:
    long_ago = NOW - timedelta(days=10)
    found = plan(
        {
            window_of(10): FailedWindow(2, NOW, is_permanent=True),
            window_of(11): FailedWindow(2, long_ago, is_permanent=True),
            window_of(12): FailedWindow(40, long_ago),
            window_of(13): FailedWindow(1, NOW),
        }
    )
    assert found.due == (window_of(11).partition_key, window_of(12).partition_key)
    assert (found.refused, found.waiting, found.deleted) == (1, 1, 0)
    after = plan({window_of(10): FailedWindow(1, long_ago)}, window_of(10).end + RETENTION)
    assert (after.due, after.deleted, str(after)) == ((), 1, "1 are past what the portal keeps")
    still = plan({window_of(10): FailedWindow(1, long_ago)}, window_of(10).end + RETENTION - timedelta(seconds=1))
    assert still.due == (window_of(10).partition_key,)


@pytest.mark.parametrize(("days", "due"), [(6.9, None), (7, 7), (13.9, 7), (14, 14), (21, 21), (28, 28), (40, 28)])
def test_a_landed_window_is_looked_at_again_after_one_to_four_weeks(days: float, due: int | None) -> None:
    window = Window.of(date(2026, 11, 1), Scope.parse("branch-101"), ZoneInfo("UTC"))
    wanted = None if due is None else window.end + timedelta(days=due)
    assert last_look_due_at(window, window.end + timedelta(days=days)) == wanted
