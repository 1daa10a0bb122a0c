"""reports/leads.html: one page of a week's figures for a director, on laptop, phone and paper.

Belongs here: scales of its charts, and what a chart says in words. Doesn't: the figures
(content.py), how it looks (page.html.jinja, which escapes every text). It asks nothing of a
network.
"""

from calendar import day_abbr, day_name
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.features.report.content import Content, Week, number, read_content
from leads_pipeline.features.report.tables import (
    branches,
    figures,
    listings,
    prices,
    situations,
    sources,
)
from leads_pipeline.raw.durable import drafted, make_folder, publish_file, storing
from leads_pipeline.warehouse.html import template_of
from leads_pipeline.warehouse.published import Edition

# So many rows of a table are seen at once, whatever the number of branches; the rest is folded
# away.
_ROWS_SHOWN: Final = 10

# A web server may be let in, as analysts are to the published files.
_FOLDER_MODE: Final = 0o750
_FILE_MODE: Final = 0o440


def write_report(db: Edition, folder: Path) -> Path:
    """Write reports/leads.html below the data folder, whole or not at all. Raises StorageError."""
    path = folder / "reports" / "leads.html"
    page = page_of(read_content(db)).encode()
    with storing(path):
        make_folder(path.parent)
        path.parent.chmod(_FOLDER_MODE)
        with drafted(path, page) as draft:
            draft.chmod(_FILE_MODE)
            publish_file(draft, path)
    return path


def page_of(content: Content) -> str:
    """Return the page as HTML."""
    return template_of(Path(__file__).with_name("page.html.jinja"), number=number).render(
        content=content,
        kinds=[kind.name for kind in LEAD_KINDS],
        shown=_ROWS_SHOWN,
        figures=figures(content),
        branches=branches(content),
        sources=sources(content),
        listings=listings(content),
        weekdays=[*day_abbr],
        trend=Trend.of(content.trend),
        hourly=Hourly.of(content.hours),
        situations=situations(content),
        prices=prices(content),
    )


# --- charts: leads by week as columns, leads by weekday and hour as a field of squares ------------


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
        each = [
            f"{week.first_day:%-d %B} {total:,}" for week, total in zip(weeks, totals, strict=True)
        ]
        return cls(weeks, round_above(max(totals)), f"Leads of the weeks from {', '.join(each)}.")


def round_above(most: int) -> int:
    """Return the least of 2, 4, 6, 8, 10, 20, 30 to 100, 200 and so on that isn't below.

    Its half is whole too.
    """
    power: int = 10 ** (len(str(most - 1)) - 1)
    return next(
        step * power for step in range(1, 11) if step * power >= most and step * power % 2 == 0
    )


@dataclass(frozen=True, slots=True)
class Hourly:
    """Leads by weekday and hour, a row a weekday, each as a share of the busiest hour."""

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
        words = f"Most leads came on {day_name[weekday]}, and between {hour}:00 and {hour + 1}:00."
        return cls(leads, max(counts.values()), words)
