"""Weeks of fetches of windows, with outages, refusals, kills and a machine that is off now and
then.

Belongs here: letting them pass by the product's rule, and judging by the rule's promise. Doesn't:
files, a portal.
"""

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from leads_pipeline.domain.due import FETCHES, Failure, due_at, windows_to_ask_for
from leads_pipeline.domain.window import RETENTION, Scope, Window

TICK = timedelta(minutes=5)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 40
NEVER = datetime.max.replace(tzinfo=UTC)

# A refusal is asked about again after a day. Two hours are for what is asked for before.
PATIENCE = 26 * HOUR


class Weeks:
    """Forty days of some branches, the mishaps of a seed, and a service that is started anew twice."""

    def __init__(self, seed: int, branches: int) -> None:
        self.dice = dice = random.Random(seed)  # noqa: S311 - to be repeated
        self.now = FIRST
        self.end = FIRST + DAY * (DAYS + 35)
        self.windows = [
            Window.of((FIRST + DAY * day).date(), Scope.parse(f"branch-{number}"), ZoneInfo("UTC"))
            for day in range(DAYS)
            for number in range(branches)
        ]

        def some_moment() -> datetime:
            return FIRST + HOUR * dice.uniform(0, DAYS * 24)

        kinds = ["unreachable", "refused", "machine off", "killed"]
        begins = [some_moment() for _ in range(6)]
        self.mishaps = [
            (at, at + HOUR * dice.choice([1, 5, 30, 70]), dice.choice(kinds)) for at in begins
        ]
        self.starts = [FIRST, some_moment(), some_moment()]
        self.fetched_at: dict[Window, datetime] = {}
        self.failures: dict[Window, Failure] = {}
        self.fetches: defaultdict[Window, list[datetime]] = defaultdict(list)

    def pass_and_judge(self) -> None:
        """Let the weeks pass.

        Each fetch has to happen in time, if any good time was left for it.
        """
        # A window that isn't due before a moment is asked about again at that moment, or when the
        # service is started.
        waiting = {window: window.end for window in self.windows}
        started_at = FIRST
        while self.now < self.end:
            self.now += TICK
            under_way = {kind for begin, end, kind in self.mishaps if begin <= self.now < end}
            if "machine off" in under_way:
                continue
            newest_start = max(start for start in self.starts if start <= self.now)
            if newest_start != started_at:
                started_at = newest_start
                waiting = dict.fromkeys(waiting, self.now)

            asked = [
                window
                for window, at in waiting.items()
                if at <= self.now and window.end <= self.now
            ]
            known = [self._known(window) for window in asked]
            self._run(windows_to_ask_for(known, started_at, self.now), under_way)
            waiting |= {
                window: due_at(*self._known(window), started_at, self.now) or NEVER
                for window in asked
            }
        for window in self.windows:
            for after in FETCHES:
                self._judge(window, window.end + after)

    def _known(self, window: Window) -> tuple[Window, datetime | None, Failure | None]:
        return window, self.fetched_at.get(window), self.failures.get(window)

    def _run(self, windows: list[Window], under_way: set[str]) -> None:
        for window in windows:
            if "killed" in under_way and self.dice.random() < 0.5:
                return
            if under_way & {"unreachable", "refused"}:
                before = self.failures.get(window)
                self.failures[window] = Failure(
                    reason="",
                    verdict="refused" if "refused" in under_way else "temporary",
                    attempts=before.attempts + 1 if before else 1,
                    first_failed_at=self.now,
                    failed_at=self.now,
                )
            else:
                self.failures.pop(window, None)
                self.fetched_at[window] = self.now
                self.fetches[window].append(self.now)

    def _judge(self, window: Window, wanted: datetime) -> None:
        good_from = wanted
        while late := [
            end
            for begin, end, _ in self.mishaps
            if begin < good_from + PATIENCE and end > good_from
        ]:
            good_from = max(late)
        if good_from + PATIENCE < window.end + RETENTION:
            made = next((at for at in self.fetches[window] if at >= wanted), None)
            assert made is not None, (window, wanted)
            assert made <= good_from + PATIENCE, (window, wanted, made)
