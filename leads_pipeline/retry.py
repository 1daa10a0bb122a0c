"""How long to wait before asking again, and what a service's own request for patience is worth.

Belongs here: the policy, as pure functions of what happened and of the clock. Doesn't: sleeping, sending, Dagster.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from leads_pipeline.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The client's policy, for failures that pass within seconds to a few minutes.

    `budget_per_request` bounds what a whole run may retry: that many retries for each request it makes, on top of
    `budget_floor`; a run against a service that is down gives up on the rest quickly instead of hammering it.
    """

    max_attempts: int = 6
    base_delay_seconds: float = 0.5
    max_delay_seconds: float = 30.0
    # A service may ask for more patience than a run should have; beyond this the sensor takes over.
    max_retry_after_seconds: float = 120.0
    budget_floor: int = 20
    budget_per_request: float = 1.0

    def is_beyond_patience(self, retry_after_seconds: float | None) -> bool:
        """Whether the service asks for more than a run should wait: then asking earlier is rude, and the run ends."""
        return retry_after_seconds is not None and retry_after_seconds > self.max_retry_after_seconds

    def delay_seconds(self, attempt: int, retry_after_seconds: float | None, rng: random.Random) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 1).

        Full jitter: uniform between 0 and the exponential ceiling, so that many clients don't come back together.
        What the service asked for is a lower bound, within `max_retry_after_seconds`.
        """
        ceiling = min(self.max_delay_seconds, self.base_delay_seconds * 2 ** (attempt - 1))
        jitter = rng.uniform(0, ceiling)
        if retry_after_seconds is None:
            return jitter
        return min(retry_after_seconds, self.max_retry_after_seconds) + jitter


class RetryBudget:
    """The retries that a whole run has left: each request earns some, each retry spends one."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._left = float(policy.budget_floor)

    def earn(self) -> None:
        """Count a request that is made for the first time."""
        self._left += self._policy.budget_per_request

    def spend(self) -> bool:
        """Take one retry; False where none is left."""
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Pace:
    """How fast a run may start requests: freely, until the service asks for patience.

    When it does, nothing starts for a while, and from then on starts are spaced: the space doubles each time the
    service complains again and shrinks with each answer until it is gone. So a run finds any rate limit by itself, a
    hundred a second or one a minute, which fewer requests in flight alone could not.

    Requests already in flight say nothing about a change of pace that came after them. So each start hands out the
    pace it was made at, and its outcome counts only while that pace holds: eight refusals of one burst are one
    complaint. Moments are those of any one monotonic clock, in seconds.
    """

    FIRST_INTERVAL_SECONDS = 1 / 32  # a third of the speed that one core reaches
    MAX_INTERVAL_SECONDS = 10.0  # slower than this, a run is better ended and taken up again later
    RECOVERY_FACTOR = 0.9  # seven answers halve the space: at a hard limit, one request in eight is refused
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
        """Book a start. Returns the number of the pace it was made at, to be handed back with its outcome."""
        self._not_before = max(self._not_before, now + self.interval_seconds)
        return self._number

    def succeeded(self, pace: int) -> None:
        """An answer came: a little faster."""
        if pace != self._number:
            return
        self._complaints_in_a_row = 0
        self.interval_seconds *= self.RECOVERY_FACTOR
        if self.interval_seconds < self.NEGLIGIBLE_INTERVAL_SECONDS:
            self.interval_seconds = 0.0

    def asked_for_patience(self, pace: int, now: float, retry_after_seconds: float | None) -> None:
        """The service complained: nothing starts for a while, and half as fast from then on."""
        if pace == self._number:
            self._number += 1
            self._complaints_in_a_row += 1
            doubled = max(self.FIRST_INTERVAL_SECONDS, 2 * self.interval_seconds)
            self.interval_seconds = min(self.MAX_INTERVAL_SECONDS, doubled)
        elif retry_after_seconds is None:
            return
        delay = self._policy.delay_seconds(self._complaints_in_a_row, retry_after_seconds, self._rng)
        self._not_before = max(self._not_before, now + delay)


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header asks for (RFC 9110, section 10.2.3: whole seconds, or an HTTP date).

    None for a missing, past or unreadable value: then the caller's own backoff holds.
    """
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        return float(value)
    if re.fullmatch(r"[0-9]+", value, re.ASCII):
        return float("inf")  # a number beyond all sense is still a request for much patience; the policy bounds it
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError, IndexError):  # what email.utils raises over dates that are none
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - now).total_seconds()
    return seconds if seconds > 0 else None


# --- what is still failed after the client's own retries: minutes to hours ---------------------------------------

# The first retry comes when a busy portal has had time to calm down, the later ones two to four times a day until the
# portal deletes the window: however long an outage lasts, what can still be had is asked for. That is the cap, of some
# 130 attempts at the most.
FIRST_RETRY_SECONDS = 600.0
MAX_RETRY_SECONDS = 12 * 3600.0
# Half to all of the delay, so that windows that failed together don't all come back together.
RETRY_JITTER = 0.5
# What was refused for good is asked for about daily all the same: a portal may refuse for an hour, and a clock may be
# wrong for one run. With the jitter, it comes at another hour each day.
REFUSED_RETRY_SECONDS = 30 * 3600.0


@dataclass(frozen=True, slots=True)
class FailedWindow:
    """A window that the last run for it didn't land.

    `attempts` counts runs; `failed_at` is the end of the last one, `error` what it said, `reason` the same for all
    windows that failed alike (errors.py). `is_permanent`: it won't pass by itself, as the window was refused.
    `failing_since`: the end of the first of those runs, where all were looked up.
    """

    attempts: int
    failed_at: datetime
    is_permanent: bool = False
    error: str = ""
    reason: str = ""
    failing_since: datetime | None = None

    def next_attempt_at(self, key: str) -> datetime:
        """When it is due again. The jitter follows from key and attempt, so that the answer stays the same."""
        if self.is_permanent:
            # By the hour: what one run was refused comes back as one run. A revoked secret costs each a token request.
            delay, seed = REFUSED_RETRY_SECONDS, f"{self.failed_at:%Y-%m-%dT%H}"
        else:
            delay = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** (self.attempts - 1))
            seed = f"{key} {self.attempts}"
        spread = random.Random(seed).uniform(RETRY_JITTER, 1)  # noqa: S311 - to spread load
        return self.failed_at + timedelta(seconds=delay * spread)


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """What to do about the failed windows of one kind, at one moment. `due` are soonest deleted first.

    `waiting` and `refused` count the others by what failed them, and the moments are the first of each.
    """

    due: tuple[str, ...]
    waiting: int
    next_at: datetime | None
    refused: int
    refused_next_at: datetime | None
    deleted: int

    def __str__(self) -> str:
        parts = []
        if self.waiting and self.next_at:
            parts.append(f"{self.waiting} wait for their next attempt, the first at {self.next_at:%Y-%m-%d %H:%M} UTC")
        if self.refused and self.refused_next_at:
            parts.append(
                f"{self.refused} were refused and need a change of settings or rights, after which they are asked for "
                f"at once; else about daily, the first at {self.refused_next_at:%Y-%m-%d %H:%M} UTC"
            )
        if self.deleted:
            parts.append(f"{self.deleted} are past what the portal keeps")
        return "; ".join(parts) or "no window waits"


def plan_retries(failed: Mapping[str, tuple[Window, FailedWindow]], now: datetime) -> RetryPlan:
    """Which failed windows (by partition key) are due, which wait, and which the portal has deleted."""
    due: list[tuple[Window, str]] = []
    waits: list[datetime] = []
    refused: list[datetime] = []
    deleted = 0
    for key, (window, failure) in failed.items():
        if window.is_deleted(now):
            deleted += 1
        # What failed in the future did so by a clock that ran ahead: it would wait until then.
        elif (next_at := failure.next_attempt_at(key)) <= now or failure.failed_at > now:
            due.append((window, key))
        elif failure.is_permanent:
            refused.append(next_at)
        else:
            waits.append(next_at)
    keys = tuple(key for _, key in sorted(due))
    return RetryPlan(keys, len(waits), min(waits, default=None), len(refused), min(refused, default=None), deleted)


# --- what is landed, and may have changed at the portal since ----------------------------------------------------

# A lead can be listed late, moved here from another branch, or corrected. The daily schedule looks at a day on the
# three days after it; from then on it is looked at when so many days have passed since its end, the last time while
# the portal still has all of it, with a day left for an outage.
LOOKS_AFTER_DAYS = (7, 14, 21, 28)


def last_look_due_at(window: Window, now: datetime) -> datetime | None:
    """The newest moment by which the window was to be looked at again, None where there was none yet."""
    due = (window.end + timedelta(days=days) for days in LOOKS_AFTER_DAYS)
    return max((moment for moment in due if moment <= now), default=None)
