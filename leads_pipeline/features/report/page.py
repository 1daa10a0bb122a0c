"""reports/leads.html: one page of a week's figures for a director, on laptop, phone and paper.

Belongs here: scales of its charts, and what a chart says in words. Doesn't: the figures (content.py), how it looks
(page.html.jinja, which escapes every text). It asks nothing of a network.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.features.report.content import WORDS, Content, Row, Week, read_content
from leads_pipeline.raw.durable import replace_file
from leads_pipeline.warehouse.html import template_of
from leads_pipeline.warehouse.published import Reader

# So many rows of a table are seen at once, whatever the number of branches; the rest is folded away.
_ROWS_SHOWN: Final = 10

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WHOLE_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class Report:
    """The page as written: where, how many bytes, and the last day of its period."""

    path: Path
    size_bytes: int
    last_day: date | None


def write_report(db: Reader, folder: Path) -> Report:
    """Write reports/leads.html below the data folder, whole or not at all. Raises StorageError."""
    content = read_content(db)
    path = folder / "reports" / "leads.html"
    page = page_of(content).encode()
    replace_file(path, page)
    return Report(path, len(page), content.days["last_day"])


def page_of(content: Content) -> str:
    """Return the page as HTML."""
    return template_of(Path(__file__).with_name("page.html.jinja"), **WORDS).render(
        content=content,
        kinds=[kind.name for kind in LEAD_KINDS],
        shown=_ROWS_SHOWN,
        weekdays=WEEKDAYS,
        trend=Trend.of(content.trend),
        hourly=Hourly.of(content.hours),
        situations=[(row["situation"], _markets(row)) for row in content.situations],
        bands=_bands(content.bands),
    )


def _markets(row: Row) -> list[int]:
    return [row["sales"], row["lettings"], row["neither"]]


def _bands(rows: Sequence[Row]) -> list[tuple[str, str | None, list[tuple[str, list[int]]]]]:
    """Return market, currency and the bands with their leads, for a chart each."""
    found = []
    for (market, currency), group in groupby(rows, lambda row: (row["market"], row["currency"])):
        bands = [(row["price_band"], [row["leads"]]) for row in group]
        found.append((market, currency, bands))
    return found


# --- charts: leads by week as columns, leads by weekday and hour as a field of squares --------------------------------


@dataclass(frozen=True, slots=True)
class Trend:
    """Leads by week, on a scale from 0 to `top`; the last one is the period."""

    weeks: Sequence[Week]
    top: int
    words: str

    @classmethod
    def of(cls, weeks: Sequence[Week]) -> "Trend | None":
        """Make the chart. None if there is nothing to compare."""
        totals = [sum(week.by_kind) for week in weeks]
        if len(weeks) < 2 or not any(totals):
            return None
        most = max(totals)
        best = weeks[totals.index(most)]
        words = (
            f"Leads of {len(weeks)} weeks; the most, {most:,}, in the week from {best.first_day:%-d %B}, "
            f"and {totals[-1]:,} in the last."
        )
        return cls(weeks, round_above(most), words)


def round_above(most: int) -> int:
    """Return the least of 2, 4, 6, 8, 10, 20, 30 to 100, 200 and so on that isn't below. Its half is whole too."""
    power: int = 10 ** (len(str(most - 1)) - 1)
    return next(step * power for step in range(1, 11) if step * power >= most and step * power % 2 == 0)


@dataclass(frozen=True, slots=True)
class Hourly:
    """Leads by weekday and hour, a row a weekday, with the share of the busiest hour that each has."""

    leads: Sequence[Sequence[int]]
    most: int
    words: str

    @classmethod
    def of(cls, counts: Mapping[tuple[int, int], int]) -> "Hourly | None":
        """Make the chart. None without a lead whose moment is known."""
        if not counts:
            return None
        leads = [[counts.get((weekday, hour), 0) for hour in range(24)] for weekday in range(1, 8)]
        by_hour = [sum(weekday[hour] for weekday in leads) for hour in range(24)]
        weekday = max(range(7), key=lambda number: sum(leads[number]))
        hour = by_hour.index(max(by_hour))
        words = f"Most leads came on {_WHOLE_WEEKDAYS[weekday]}, and between {hour}:00 and {hour + 1}:00."
        return cls(leads, max(counts.values()), words)
