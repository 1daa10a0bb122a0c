"""LEADS_BANK_HOLIDAYS_FILE: what it may hold.

Belongs here: reading and checking it. Doesn't: the table `dates` (sql/dates.sql).
"""

from collections.abc import Mapping
from datetime import date, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Final

from leads_pipeline.errors import SettingsError
from leads_pipeline.raw.csv_rows import csv_rows

# As a program writes a day, and as a British spreadsheet does.
_DAYS: Final = ("%Y-%m-%d", "%d/%m/%Y")


def read_bank_holidays(path: Path | None) -> Mapping[date, str]:
    """Read the names of the holidays by day.

    There are none without a file. Raises SettingsError that names the row.
    """
    if path is None:
        return {}

    header, *rows = csv_rows(path, f"LEADS_BANK_HOLIDAYS_FILE: {path}")
    columns = [column.lower() for column in header]
    if "day" not in columns or "name" not in columns:
        raise _wrong(path, "has no column day or no column name. Begin with day,name.")

    holidays = {}
    for line, row in enumerate(rows, start=2):  # as a spreadsheet counts
        if not any(row):
            continue
        cells = dict(zip_longest(columns, row[: len(columns)], fillvalue=""))
        day = _day_of(cells["day"])
        if day is None:
            raise _wrong(
                path, f"has {cells['day']!r} for a day in row {line}. Write it as 2026-12-25."
            )
        if not cells["name"]:
            raise _wrong(
                path, f"has no name for {day} in row {line}. Write one, or take the row out."
            )
        holidays[day] = cells["name"]
    return holidays


def _day_of(text: str) -> date | None:
    for form in _DAYS:
        try:
            return datetime.strptime(text, form).date()  # noqa: DTZ007 - a day has no time zone
        except ValueError:
            continue
    return None


def _wrong(path: Path, what: str) -> SettingsError:
    return SettingsError(f"LEADS_BANK_HOLIDAYS_FILE: {path} {what}")
