"""reports/leads.html: one page of figures for a director, on laptop, phone and paper, that asks nothing of a network.

Belongs here: what it shows. Doesn't: its queries (sql/report/), its charts' geometry (charts.py), how it looks
(report.html.jinja, which escapes every text). It reads marts alone, which hold no personal data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.storage.durable import replace_file
from leads_pipeline.transform.duck import statement
from leads_pipeline.transform.html import template_of
from leads_pipeline.transform.reading import Reader
from leads_pipeline.transform.report.charts import WEEKDAYS, Daily, Hourly

# The days that charts and figures show, but for those of a week.
FIGURE_DAYS: Final = 30
# So many rows of a table are seen at once, whatever the number of branches; the rest is folded away.
_ROWS_SHOWN: Final = 10
# Today is under way, and yesterday lands in the night.
_DAYS_OPEN: Final = 2
_CHANGES_SHOWN: Final = 20


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
    figures = _figures(db, everywhere, kinds)
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
        coverage=db.query(statement("report/coverage")),
        drift=db.query(statement("report/drift"), {"shown": _CHANGES_SHOWN})[1],
    )
    path = folder / "reports" / "leads.html"
    encoded = content.encode()
    replace_file(path, encoded)
    return Report(path, len(encoded), last_day, figures)


def _figures(db: Reader, week: Mapping[str, int], kinds: Sequence[tuple[str, int, int]]) -> dict[str, int]:
    [to_do] = _rows(db, "figures")
    return {
        **{f"{kind}_leads": leads for kind, leads, _ in kinds},
        "people": week["people"],
        "viewings": week["viewings"],
        **to_do,
    }


def _rows(db: Reader, name: str) -> list[dict[str, Any]]:
    columns, rows = _of_days(db, name)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def _of_days(db: Reader, name: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return column names and rows of a statement that goes on from report/with_days. Raises StorageError."""
    return db.query(statement("report/with_days") + statement(f"report/{name}"), {"days": FIGURE_DAYS})


def _bands(db: Reader) -> dict[str, list[tuple[str, list[int]]]]:
    rows = db.query(statement("report/bands"))[1]
    return {
        market: [(band, [leads]) for m, band, leads in rows if m == market]
        for market in ("sales", "lettings")
        if any(m == market for m, _, _ in rows)
    }
