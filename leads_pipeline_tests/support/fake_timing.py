"""A client's clock that only sleeping moves, so that minutes of waiting cost nothing and can be looked at.

Belongs here: that clock alone.
"""

import asyncio
import random
from datetime import UTC, datetime, timedelta

from leads_pipeline.client import Timing

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class FakeTiming:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sleeps: list[float] = []

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    async def sleep(self, seconds: float) -> None:
        until = self.seconds + seconds
        self.sleeps.append(seconds)
        await asyncio.sleep(0)
        self.seconds = max(self.seconds, until)

    def as_timing(self) -> Timing:
        return Timing(now=self.now, monotonic=lambda: self.seconds, sleep=self.sleep, rng=random.Random(1))  # noqa: S311
