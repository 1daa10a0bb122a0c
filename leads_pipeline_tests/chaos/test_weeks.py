"""Sixty days of everything at once, from a seed: a portal with its ledger, the pipeline with its clock, and mishaps.

Leads come on time, late, at midnight and by push; they move, are corrected, return to an old version, change their day,
and are deleted after 30 days. The portal refuses, is busy, is down, answers nonsense, and wants another secret. The
machine is off, its clock is wrong, runs are killed, files rot, the folder is copied and restored, Dagster's state and
the warehouse are lost, branches are added, and somebody runs backfills by hand.

What is promised, judged by the portal's ledger alone (nothing that the pipeline says of itself is believed):

- A window is looked at once it is over, and again when its leads are late or corrected: see LOOKS. Each of these looks
  is made within a day of good time: the portal answers, the machine is on and knows its secret and the time, and has
  had REACH to recover. So a lead that is listed when a look falls due, and still a day later, has been received.
- What was received, by a pull or a push that was answered 200, is in the next publication: each lead once, in the
  version that was received last, whatever clocks say. Where the run that asked was killed, it may be there.
- What a reader has seen stays, but for a folder that was put back: then it is as old as the backup, and what the portal
  still has comes back with the next look.
- What isn't landed is never shown as landed: a window counts so by an answer from after its end and from before the
  portal began to delete it.
- The marts add up with the tables.

Belongs here: what happens when, by seed, and the judgement. Doesn't: the portal (ledger.py), the machine (machine.py),
the same machine with Dagster's own engine (engine.py).
`WEEKS_SEEDS=200` runs so many seeds, `WEEKS_SEED=17` the one that failed.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.window import day_interval, days
from leads_pipeline_tests.chaos.engine import Engine
from leads_pipeline_tests.chaos.ledger import KEEPS, PASSING, REFUSALS, Handed, Lead, Portal, Version
from leads_pipeline_tests.chaos.machine import Killed, Machine

DAYS: Final = 60
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

# How long after its end a window is looked at by promise.
LOOKS: Final = (timedelta(hours=6), 7 * DAY, 14 * DAY, 21 * DAY, 28 * DAY)
# Where nothing is wrong, a look is made within a day. What went wrong before is over after REACH: what was refused for
# good is asked for again within 30 hours, and the sensors tick once or twice a day here.
REACH: Final = 54 * HOUR

ZONES: Final = ("Europe/London", "UTC", "Europe/London", "Australia/Lord_Howe")
BRANCHES: Final = ("101", "102", "103")
ELSEWHERE: Final = "999"


# --- what happens ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that befalls the portal, the machine or the folder, for a while or at once."""

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


# How often in 60 days, at the most; each seed has some of them.
MISHAPS: Final = {
    "refused": 3,
    "passing": 4,
    "secret": 1,
    "off": 2,
    "clock": 2,
    "kill": 4,
    "rot raw": 4,
    "rot staged": 2,
    "lose warehouse": 1,
    "copy": 1,
    "restore": 1,
    "lose dagster": 1,
    "branch": 1,
    "backfill": 3,
    "upgrade": 1,
}

# So long are simulations through Dagster's own engine, and so many of these mishaps befall them.
FEW_DAYS: Final = 6
FEW_DAYS_SHARE: Final = 0.3


def mishaps(rng: Random, begin: datetime, days: int = DAYS) -> list[Happening]:
    """What befalls one seed's weeks, in order. A few days see few of them, and none for long."""
    found: list[Happening] = []
    for what, most in MISHAPS.items():
        for _ in range(rng.randint(0, most)):
            if days < DAYS and rng.random() > FEW_DAYS_SHARE:
                continue
            at = begin + DAY + (days - 4) * DAY * rng.random()
            lasts, how = timedelta(), ""
            if what in ("refused", "passing", "secret"):
                lasts = rng.choice([HOUR, 5 * HOUR, DAY, 3 * DAY, 7 * DAY]) * rng.uniform(0.8, 1.2)
                how = rng.choice(REFUSALS if what == "refused" else PASSING)
            elif what == "off":
                lasts = rng.choice([12 * HOUR, 3 * DAY, 6 * DAY])
            elif what == "clock":
                lasts = rng.choice([2 * HOUR, 12 * HOUR])
                how = rng.choice(["-5 hours", "-40 hours", "+365 days"])
            found.append(Happening(what, at, min(lasts, days / 4 * DAY), how))
    ordered = sorted(found, key=lambda one: one.begins)
    return [Happening(one.what, one.begins, one.lasts, one.how, number) for number, one in enumerate(ordered)]


def leads_of(
    rng: Random, begin: datetime, zone: ZoneInfo, branches: Sequence[str], number_of_days: int = DAYS
) -> list[Lead]:
    """All leads from well before the beginning to after the end, with all that will become of them."""
    first = begin.astimezone(zone).date() - timedelta(days=34)
    return [
        _lead(rng, f"{kind.name}-{day:%m%d}-{branch}-{number}", kind, branch, day, zone, branches)
        for day in days(first, first + timedelta(days=number_of_days + 34))
        for kind in LEAD_KINDS
        for branch in branches
        for number in range(rng.choice([0, 0, 1, 1, 2]))
    ]


def _lead(
    rng: Random, id_: str, kind: LeadKind, branch: str, day: date, zone: ZoneInfo, branches: Sequence[str]
) -> Lead:
    start, end = day_interval(day, zone)
    created = (
        start if rng.random() < 0.08 else start + timedelta(seconds=int((end - start).total_seconds() * rng.random()))
    )
    late = rng.choices([timedelta(minutes=2), 2 * DAY * rng.random(), 26 * DAY * rng.random()], [75, 10, 15])[0]
    versions = [Version(created + late, branch, created, "A")]
    change = rng.choice(["correct", "return", "move", "move back", "day", "day back", "leave"])
    if rng.random() < 0.3:
        since = versions[0].since + timedelta(hours=1 + 24 * rng.expovariate(1 / 6))
        later = since + timedelta(hours=1 + 24 * rng.expovariate(1 / 4))
        if change in ("correct", "return"):
            versions.append(Version(since, branch, created, "BB"))
            if change == "return":
                versions.append(Version(later, branch, created, "A"))
        elif change in ("move", "move back", "leave"):
            other = ELSEWHERE if change == "leave" else rng.choice(branches)
            versions.append(Version(since, other, created, "A"))
            if change == "move back":
                versions.append(Version(later, branch, created, "A"))
        else:
            other_day = min(created + timedelta(days=rng.choice([-4, -1, 1, 3])), since)
            versions.append(Version(since, branch, other_day, "A"))
            if change == "day back":
                versions.append(Version(later, branch, created, "A"))
    pushed = []
    if rng.random() < 0.25:
        pushed = [created + timedelta(minutes=1)]
        pushed += [version.since + timedelta(minutes=5) for version in versions[1:] if rng.random() < 0.6]
    return Lead(id_, kind, tuple(versions), tuple(pushed))


# --- sixty days ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Backup:
    taken: datetime
    handed: int
    seen: dict[str, set[str]]


@dataclass(slots=True)
class Weeks:
    """One seed's sixty days."""

    seed: str
    folder: Path
    without: frozenset[int] = frozenset()
    only: frozenset[int] | None = None
    days: int = DAYS
    make_machine: type[Machine] = Machine

    rng: Random = field(init=False)
    zone: ZoneInfo = field(init=False)
    begin: datetime = field(init=False)
    happenings: list[Happening] = field(init=False)
    portal: Portal = field(init=False)
    machine: Machine = field(init=False)
    # From when each branch is configured.
    since: dict[str, datetime] = field(init=False)
    first_day: date = field(init=False)
    # Received, and lost again with a folder that was put back.
    undone: set[int] = field(default_factory=set)
    restored: list[tuple[datetime, datetime]] = field(default_factory=list)
    # Days of which one of two copies is damaged, so that the other one must not be.
    rotten: set[tuple[str, date]] = field(default_factory=set)
    rotten_staged: set[tuple[str, str]] = field(default_factory=set)
    seen: dict[str, set[str]] = field(default_factory=lambda: {kind.name: set() for kind in LEAD_KINDS})
    backup: Backup | None = None
    published: int = 0
    # What readers saw last.
    shown: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = rng = Random(f"weeks {self.seed}")  # noqa: S311 - to be repeated
        self.zone = ZoneInfo(rng.choice(ZONES))
        # Sixty days from here contain a change of clocks, or none.
        first = date(2026, 1, 10) + timedelta(days=rng.randrange(300))
        self.begin = datetime.combine(first, time(0, 20), self.zone).astimezone(UTC)
        branches = BRANCHES[: rng.choice([2, 2, 2, 3])]
        self.happenings = [
            one
            for one in mishaps(Random(f"mishaps {self.seed}"), self.begin, self.days)  # noqa: S311
            if one.number not in self.without and (self.only is None or one.number in self.only)
            if one.what not in self.make_machine.IS_SPARED
        ]
        leads = leads_of(Random(f"leads {self.seed}"), self.begin, self.zone, branches, self.days)  # noqa: S311
        self.portal = Portal(leads, self.begin)
        added = sum(one.what == "branch" for one in self.happenings)
        configured = list(branches[: max(1, len(branches) - added)])
        self.since = dict.fromkeys(configured, self.begin)
        self.first_day = first - timedelta(days=rng.choice([0, 12, 29]))
        self.machine = self.make_machine(
            folder=self.folder / "data",
            portal=self.portal,
            zone=self.zone.key,
            branches=configured,
            start=self.first_day,
            secret=self.portal.secret,
            rng=Random(f"machine {self.seed}"),  # noqa: S311
            is_hourly=rng.random() < 0.2,
        )

    @property
    def end(self) -> datetime:
        return self.begin + self.days * DAY

    def run(self) -> None:
        with self.machine:
            coming = sorted(
                [(moment, "tick", None) for moment in self._ticks()]
                + [(one.begins, "mishap", one) for one in self.happenings]
                + [(one.ends, "secret known", one) for one in self.happenings if one.what == "secret"]
                + [(moment, "push", lead) for lead in self.portal.leads for moment in lead.pushed_at]
                + [(moment, "backup", None) for moment in self._nights()],
                key=lambda one: one[0],
            )
            for moment, what, of in coming:
                if self.begin <= moment <= self.end:
                    self._at(moment, what, of)
            self._settle()

    def _ticks(self) -> list[datetime]:
        rng = Random(f"ticks {self.seed}")  # noqa: S311
        found = []
        for number in range(self.days):
            midnight = self.begin + number * DAY
            # After the daily schedule, and often once by day.
            found += [midnight + HOUR * hour for hour in (1.2, rng.uniform(9, 17))[: rng.choice([1, 1, 2])]]
        return found

    def _nights(self) -> list[datetime]:
        """When the backups are taken that are put back later; others needn't be."""
        return [
            self.begin + timedelta(days=int((one.begins - self.begin) / DAY), hours=rng_hour) - DAY * (number % 2)
            for number, one in enumerate(one for one in self.happenings if one.what == "restore")
            for rng_hour in (3,)
        ]

    def _at(self, moment: datetime, what: str, of: Any) -> None:
        self.portal.now = max(moment, self.portal.now)
        self.portal.mood = next((one.how for one in self._now("refused", "passing")), None)
        clock = next((one.how for one in self._now("clock")), None)
        self.machine.offset = timedelta(**{clock.split()[1]: int(clock.split()[0])}) if clock else timedelta()
        is_off = any(self._now("off"))
        if what == "tick" and not is_off:
            self._tick(is_clock_right=clock is None)
        elif what == "push" and not is_off:
            body, version = self.portal.push(of)
            self.machine.receive(body)
            self.portal.handed.append(Handed(of, version, self.portal.now, None))
        elif what == "backup":
            self.machine.back_up(self.folder / "backup")
            seen = {name: set(ids) for name, ids in self._read_ids().items()}
            self.backup = Backup(self.portal.now, len(self.portal.handed), seen)
        elif what == "secret known":
            self.machine.secret = self.portal.secret
            self.machine.configure(self.machine.branches)
        elif what == "mishap":
            self._befall(of)

    def _now(self, *whats: str) -> Iterator[Happening]:
        return (one for one in self.happenings if one.what in whats and one.is_at(self.portal.now))

    def _tick(self, *, is_clock_right: bool) -> None:
        kills = self.machine.kills
        self.machine.tick()
        if is_clock_right and self.rng.random() < 1 / 40:
            self.machine.stage()
            # Sometimes nobody comes from the one to the other.
            if self.rng.random() < 0.9 and self.machine.publish() and self.machine.kills == kills:
                self.judge()

    def _befall(self, one: Happening) -> None:
        logging.getLogger("weeks").info("%s", one)
        befall: Callable[[Random], None] | None = getattr(self, f"befall_{one.what.replace(' ', '_')}", None)
        if befall is not None:  # what lasts is looked up when it matters
            befall(Random(f"{self.seed} {one.number}"))  # noqa: S311

    def befall_secret(self, rng: Random) -> None:
        self.portal.secret = f"secret-{rng.random()}"

    def befall_kill(self, rng: Random) -> None:
        self.machine.kill = Killed(rng.randrange(12))

    def befall_lose_warehouse(self, _: Random) -> None:
        self.machine.warehouse.unlink(missing_ok=True)

    def befall_copy(self, _: Random) -> None:
        self.machine.copy_folder()

    def befall_restore(self, _: Random) -> None:
        if self.backup is not None:
            self.machine.restore(self.folder / "backup")
            self.undone |= set(range(self.backup.handed, len(self.portal.handed)))
            self.seen = {name: set(ids) for name, ids in self.backup.seen.items()}
            self.restored.append((self.backup.taken, self.portal.now))

    def befall_lose_dagster(self, _: Random) -> None:
        self.machine.lose_dagster()

    def befall_branch(self, _: Random) -> None:
        more = next((branch for branch in BRANCHES if branch not in self.since and self._has(branch)), None)
        if more is not None:
            self.since[more] = self.portal.now
            self.machine.configure([*self.machine.branches, more])

    def befall_backfill(self, rng: Random) -> None:
        if not any(self._now("off")):
            last = self.portal.now.astimezone(self.zone).date()
            self.machine.backfill(last - timedelta(days=rng.randint(0, 12)), last)

    def befall_upgrade(self, _: Random) -> None:
        self.machine.stage_all_anew()

    def _has(self, branch: str) -> bool:
        return any(lead.versions[0].branch == branch for lead in self.portal.leads)

    def befall_rot_raw(self, rng: Random) -> None:
        """Of what is staged: what was landed and never staged would be the only copy."""
        unstaged = {(kind.table, f"day={day}") for kind, day in self.machine.to_stage}
        paths = [
            path
            for path in sorted((self.machine.folder / "raw").rglob("*.parquet"))
            if (path.parts[-4], path.parts[-3]) not in unstaged | self.rotten_staged and self._is_staged(path)
        ]
        if paths:
            path = rng.choice(paths)
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
            self.rotten.add((path.parts[-4].removesuffix("_leads"), date.fromisoformat(path.parts[-3][4:])))

    def _is_staged(self, path: Path) -> bool:
        folder = self.machine.folder / "staged" / path.parts[-4] / path.parts[-3]
        return any(folder.glob("*.parquet"))

    def befall_rot_staged(self, rng: Random) -> None:
        """Of days whose raw is whole."""
        paths = [
            path
            for kind in LEAD_KINDS
            for path in sorted((self.machine.folder / "staged" / kind.table).rglob("*.parquet"))
            if (kind.name, date.fromisoformat(path.parts[-2][4:])) not in self.rotten
        ]
        if paths:
            path = rng.choice(paths)
            content = path.read_bytes()
            path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
            self.rotten_staged.add((path.parts[-3], path.parts[-2]))

    def _settle(self) -> None:
        """A few days without mishaps, and the last publication."""
        self.portal.mood, self.machine.offset, self.machine.kill = None, timedelta(), None
        self.happenings = []
        if self.machine.secret != self.portal.secret:
            self.machine.secret = self.portal.secret
            self.machine.configure(self.machine.branches)
        for _ in range(4):
            self.portal.now += 12 * HOUR
            self.machine.tick()
        self.machine.stage()
        self.machine.publish()
        # What that publication found damaged is staged anew.
        self.machine.stage()
        assert self.machine.publish()
        # A day whose raw file is damaged waits for a person once the portal has deleted it.
        left = {(kind.name, day) for kind, day in self.machine.to_stage}
        assert left <= self.rotten
        self.judge()
        self.judge_looks()

    # --- the judgement -----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """What readers see now, against the ledger."""
        self.published += 1
        self.shown = shown = self._read_leads()
        for kind in LEAD_KINDS:
            rows = shown[kind.name]
            ids = [row[0] for row in rows]
            assert len(ids) == len(set(ids)), f"{kind.name} leads are there twice"
            gone = self.seen[kind.name] - set(ids)
            assert not gone, f"readers have seen {self._tell(gone)}, which are gone"
            self.seen[kind.name] = set(ids)
            versions = {id_: tuple(version) for id_, *version in rows}
            wanted = self._wanted(kind)
            missing = [id_ for id_, (must, _) in wanted.items() if must and id_ not in versions]
            assert not missing, f"received and not shown: {self._tell(missing)}"
            stale = [id_ for id_, version in versions.items() if version not in wanted[id_][1]]
            assert not stale, f"not in the version received last: {self._tell(stale)}, shown {versions[stale[0]]}"
        self._judge_coverage()
        self._judge_marts(shown)
        logging.getLogger("weeks").info("judged at %s", self.portal.now)

    def _wanted(self, kind: LeadKind) -> dict[str, tuple[bool, list[tuple[str, str, datetime]]]]:
        """By lead: whether it must be there, and the versions that it may be there in."""
        found: dict[str, tuple[bool, list[tuple[str, str, datetime]]]] = {}
        for number, handed in enumerate(self.portal.handed):
            if handed.lead.kind is not kind:
                continue
            must, may = found.get(handed.lead.id, (False, []))
            if number in self.undone or handed.run in self.machine.killed_runs:
                found[handed.lead.id] = must, [*may, handed.version.shown]
            else:
                found[handed.lead.id] = True, [handed.version.shown]
        return found

    def _judge_coverage(self) -> None:
        complete: set[tuple[str, str, datetime]] = set()
        for one in self.portal.answered:
            if one.end <= one.moment <= one.start + KEEPS:
                complete.add((one.kind, one.branch, one.start))
        rows = self._query("select kind, day, scope, state from mart_coverage where is_configured order by all")
        today = self.portal.now.astimezone(self.zone).date()
        expected = len(LEAD_KINDS) * len(self.machine.branches) * len(list(days(self.first_day, today)))
        assert len(rows) == expected, f"{len(rows)} windows of {expected} are in mart_coverage"
        for kind, day, scope, state in rows:
            start, _ = day_interval(day, self.zone)
            is_complete = (kind, scope.removeprefix("branch-"), start) in complete
            assert is_complete or state not in ("landed", "empty"), f"{kind} {day}|{scope} is called {state}"

    def _judge_marts(self, shown: dict[str, list[Any]]) -> None:
        counts = {kind.name: len(shown[kind.name]) for kind in LEAD_KINDS}
        in_mart = dict(self._query("select kind, sum(leads)::int from mart_leads_daily group by kind"))
        assert in_mart == {name: count for name, count in counts.items() if count}
        [(of_people,)] = self._query("select coalesce(sum(leads), 0)::int from mart_people")
        assert of_people == sum(counts.values())
        [(asked,)] = self._query("select coalesce(sum(leads), 0)::int from mart_listing_demand")
        assert asked == counts["applicant"]

    def judge_looks(self) -> None:
        """Whether each look that was promised has received what was listed."""
        stretches = self._good_stretches()
        received: set[tuple[str, Version]] = set()
        of_killed: set[tuple[str, Version]] = set()
        for number, handed in enumerate(self.portal.handed):
            if number not in self.undone:
                is_of_killed = handed.run in self.machine.killed_runs
                (of_killed if is_of_killed else received).add((handed.lead.id, handed.version))
        lost = []
        for lead in self.portal.leads:
            for number, version in enumerate(lead.versions):
                if version.branch not in self.since:
                    continue
                listed, ends = lead.listed(number)
                day = version.created_at.astimezone(self.zone).date()
                if day < self.first_day:
                    continue
                looks = self._looks(version, day, stretches)
                is_promised = any(listed <= due and done <= ends for due, done in looks)
                # A killed run may have landed it, and then that was the look.
                is_missed = is_promised and (lead.id, version) not in received
                if is_missed and not ((lead.id, version) in of_killed and self._is_in_raw(lead, version)):
                    lost.append(f"{lead.id} version {number} listed {listed:%m-%d %H:%M} to {ends:%m-%d %H:%M}")
        assert not lost, f"{len(lost)} were listed when they were to be looked at, and never received: {lost[:5]}"

    def _looks(
        self, version: Version, day: date, stretches: Sequence[tuple[datetime, datetime]]
    ) -> Iterator[tuple[datetime, datetime]]:
        """When each look at a version's window falls due, and by when it is made."""
        _, end = day_interval(day, self.zone)
        for after in LOOKS:
            due = max(end + after, self.since[version.branch])
            done = next((done for a, b in stretches if (done := max(due + DAY, a + REACH)) <= b), None)
            if done is None or due < self.begin:
                continue
            # What was landed after the backup is gone, and Dagster may think that it is there.
            if not any(taken < done and due < restored for taken, restored in self.restored):
                yield due, done

    def _good_stretches(self) -> list[tuple[datetime, datetime]]:
        """From when to when nothing was wrong with the portal and the machine."""
        all_of_them = mishaps(Random(f"mishaps {self.seed}"), self.begin, self.days)  # noqa: S311
        bad = sorted(
            (one.begins, one.ends)
            for one in all_of_them
            if one.number not in self.without
            and (self.only is None or one.number in self.only)
            and one.what in ("refused", "passing", "secret", "off", "clock", "kill", "lose dagster", "restore")
        )
        good, since = [], self.begin
        for begins, ends in bad:
            if begins > since:
                good.append((since, begins))
            since = max(since, ends)
        return [*good, (since, self.portal.now)]

    # --- reading -----------------------------------------------------------------------------------------------------

    def _query(self, statement: str) -> list[Any]:
        with duckdb.connect(self.machine.warehouse, read_only=True) as db:
            db.execute("set TimeZone = 'UTC'")
            return db.execute(statement).fetchall()

    def _is_in_raw(self, lead: Lead, version: Version) -> bool:
        files = self.machine.folder / "raw" / lead.kind.table / "**" / "*.parquet"
        with duckdb.connect() as db:
            statement = "select count(*) > 0 from read_parquet($files) where payload = $payload"
            parameters = {"files": str(files), "payload": lead.payload(version)}
            [(is_there,)] = db.execute(statement, parameters).fetchall()
        return bool(is_there)

    def _read_leads(self) -> dict[str, list[Any]]:
        columns = "lead_id, message, portal_branch_id, created_at"
        return {kind.name: self._query(f"select {columns} from {kind.table} order by 1") for kind in LEAD_KINDS}  # noqa: S608

    def _read_ids(self) -> dict[str, list[str]]:
        if not self.machine.warehouse.exists():
            return {kind.name: [] for kind in LEAD_KINDS}
        return {name: [row[0] for row in rows] for name, rows in self._read_leads().items()}

    def _tell(self, ids: Any) -> str:
        """The first few with their stories."""
        told = []
        for id_ in sorted(ids)[:3]:
            lead = next(lead for lead in self.portal.leads if lead.id == id_)
            handed = [
                f"{one.moment:%m-%d %H:%M} {'push' if one.run is None else 'pull'} "
                f"{one.version.shown[:2]} of {one.version.created_at:%m-%d %H:%M}"
                + (" undone" if number in self.undone else "")
                + (" killed" if one.run in self.machine.killed_runs else "")
                for number, one in enumerate(self.portal.handed)
                if one.lead is lead
            ]
            told.append(f"{id_} ({'; '.join(handed)})")
        return f"{len(ids)}: {', '.join(told)}"


def _seeds() -> list[str]:
    if seed := os.environ.get("WEEKS_SEED"):
        return [seed]
    return [str(number) for number in range(1, 1 + int(os.environ.get("WEEKS_SEEDS", "2")))]


@pytest.mark.parametrize("seed", _seeds())
def test_sixty_days_lose_nothing_double_nothing_and_hide_nothing(tmp_path: Path, seed: str) -> None:
    def numbers(name: str) -> frozenset[int] | None:
        text = os.environ.get(name)
        return frozenset(map(int, text.split(","))) if text else None

    weeks = Weeks(seed, tmp_path, numbers("WEEKS_WITHOUT") or frozenset(), numbers("WEEKS_ONLY"))
    told = "\n".join(map(str, weeks.happenings))
    try:
        weeks.run()
    except BaseException as error:
        error.add_note(f"repeat it with WEEKS_SEED={seed}; at {weeks.portal.now:%Y-%m-%d %H:%M} UTC of\n{told}")
        raise


# One, as a day through Dagster's engine costs more than ten through machine.py.
@pytest.mark.parametrize("seed", _seeds()[:1])
def test_a_few_days_through_dagsters_own_engine_end_as_the_simulated_ones(tmp_path: Path, seed: str) -> None:
    few = Weeks(seed, tmp_path / "engine", days=FEW_DAYS, make_machine=Engine)
    same = Weeks(seed, tmp_path / "machine", days=FEW_DAYS)
    same.happenings = few.happenings
    few.run()
    same.run()
    assert few.shown == same.shown
