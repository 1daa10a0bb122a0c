"""What the weekly page and the mail say: the figures of one period, of all branches or of one.

Belongs here: reading them from leads.duckdb, and their words. Doesn't: how they look (the
templates), charts (page.py). It reads marts and `lead_facts`, and shows sums alone: no personal
data.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.warehouse.duck import statement
from leads_pipeline.warehouse.published import Edition

_SQL: Final = Path(__file__).parent / "sql"

TREND_WEEKS: Final = 13
# In this many weeks the same weekdays come again.
_LAST_YEAR: Final = 52
_MINUS: Final = "\N{MINUS SIGN}"
# Stands for what isn't known.
DASH: Final = "\N{EN DASH}"
_SYMBOLS: Final = {"GBP": "£", "EUR": "€", "USD": "$"}

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A count of the period, of the week before, and of the same week of last year.

    None if one of them isn't whole.
    """

    label: str
    now: int
    before: int | None
    last_year: int | None


@dataclass(frozen=True, slots=True)
class Week:
    """One column of the trend: its leads by kind, and whether all its days have landed."""

    first_day: date
    by_kind: Sequence[int]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Content:
    """The figures of a period.

    `days` are its first and last day and how new the data is. `branch` is the name of the only
    branch that is shown. Of a branch, `before` and `last_year` are None if that week isn't whole,
    and `answered` and `minutes` are None without answers. `missing` has the names of branches with
    windows that haven't landed, and how many.
    """

    days: Row
    branch: str | None
    figures: Sequence[Figure]
    branches: Sequence[Row]
    answers: Row | None
    closed: Row | None
    trend: Sequence[Week]
    sources: Sequence[Row]
    listings: Sequence[Row]
    hours: Mapping[tuple[int, int], int]
    situations: Sequence[Row]
    bands: Sequence[Row]
    owners_to_call: int | None
    missing: Mapping[str, int]

    @property
    def is_compared(self) -> bool:
        """Whether this week and the one before are whole."""
        return any(figure.before is not None for figure in self.figures)

    @property
    def as_of(self) -> str:
        """When the newest data is from: Monday 30 November 2026, 07:00."""
        as_of = self.days["as_of"]
        return f"{as_of:%A %-d %B %Y, %H:%M}" if as_of else "nothing yet"

    @property
    def title(self) -> str:
        """The period, and the branch if it is one."""
        first = self.days["first_day"]
        last = self.days["last_day"]
        if last is None:
            return "Leads"
        form = "%-d" if first.month == last.month else "%-d %B"
        title = f"Leads, {first:{form}} to {last:%-d %B %Y}"
        return f"{title}: {self.branch}" if self.branch else title


def read_content(db: Edition, scope: str | None = None) -> Content:
    """Read the figures of all branches, or of one. Raises StorageError and BugError."""
    read = _Statements(db, scope)
    [days] = read.rows("days")
    whole = {(row["scope"], row["weeks_back"]): row for row in read.rows("whole_weeks")}
    weeks = {(row["weeks_back"], row["kind"]): row for row in read.rows("weeks")}
    answers = {row["scope"]: row for row in read.rows_if_there("answers", "mart_answers")}
    branches = [_branch(row, whole, answers) for row in read.rows("branches")]
    closed = next(iter(read.rows_if_there("closed", "mart_opening_hours")), None)
    owners = next(iter(read.rows_if_there("owners_to_call", "mart_hidden_valuations")), None)
    listings = read.rows_if_there("listings", "mart_listing_demand")
    return Content(
        days=days,
        branch=branches[0]["name"] if scope and branches else scope,
        figures=_figures(weeks, whole),
        branches=branches,
        answers=answers.get(None),
        closed=closed if closed and closed["leads"] else None,
        trend=_trend(days["first_day"], weeks, whole),
        sources=read.rows("sources"),
        listings=[row | {"price": money(row)} for row in listings],
        hours={(row["weekday"], row["hour"]): row["leads"] for row in read.rows("hours")},
        situations=read.rows("situations"),
        bands=read.rows_if_there("bands", "mart_listing_demand"),
        owners_to_call=owners["people"] if owners else None,
        missing=_missing(branches, whole),
    )


class _Statements:
    """The statements of sql/, each with period.sql before it."""

    def __init__(self, db: Edition, scope: str | None) -> None:
        self._db = db
        self._scope = scope

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of a statement."""
        sql = statement("period", _SQL) + statement(name, _SQL)
        columns, rows = self._db.query(sql, {"scope": self._scope})
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def rows_if_there(self, name: str, mart: str) -> list[dict[str, Any]]:
        """Return a statement's rows, none if the mart is of a feature that isn't there."""
        there = "select 1 from duckdb_views() where view_name = $mart"
        _, found = self._db.query(there, {"mart": mart})
        return self.rows(name) if found else []


_Whole = Mapping[tuple[str | None, int], Row]


def _is_whole(whole: _Whole, scope: str | None, weeks_back: int) -> bool:
    row = whole.get((scope, weeks_back))
    return bool(row and row["is_whole"])


def _figures(weeks: Mapping[tuple[int, str | None], Row], whole: _Whole) -> list[Figure]:
    counts: list[tuple[str, str | None, str]] = [
        (f"{kind.name} leads", kind.name, "leads") for kind in LEAD_KINDS
    ]
    counts += [("different people", None, "people"), ("viewings asked for", None, "viewings")]
    figures = []
    for label, kind, column in counts:
        now, before, last_year = (
            weeks.get((back, kind), {}).get(column, 0) for back in (0, 1, _LAST_YEAR)
        )
        is_known = _is_whole(whole, None, 0)
        figures.append(
            Figure(
                label=label,
                now=now,
                before=before if is_known and _is_whole(whole, None, 1) else None,
                last_year=last_year if is_known and _is_whole(whole, None, _LAST_YEAR) else None,
            )
        )
    return figures


def _branch(
    row: dict[str, Any], whole: _Whole, answers: Mapping[str | None, Row]
) -> dict[str, Any]:
    """Return a row of the ranking with its answers, without comparisons of weeks with gaps."""
    scope = row["scope"]
    is_whole = _is_whole(whole, scope, 0)
    is_compared = is_whole and _is_whole(whole, scope, 1)
    is_compared_with_last_year = is_whole and _is_whole(whole, scope, _LAST_YEAR)

    answered = answers.get(scope, {})
    has_leads = answered.get("leads", 0) > 0

    return row | {
        "before": row["before"] if is_compared else None,
        "last_year": row["last_year"] if is_compared_with_last_year else None,
        "answered": answered["answered"] / answered["leads"] if has_leads else None,
        "minutes": answered.get("minutes"),
    }


def _trend(
    first_day: date | None, weeks: Mapping[tuple[int, str | None], Row], whole: _Whole
) -> list[Week]:
    """Return the weeks up to the period. There are none before the first window."""
    weeks_back = [back for scope, back in whole if scope is None and back < TREND_WEEKS]
    if first_day is None or not weeks_back:
        return []

    trend = []
    for back in range(max(weeks_back), -1, -1):
        by_kind = [weeks.get((back, kind.name), {}).get("leads", 0) for kind in LEAD_KINDS]
        monday = date.fromordinal(first_day.toordinal() - 7 * back)
        trend.append(Week(monday, by_kind, _is_whole(whole, None, back)))
    return trend


def _missing(branches: Sequence[Row], whole: _Whole) -> dict[str, int]:
    missing = {}
    for branch in branches:
        row = whole.get((branch["scope"], 0))
        if row and row["not_landed"]:
            missing[branch["name"]] = row["not_landed"]
    return missing


# --- words ----------------------------------------------------------------------------------------


def number(value: int) -> str:
    """Return 1,300."""
    return f"{value:,}"


def change(now: int, before: int | None) -> str:
    """Return the difference with its sign, ±0 if there is none, and a dash if nothing is known."""
    if before is None:
        return DASH
    return f"{now - before:+,}".replace("-", _MINUS) if now != before else "±0"


def percent(now: int, before: int | None) -> str:
    """Return +25%, or nothing if there is none."""
    share = round(100 * (now - before) / before) if before else 0
    return f"{share:+}%".replace("-", _MINUS) if share else ""


def share(part: float | None) -> str:
    """Return 80%."""
    return DASH if part is None else f"{part:.0%}"


def duration(minutes: float | None) -> str:
    """Return 25 min, 3 h 20 min or 2 days."""
    if minutes is None:
        return DASH
    whole = round(minutes)
    if whole < 60:
        return f"{whole} min"
    if whole < 48 * 60:
        return f"{whole // 60} h {whole % 60} min" if whole % 60 else f"{whole // 60} h"
    return f"{round(whole / 24 / 60)} days"


def money(row: Row) -> str:
    """Return £1,300 per month. Without a currency, there is the number alone."""
    if row["price"] is None:
        return ""
    price = f"{sign_of(row['currency'])}{row['price']:,.0f}"
    return f"{price} {row['rent_frequency']}" if row["rent_frequency"] else price


def sign_of(currency: str | None) -> str:
    """Return £, or PLN and a blank."""
    return _SYMBOLS.get(currency or "", f"{currency} " if currency else "")
