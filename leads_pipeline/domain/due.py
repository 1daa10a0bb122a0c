"""When a window is asked for: one rule for the nightly pull, further fetches and retries.

Belongs here: the rule, and the failure that it takes into account. Doesn't: reading both from the
disk (raw/), starting a run (orchestration/asking.py).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec

from leads_pipeline.domain.window import RETENTION, Window

# After a window's end. A closed day's list may be filled a little later. Late, moved and corrected
# leads come in the days after.
FIRST_FETCH: Final = timedelta(minutes=75)
FETCHES: Final = tuple(FIRST_FETCH + timedelta(days=days) for days in (0, 1, 2, 7, 14, 21, 28))

_FIRST_WAIT: Final = timedelta(minutes=10)
_LONGEST_WAIT: Final = timedelta(hours=12)
_REFUSED_WAIT: Final = timedelta(days=1)
_DOUBLINGS: Final = 12


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a window isn't as it should be.

    `attempts` counts the runs that failed since the last whole fetch. `reason` is the same for all
    windows that failed alike, `message` says more. Neither holds personal data. A damaged file is
    no failed run: it counts no attempt, and `damaged_at` asks for another fetch.
    """

    reason: str
    verdict: Literal["temporary", "refused"]
    attempts: int
    first_failed_at: datetime
    failed_at: datetime
    message: str = ""
    damaged_at: datetime | None = None


def next_fetch(
    window: Window, fetched_at: datetime | None, failure: Failure | None, now: datetime
) -> datetime | None:
    """Return when the window's next whole fetch is due. Failed runs don't matter, damage does.

    None if no fetch is left, or the portal has deleted the window.
    """
    if window.is_deleted(now):
        return None
    moments = [window.end + after for after in FETCHES]
    if failure is not None and failure.damaged_at is not None:
        moments.append(failure.damaged_at)
    return min(
        (moment for moment in moments if fetched_at is None or moment > fetched_at), default=None
    )


def due_at(
    window: Window,
    fetched_at: datetime | None,
    failure: Failure | None,
    started_at: datetime,
    now: datetime,
) -> datetime | None:
    """Return when to ask for the window next: None if no fetch is left, or the portal deleted it.

    `fetched_at` is its newest whole fetch. `started_at` is when the service was last started: a
    refusal from before doesn't wait, as somebody may have corrected a setting.
    """
    fetch = next_fetch(window, fetched_at, failure, now)
    if fetch is None or failure is None or failure.attempts == 0:
        return fetch

    # A clock that ran ahead wrote a failure of the future.
    is_over = fetched_at is not None and failure.failed_at <= fetched_at
    is_corrected = failure.verdict == "refused" and started_at > failure.failed_at

    if is_over or is_corrected or failure.failed_at > now:
        return fetch

    wait = _FIRST_WAIT * 2 ** min(failure.attempts - 1, _DOUBLINGS)
    wait = _REFUSED_WAIT if failure.verdict == "refused" else min(wait, _LONGEST_WAIT)
    # Near the deletion the portal is asked more often.
    half_of_the_rest = (window.end + RETENTION - failure.failed_at) / 2
    return max(fetch, failure.failed_at + min(wait, half_of_the_rest))


def windows_to_ask_for(
    windows: Iterable[tuple[Window, datetime | None, Failure | None]],
    started_at: datetime,
    now: datetime,
) -> list[Window]:
    """Return those to ask for now, soonest deleted first.

    `windows`: each with its newest fetch and its failure.
    """
    to_ask_for = []
    for window, fetched_at, failure in windows:
        at = due_at(window, fetched_at, failure, started_at, now)
        if at is not None and at <= now:
            to_ask_for.append(window)

    return sorted(to_ask_for, key=lambda window: (window.start, window.scope))
