"""Weeks of mishaps, judged by the portal's ledger alone.

Nothing that the pipeline says of itself is believed.

Leads come on time, late, at midnight and by push. They move, are corrected, change their day, and
are deleted after 30 days. The portal refuses, is busy, is down, answers nonsense, and wants another
secret. The machine is off, its clock is wrong, and its daemon is killed. Files rot, the folder is
restored, and Dagster's database and `leads.duckdb` are lost. A branch is added, and somebody runs
backfills by hand.

The promises:

- A window is looked at when it is over, and again when its leads are late or corrected: see LOOKS.
  Once the mishaps are over, no look is missing of the windows that the portal still has.
- Every lead that was received is published once, in the version that was received last, whatever
  clocks say. Received means answered to a pull, or acknowledged with 200. The answers to a daemon
  that was killed may be published.
- A lead that a reader has seen stays. If a backup is restored, `leads.duckdb` is as old as the
  backup.
- A window shows as landed only after an answer from after its end, and from before the portal began
  to delete it.

`WEEKS_DAYS=60` makes it longer, and `WEEKS_SEED=17` repeats a seed.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from leads_pipeline_tests.promises.ledger import (
    KEEPS,
    KINDS,
    Lead,
    Portal,
    day_interval,
    served,
)
from leads_pipeline_tests.promises.machine import Clock, KilledError, Machine, needs_faketime
from leads_pipeline_tests.promises.weeks import (
    BRANCHES,
    DAY,
    HOUR,
    MANY_DAYS,
    ZONES,
    Happening,
    leads_of,
    mishaps,
    ticks,
)

pytestmark = [pytest.mark.slow, needs_faketime]

DAYS: Final = int(os.environ.get("WEEKS_DAYS", "6"))
SEED: Final = os.environ.get("WEEKS_SEED") or os.environ["CHAOS_SEED"]

# How long after its end a window is looked at again by promise.
LOOKS: Final = (DAY, 2 * DAY, 7 * DAY, 14 * DAY, 21 * DAY, 28 * DAY)


@dataclass(slots=True)
class Backup:
    taken: datetime
    handed: int
    seen: dict[str, set[str]]


@dataclass(slots=True)
class Weeks:
    """One seed's weeks."""

    zone: ZoneInfo
    first_day: date
    happenings: list[Happening]
    clock: Clock
    portal: Portal
    machine: Machine
    address: str
    # From when each branch is configured.
    since: dict[str, datetime]
    # Places in the ledger: received and lost again with a folder that was restored, or answered to
    # a killed daemon.
    uncertain: set[int] = field(default_factory=set)
    restored: list[tuple[datetime, datetime]] = field(default_factory=list)
    seen: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    backup: Backup | None = None
    kill: Random | None = None
    secret: str = ""
    is_whole: bool = True
    judged: int = 0

    def configure(self) -> None:
        """Give the machine the settings of now."""
        self.machine.configure(
            self.address,
            self.secret,
            LEADS_BRANCH_IDS=",".join(self.since),
            LEADS_TIMEZONE=self.zone.key,
            LEADS_START_DATE=str(self.first_day),
        )

    def run(self, moments: Sequence[datetime]) -> None:
        """Let the weeks pass. The daemon works at these moments."""
        self.secret = self.portal.secret
        self.configure()
        assert self.machine.command("backfill", "--last", "1d") == 0
        coming = sorted(
            [(moment, "tick", None) for moment in moments]
            + [(one.begins, "mishap", one) for one in self.happenings]
            + [(one.ends, "secret known", one) for one in self.happenings if one.what == "secret"]
            + [
                (one.begins - 20 * HOUR, "backup", one)
                for one in self.happenings
                if one.what == "restore"
            ]
            + [(moment, "push", lead) for lead in self.portal.leads for moment in lead.pushed_at],
            key=lambda one: one[0],
        )
        for moment, what, of in coming:
            if self.clock.now() <= moment <= max(moments):
                self._at(moment, what, of)
        self._settle()

    def _at(self, moment: datetime, what: str, of: Any) -> None:
        self.clock.move_to(moment)
        self.portal.mood = next((one.how for one in self._now("refused", "passing")), None)
        hours_wrong = next((int(one.how) for one in self._now("clock")), 0)
        self.clock.set_wrong(hours_wrong * HOUR)
        is_off = any(self._now("off"))
        if is_off:
            self.machine.stop()
        elif what == "tick":
            self._tick()
        elif what == "push":
            self.portal.push(of, self.machine.push)
        elif what == "backup":
            self.machine.back_up()
            self.backup = Backup(self.clock.now(), len(self.portal.handed), self.seen.copy())
        if what == "secret known":
            self.secret = self.portal.secret
            self.configure()
        elif what == "mishap":
            befall = getattr(self, f"befall_{of.what}", None)
            if befall is not None:  # what lasts is looked up when it matters
                befall(Random(f"{SEED} {of.number}"))  # noqa: S311 - to be repeated

    def _now(self, *whats: str) -> Iterator[Happening]:
        return (one for one in self.happenings if one.what in whats and one.is_at(self.clock.now()))

    def _tick(self) -> None:
        handed = len(self.portal.handed)
        if self.kill is not None:
            chance = self.kill
            self.kill = None
            self._kill_soon(chance)
        try:
            self.machine.tick()
        except KilledError:
            self.uncertain |= set(range(handed, len(self.portal.handed)))
            self.is_whole = False
            return
        finally:
            self.portal.on_request = lambda: None
        # After a clock that ran ahead, Dagster waits until its last look is past.
        lately = [
            one
            for one in self.happenings
            if one.what == "clock" and one.begins <= self.clock.now() < one.ends + DAY
        ]
        if not lately:
            self.judge()
            self.is_whole = True

    def _kill_soon(self, chance: Random) -> None:
        """Kill the daemon at one of the next requests, or some time after it."""
        left = chance.randrange(12)
        delay = chance.choice([0, 0, 0.5, 1, 2, 4]) * chance.random()

        def count() -> None:
            nonlocal left
            if left == 0:
                threading.Timer(delay, self.machine.kill).start()
            left -= 1

        self.portal.on_request = count

    # --- mishaps ----------------------------------------------------------------------------------

    def befall_secret(self, chance: Random) -> None:
        self.portal.secret = f"secret-{chance.random()}"

    def befall_kill(self, chance: Random) -> None:
        self.kill = chance

    def befall_published_is_lost(self, _: Random) -> None:
        self.machine.stop()
        (self.machine.data / "leads.duckdb").unlink(missing_ok=True)

    def befall_restore(self, _: Random) -> None:
        if self.backup is not None:
            self.machine.restore()
            self.uncertain |= set(range(self.backup.handed, len(self.portal.handed)))
            self.seen = self.backup.seen.copy()
            self.restored.append((self.backup.taken, self.clock.now()))

    def befall_dagster_is_lost(self, _: Random) -> None:
        self.machine.lose_dagster()

    def befall_branch(self, _: Random) -> None:
        more = next((branch for branch in BRANCHES if branch not in self.since), None)
        if more is not None:
            self.since[more] = self.clock.now()
            self.configure()

    def befall_backfill(self, chance: Random) -> None:
        if not any(self._now("off")):
            assert self.machine.command("backfill", "--last", f"{chance.randint(1, 12)}d") in (0, 1)

    def befall_rot(self, chance: Random) -> None:
        """Cut off half of a raw file. Its leads are published, so it isn't the only copy."""
        paths = sorted((self.machine.data / "raw").glob("*_leads/day=*/scope=*/*.parquet"))
        if paths and self.is_whole:
            path = chance.choice(paths)
            content = path.read_bytes()
            path.chmod(0o600)
            path.write_bytes(content[: len(content) // 2])

    def _settle(self) -> None:
        """Almost three days without mishaps: a refused window is asked for again within 30 hours."""
        now = self.clock.now()
        self.happenings = [
            replace(one, lasts=min(one.lasts, now - one.begins))
            for one in self.happenings
            if one.begins < now
        ]
        self.kill = None
        if self.secret != self.portal.secret:
            self.secret = self.portal.secret
            self.configure()
        before = self.judged
        for _ in range(4):
            self._at(self.clock.now() + 16 * HOUR, "tick", None)
        assert self.judged > before
        self.judge_looks()

    # --- the judgement ----------------------------------------------------------------------------

    def judge(self) -> None:
        """Compare the published tables with the ledger."""
        self.judged += 1
        for kind in KINDS:
            versions = self.machine.published(kind)
            assert self.seen[kind] <= versions.keys(), "leads that readers have seen are gone"
            self.seen[kind] = set(versions)

            wanted = self._wanted(kind)
            missing = [id_ for id_, (must, _) in wanted.items() if must and id_ not in versions]
            assert missing == [], "received and not published"
            stale = [id_ for id_, version in versions.items() if version not in wanted[id_][1]]
            assert stale == [], "not in the version received last"
        self._judge_coverage()

    def _wanted(self, kind: str) -> dict[str, tuple[bool, list[tuple[str, str, datetime]]]]:
        """By lead: whether it must be published, and the versions that it may be published in."""
        found: dict[str, tuple[bool, list[tuple[str, str, datetime]]]] = {}
        for number, handed in enumerate(self.portal.handed):
            if handed.lead.kind == kind:
                must, may = found.get(handed.lead.id, (False, []))
                is_certain = number not in self.uncertain
                found[handed.lead.id] = (
                    must or is_certain,
                    [*([] if is_certain else may), handed.version.shown],
                )
        return found

    def _judge_coverage(self) -> None:
        complete = {
            (one.kind, f"branch-{one.branch}", one.start)
            for one in self.portal.answered
            if one.end <= one.moment <= one.start + KEEPS
        }
        landed = self.machine.query(
            "select kind, day, scope from mart_coverage where state in ('landed', 'empty')"
        )
        for kind, day, scope in landed:
            is_complete = (kind, scope, day_interval(day, self.zone)[0]) in complete
            assert is_complete, f"{kind} {day}|{scope} is called landed"

    def judge_looks(self) -> None:
        """Compare when each window was answered last with the newest look that fell due."""
        now = self.clock.now()
        answered_at = {}
        for one in self.portal.answered:
            is_undone = any(taken < one.moment < restored for taken, restored in self.restored)
            if not is_undone:
                answered_at[one.kind, one.branch, one.start] = one.moment

        day = self.first_day
        while day_interval(day, self.zone)[1] + LOOKS[0] < now - DAY:
            start, end = day_interval(day, self.zone)
            due = max(end + after for after in LOOKS if end + after < now - DAY)
            if now < start + KEEPS:
                for window in product(KINDS, self.since, [start]):
                    assert answered_at[window] >= due, f"{window} was not looked at after {due}"
            day += DAY


def test_weeks_of_mishaps_lose_nothing_double_nothing_and_hide_nothing(tmp_path: Path) -> None:
    chance = Random(f"weeks {SEED}")  # noqa: S311 - to be repeated
    zone = ZoneInfo(chance.choice(ZONES))
    # In the past, so that no file is older than it should be. A change of clocks is among the days,
    # or not.
    first = date(2025, 1, 10) + timedelta(days=chance.randrange(280))
    begin = datetime.combine(first, time(0, 20), zone).astimezone(UTC)
    branches = BRANCHES[: chance.choice([2, 2, 2, 3])]
    leads: list[Lead] = leads_of(Random(f"leads {SEED}"), begin, zone, BRANCHES, DAYS)  # noqa: S311
    happenings = mishaps(Random(f"mishaps {SEED}"), begin, DAYS)  # noqa: S311
    moments = ticks(Random(f"ticks {SEED}"), begin, DAYS)  # noqa: S311
    clock = Clock(tmp_path / "clock", begin)
    portal = Portal(leads, clock.now)
    told = "\n".join(map(str, happenings))
    with served(portal) as address:
        machine = Machine(tmp_path, clock)
        weeks = Weeks(
            zone=zone,
            first_day=first
            - timedelta(days=chance.choice([0, 12, 29] if DAYS >= MANY_DAYS else [0, 8, 15])),
            happenings=happenings,
            clock=clock,
            portal=portal,
            machine=machine,
            address=address,
            since=dict.fromkeys(branches[: 1 + (len(branches) > 2)], begin),
        )
        try:
            weeks.run(moments)
        except BaseException as error:
            error.add_note(
                f"repeat it with WEEKS_SEED={SEED}; at {clock.now():%Y-%m-%d %H:%M} UTC of\n{told}"
            )
            raise
        finally:
            machine.stop()
