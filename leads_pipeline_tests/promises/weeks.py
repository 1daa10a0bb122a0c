"""What happens in some weeks, by seed: the leads' lives, and the mishaps that befall the portal,
machine and folder.

Belongs here: what happens when. Doesn't: how it is brought about (machine.py, ledger.py), and what
must hold (test_weeks.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

from leads_pipeline_tests.promises.ledger import (
    KEEPS,
    KINDS,
    PASSING,
    REFUSALS,
    Lead,
    Version,
    day_interval,
)

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
ZONES: Final = ("Europe/London", "UTC", "Europe/London", "Australia/Lord_Howe")
BRANCHES: Final = ("101", "102", "103")
ELSEWHERE: Final = "999"


@dataclass(frozen=True, slots=True)
class Happening:
    """A mishap, for a while or at once."""

    what: str
    begins: datetime
    lasts: timedelta = timedelta()
    how: str = ""
    number: int = 0

    @property
    def ends(self) -> datetime:
        return self.begins + self.lasts

    def is_at(self, moment: datetime) -> bool:
        return self.begins <= moment < self.ends

    def __str__(self) -> str:
        lasts = f" for {self.lasts}" if self.lasts else ""
        return f"{self.number}: {self.begins:%Y-%m-%d %H:%M} {self.what} {self.how}{lasts}"


# How often in 60 days, at the most. Each seed has some of them.
MISHAPS: Final = {
    "refused": 3,
    "passing": 4,
    "secret": 1,
    "off": 2,
    "clock": 2,
    "kill": 4,
    "rot": 4,
    "published_is_lost": 1,
    "restore": 1,
    "dagster_is_lost": 1,
    "branch": 1,
    "backfill": 3,
}
MANY_DAYS: Final = 60
SHARE_OF_FEW_DAYS: Final = 0.3


def mishaps(rng: Random, begin: datetime, number_of_days: int) -> list[Happening]:
    """What befalls the weeks, in order. A few days see few mishaps, and none for long."""
    found: list[Happening] = []
    for what, most in MISHAPS.items():
        for _ in range(rng.randint(0, most)):
            if number_of_days < MANY_DAYS and rng.random() > SHARE_OF_FEW_DAYS:
                continue
            at = begin + DAY + (number_of_days - 4) * DAY * rng.random()
            lasts = timedelta()
            how = ""
            if what in ("refused", "passing", "secret"):
                lasts = rng.choice([HOUR, 5 * HOUR, DAY, 3 * DAY, 7 * DAY]) * rng.uniform(0.8, 1.2)
                how = rng.choice(REFUSALS if what == "refused" else PASSING)
            elif what == "off":
                lasts = rng.choice([12 * HOUR, 3 * DAY, 6 * DAY])
            elif what == "clock":
                lasts = rng.choice([2 * HOUR, 12 * HOUR])
                how = rng.choice(["-5", "-40", "+20"])  # hours
            found.append(Happening(what, at, min(lasts, number_of_days / 4 * DAY), how))
    ordered = sorted(found, key=lambda one: one.begins)
    return [
        Happening(one.what, one.begins, one.lasts, one.how, number)
        for number, one in enumerate(ordered)
    ]


def ticks(rng: Random, begin: datetime, number_of_days: int) -> list[datetime]:
    """When the daemon works: after the daily schedule, and sometimes once by day."""
    return [
        begin + number * DAY + HOUR * hour
        for number in range(number_of_days)
        for hour in (1.2, rng.uniform(9, 17))[: rng.choice([1, 1, 1, 2])]
    ]


def leads_of(
    rng: Random, begin: datetime, zone: ZoneInfo, branches: Sequence[str], number_of_days: int
) -> list[Lead]:
    """All leads from well before the beginning to after the end, with their whole lives."""
    first = begin.astimezone(zone).date() - timedelta(days=34)
    return [
        _lead(rng, f"{kind}-{day:%m%d}-{branch}-{number}", kind, branch, day, zone, branches)
        for day in (first + timedelta(days=number) for number in range(number_of_days + 35))
        for kind in KINDS
        for branch in branches
        for number in range(rng.choice([0, 0, 1, 1, 2]))
    ]


def _lead(
    rng: Random,
    id_: str,
    kind: str,
    branch: str,
    day: date,
    zone: ZoneInfo,
    branches: Sequence[str],
) -> Lead:
    start, end = day_interval(day, zone)
    is_at_midnight = rng.random() < 0.08
    created = (
        start
        if is_at_midnight
        else start + timedelta(seconds=int((end - start).total_seconds() * rng.random()))
    )
    late = rng.choices(
        [timedelta(minutes=2), 2 * DAY * rng.random(), 26 * DAY * rng.random()], [75, 10, 15]
    )[0]
    versions = [Version(created + late, branch, created, "A")]
    if rng.random() < 0.3:
        since = versions[0].since + timedelta(hours=1 + 24 * rng.expovariate(1 / 6))
        another_day = created + timedelta(days=rng.choice([-4, -1, 1, 3]))
        versions.append(
            rng.choice(
                [
                    Version(since, branch, created, "BB"),
                    Version(since, rng.choice(branches), created, "A"),
                    Version(since, ELSEWHERE, created, "A"),
                    Version(since, branch, min(another_day, since), "A"),
                ]
            )
        )
    pushed = []
    if rng.random() < 0.25:
        pushed = [created + timedelta(minutes=1)]
        pushed += [
            version.since + timedelta(minutes=5) for version in versions[1:] if rng.random() < 0.6
        ]
    deleted_at = versions[-1].created_at + KEEPS
    return Lead(
        id_, kind, tuple(versions), tuple(moment for moment in pushed if moment < deleted_at)
    )
