"""A client's clock that only sleeping moves, so that minutes of waiting cost nothing and can be
looked at.

Belongs here: that clock alone.
"""

import random
import threading
import time
from datetime import UTC, datetime, timedelta

from leads_pipeline.portal import Timing

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class FakeTiming:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._guard = threading.Lock()

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def wait(self, _: threading.Event, seconds: float) -> None:
        """Threads that wait at once wait together."""
        until = self.seconds + seconds
        time.sleep(0)
        with self._guard:
            self.seconds = max(self.seconds, until)

    def as_timing(self) -> Timing:
        return Timing(
            now=self.now,
            monotonic=lambda: self.seconds,
            wait=self.wait,
            rng=random.Random(1),  # noqa: S311
        )
