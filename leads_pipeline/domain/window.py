"""Days, scopes and windows: which partition asks the portal for which stretch of time.

Belongs here: day + scope ⇄ partition key ⇄ UTC interval, and what retention leaves of it. Doesn't:
HTTP, files, Dagster's own partition objects (orchestration/partitions.py).
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cache
from typing import Self
from zoneinfo import ZoneInfo

from leads_pipeline.errors import SettingsError

# Specification, "Limits": retention of leads.
RETENTION = timedelta(days=30)

# The agency's own retention isn't shorter: checks compare the last 35 days.
SHORTEST_RETENTION = timedelta(days=35)

# An id becomes a folder name and half of a partition key. So separators of paths, of Dagster's keys
# ("|", ",", "...") and of SQL are refused, and dots stand alone and never last. The portal's ids
# are digits.
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,63}", re.ASCII)

# Dagster joins the dimensions of a multi-partition key in the order of their names: "day" before
# "scope".
_KEY_SEPARATOR = "|"


class ScopeKind(StrEnum):
    """The kind of id that the portal filters by.

    ALL sends no filter, which a set-up with a single branch allows.
    """

    BRANCH = "branch"
    BRAND = "brand"
    COMPANY = "company"
    GROUP = "group"
    ALL = "all"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """The single id that a request must filter on (specification, endpoint 3)."""

    kind: ScopeKind
    id: str = ""

    @classmethod
    @cache  # a publication of 500 branches reads 60,000
    def parse(cls, text: str) -> Self:
        """Read a scope key such as `branch-101` or `all`.

        Raises SettingsError naming the text when the kind is unknown or the id holds anything but
        ASCII letters, digits, `_`, `-` and single dots between them.
        """
        if text == ScopeKind.ALL:
            return cls(ScopeKind.ALL)

        kind, _, id_ = text.partition("-")
        if kind not in {k for k in ScopeKind if k is not ScopeKind.ALL} or not _ID.fullmatch(id_):
            raise SettingsError(
                f"{text!r} is not a scope. Write branch-ID, brand-ID, company-ID, group-ID or all. "
                "The id has at most 64 letters, digits, '_', '-' and single dots, and doesn't end "
                "with a dot."
            )

        return cls(ScopeKind(kind), id_)

    @classmethod
    def parse_loosely(cls, text: str) -> Self:
        """Read `101`, which is a branch, or a scope key. Raises SettingsError as `parse` does."""
        try:
            return cls.parse(text)
        except SettingsError:
            return cls.parse(f"branch-{text}")

    @property
    def key(self) -> str:
        """Return the scope as partition key and folder name: `branch-101`, `all`."""
        return str(self.kind) if self.kind is ScopeKind.ALL else f"{self.kind}-{self.id}"


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """One day of one scope: the unit that is fetched, landed, retried and counted.

    `start` and `end` bound the half-open interval [start, end) and are UTC; `day` is a calendar day
    in the pipeline's time zone.
    """

    day: date
    scope: Scope
    start: datetime
    end: datetime

    @classmethod
    def of(cls, day: date, scope: Scope, zone: ZoneInfo) -> Self:
        """Return the window of that day in that zone."""
        start, end = day_interval(day, zone)
        return cls(day, scope, start, end)

    @classmethod
    def from_partition_key(cls, key: str, zone: ZoneInfo) -> Self:
        """Read Dagster's key, `2026-11-19|branch-101`. Raises SettingsError for anything else."""
        day, separator, scope = key.partition(_KEY_SEPARATOR)
        with suppress(ValueError, OverflowError):  # no day, or one at the edge of the calendar
            parsed = date.fromisoformat(day)
            if separator and parsed.isoformat() == day:
                return cls.of(parsed, Scope.parse(scope), zone)
        raise SettingsError(f"{key!r} is not a partition key. A key reads 2026-11-19|branch-101.")

    @property
    def partition_key(self) -> str:
        """Return the key as Dagster writes it: `2026-11-19|branch-101`."""
        return f"{self.day.isoformat()}{_KEY_SEPARATOR}{self.scope.key}"

    def is_closed(self, now: datetime) -> bool:
        """Whether the window has ended, so that an answer fetched now can be complete."""
        return self.end <= now

    def is_deleted(self, now: datetime) -> bool:
        """Whether the portal has deleted all of it: asking would find nothing and prove nothing."""
        return self.end <= now - RETENTION


@cache  # a publication of 500 branches asks 60,000 times for 60 days
def day_interval(day: date, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """First moment of `day` and of the next day in `zone`, both UTC.

    The difference is 23, 24 or 25 hours where clocks change. If a change of the clock skips
    midnight, the day begins at the moment of the change, so days always tile. PEP 495: a missing
    local time with fold=0 is read with the offset before it.
    """
    return _first_moment(day, zone), _first_moment(day + timedelta(days=1), zone)


def today(zone: ZoneInfo, now: datetime) -> date:
    """Return the calendar day in `zone` at that moment."""
    return now.astimezone(zone).date()


def days(first: date, last: date) -> Iterator[date]:
    """Every day from `first` to `last`, both included; none where `last` is earlier."""
    for offset in range((last - first).days + 1):
        yield first + timedelta(days=offset)


def _first_moment(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time.min, tzinfo=zone).astimezone(UTC)
