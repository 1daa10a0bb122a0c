"""Opening hours of a branch, as a person writes them: Mon-Fri 09:00-17:30; Sat 10:00-16:00.

They are in a column of LEADS_BRANCHES_FILE.

Belongs here: what the text means. Doesn't: which leads came while a branch was closed
(sql/mart_opening_hours.sql).
"""

import re
from typing import Final, NamedTuple

COLUMN: Final = "opening_hours"

_WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY: Final = rf"({'|'.join(_WEEKDAYS)})[a-z]*"
_TIME: Final = r"(\d{1,2})(?:[:.](\d\d))?"
_PART: Final = re.compile(rf"{_DAY}(?:\s*[-–]\s*{_DAY})?\s+{_TIME}\s*[-–]\s*{_TIME}")  # noqa: RUF001 - Excel's dash
_DAY_MINUTES: Final = 24 * 60


class OpenHours(NamedTuple):
    """A time at which a branch is open.

    `weekday` 1 is Monday. Minutes count from local midnight, `closes` excluded.
    """

    weekday: int
    opens: int
    closes: int


def read_opening_hours(text: str) -> list[OpenHours]:
    """Read the hours of a week. Raises ValueError if a part of the text isn't understood."""
    hours = []
    for part in re.split("[;,]", text.lower()):
        found = _PART.fullmatch(part.strip())
        if found is None:
            raise ValueError(part)

        first, last, *times = found.groups()
        hour, minute, end_hour, end_minute = (int(number or 0) for number in times)
        opens = hour * 60 + minute
        closes = end_hour * 60 + end_minute
        if not opens < closes <= _DAY_MINUTES:
            raise ValueError(part)

        start = _WEEKDAYS.index(first)
        days = (_WEEKDAYS.index(last or first) - start) % 7 + 1
        hours += [OpenHours((start + day) % 7 + 1, opens, closes) for day in range(days)]
    return hours
