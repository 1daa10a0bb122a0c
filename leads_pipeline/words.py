"""How counts, moments and lists of names are written for people."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

# How many things of one cause are named. The rest are counted.
NAMES_SHOWN: Final = 10


def counted(count: int, noun: str) -> str:
    """Return `1 window`, `2 windows`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def moment(at: datetime | None) -> str:
    """Return `2026-11-27 09:38 UTC`, or `never`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if at else "never"


def some(names: Sequence[str]) -> str:
    """Return the first names in a line, and how many more there are."""
    first = ", ".join(names[:NAMES_SHOWN])
    more = len(names) - NAMES_SHOWN
    return f"{first} and {more} more" if more > 0 else first
