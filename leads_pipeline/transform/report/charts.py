"""The geometry of the page's two charts: leads by day as columns, leads by weekday and hour as a field of squares.

Belongs here: scales, what is marked, and what a chart says in words. Doesn't: markup (report.html.jinja).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

from leads_pipeline.domain.contract import LEAD_KINDS

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WHOLE_WEEKDAYS: Final = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")

# So many days have room for a date each on a phone; more get one a week.
_DATED_DAYS: Final = 8


@dataclass(frozen=True, slots=True)
class Day:
    """One column: its leads of each kind, and how many of its windows should be there and aren't."""

    day: date
    by_kind: tuple[int, ...]
    not_landed: int
    is_under_way: bool
    label: str

    @property
    def leads(self) -> int:
        """All kinds."""
        return sum(self.by_kind)


@dataclass(frozen=True, slots=True)
class Daily:
    """Leads by day, on a scale from 0 to `top`; the newest day is under way."""

    days: tuple[Day, ...]
    top: int
    words: str

    @classmethod
    def of(cls, rows: Sequence[tuple[Any, ...]]) -> "Daily | None":
        """Make the chart. None without a lead."""
        days = tuple(
            Day(
                day,
                tuple((leads or {}).get(kind.name, 0) for kind in LEAD_KINDS),
                not_landed,
                is_under_way=number == len(rows),
                label=_label(day, len(rows)),
            )
            for number, (day, leads, not_landed) in enumerate(rows, start=1)
        )
        if not any(day.leads for day in days):
            return None
        most = max(days, key=lambda day: day.leads)
        words = (
            f"Leads of each day from {days[0].day:%d %B} to {days[-1].day:%d %B}; "
            f"the most, {most.leads:,}, on {most.day:%A %d %B}."
        )
        return cls(days, round_above(most.leads), words)


def _label(day: date, days: int) -> str:
    if days <= _DATED_DAYS:
        return f"{day:%a} {day.day}"  # on two lines, where a phone is narrow
    return f"{day.day}\N{NO-BREAK SPACE}{day:%b}" if day.isoweekday() == 1 else ""


def round_above(most: int) -> int:
    """Return the least of 2, 4, 6, 8, 10, 20, 30 to 100, 200 and so on that isn't below. Its half is whole too."""
    power: int = 10 ** (len(str(most - 1)) - 1)
    return next(step * power for step in range(1, 11) if step * power >= most and step * power % 2 == 0)


@dataclass(frozen=True, slots=True)
class Hourly:
    """Leads by weekday and hour, a row a weekday, with the share of the busiest hour that each has."""

    leads: tuple[tuple[int, ...], ...]
    most: int
    words: str

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int]]) -> "Hourly | None":
        """Make the chart. None without a lead whose moment is known."""
        counts: dict[tuple[int, int], int] = defaultdict(int, {(weekday, hour): leads for weekday, hour, leads in rows})
        if not any(counts.values()):
            return None
        leads = tuple(tuple(counts[weekday, hour] for hour in range(24)) for weekday in range(1, 8))
        by_hour = [sum(weekday[hour] for weekday in leads) for hour in range(24)]
        weekday = max(range(7), key=lambda number: sum(leads[number]))
        hour = by_hour.index(max(by_hour))
        words = f"Most leads come on {_WHOLE_WEEKDAYS[weekday]}, and between {hour}:00 and {hour + 1}:00."
        return cls(leads, max(map(max, leads)), words)
