"""Random histories of everything that can happen to the pipeline, in any order; after each step its promise holds.

Belongs here: the steps, a model of what must be there after them, and the comparison. Doesn't: Dagster, whose part in
it is test_orchestration.py's. CHAOS_SEED repeats the seeded history; its value is printed by `make chaos` and
stands in the message of a failure.
"""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final
from zoneinfo import ZoneInfo

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leads_pipeline.client import LeadsClient, Timing
from leads_pipeline.contract import LEAD_KINDS, LeadKind, PushedLead, read_delivery
from leads_pipeline.duck import glob_literal
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.flatten.batches import flatten_days
from leads_pipeline.flatten.columns import staged_tables, windows_table
from leads_pipeline.flatten.counts import StagedDay
from leads_pipeline.lake import PUSH_SCOPE, Lake
from leads_pipeline.resources import DataFolder, LeadsService
from leads_pipeline.retry import RetryPolicy
from leads_pipeline.simulator.faults import CUT_OFFS, SHAPES, Rule, Then, When
from leads_pipeline.simulator.server import RunningSimulator, running
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window, days

pytestmark = pytest.mark.chaos

ZONE = ZoneInfo("Europe/London")
# The third has 25 hours.
DAYS = tuple(days(date(2026, 10, 23), date(2026, 10, 26)))
BRANCHES = ("101", "102", "103")
BEGIN = datetime(2026, 10, 28, 6, tzinfo=UTC)

# What a portal can answer instead of leads. None: it answers well. A token that has expired is renewed unnoticed.
EXPIRED = Then(token="expired")
FAULTS: Final = (
    None,
    None,
    EXPIRED,
    Then(status=500),
    Then(status=403),
    Then(status=200, body="[]"),
    Then(status=200, body='{"applicants":null,"appraisals":{}}'),
    *(Then(shape=shape) for shape in SHAPES),
    *(Then(cut_off=cut_off) for cut_off in CUT_OFFS),
)
DAMAGES: Final[tuple[Callable[[bytes], bytes], ...]] = (
    lambda content: content[: len(content) // 2],
    lambda _: b"",
    lambda content: bytes(len(content)),
    lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
)
# Where a process is killed: before the n-th of these calls, which every durable step goes through.
CALLS: Final = ("fsync", "replace")
LATEST_DEATH: Final = 24

# More of what is ordinary, so that there is something to lose.
WEIGHTS: Final = {
    "add": 22,
    "change": 8,
    "move": 6,
    "turn back": 8,
    "set the clock back": 3,
    "forget": 8,
    "pull": 26,
    "push": 10,
    "take in": 8,
    "stage": 12,
    "publish": 10,
    "damage": 4,
    "damage staged": 6,
    "lose the warehouse": 2,
    "change the branches": 4,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens. `which` and `how` choose among what there is; `dies` says before which call, if any."""

    what: str
    which: int = 0
    how: int = 0
    dies: int | None = None


# A lead's version, and the turn in which it was received last: no clock's moment.
Leads = dict[str, tuple[int, int]]
# Every version of each lead, likewise.
Versions = dict[str, dict[int, int]]
# Kind, day, scope, and whether it holds pushes.
FileKey = tuple[str, date, str, bool]
Windows = dict[tuple[str, date, str], int]


@dataclass(frozen=True, slots=True)
class Content:
    """What staged files or the warehouse hold: versions by kind and id, and rows by landed window."""

    leads: dict[str, Leads]
    windows: Windows

    def versions(self) -> tuple[dict[str, dict[str, int]], Windows]:
        """What readers see of it."""
        return {kind: {id_: known[0] for id_, known in leads.items()} for kind, leads in self.leads.items()}, {
            **self.windows
        }


NOTHING = Content({}, {})


@dataclass(slots=True)
class Lead:
    """A lead at the portal; `is_there` until the portal forgets it.

    Each version has its branch and its moment in `places`, and `version` says which of them the portal shows now.
    """

    id: str
    kind: LeadKind
    places: list[tuple[str, datetime]]
    version: int = 0
    is_there: bool = True

    @property
    def branch(self) -> str:
        """The branch that it belongs to now."""
        return self.places[self.version][0]

    @property
    def created_at(self) -> datetime:
        """When it was submitted, as the portal says now."""
        return self.places[self.version][1]

    @property
    def payload(self) -> str:
        """The lead's text. Each version has other images, as many as its number modulo 3."""
        images = [{"filename": str(self.version)}] * (self.version % 3)
        created = self.created_at.isoformat().replace("+00:00", "Z")
        members = {"id": self.id, "createdAt": created, "portalBranchId": self.branch, "message": str(self.version)}
        return json.dumps({**members, "listingDetails": {"images": images}})


def merged(held: Versions, received: Leads) -> Versions:
    """Every version of both, with its last turn."""
    after = {id_: dict(versions) for id_, versions in held.items()}
    for id_, (version, turn) in received.items():
        versions = after.setdefault(id_, {})
        versions[version] = max(turn, versions.get(version, turn))
    return after


def newest(parts: Sequence[Versions]) -> Leads:
    """Of each lead the version of the last turn; of one turn that of the last part."""
    found: Leads = {}
    for part in parts:
        for id_, versions in part.items():
            for known in versions.items():
                if id_ not in found or known[1] >= found[id_][1]:
                    found[id_] = known
    return found


def moment(number: int, scope: Scope) -> datetime:
    """A moment of one of the days; every third one is a midnight, which the windows of two days hold."""
    start = Window.of(DAYS[number % len(DAYS)], scope, ZONE).start
    return start + timedelta(hours=0 if number % 3 == 0 else number % 24)


def kept(kind: str, before: Content, new: Content) -> Content:
    """A day that is staged anew: what raw has, and what only the staged day had."""
    leads = before.leads.get(kind, {})
    newer = {id_: known for id_, known in new.leads[kind].items() if id_ not in leads or known[1] >= leads[id_][1]}
    return Content({kind: leads | newer}, {**before.windows, **new.windows})


# --- what the pipeline does, in this process or in one that is killed ------------------------------------------------


def pull(
    folder: Path, environment: Mapping[str, str], windows: Sequence[tuple[LeadKind, Window]], now: datetime
) -> Iterator[tuple[str, str]]:
    """Fetch and land; each window's key is yielded once it is landed."""
    lake, address = Lake(folder), environment["LEADS_BASE_URL"]
    service = LeadsService(
        data=DataFolder(path=str(folder)),
        base_url=address,
        auth_url=address,
        client_id=environment["LEADS_CLIENT_ID"],
        client_secret=environment["LEADS_CLIENT_SECRET"],
        audience=address,
    )
    # One window after the other, so that a seed gives the same history each time.
    client = LeadsClient(
        address,
        service.auth(),
        max_concurrency=1,
        next_sequence=lake.next_sequence,
        policy=RetryPolicy(max_attempts=1),
        timing=Timing(now=lambda: now),
    )
    for kind in LEAD_KINDS:
        of_kind = [window for its_kind, window in windows if its_kind == kind]
        for window, outcome in client.fetch_windows(kind, of_kind):
            if not isinstance(outcome, LeadsPipelineError):
                lake.land(outcome, "run")
                yield kind.name, window.partition_key


def deliver(folder: Path, pushed: Sequence[PushedLead]) -> Iterator[None]:
    Spool(Lake(folder)).add(pushed)
    yield None


def take_in(folder: Path, scopes: Sequence[Scope]) -> Iterator[None]:
    for _ in Spool(Lake(folder)).take_in(Placement(scopes, ZONE, DAYS[0]), "run"):
        yield None


def stage(folder: Path, wanted: Sequence[tuple[LeadKind, date]]) -> Iterator[tuple[str, date]]:
    for kind in LEAD_KINDS:
        of_kind = [day for its_kind, day in wanted if its_kind == kind]
        for day, staged in flatten_days(Lake(folder), kind, of_kind, ZONE):
            assert isinstance(staged, StagedDay)
            assert staged.raw_rows - staged.duplicates + staged.retained == staged.rows[kind.table]
            yield kind.name, day


def publish(folder: Path, scopes: Sequence[Scope], now: datetime) -> Iterator[None]:
    Warehouse(Lake(folder)).publish(Grid(scopes, DAYS[0], ZONE), now)
    yield None


def _dying(call: str, countdown: int, work: Callable[[], Iterator[Any]], reports: Connection) -> None:
    """The killed process: does its work until it comes to that call for the n-th time."""
    real = getattr(os, call)

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal countdown
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        countdown -= 1
        return real(*arguments, **named)

    setattr(os, call, counted)
    for report in work():
        reports.send(report)


# --- a history -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class History:
    """A data folder with its portal, and what must be there. Where a process was killed, that is one of several."""

    folder: Path
    simulator: RunningSimulator
    now: datetime = BEGIN
    turn: int = 0
    scopes: tuple[Scope, ...] = tuple(Scope.parse(f"branch-{branch}") for branch in BRANCHES)
    portal: list[Lead] = field(default_factory=list)
    raw: dict[FileKey, Versions] = field(default_factory=dict)
    spooled: dict[Path, list[tuple[Lead, int]]] = field(default_factory=dict)
    unstaged: set[tuple[LeadKind, date]] = field(default_factory=set)
    staged: dict[tuple[str, date], list[Content]] = field(default_factory=dict)
    published: list[Content | None] = field(default_factory=lambda: [None])
    damaged: dict[Path, bytes] = field(default_factory=dict)
    set_aside: list[bytes] = field(default_factory=list)

    @property
    def lake(self) -> Lake:
        return Lake(self.folder)

    def run(self, steps: Sequence[Step]) -> None:
        """Let the steps happen, checking after each; in the end everything is pulled, staged and published once."""
        whole = [Step("pull", which=99), Step("take in"), Step("stage"), Step("publish")]
        for number, step in enumerate([*steps, *whole], start=1):
            self.now += timedelta(minutes=1)
            self.turn = number
            try:
                getattr(self, f"do_{step.what.replace(' ', '_')}")(step)
                self.check()
            except Exception as error:
                error.add_note(f"in step {number} of {len(steps)}: {step}")
                raise
        seen = self.published[0]
        assert seen is not None
        for lead in self.portal:
            if lead.is_there and f"branch-{lead.branch}" in {scope.key for scope in self.scopes}:
                assert seen.leads[lead.kind.name][lead.id][0] == lead.version

    # --- the portal --------------------------------------------------------------------------------------------------

    def do_add(self, step: Step) -> None:
        kind, branch = LEAD_KINDS[step.which % 3 == 0], BRANCHES[step.which % len(BRANCHES)]
        place = (branch, moment(step.which + step.how, self.scopes[0]))
        self.portal.append(Lead(f"lead-{len(self.portal):03}", kind, [place]))

    def do_change(self, step: Step) -> None:
        if self.portal:
            lead = self.portal[step.which % len(self.portal)]
            lead.places.append(lead.places[lead.version])
            lead.version = len(lead.places) - 1

    def do_move(self, step: Step) -> None:
        """To another branch, another day, or both."""
        if self.portal:
            lead = self.portal[step.which % len(self.portal)]
            branch = BRANCHES[step.how % len(BRANCHES)]
            lead.places.append((branch, moment(step.how, self.scopes[0]) if step.which % 2 else lead.created_at))
            lead.version = len(lead.places) - 1

    def do_turn_back(self, step: Step) -> None:
        """To a version that it had before, with its branch and its day."""
        if self.portal:
            lead = self.portal[step.which % len(self.portal)]
            lead.version = step.how % len(lead.places)

    def do_set_the_clock_back(self, step: Step) -> None:
        """By hours. Numbers are drawn by the machine's own clock, so instead of that their counter is set ahead."""
        self.now = max(self.now - timedelta(hours=step.how % 24), BEGIN - timedelta(hours=24))
        hours = timedelta(hours=step.how) // timedelta(microseconds=1)
        ahead = self.lake.next_sequence() + hours
        (self.folder / ".state" / "sequence").write_text(f"{ahead:018}\n")

    def do_forget(self, step: Step) -> None:
        if self.portal:
            self.portal[step.which % len(self.portal)].is_there = False

    def do_change_the_branches(self, step: Step) -> None:
        chosen = [branch for place, branch in enumerate(BRANCHES) if (step.which % 7 + 1) >> place & 1]
        self.scopes = tuple(Scope.parse(f"branch-{branch}") for branch in chosen)

    # --- pulling -----------------------------------------------------------------------------------------------------

    def do_pull(self, step: Step) -> None:
        wanted = DAYS if step.which == 99 else {DAYS[step.which % len(DAYS)], DAYS[step.how % len(DAYS)]}
        asked = [
            (kind, Window.of(day, scope, ZONE))
            for kind in LEAD_KINDS
            for day in sorted(wanted)
            for scope in self.scopes
        ]
        fault = None if step.which == 99 else FAULTS[step.how % len(FAULTS)]
        # Some of the windows alone, so that good and bad ones stand side by side.
        bad = [one for place, one in enumerate(asked) if fault and (place + step.which) % 3] if fault != EXPIRED else []
        answers = {one: self._answer(*one) for one in asked}
        rules = [Rule(EXPIRED, When(path=LEAD_KINDS[0].path, nth=1))] if fault == EXPIRED else []
        rules += [_rule(one, fault) for one in bad if fault is not None]
        rules += [_rule(one, self._said(one[0], answer)) for one, answer in answers.items()]
        self.simulator.set_faults(rules)
        keys = {(kind, window): (kind.name, window.day, window.scope.key, False) for kind, window in asked}
        before = self._contents(keys.values())
        reported, killed = self._work(
            partial(pull, self.folder, self.simulator.environment(), asked, self.now), step.dies
        )
        good = {
            (kind.name, window.partition_key): (kind, window) for kind, window in asked if (kind, window) not in bad
        }
        assert set(reported) <= good.keys()
        assert killed or set(reported) == good.keys()
        for key, (kind, window) in good.items():
            received = {lead.id: (lead.version, self.turn) for lead in answers[kind, window]}
            self._land(keys[kind, window], received, before, is_reported=key in reported)

    def _answer(self, kind: LeadKind, window: Window) -> list[Lead]:
        return [
            replace(lead)
            for lead in self.portal
            if lead.is_there
            and (lead.kind, f"branch-{lead.branch}") == (kind, window.scope.key)
            and window.start <= lead.created_at <= window.end
        ]

    def _said(self, kind: LeadKind, answer: Sequence[Lead]) -> Then:
        body = f'{{"{kind.list_key}":[{",".join(lead.payload for lead in answer)}]}}'
        return Then(status=200, body=body, headers={"Content-Type": "application/json"})

    def _contents(self, keys: Iterable[FileKey]) -> dict[FileKey, bytes | None]:
        paths = {key: self._path(key) for key in keys}
        return {key: path.read_bytes() if path.exists() else None for key, path in paths.items()}

    def _land(
        self, key: FileKey, received: Leads, before: Mapping[FileKey, bytes | None], *, is_reported: bool
    ) -> None:
        """What was reported must be in the file. What wasn't may be, all or nothing of it: then the file is another."""
        content = self._contents([key])[key]
        if is_reported or content not in (None, before[key]):
            self.raw[key] = merged(self.raw.get(key, {}), received)
            self.unstaged.add((_kind(key[0]), key[1]))

    # --- pushes ------------------------------------------------------------------------------------------------------

    def do_push(self, step: Step) -> None:
        there = [lead for lead in self.portal if lead.is_there]
        if not there:
            return
        lead = replace(there[step.which % len(there)])
        body = f'{{"{lead.kind.name}": {lead.payload}}}'.encode()
        sequence = self.lake.next_sequence()
        pushed = [PushedLead(kind, received, self.now, sequence) for kind, received in read_delivery(body)]
        before = set(Spool(self.lake).waiting())
        reported, _ = self._work(partial(deliver, self.folder, pushed), step.dies)
        if not reported:  # nobody answered 200: the portal delivers again
            list(deliver(self.folder, pushed))
        new = set(Spool(self.lake).waiting()) - before
        assert 1 <= len(new) <= 2
        self.spooled |= {path: [(lead, self.turn)] for path in new}

    def do_take_in(self, step: Step) -> None:
        configured = {scope.key for scope in self.scopes}
        groups: dict[FileKey, list[Leads]] = {}
        for lead, turn in (one for some in self.spooled.values() for one in some):
            scope = f"branch-{lead.branch}"
            day = lead.created_at.astimezone(ZONE).date()
            key = (lead.kind.name, day, scope if scope in configured else PUSH_SCOPE, True)
            groups.setdefault(key, []).append({lead.id: (lead.version, turn)})
        before = self._contents(groups)
        reported, killed = self._work(partial(take_in, self.folder, self.scopes), step.dies)
        for key, deliveries in groups.items():
            for received in deliveries:
                self._land(key, received, before, is_reported=bool(reported))
        waiting = set(Spool(self.lake).waiting())
        assert waiting <= self.spooled.keys()
        assert not waiting if not killed else waiting or reported or not groups
        self.spooled = {path: some for path, some in self.spooled.items() if path in waiting}

    # --- staging and publishing --------------------------------------------------------------------------------------

    def do_stage(self, step: Step) -> None:
        wanted = sorted(self.unstaged, key=lambda one: (one[0].name, one[1]))
        reported, killed = self._work(partial(stage, self.folder, wanted), step.dies)
        assert killed or len(reported) == len(wanted)
        for kind, day in wanted:
            new = self._in_raw(kind, day)
            before = self.staged.get((kind.name, day), [NOTHING])
            # What readers saw stays, whatever has become of raw.
            after = [kept(kind.name, content, new) for content in before]
            if (kind.name, day) in reported:
                self.staged[kind.name, day] = after
                self.unstaged.discard((kind, day))
            else:
                self.staged[kind.name, day] = [*before, *after]

    def _in_raw(self, kind: LeadKind, day: date) -> Content:
        files = {key: leads for key, leads in self.raw.items() if key[:2] == (kind.name, day)}
        windows = {key[:3]: len(leads) for key, leads in files.items() if not key[3]}
        return Content({kind.name: newest(list(files.values()))}, windows)

    def do_publish(self, step: Step) -> None:
        _, killed = self._work(partial(publish, self.folder, self.scopes, self.now), step.dies)
        self._settle_staged()
        days_of = [self.staged[key][0] for key in sorted(self.staged)]
        leads = {
            kind.name: newest(
                [
                    {id_: dict([known]) for id_, known in content.leads[kind.name].items()}
                    for content in days_of
                    if kind.name in content.leads
                ]
            )
            for kind in LEAD_KINDS
        }
        windows = {key: rows for content in days_of for key, rows in content.windows.items()}
        new = Content(leads, windows)
        self.published = [*self.published, new] if killed else [new]

    def _settle_staged(self) -> None:
        """See which of the possible versions each staged day has. Whoever comes first finishes what a kill left."""
        for kind in LEAD_KINDS:
            files = {file.day: file.path for file in self.lake.staged_files(kind.table)}
            windows = {file.day: file.path for file in self.lake.staged_files(windows_table(kind))}
            assert files.keys() == windows.keys()
            for (name, day), possible in self.staged.items():
                if name != kind.name:
                    continue
                seen = NOTHING.versions()
                if day in files:
                    with duckdb.connect() as db:
                        rows = db.execute(f"select lead_id, message::int from {_parquet(files[day])}").fetchall()  # noqa: S608
                        held = db.execute(f"select scope, rows from {_parquet(windows[day])}").fetchall()  # noqa: S608
                    assert len(rows) == len(dict(rows))
                    seen = {name: dict(rows)}, {(name, day, scope): count for scope, count in held}
                matching = [content for content in possible if content.versions() == seen]
                assert matching, f"{name} {day} is staged as {seen}, not as any of {possible}"
                self.staged[name, day] = matching[-1:]

    # --- mishaps -----------------------------------------------------------------------------------------------------

    def do_damage(self, step: Step) -> None:
        whole = sorted(self.raw)
        if not whole:
            return
        key = whole[step.which % len(whole)]
        path = self._path(key)
        content = DAMAGES[step.how % len(DAMAGES)](path.read_bytes())
        path.write_bytes(content)
        self.damaged[path] = content
        del self.raw[key]
        self.unstaged.add((_kind(key[0]), key[1]))

    def do_damage_staged(self, step: Step) -> None:
        """One file of a day that raw has all of. The publication that follows stages the day again, and no other."""
        self._settle_staged()
        if not self.staged:
            return
        name, day = sorted(self.staged)[step.which % len(self.staged)]
        kind, [content] = _kind(name), self.staged[name, day]
        new, tables = self._in_raw(kind, day), staged_tables(kind)
        path = self.lake.staged_path(tables[step.how % len(tables)], day)
        if not path.exists() or kept(name, content, new).versions() != new.versions():
            return
        path.write_bytes(DAMAGES[step.how % len(DAMAGES)](path.read_bytes()))
        self.staged[name, day] = [new]
        self.unstaged.discard((kind, day))
        self.do_publish(replace(step, dies=None))

    def do_lose_the_warehouse(self, _: Step) -> None:
        Warehouse(self.lake).path.unlink(missing_ok=True)
        self.published = [None]

    def _work(self, work: Callable[[], Iterator[Any]], dies: int | None) -> tuple[list[Any], bool]:
        """What the work reports, and whether it was killed."""
        if dies is None:
            return list(work()), False
        # Forked from a process without threads that has imported all of it: importing takes seconds.
        processes = multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload([__name__])
        receiving, sending = processes.Pipe(duplex=False)
        process = processes.Process(target=_dying, args=(CALLS[dies % 2], dies // 2, work, sending), daemon=True)
        process.start()
        sending.close()
        reported = []
        with receiving:
            while True:
                try:
                    reported.append(receiving.recv())
                except EOFError:
                    break
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        return reported, process.exitcode != 0

    # --- the promise -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Every lead of every landed answer is in raw, and readers see a whole, known version of the warehouse."""
        unnoticed = self._unnoticed()
        on_disk = {path for path in (self.folder / "raw").rglob("*.parquet") if path not in unnoticed}
        assert on_disk == {self._path(key) for key in self.raw}
        rows = self._rows(sorted(on_disk))
        assert {key: rows.get(self._path(key), {}) for key in self.raw} == {
            key: {id_: set(versions) for id_, versions in leads.items()} for key, leads in self.raw.items()
        }
        aside = sorted(path.read_bytes() for path in self.lake.quarantined())
        assert aside == sorted(self.set_aside)

        seen = self._seen()
        matching = [one for one in self.published if (one.versions() if one else None) == seen]
        assert matching, f"readers see {seen}, and not one of {self.published}"
        self.published = matching[-1:]

    def _unnoticed(self) -> set[Path]:
        """Damaged files that nobody has looked at yet; the others must be in quarantine as they were found."""
        for path, content in list(self.damaged.items()):
            if not path.exists() or path.read_bytes() != content:
                del self.damaged[path]
                self.set_aside.append(content)
        return set(self.damaged)

    def _rows(self, paths: Sequence[Path]) -> dict[Path, dict[str, set[int]]]:
        """Versions by file; a file without rows isn't in it."""
        there = [path for path in paths if path.exists() and path not in self._unnoticed()]
        if not there:
            return {}
        found: dict[Path, dict[str, set[int]]] = {}
        with duckdb.connect() as db:
            for name, id_, payload in db.execute(
                "select filename, lead_id, payload "
                "from read_parquet($paths, filename = true, hive_partitioning = false)",
                {"paths": [glob_literal(path) for path in there]},
            ).fetchall():
                versions = found.setdefault(Path(name), {}).setdefault(id_, set())
                version = int(json.loads(payload)["message"])
                assert version not in versions
                versions.add(version)
        return found

    def _seen(self) -> tuple[dict[str, dict[str, int]], Windows] | None:
        """What a reader of the warehouse sees, after a look at whether its parts belong together."""
        path = Warehouse(self.lake).path
        if not path.exists():
            return None
        with duckdb.connect(path, read_only=True) as db:
            leads = {
                kind.name: db.execute(f"select lead_id, message::int from {kind.table}").fetchall()  # noqa: S608
                for kind in LEAD_KINDS
            }
            images = db.execute("select lead_id, filename::int from applicant_listing_images order by all").fetchall()
            in_marts = db.execute("select coalesce(sum(leads), 0) from mart_leads_daily").fetchall()
            windows = db.execute("select kind, window_day, scope, rows from landed_windows").fetchall()
            covered = db.execute(
                "select kind, day, scope from mart_coverage where state in ('landed', 'empty', 'partial', 'damaged') "
                "order by all"
            ).fetchall()
        for rows in leads.values():
            assert len(rows) == len(dict(rows))
        assert images == sorted((id_, version) for id_, version in leads["applicant"] for _ in range(version % 3))
        assert in_marts == [(sum(map(len, leads.values())),)]
        assert covered == sorted(row[:3] for row in windows)
        return {name: dict(rows) for name, rows in leads.items()}, {(k, day, scope): n for k, day, scope, n in windows}

    def _path(self, key: FileKey) -> Path:
        name, day, scope, is_pushed = key
        folder = self.folder / "raw" / _kind(name).table / f"day={day}" / f"scope={scope}"
        return folder / ("pushed.parquet" if is_pushed else "leads.parquet")


def _rule(asked: tuple[LeadKind, Window], then: Then) -> Rule:
    kind, window = asked
    return Rule(then, When(path=kind.path, scope=window.scope.key, from_time=f"{window.start:%Y-%m-%dT%H:%M}"))


def _kind(name: str) -> LeadKind:
    return next(kind for kind in LEAD_KINDS if kind.name == name)


def _parquet(path: Path) -> str:
    return f"read_parquet('{glob_literal(path)}', hive_partitioning = false)"


# --- the tests -------------------------------------------------------------------------------------------------------


def seeded_steps(seed: str, count: int) -> list[Step]:
    rng = Random(seed)  # noqa: S311 - to be repeated
    return [
        Step(
            what,
            which=rng.randrange(99),
            how=rng.randrange(60),
            dies=rng.randrange(LATEST_DEATH) if rng.random() < 0.3 else None,
        )
        for what in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count)
    ]


STEPS = st.builds(
    Step,
    what=st.sampled_from([what for what, weight in WEIGHTS.items() for _ in range(weight // 2)]),
    which=st.integers(0, 98),
    how=st.integers(0, 59),
    dies=st.none() | st.integers(0, LATEST_DEATH - 1),
)


def test_a_seeded_history_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    seed = os.environ["CHAOS_SEED"]
    steps = seeded_steps(seed, 250)
    with running() as simulator:
        try:
            History(tmp_path / "data", simulator).run(steps)
        except Exception as error:
            error.add_note(f"repeat it with CHAOS_SEED={seed}")
            raise


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=8, max_size=24))
def test_no_history_loses_or_doubles_anything(portal: RunningSimulator, steps: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        History(Path(folder) / "data", portal).run(steps)


@pytest.fixture
def portal() -> Iterator[RunningSimulator]:
    with running() as simulator:
        yield simulator
