"""The data that `backfill` and `demo` pull besides leads.

It has no days gone by, so it is pulled if today is wanted.
"""

from collections.abc import Callable
from typing import NamedTuple

from leads_pipeline.extensions import brought
from leads_pipeline.settings import Settings


class PulledToday(NamedTuple):
    """`name` is what `--kind` calls it, and `job` pulls it.

    `reason_against` says why there is none to pull with these settings. None if there is one.
    """

    name: str
    job: str
    reason_against: Callable[[Settings], str | None]


def pulled_today() -> list[PulledToday]:
    """Return what features pull."""
    return brought("pulled_today")
