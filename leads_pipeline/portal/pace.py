"""How long to wait before asking again, and how fast to go on.

Belongs here: the policy, as pure functions of what happened and of the clock. Doesn't: sleeping,
sending, Dagster.
"""

import random
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """When to try again after failures that pass within seconds to a few minutes."""

    max_attempts: int = 6
    base_delay_seconds: float = 0.5
    max_delay_seconds: float = 30.0
    # If the service asks for a longer wait, the run ends, and the sensor retries later.
    max_retry_after_seconds: float = 120.0
    # The waits before a request is sent again whose token was refused. Some services accept a new
    # token only after seconds: their clock is behind the token server's, or a replica learns its
    # key late.
    refused_token_waits_seconds: tuple[float, ...] = (1.0, 3.0, 6.0)

    def is_beyond_patience(self, retry_after_seconds: float | None) -> bool:
        """Whether the service asks for a longer wait than a run should make."""
        return (
            retry_after_seconds is not None and retry_after_seconds > self.max_retry_after_seconds
        )

    def delay_seconds(
        self, attempt: int, retry_after_seconds: float | None, rng: random.Random
    ) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 1).

        Full jitter: uniform between 0 and the exponential ceiling, so that many clients don't come
        back together. The service's Retry-After is a lower bound, within `max_retry_after_seconds`.
        """
        ceiling = min(self.max_delay_seconds, self.base_delay_seconds * 2 ** (attempt - 1))
        jitter = rng.uniform(0, ceiling)
        if retry_after_seconds is None:
            return jitter
        return min(retry_after_seconds, self.max_retry_after_seconds) + jitter


class Pace:
    """How fast a run may start requests.

    There is no limit until the service answers 429 or asks for a wait. Then nothing starts for a
    while. From then on starts are spaced. The space doubles each time the service complains again,
    and shrinks with each answer until it is gone. So a run finds any rate limit by itself, a
    hundred a second or one a minute.

    Requests under way say nothing about a change of pace that came after them. So each start
    returns the number of its pace, and its outcome counts only while that pace holds. Eight
    refusals of one burst are one complaint. Moments are seconds of one monotonic clock.
    """

    FIRST_INTERVAL_SECONDS = 1 / 32  # a third of the speed that one core reaches
    # If the run had to be slower, it is better to end it and retry later.
    MAX_INTERVAL_SECONDS = 10.0
    # Seven answers halve the space: at a hard limit, one request in eight is refused.
    RECOVERY_FACTOR = 0.9
    NEGLIGIBLE_INTERVAL_SECONDS = 1 / 256  # below this, the space between starts changes nothing

    def __init__(self, policy: RetryPolicy, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self._number = 0
        self._complaints_in_a_row = 0
        self._not_before = float("-inf")
        self.interval_seconds = 0.0

    def wait_seconds(self, now: float) -> float:
        """Seconds until the next request may start, 0 when it may start now."""
        return max(0.0, self._not_before - now)

    def start(self, now: float) -> int:
        """Note a start. Returns the number of its pace, to be given back with its outcome."""
        self._not_before = max(self._not_before, now + self.interval_seconds)
        return self._number

    def succeeded(self, pace_number: int) -> None:
        """Note an answer: go on a little faster."""
        if pace_number != self._number:
            return
        self._complaints_in_a_row = 0
        self.interval_seconds *= self.RECOVERY_FACTOR
        if self.interval_seconds < self.NEGLIGIBLE_INTERVAL_SECONDS:
            self.interval_seconds = 0.0

    def asked_for_patience(
        self, pace_number: int, now: float, retry_after_seconds: float | None
    ) -> None:
        """Note a complaint: start nothing for a while, and go on half as fast."""
        if pace_number == self._number:
            self._number += 1
            self._complaints_in_a_row += 1
            doubled = max(self.FIRST_INTERVAL_SECONDS, 2 * self.interval_seconds)
            self.interval_seconds = min(self.MAX_INTERVAL_SECONDS, doubled)
        elif retry_after_seconds is None:
            return

        delay = self._policy.delay_seconds(
            self._complaints_in_a_row, retry_after_seconds, self._rng
        )
        self._not_before = max(self._not_before, now + delay)


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds that a `Retry-After` header asks for (RFC 9110, section 10.2.3).

    The header has whole seconds, or an HTTP date. None for a missing, past or unreadable value.
    """
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]+", value):
        return float(value)  # infinite if it is huge; the policy limits it
    moment = http_date(value)
    seconds = (moment - now).total_seconds() if moment else 0
    return seconds if seconds > 0 else None


def http_date(text: str) -> datetime | None:
    """Return the moment of an HTTP date, None if the text is none."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError, IndexError):
        # email.utils raises these over texts that are no dates.
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
