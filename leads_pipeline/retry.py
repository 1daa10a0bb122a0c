"""When a window is asked for again: after a failure, and to look for what came late.

Belongs here: pure functions of what happened and of the clock. Doesn't: waiting within a run (portal/pace.py), Dagster.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from leads_pipeline.window import Window

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
