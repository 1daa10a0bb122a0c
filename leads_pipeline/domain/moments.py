"""Comparing the present with moments that the program stored itself.

A moment in the future was stored while the machine's clock ran ahead. Nothing may wait until that
time comes.
"""

from datetime import datetime, timedelta
from typing import Final

# Another process may have stored a moment while this one looks, so somewhat later than `now`. No
# clock ran ahead then.
_BESIDE: Final = timedelta(minutes=10)


def has_passed(wait: timedelta, since: datetime, now: datetime) -> bool:
    """Whether the wait has passed since a stored moment, or that moment is in the future."""
    is_of_the_future = since > now + _BESIDE
    return is_of_the_future or now - since >= wait


def not_after(moment: datetime, now: datetime) -> datetime:
    """Return a stored moment. One in the future counts as now."""
    return min(moment, now)
