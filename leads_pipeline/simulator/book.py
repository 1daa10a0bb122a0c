"""Which leads an answer holds: windows, retention and the clock, over the branches of a scope.

Belongs here: what the portal keeps and shows at a moment. Doesn't: how a request spells it (app.py), or what a lead
looks like (leads.py).
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from leads_pipeline.simulator.leads import DAY_SECONDS, Kind, LeadFactory, Slot
from leads_pipeline.simulator.organisation import Branch

# Specification, "Limits".
RETENTION: Final = timedelta(days=30)
# About a thousand branch-days of 20 leads: what tests and demos ask for again. More is cheap to make anew.
_CACHE_BYTES: Final = 64_000_000

_LIST_KEY: Final[dict[Kind, str]] = {"applicant": "applicants", "appraisal": "appraisals"}


@dataclass(frozen=True, slots=True)
class _BranchDay:
    """All leads of one kind, branch and day, ready to send."""

    leads: tuple[tuple[Slot, bytes], ...]
    size: int


class LeadBook:
    """The portal's leads as they can be asked for at a moment."""

    def __init__(self, factory: LeadFactory) -> None:
        self._factory = factory
        self._cache: OrderedDict[tuple[Kind, int, int], _BranchDay] = OrderedDict()
        self._cached_bytes = 0

    def answer(
        self, kind: Kind, branches: Sequence[Branch], start: datetime | None, end: datetime | None, now: datetime
    ) -> bytes:
        """The body of a 200 answer: every lead from `start` to `end`, both included, earliest first.

        None means unbounded; the clock and retention bound it all the same.
        """
        first, last = _seconds(start, end, now)
        leads = [lead for branch in branches for lead in self._leads(kind, branch, first, last)]
        if len(branches) > 1:
            leads.sort(key=lambda lead: lead[0].moment)
        return b'{"%s":[%s]}' % (_LIST_KEY[kind].encode(), b",".join([body for _, body in leads]))

    def ids(
        self, kind: Kind, branches: Sequence[Branch], start: datetime | None, end: datetime | None, now: datetime
    ) -> list[str]:
        """The ids of the same leads, without making the leads."""
        first, last = _seconds(start, end, now)
        return [
            slot.lead_id
            for branch in branches
            for day in _days(first, last)
            for slot in self._factory.schedule(kind, branch, day)
            if first <= slot.moment <= last
        ]

    def _leads(self, kind: Kind, branch: Branch, first: int, last: int) -> Iterator[tuple[Slot, bytes]]:
        for day in _days(first, last):
            if last == day * DAY_SECONDS:
                # Only this day's first moment is asked for, as the inclusive end of the day before.
                yield from self._first_moment(kind, branch, day)
            else:
                for lead in self._branch_day(kind, branch, day).leads:
                    if first <= lead[0].moment <= last:
                        yield lead

    def _first_moment(self, kind: Kind, branch: Branch, day: int) -> Iterator[tuple[Slot, bytes]]:
        schedule = self._factory.schedule(kind, branch, day)
        count = sum(slot.moment == day * DAY_SECONDS for slot in schedule)
        return islice(self._factory.leads(kind, branch, day) if count else iter(()), count)

    def _branch_day(self, kind: Kind, branch: Branch, day: int) -> _BranchDay:
        key = kind, branch.number, day
        if (cached := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return cached
        leads = tuple(self._factory.leads(kind, branch, day))
        made = self._cache[key] = _BranchDay(leads, sum(len(body) for _, body in leads))
        self._cached_bytes += made.size
        while self._cached_bytes > _CACHE_BYTES:
            self._cached_bytes -= self._cache.popitem(last=False)[1].size
        return made


def _seconds(start: datetime | None, end: datetime | None, now: datetime) -> tuple[int, int]:
    """First and last second that is asked for and can be had. Leads lie on whole seconds."""
    first, last = math.ceil((now - RETENTION).timestamp()), math.floor(now.timestamp())
    if start is not None:
        first = max(first, math.ceil(start.timestamp()))
    if end is not None:
        last = min(last, math.floor(end.timestamp()))
    return first, last


def _days(first: int, last: int) -> range:
    return range(first // DAY_SECONDS, last // DAY_SECONDS + 1)
