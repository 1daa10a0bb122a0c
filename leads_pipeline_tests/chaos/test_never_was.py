"""Random histories with people who are erased: in the end it is as if they had never been.

The portal's ledger says whose leads were handed over, by what its versions show; nothing that the pipeline says of a
person is believed. The same history is gone through twice: once with everybody and with erasures, kills and restored
backups, and once at a portal that never had what was erased. Every table and mart must be the same then, but for what
says how a row came about, and for `removed`, which the ledger knows as well.

Belongs here: such histories by seed, and the judgement. Doesn't: faults at each system call (test_privacy.py), what an
erasure does on a good day (test_privacy_erase.py). `NEVER_WAS_SEEDS=100` runs so many, `NEVER_WAS_SEED=17` the one that
failed.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final
from zoneinfo import ZoneInfo

import duckdb
import httpx
import pytest

from leads_pipeline.contract import LEAD_KINDS, Answer, LeadKind, PushedLead, read_delivery, read_leads
from leads_pipeline.flatten.batches import flatten_days
from leads_pipeline.flatten.counts import StagedDay
from leads_pipeline.flatten.windows import unstaged_days
from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Group, Sought
from leads_pipeline.privacy.erase import Wish, add_to_list, left_by_list, left_of, sweep
from leads_pipeline.privacy.search import search
from leads_pipeline.spool import Placement, Spool
from leads_pipeline.suppression import Action
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope, Window, day_interval, days
from leads_pipeline_tests.chaos.ledger import Lead, Portal, Version
from leads_pipeline_tests.support.system_calls import Fault, needs_seccomp, run

pytestmark = needs_seccomp

ZONE = ZoneInfo("Europe/London")
# The second has 25 hours. The history goes on during the last two.
DAYS = tuple(days(date(2026, 10, 24), date(2026, 10, 28)))
BEGIN = datetime(2026, 10, 27, 6, tzinfo=UTC)
BRANCHES = ("101", "102", "103")
SCOPES = tuple(Scope.parse(f"branch-{branch}") for branch in BRANCHES)
GRID = Grid(SCOPES, DAYS[0], ZONE)
STEP = timedelta(minutes=97)
STEPS: Final = 14

WEIGHTS: Final = {
    "pull": 30,
    "push": 16,
    "take in": 10,
    "stage": 12,
    "publish": 8,
    "erase": 16,
    "apply": 4,
    "back up": 4,
    "restore": 6,
}

# A killed process changes this many things at most before; where it does less it isn't killed.
LATEST_DEATH: Final = 90

# What says how a row came about. Where a window's last change was somebody's who was erased, `fetched_at` stays.
PROVENANCE: Final = {
    "": {"sequence", "removed", "received", "state"},
    "landed_windows": {"fetched_at"},
    "mart_coverage": {"landed_at"},
}


# --- people and what they send ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    email: str
    phone: str


# Jane and John share a telephone; two are at one provider under nearly the same address.
PEOPLE = (
    Person("Jane Roe", "jane.roe@people.example", "07700900123"),
    Person("John Roe", "john.roe@people.example", "07700900123"),
    Person("Mary Ó Néill", "mary+homes@people.example", "02079460001"),
    Person("Mary Poe", "mary@people.example", "02079460010"),
    Person("Ann Lee", "ann.lee@gmail.com", "+16502530000"),
    Person("Ann Lee", "annlee@people.example", "07700900124"),
    Person("Bob Moe", "bob@people.example", "07700900125"),
)
_SHARING: Final = {PEOPLE[0]: PEOPLE[:2], PEOPLE[1]: PEOPLE[:2]}
STRANGERS = tuple(Person("", f"{number}@elsewhere.example", "") for number in range(6))

# How somebody writes themselves this time: e-mail address, telephone, name.
FORMS: Final[tuple[Callable[[Person], tuple[str, str, str]], ...]] = (
    lambda one: (one.email, one.phone, one.name),
    lambda one: (f" {one.email.upper()}", "", ""),
    lambda one: (one.email.title(), one.phone, ""),
    lambda one: ("", _spaced(one.phone), one.name.upper()),
    lambda one: ("", _spaced(one.phone), " ".join(reversed(one.name.split(" ", 1)))),
)


# With a telephone, and without a name.
_NAMELESS: Final = 2


def _spaced(phone: str) -> str:
    national = f"+44 (0){phone[1:]}" if phone.startswith("0") else phone
    return f"{national[:-4]} {national[-4:]}"


@dataclass(frozen=True, slots=True)
class Written(Version):
    """A version with what it shows of whom; `person` is the truth."""

    person: Person
    form: int

    def contact(self) -> dict[str, str]:
        email, phone, name = FORMS[self.form](self.person)
        first, _, last = name.partition(" ")
        return {"firstName": first, "lastName": last, "phoneNumber": phone, "email": email}


@dataclass(frozen=True, slots=True)
class Enquiry(Lead):
    """A lead of theirs, with a field that the contract doesn't know and a word that it doesn't know."""

    def payload(self, version: Version) -> str:
        assert isinstance(version, Written)
        content: dict[str, Any] = json.loads(Lead.payload(self, version))
        content["contact"] = version.contact()
        content["viewingTimes"] = [{"earliest": "2026-11-01T09:00:00Z"}] * (version.form % 3)
        content["portalSource"] = f"source {len(version.text) % 2}"
        content[f"unknown{version.form % 2}"] = version.text
        content["propertyDetails"] = {"address": {"postcode": "SW1A 1AA"}}
        return json.dumps(content)


def seeded_leads(rng: Random) -> list[Lead]:
    """Leads of the days before and new enquiries, corrected, moved and given to somebody else."""
    leads: list[Lead] = []
    for number in range(36):
        person = rng.choice(PEOPLE if rng.random() < 0.8 else STRANGERS)
        is_new = number % 4 == 0
        since = BEGIN + rng.random() * STEP * STEPS if is_new else BEGIN - timedelta(hours=rng.randrange(1, 72))
        if not is_new and rng.random() < 0.3:
            since = day_interval(rng.choice(DAYS[:-1]), ZONE)[0]
        since = since.replace(microsecond=0)
        versions = [_written(rng, since, rng.choice(BRANCHES), since, person)]
        while rng.random() < 0.4 and len(versions) < 4:
            last = versions[-1]
            later = max(BEGIN, last.since) + rng.random() * STEP * STEPS / 2
            branch = rng.choice(BRANCHES) if rng.random() < 0.4 else last.branch
            created = last.created_at - timedelta(hours=rng.randrange(30)) if rng.random() < 0.2 else last.created_at
            created = max(created, day_interval(DAYS[0], ZONE)[0])
            whose = rng.choice(_SHARING.get(last.person, PEOPLE)) if rng.random() < 0.4 else last.person
            versions.append(_written(rng, later, branch, created, whose))
        leads.append(Enquiry(f"lead-{number:04}", LEAD_KINDS[number % 3 == 2], tuple(versions)))
    return leads


def _written(rng: Random, since: datetime, branch: str, created_at: datetime, person: Person) -> Written:
    form = rng.randrange(len(FORMS)) if person.phone else 1
    if form == _NAMELESS and person in _SHARING:
        form = 0  # whose that is depends on who else was seen by then: test_person.py has it
    return Written(since, branch, created_at, f"text {rng.randrange(10**6)}", person, form)


@dataclass(frozen=True, slots=True)
class Request:
    """Who asks to be erased, and what they give: address, telephone with name, both, or a lead's id."""

    person: Person
    gives: str
    lead_id: str
    at: datetime

    @property
    def sought(self) -> Sought:
        one, gives = self.person, self.gives
        return Sought.of(
            emails=[one.email] if "email" in gives else [],
            phones=[one.phone] if "phone" in gives else [],
            names=[one.name] if "phone" in gives else [],
            lead_ids=[self.lead_id] if "lead" in gives else [],
        )

    def is_shown_by(self, lead: Lead, version: Version) -> bool:
        """Whether a version is theirs, by what they gave: the address, or the number and no other name or address."""
        assert isinstance(version, Written)
        if "lead" in self.gives:
            return lead.id == self.lead_id
        email, phone, name = FORMS[version.form](version.person)
        if "email" in self.gives and email and version.person.email == self.person.email:
            return True
        if "phone" not in self.gives or not phone or version.person.phone != self.person.phone:
            return False
        if name:
            return version.person.name == self.person.name
        return "email" not in self.gives or not email


# --- what happens -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    what: str
    which: int
    how: int
    # Before which change of a file the process that does it is killed first, if it is.
    dies: int | None


def seeded_steps(rng: Random) -> list[Step]:
    chosen = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS)
    chosen[0], chosen[STEPS // 2] = "pull", "erase"
    return [
        Step(
            what, rng.randrange(1000), rng.randrange(1000), rng.randrange(LATEST_DEATH) if rng.random() < 0.3 else None
        )
        for what in chosen
    ]


# Kind, day, scope.
WindowKey = tuple[str, date, str]


@dataclass(slots=True)
class Known:
    """What the pipeline was handed and still has: the versions in their order, and the leads of each pulled window."""

    handed: list[tuple[Lead, Version]] = field(default_factory=list)
    windows: dict[WindowKey, set[str]] = field(default_factory=dict)

    def copy(self) -> "Known":
        return Known([*self.handed], {window: {*leads} for window, leads in self.windows.items()})


def lake_in(folder: Path) -> Lake:
    return Lake(folder / "data", folder / "list")


def pull(folder: Path, portal: Portal, wanted: Sequence[tuple[LeadKind, Window]]) -> list[tuple[WindowKey, int]]:
    """Ask and land; the windows in their order, and how much the ledger had when each was answered."""
    lake = lake_in(folder)
    answered = []
    for kind, window in wanted:
        sequence = lake.next_sequence()
        start, end = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (window.start, window.end))
        url = f"http://portal.example{kind.path}?from-time={start}&to-time={end}&branch-id={window.scope.id}"
        request = httpx.Request("GET", url, headers={"authorization": f"Bearer token-of-{portal.secret}"})
        body = portal.handle(request).content
        answer = Answer(
            kind, window, read_leads(kind, body), portal.now, kind.path, "ab" * 32, len(body), 1, 0.1, sequence
        )
        lake.land(answer, "run")
        answered.append(((kind.name, window.day, window.scope.key), len(portal.handed)))
    return answered


def push(folder: Path, body: bytes, now: datetime) -> None:
    spool = Spool(lake_in(folder))
    sequence = spool.next_sequence()
    spool.add([PushedLead(kind, received, now, sequence) for kind, received in read_delivery(body)])


def take_in(folder: Path) -> None:
    for _ in Spool(lake_in(folder)).take_in(Placement(SCOPES, ZONE, DAYS[0]), "run"):
        """Each portion is landed."""


def stage(folder: Path) -> None:
    lake = lake_in(folder)
    for kind in LEAD_KINDS:
        for _, staged in flatten_days(lake, kind, unstaged_days(lake, kind, DAYS[0]), ZONE):
            assert isinstance(staged, StagedDay), staged


def publish(folder: Path, now: datetime) -> None:
    Warehouse(lake_in(folder)).publish(GRID, now)


def apply(folder: Path, now: datetime) -> None:
    assert sweep(lake_in(folder), ZONE).failed == {}
    publish(folder, now)


def erase(folder: Path, request: Request) -> set[str]:
    """As the command does it; the ids of the leads that it found."""
    lake = lake_in(folder)
    found = search(lake, folder / "home", request.sought, may_be_shared=True)
    chosen = [lead for lead in found.leads if lead.group is Group.GIVEN]
    if chosen:
        add_to_list(lake, request.sought, chosen, Wish(action=Action.ERASE), request.at)
        apply(folder, request.at)
    return {lead.lead_id for lead in chosen}


@dataclass(slots=True)
class History:
    """A data folder with its portal, which lists some of `everybody`. `meant` are the leads that were to be erased."""

    folder: Path
    portal: Portal
    everybody: Sequence[Lead]
    with_erasures: bool
    known: Known = field(default_factory=Known)
    backup: Known | None = None
    requests: list[Request] = field(default_factory=list)
    meant: set[str] = field(default_factory=set)

    def run(self, steps: Sequence[Step]) -> None:
        for number, step in enumerate(steps):
            self.portal.now = BEGIN + number * STEP
            try:
                getattr(self, f"do_{step.what.replace(' ', '_')}")(step)
            except Exception as error:
                error.add_note(f"in step {number}: {step}")
                raise
        self.portal.now = BEGIN + STEPS * STEP
        self.do_pull(Step("pull", 0, 0, None), is_whole=True)
        for last in (self.do_take_in, self.do_stage, self.do_publish):
            last(Step("last", 0, 0, None))
        if self.with_erasures:
            apply(self.folder, self.portal.now)

    def _work(self, step: Step, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do it in a process that is killed on the way, if it is to be; then again, whole."""
        if step.dies is not None and self.with_erasures:
            run(work, self.folder, *arguments, folder=self.folder, fault=Fault.KILL, at=step.dies)
        return work(self.folder, *arguments)

    def _hand(self, lead: Lead, version: Version) -> None:
        self.known.handed.append((lead, version))
        for request in self.requests:
            if version.created_at < request.at and request.is_shown_by(lead, version) and request.gives != "lead":
                self.meant.add(lead.id)

    def do_pull(self, step: Step, *, is_whole: bool = False) -> None:
        rng = Random(step.which)  # noqa: S311 - to be repeated
        wanted = [
            (kind, Window.of(day, scope, ZONE))
            for kind in LEAD_KINDS
            for day in DAYS
            for scope in SCOPES
            if day_interval(day, ZONE)[0] <= self.portal.now and (is_whole or rng.random() < 0.6)
        ]
        before = len(self.portal.handed)
        for window, after in self._work(step, pull, self.portal, wanted):
            ids = self.known.windows.setdefault(window, set())
            for handed in self.portal.handed[before:after]:
                self._hand(handed.lead, handed.version)
                ids.add(handed.lead.id)
            before = after

    def do_push(self, step: Step) -> None:
        there = [lead for lead in self.everybody if lead.at(self.portal.now)]
        lead = there[step.which % len(there)]
        if lead not in self.portal.leads:
            return
        body, version = self.portal.push(lead)
        self._work(step, push, body, self.portal.now)
        self._hand(lead, version)

    def do_take_in(self, step: Step) -> None:
        self._work(step, take_in)

    def do_stage(self, step: Step) -> None:
        self._work(step, stage)

    def do_publish(self, step: Step) -> None:
        self._work(step, publish, self.portal.now)
        assert not self.published_ids() & self.meant

    def do_erase(self, step: Step) -> None:
        """Of somebody who is known by then, if anybody is."""
        there = {lead.id: version for lead, version in self.known.handed if lead.id not in self.meant}
        people = [version.person for version in there.values() if isinstance(version, Written) and version.person.phone]
        if not self.with_erasures or not people:
            return
        gives = ("email", "email phone", "phone", "lead")[step.how % 4]
        lead_id = list(there)[step.which % len(there)]
        request = Request(people[step.which % len(people)], gives, lead_id, self.portal.now)
        wanted = {lead.id for lead, version in self.known.handed if request.is_shown_by(lead, version)}
        found = self._work(step, erase, request)
        if step.dies is None:
            # A restored backup may hold more of who was erased before.
            assert wanted - self.meant <= found <= wanted, request
        self.requests += [request] if wanted else []
        self.meant |= wanted
        apply(self.folder, self.portal.now)
        lake = lake_in(self.folder)
        assert left_by_list(lake) == []
        assert left_of(lake, search(lake, self.folder / "home", request.sought, may_be_shared=True)).is_nothing
        assert not self.published_ids() & self.meant

    def do_apply(self, step: Step) -> None:
        if self.with_erasures:
            self._work(step, apply, self.portal.now)

    def do_back_up(self, _: Step) -> None:
        if (self.folder / "data").exists():
            shutil.rmtree(self.folder / "backup", ignore_errors=True)
            shutil.copytree(self.folder / "data", self.folder / "backup")
            self.backup = self.known.copy()

    def do_restore(self, step: Step) -> None:
        if self.backup is None:
            return
        shutil.rmtree(self.folder / "data")
        shutil.copytree(self.folder / "backup", self.folder / "data")
        self.known = self.backup.copy()
        if step.how % 2 and self.with_erasures:
            apply(self.folder, self.portal.now)

    def published_ids(self) -> set[str]:
        path = Warehouse(lake_in(self.folder)).path
        if not path.exists():
            return set()
        with duckdb.connect(path, read_only=True) as db:
            return {row[0] for kind in LEAD_KINDS for row in db.execute(f"select lead_id from {kind.table}").fetchall()}  # noqa: S608


# --- the judgement ----------------------------------------------------------------------------------------------------


def published(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table and mart, without what says how its rows came about."""
    tables: dict[str, list[tuple[Any, ...]]] = {}
    with duckdb.connect(Warehouse(lake_in(folder)).path, read_only=True) as db:
        for schema, name in db.execute("select schema_name, table_name from duckdb_tables()").fetchall():
            if name in ("facts", "loaded_files", "publications", "touched_days"):  # of each file its own
                continue
            left_out = PROVENANCE[""] | PROVENANCE.get(name, set())
            columns = [row[0] for row in db.execute(f"describe {schema}.{name}").fetchall() if row[0] not in left_out]
            rows = db.sql(f"from {schema}.{name}").select(*columns).fetchall()
            tables[name] = sorted(rows, key=repr)
    return tables


def check_seed(seed: str, folder: Path) -> None:
    rng = Random(seed)  # noqa: S311 - to be repeated
    leads, steps = seeded_leads(rng), seeded_steps(rng)
    here = History(folder / "here", Portal(leads, BEGIN), leads, with_erasures=True)
    key = lake_in(here.folder).person_key()
    here.run(steps)
    never = History(folder / "never", Portal([one for one in leads if one.id not in here.meant], BEGIN), leads, False)
    lake_in(never.folder).person_key()
    (never.folder / "data" / ".state" / "person_key").write_bytes(
        (here.folder / "data" / ".state" / "person_key").read_bytes()
    )
    assert lake_in(never.folder).person_key() == key
    never.run(steps)

    # The ledger's own word, first of all: who is there, and in which version.
    newest = {lead.id: version for lead, version in here.known.handed if lead.id not in here.meant}
    with duckdb.connect(Warehouse(lake_in(here.folder)).path, read_only=True) as db:
        seen: dict[str, str] = {}
        for kind in LEAD_KINDS:
            seen |= dict(db.execute(f"select lead_id, message from {kind.table}").fetchall())  # noqa: S608
        counts = db.execute("select kind, window_day, scope, rows, removed, received from landed_windows").fetchall()
        states = db.execute("select kind, day, scope, state from mart_coverage where rows is not null").fetchall()
    assert seen == {id_: version.text for id_, version in newest.items()}
    assert {tuple(row[:3]): row[3:] for row in counts} == {
        window: (len(ids - here.meant), len(ids & here.meant), len(ids)) for window, ids in here.known.windows.items()
    }
    received = {window: bool(ids) for window, ids in here.known.windows.items()}
    assert {tuple(row[:3]): row[3] for row in states if row[3] in ("landed", "empty")}.items() <= {
        window: "landed" if has_leads else "empty" for window, has_leads in received.items()
    }.items()
    truth = published(never.folder)
    for table, rows in published(here.folder).items():
        assert rows == truth[table], table


@pytest.mark.parametrize(
    "seed",
    [os.environ["NEVER_WAS_SEED"]]
    if "NEVER_WAS_SEED" in os.environ
    else [str(number) for number in range(int(os.environ.get("NEVER_WAS_SEEDS", "0")))] or [os.environ["CHAOS_SEED"]],
)
def test_it_is_as_if_who_was_erased_had_never_been(tmp_path: Path, seed: str) -> None:
    try:
        check_seed(seed, tmp_path)
    except Exception as error:
        error.add_note(f"repeat it with NEVER_WAS_SEED={seed}")
        raise
