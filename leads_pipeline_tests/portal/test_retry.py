import random
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leads_pipeline.retry import (
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    RETRY_JITTER,
    FailedWindow,
    Pace,
    RetryBudget,
    RetryPlan,
    RetryPolicy,
    last_look_due_at,
    parse_retry_after,
    plan_retries,
)
from leads_pipeline.window import RETENTION, Scope, Window

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
POLICY = RetryPolicy()


def rng(seed: int = 1) -> random.Random:
    return random.Random(seed)  # noqa: S311 - jitter, not cryptography


class Lowest(random.Random):
    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002
        return a


class Highest(random.Random):
    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002
        return b


# --- delays ---------------------------------------------------------------------------------------------------------


def test_the_ceiling_of_the_jitter_doubles_up_to_its_limit() -> None:
    ceilings = [POLICY.delay_seconds(attempt, None, Highest()) for attempt in range(1, 10)]
    assert ceilings == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert [POLICY.delay_seconds(attempt, None, Lowest()) for attempt in range(1, 10)] == [0.0] * 9


def test_the_jitter_spreads_over_the_whole_range() -> None:
    dice = rng()
    delays = [POLICY.delay_seconds(4, None, dice) for _ in range(2000)]
    assert min(delays) < 0.1
    assert max(delays) > 3.9
    assert sum(delays) / len(delays) == pytest.approx(2.0, abs=0.1)


@given(attempt=st.integers(1, 50), asked=st.floats(0, 120), seed=st.integers())
def test_what_the_service_asks_for_is_the_least_that_is_waited(attempt: int, asked: float, seed: int) -> None:
    delay = POLICY.delay_seconds(attempt, asked, rng(seed))
    assert asked <= delay <= asked + POLICY.max_delay_seconds


@given(st.floats(120, allow_infinity=True, allow_nan=False))
def test_no_wait_is_endless(asked: float) -> None:
    assert POLICY.delay_seconds(1, asked, rng()) <= 120.5


def test_patience_has_a_limit() -> None:
    assert not POLICY.is_beyond_patience(None)
    assert not POLICY.is_beyond_patience(120.0)
    assert POLICY.is_beyond_patience(120.1)
    assert POLICY.is_beyond_patience(float("inf"))


# --- Retry-After ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 120 ", 120.0),
        ("999999999", 999999999.0),
        ("9" * 5000, float("inf")),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 13:00:30 +0100", 30.0),
        ("Friday, 20-Nov-26 12:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 12:00:30 -0000", 30.0),
        ("Fri, 20 Nov 2026 11:59:59 GMT", None),
        ("Fri, 20 Nov 2026 12:00:00 GMT", None),
        (None, None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("1e3", None),
        ("٣", None),
        ("²", None),
        ("soon", None),
        ("7, 9", None),
        ("Fri, 99 Nov 2026 12:00:30 GMT", None),
        ("Fri, 20 Nov 99999999999999999999 12:00:30 GMT", None),
    ],
)
def test_a_retry_after_header_is_read_as_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, NOW) == seconds


@given(st.one_of(st.text(), st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ \S*", fullmatch=True)))
def test_no_header_whatever_breaks_the_reading(value: str) -> None:
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or seconds >= 0


@given(st.integers(1, 10**8))
def test_every_date_to_come_is_read_to_the_second(seconds: int) -> None:
    date = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert parse_retry_after(date, NOW) == seconds


# --- the budget -----------------------------------------------------------------------------------------------------


def test_a_run_has_as_many_retries_as_its_floor_and_its_requests_earn() -> None:
    budget = RetryBudget(RetryPolicy(budget_floor=3, budget_per_request=0.5))
    for _ in range(4):
        budget.earn()
    assert [budget.spend() for _ in range(7)] == [True] * 5 + [False] * 2
    budget.earn()
    assert not budget.spend()
    budget.earn()
    assert budget.spend()
    assert not budget.spend()


# --- the pace -------------------------------------------------------------------------------------------------------


def test_a_run_starts_freely_until_the_service_complains() -> None:
    pace = Pace(POLICY, rng())
    for _ in range(100):
        assert pace.wait_seconds(5.0) == 0
        pace.start(5.0)


def test_a_complaint_stops_every_start_for_what_the_service_asks() -> None:
    pace = Pace(POLICY, Highest())
    number = pace.start(0.0)
    pace.asked_for_patience(number, 10.0, 30.0)
    assert pace.wait_seconds(10.0) == 30.5
    assert pace.wait_seconds(40.0) == 0.5
    assert pace.wait_seconds(41.0) == 0


def test_after_a_complaint_starts_are_spaced_and_the_space_shrinks_with_each_answer() -> None:
    pace = Pace(POLICY, Lowest())
    pace.asked_for_patience(pace.start(0.0), 0.0, None)
    intervals = []
    for _ in range(60):
        number = pace.start(100.0)
        intervals.append(pace.wait_seconds(100.0))
        pace.succeeded(number)
        pace = _forget_start(pace)
    assert intervals[0] == pytest.approx(Pace.FIRST_INTERVAL_SECONDS)
    assert intervals[1] == pytest.approx(0.9 * intervals[0])
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[-1] == 0


def _forget_start(pace: Pace) -> Pace:
    """Step over the booked start, so that the next wait shows the interval alone."""
    pace._not_before = 0.0  # noqa: SLF001
    return pace


def test_complaints_in_a_row_double_the_space_and_the_pause() -> None:
    pace = Pace(POLICY, Highest())
    pauses, intervals, now = [], [], 0.0
    for _ in range(12):
        number = pace.start(now)
        now += 100
        pace.asked_for_patience(number, now, None)
        pauses.append(pace.wait_seconds(now))
        intervals.append(pace.interval_seconds)
        now += 100
    assert pauses[:7] == [0.5, 1, 2, 4, 8, 16, 30]
    assert intervals[:4] == [1 / 32, 1 / 16, 1 / 8, 1 / 4]
    assert intervals[-1] == Pace.MAX_INTERVAL_SECONDS


def test_an_answer_resets_the_pause_but_not_the_space() -> None:
    pace = Pace(POLICY, Highest())
    for _ in range(5):
        pace.asked_for_patience(pace.start(0.0), 0.0, None)
    pace.succeeded(pace.start(100.0))
    pace.asked_for_patience(pace.start(200.0), 300.0, None)
    assert pace.wait_seconds(300.0) == 0.5
    assert pace.interval_seconds == pytest.approx(0.9)


def test_the_refusals_of_one_burst_are_one_complaint() -> None:
    pace = Pace(POLICY, Highest())
    burst = [pace.start(0.0) for _ in range(8)]
    for number in burst:
        pace.asked_for_patience(number, 1.0, None)
    assert pace.interval_seconds == Pace.FIRST_INTERVAL_SECONDS
    assert pace.wait_seconds(1.0) == 0.5


def test_a_late_refusal_of_a_burst_still_says_how_long_to_wait() -> None:
    pace = Pace(POLICY, Lowest())
    first, second = pace.start(0.0), pace.start(0.0)
    pace.asked_for_patience(first, 1.0, None)
    pace.asked_for_patience(second, 1.0, 60.0)
    assert pace.wait_seconds(1.0) == 60
    assert pace.interval_seconds == Pace.FIRST_INTERVAL_SECONDS


def test_an_answer_to_a_request_from_before_the_complaint_speeds_nothing_up() -> None:
    pace = Pace(POLICY, rng())
    before, refused = pace.start(0.0), pace.start(0.0)
    pace.asked_for_patience(refused, 1.0, None)
    pace.succeeded(before)
    assert pace.interval_seconds == Pace.FIRST_INTERVAL_SECONDS


@pytest.mark.parametrize("per_second", [0.2, 1.0, 10.0, 100.0])
def test_any_rate_limit_is_found_with_few_refusals(per_second: float) -> None:
    pace, now, tokens, refreshed = Pace(POLICY, rng()), 0.0, 1.0, 0.0
    answered = refused = 0
    while answered < 300:
        now += pace.wait_seconds(now)
        number = pace.start(now)
        tokens, refreshed = min(1.0, tokens + (now - refreshed) * per_second), now
        if tokens >= 1:
            tokens -= 1
            answered += 1
            pace.succeeded(number)
        else:
            refused += 1
            pace.asked_for_patience(number, now, None)
        now += 0.002
    assert refused < answered / 3
    assert now < 3 * answered / per_second + 30


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
