import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leads_pipeline.portal.pace import Pace, RetryPolicy, parse_retry_after

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


# --- delays ---------------------------------------------------------------------------------------


def test_the_ceiling_of_the_jitter_doubles_up_to_its_limit() -> None:
    ceilings = [POLICY.delay_seconds(attempt, None, Highest()) for attempt in range(1, 9)]

    assert ceilings == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert POLICY.delay_seconds(9, None, Lowest()) == 0.0


@given(attempt=st.integers(1, 50), asked=st.floats(0, 120), seed=st.integers())
def test_what_the_service_asks_for_is_the_least_that_is_waited(
    attempt: int, asked: float, seed: int
) -> None:
    delay = POLICY.delay_seconds(attempt, asked, rng(seed))
    assert asked <= delay <= asked + POLICY.max_delay_seconds


def test_no_wait_is_endless() -> None:
    assert POLICY.delay_seconds(1, float("inf"), Highest()) == 120.5


# --- Retry-After ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (" 7 ", 7.0),
        ("9" * 5000, float("inf")),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0),
        ("Fri, 20 Nov 2026 12:00:00 GMT", None),
        ("", None),
        ("1.5", None),
        ("²", None),
        ("Fri, 99 Nov 2026 12:00:30 GMT", None),
    ],
)
def test_a_retry_after_header_is_read_as_seconds_or_a_date(
    value: str | None, seconds: float | None
) -> None:
    assert parse_retry_after(value, NOW) == seconds


@given(
    st.one_of(
        st.text(),
        st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ \S*", fullmatch=True),
    )
)
def test_no_header_whatever_breaks_the_reading(value: str) -> None:
    seconds = parse_retry_after(value, NOW)

    assert seconds is None or seconds >= 0


# --- the pace -------------------------------------------------------------------------------------


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
    for now in range(100, 160):
        number = pace.start(now)
        intervals.append(pace.wait_seconds(now))
        pace.succeeded(number)

    assert intervals[0] == pytest.approx(Pace.FIRST_INTERVAL_SECONDS)
    assert intervals[1] == pytest.approx(0.9 * intervals[0])
    assert intervals == sorted(intervals, reverse=True)
    assert intervals[-1] == 0


def test_complaints_in_a_row_double_the_space_and_the_pause() -> None:
    pace = Pace(POLICY, Highest())
    pauses = []
    intervals = []
    for now in range(0, 2400, 200):
        number = pace.start(now)
        pace.asked_for_patience(number, now + 100, None)
        pauses.append(pace.wait_seconds(now + 100))
        intervals.append(pace.interval_seconds)

    assert pauses[:7] == [0.5, 1, 2, 4, 8, 16, 30]
    assert intervals[:4] == [1 / 32, 1 / 16, 1 / 8, 1 / 4]
    assert intervals[-1] == Pace.MAX_INTERVAL_SECONDS


def test_a_late_refusal_of_a_burst_still_says_how_long_to_wait() -> None:
    pace = Pace(POLICY, Lowest())
    first = pace.start(0.0)
    second = pace.start(0.0)
    pace.asked_for_patience(first, 1.0, None)
    pace.asked_for_patience(second, 1.0, 60.0)

    assert pace.wait_seconds(1.0) == 60
    assert pace.interval_seconds == Pace.FIRST_INTERVAL_SECONDS


def test_an_answer_to_a_request_from_before_the_complaint_speeds_nothing_up() -> None:
    pace = Pace(POLICY, rng())
    before = pace.start(0.0)
    refused = pace.start(0.0)
    pace.asked_for_patience(refused, 1.0, None)
    pace.succeeded(before)

    assert pace.interval_seconds == Pace.FIRST_INTERVAL_SECONDS


@pytest.mark.parametrize("per_second", [0.2, 1.0, 10.0, 100.0])
def test_any_rate_limit_is_found_with_few_refusals(per_second: float) -> None:
    pace = Pace(POLICY, rng())
    now, tokens, refreshed = 0.0, 1.0, 0.0
    answered = refused = 0

    while answered < 300:
        now += pace.wait_seconds(now)
        number = pace.start(now)
        tokens = min(1.0, tokens + (now - refreshed) * per_second)
        refreshed = now
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
