import random
from datetime import UTC, datetime

import pytest

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


# --- Retry-After ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (" 7 ", 7.0),
        ("9" * 5000, float("inf")),
        ("Fri, 20 Nov 2026 12:00:30 GMT", 30.0),
        ("1.5", None),
    ],
)
def test_a_retry_after_header_is_read_as_seconds_or_a_date(
    value: str | None, seconds: float | None
) -> None:
    assert parse_retry_after(value, NOW) == seconds


# --- the pace -------------------------------------------------------------------------------------


def test_a_complaint_stops_every_start_for_what_the_service_asks() -> None:
    pace = Pace(POLICY, Highest())
    number = pace.start(0.0)
    pace.asked_for_patience(number, 10.0, 30.0)

    assert pace.wait_seconds(10.0) == 30.5
    assert pace.wait_seconds(40.0) == 0.5
    assert pace.wait_seconds(41.0) == 0


def test_a_late_refusal_of_a_burst_still_says_how_long_to_wait() -> None:
    pace = Pace(POLICY, Lowest())
    first = pace.start(0.0)
    second = pace.start(0.0)
    pace.asked_for_patience(first, 1.0, None)
    pace.asked_for_patience(second, 1.0, 60.0)

    assert pace.wait_seconds(1.0) == 60
    assert pace.interval_seconds == Pace.FIRST_INTERVAL_SECONDS


@pytest.mark.parametrize(
    "per_second",
    [
        0.2,
        100.0,
    ],
)
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
