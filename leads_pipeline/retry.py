"""How long to wait before asking again, and what a service's own request for patience is worth.

Belongs here: the policy, as pure functions of what happened and of the clock. Doesn't: sleeping, sending, Dagster.
"""

import random
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


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
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - now).total_seconds()
    return seconds if seconds > 0 else None
