"""reports/leads.html: one page of figures for a director, on laptop, phone and paper, that asks nothing of a network.

Belongs here: what it shows, scales of its charts, and what a chart says in words. Doesn't: its queries (sql/),
how it looks (report.html.jinja, which escapes every text). It reads marts alone, which hold no personal data.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.raw.durable import replace_file
from leads_pipeline.warehouse.duck import statement
from leads_pipeline.warehouse.html import template_of
from leads_pipeline.warehouse.published import Reader

_SQL: Final = Path(__file__).parent / "sql"

# The days that charts and figures show, but for those of a week.
FIGURE_DAYS: Final = 30
# So many rows of a table are seen at once, whatever the number of branches; the rest is folded away.
_ROWS_SHOWN: Final = 10
# Today is under way, and yesterday lands in the night.
_DAYS_OPEN: Final = 2
_CHANGES_SHOWN: Final = 20

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_WHOLE_WEEKDAYS: Final = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")

# So many days have room for a date each on a phone; more get one a week.
_DATED_DAYS: Final = 8


@dataclass(frozen=True, slots=True)
class Report:
    """The page as written: where, how many bytes, and the figures by name of the week up to `last_day`."""

    path: Path
    size_bytes: int
    last_day: date | None
    figures: dict[str, int]


def write_report(db: Reader, folder: Path) -> Report:
    """Write reports/leads.html below the data folder, whole or not at all. Raises StorageError."""
    _, [(today, last_day)] = _of_days(db, "days")
    everywhere, *branches = _rows(db, "branches")
    weeks = {kind: (leads, before) for kind, leads, before in _of_days(db, "kinds")[1]}
    kinds = [(kind.name, *weeks.get(kind.name, (0, 0))) for kind in LEAD_KINDS]
    [to_do] = _rows(db, "figures")
    figures = {f"{kind}_leads": leads for kind, leads, _ in kinds}
    figures |= {"people": everywhere["people"], "viewings": everywhere["viewings"], **to_do}
    content = template_of(Path(__file__).with_name("report.html.jinja")).render(
        days=FIGURE_DAYS,
        shown=_ROWS_SHOWN,
        first_day=last_day and last_day - timedelta(days=6),
        last_day=last_day,
        is_behind=last_day is not None and (today - last_day).days > _DAYS_OPEN,
        figures=figures,
        kinds=kinds,
        everywhere=everywhere,
        branches=branches,
        sources=_rows(db, "sources"),
        daily=Daily.of(_of_days(db, "daily")[1]),
        hourly=Hourly.of(_of_days(db, "hourly")[1]),
        weekdays=WEEKDAYS,
        mix=[(situation, leads) for situation, *leads in _of_days(db, "mix")[1]],
        bands=_bands(db),
        listings=_of_days(db, "listings")[1],
        coverage=db.query(statement("coverage", _SQL)),
        drift=db.query(statement("drift", _SQL), {"shown": _CHANGES_SHOWN})[1],
    )
    path = folder / "reports" / "leads.html"
    encoded = content.encode()
    replace_file(path, encoded)
    return Report(path, len(encoded), last_day, figures)


def _rows(db: Reader, name: str) -> list[dict[str, Any]]:
    columns, rows = _of_days(db, name)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _of_days(db: Reader, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return column names and rows of a statement that goes on from report/with_days. Raises StorageError."""
    return db.query(statement("with_days", _SQL) + statement(name, _SQL), {"days": FIGURE_DAYS})


def _bands(db: Reader) -> dict[str, list[tuple[str, list[int]]]]:
    rows = db.query(statement("bands", _SQL))[1]
    return {
        market: [(band, [leads]) for m, band, leads in rows if m == market]
        for market in ("sales", "lettings")
        if any(m == market for m, _, _ in rows)
    }


# --- charts: leads by day as columns, leads by weekday and hour as a field of squares ---------------------------------


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
