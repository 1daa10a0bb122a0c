"""Comparing the present with moments that the program stored itself.

A moment in the future was stored while the machine's clock ran ahead. Nothing may wait until that time comes.
"""

from datetime import datetime, timedelta


def has_passed(wait: timedelta, since: datetime, now: datetime) -> bool:
    """Whether the wait has passed since a stored moment. Since a moment in the future, every wait has."""
    return since > now or now - since >= wait


def not_after(moment: datetime, now: datetime) -> datetime:
    """Return a stored moment. One in the future counts as now."""
    return min(moment, now)
