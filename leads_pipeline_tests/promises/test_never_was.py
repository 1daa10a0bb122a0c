"""Who was erased is as if they had never been: random histories of pulls, pushes, erasures, kills
and restores.

The same history happens twice: with everybody and with erasures, and at a portal that never had the
erased leads. Every table must be the same then. Whose a lead is, the test knows by itself.
`NEVER_WAS_SEEDS=50` tries so many histories, `NEVER_WAS_SEED=17` one.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import product
from operator import methodcaller
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from leads_pipeline_tests.support.house import LONDON, House, Row
from leads_pipeline_tests.support.system_calls import Fault, needs_seccomp, run

pytestmark = [needs_seccomp, pytest.mark.slow]

# The second has 25 hours. The history goes on during the last two.
DAYS = tuple(date(2026, 10, day) for day in range(24, 29))
BEGIN = datetime(2026, 10, 27, 6, tzinfo=UTC)
SCOPES = ("branch-101", "branch-102", "branch-103")
KINDS = ("applicant", "appraisal")
HOUR = timedelta(hours=1)
STEP = timedelta(minutes=97)
STEPS: Final = 14

WEIGHTS: Final = {"pull": 30, "push": 20, "publish": 14, "erase": 16, "back up": 6, "restore": 6}

# A killed process changes this many things at most before; if it does less, it isn't killed.
LATEST_DEATH: Final = 90

# What says how a row came about: counts of what was taken out, and what is left of a window.
PROVENANCE: Final = {"removed", "received", "state"}


# --- people and what they send --------------------------------------------------------------------


class Person(NamedTuple):
    email: str
    phone: str
    name: str


# Who may ask to be erased. Two share a telephone, and two are at one provider under nearly the same
# address.
PEOPLE = (
    Person("jane.roe@people.example", "07700 900123", "Jane Roe"),
    Person("john.roe@people.example", "07700 900123", "John Roe"),
    Person("mary+homes@people.example", "0161 496 0001", "Mary Poe"),
    Person("mary.p@people.example", "0161 496 0002", "Mary Penn"),
    Person("ann.lee@gmail.com", "0161 496 0003", "Ann Lee"),
    Person("annlee@people.example", "0161 496 0004", "Anna Leigh"),
)
STRANGERS = tuple(
    Person(f"{number}@elsewhere.example", f"0161 496 001{number}", f"Stranger {'ABCDEF'[number]}")
    for number in range(6)
)

# How somebody writes their address and their number this time.
EMAILS: Final[tuple[Callable[[str], str], ...]] = (str, str.title, lambda one: f" {one.upper()}")
PHONES: Final = ("{}", "{} (work)", "mobile {}, not after 9pm")


@dataclass(frozen=True)
class Version:
    """What the portal shows of a lead from a moment on. `person` is the truth.

    The contact always has the name, and the address, the number or both.
    """

    since: datetime
    scope: str
    created_at: datetime
    text: str
    person: Person
    has_email: bool = True
    has_phone: bool = True
    spelling: int = 0

    @property
    def contact(self) -> dict[str, str]:
        first_name, last_name = self.person.name.split()
        shown = {"firstName": first_name, "lastName": last_name}
        if self.has_email:
            shown["email"] = EMAILS[self.spelling](self.person.email)
        if self.has_phone:
            shown["phoneNumber"] = PHONES[self.spelling].format(self.person.phone)
        return shown


@dataclass(frozen=True)
class Lead:
    id: str
    kind: str
    versions: tuple[Version, ...]

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.id}"

    def at(self, moment: datetime) -> Version | None:
        """The version that the portal shows then, if it has the lead by then."""
        return next(
            (version for version in reversed(self.versions) if version.since <= moment), None
        )

    def content(self, version: Version) -> dict[str, Any]:
        """What the portal sends, with a member and a word that the contract doesn't know."""
        return {
            "id": self.id,
            "createdAt": f"{version.created_at:%Y-%m-%dT%H:%M:%SZ}",
            "message": version.text,
            "contact": version.contact,
            "viewingTimes": [{"earliest": "2026-11-01T09:00:00Z"}] * version.spelling,
            "listingDetails": {"images": [{"filename": version.text}]},
            "portalSource": f"source {len(version.text) % 2}",
            f"unknown{version.spelling}": version.text,
        }


def midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=LONDON).astimezone(UTC)


def seeded_leads(rng: Random) -> list[Lead]:
    """Leads of the days before and new enquiries, corrected, moved and given to somebody else."""
    leads: list[Lead] = []
    for number in range(36):
        person = rng.choice(PEOPLE if rng.random() < 0.8 else STRANGERS)
        is_new = number % 4 == 0
        since = BEGIN - timedelta(hours=rng.randrange(1, 72))
        if is_new:
            since = BEGIN + rng.random() * STEP * STEPS
        elif rng.random() < 0.3:
            since = midnight(rng.choice(DAYS[:-1]))
        since = since.replace(microsecond=0)

        versions = [written(rng, since, rng.choice(SCOPES), since, person)]
        while rng.random() < 0.4 and len(versions) < 4:
            last = versions[-1]
            later = max(BEGIN, last.since) + rng.random() * STEP * STEPS / 2
            scope = rng.choice([last.scope, *SCOPES])
            created = last.created_at - rng.choice([0, 0, 0, rng.randrange(30)]) * HOUR
            whose = rng.choice([last.person, rng.choice(PEOPLE)])
            versions.append(written(rng, later, scope, max(created, midnight(DAYS[0])), whose))
        leads.append(Lead(f"lead-{number:04}", KINDS[number % 3 == 2], tuple(versions)))
    return leads


def written(
    rng: Random, since: datetime, scope: str, created_at: datetime, person: Person
) -> Version:
    text = f"text {rng.randrange(10**6)}"
    if rng.random() < 0.2:
        text += f", or ask {rng.choice(rng.choice(PEOPLE)[:2])}"
    has_email = rng.random() < 0.8
    return Version(
        since=since,
        scope=scope,
        created_at=created_at,
        text=text,
        person=person,
        has_email=has_email,
        has_phone=not has_email or rng.random() < 0.5,
        spelling=rng.randrange(len(EMAILS)),
    )


@dataclass(frozen=True)
class Request:
    """Who asks to be erased, and what they give of themselves, or a lead as KIND/ID."""

    at: datetime
    person: Person
    identifiers: dict[str, str]

    def is_shown_by(self, version: Version) -> bool:
        """Whether a version is theirs. Whoever gives a number gives the name, too."""
        is_by_email = "email" in self.identifiers and version.has_email
        is_by_phone = "phone" in self.identifiers and version.has_phone
        return version.person == self.person and (is_by_email or is_by_phone)


# --- what happens ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    what: str
    which: int
    how: int
    # Before which change of a file the process that does it is killed first, if it is.
    dies: int | None = None


def seeded_steps(rng: Random) -> list[Step]:
    chosen = rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS)
    chosen[0] = "pull"
    chosen[STEPS // 2] = "erase"
    return [
        Step(
            what,
            rng.randrange(1000),
            rng.randrange(1000),
            rng.randrange(LATEST_DEATH) if rng.random() < 0.3 else None,
        )
        for what in chosen
    ]


# A call of a method of the house.
Deed = methodcaller


def do(house: House, deeds: Sequence[Deed]) -> None:
    for deed in deeds:
        deed(house)


# The versions that were handed over, in their order.
Handed = list[tuple[Lead, Version]]


@dataclass
class History:
    """A house, and a portal that has these leads. `meant` are the leads that were to be erased."""

    house: House
    leads: Sequence[Lead]
    with_erasures: bool
    handed: Handed = field(default_factory=list)
    backup: tuple[Path, Handed] | None = None
    requests: list[Request] = field(default_factory=list)
    meant: set[str] = field(default_factory=set)
    houses: int = 0

    def run(self, steps: Sequence[Step], everybody: Sequence[Lead]) -> None:
        for number, step in enumerate(steps):
            self.house.now = BEGIN + number * STEP
            try:
                self.do(step, everybody)
            except BaseException as error:
                error.add_note(f"in step {number}: {step}")
                raise
        self.house.now = BEGIN + STEPS * STEP
        self.pull(Step("pull", 0, 0), is_whole=True)
        self.publish(Step("publish", 0, 0))

    def do(self, step: Step, everybody: Sequence[Lead]) -> None:
        match step.what:
            case "pull":
                self.pull(step)
            case "push":
                self.push(step, everybody)
            case "publish":
                self.publish(step)
            case "erase":
                self.erase(step)
            case "back up":
                self.back_up()
            case "restore":
                self.restore()

    def work(self, step: Step, *deeds: Deed) -> None:
        """Do it in a process that is killed on the way, if it is to be; then again, whole."""
        if step.dies is not None and self.with_erasures:
            run(do, self.house, deeds, folder=self.house.folder, fault=Fault.KILL, at=step.dies)
        do(self.house, deeds)

    def hand(self, lead: Lead, version: Version) -> None:
        """Note that the portal hands a version over. It may be of somebody who was erased."""
        self.handed.append((lead, version))
        for request in self.requests:
            if version.created_at < request.at and request.is_shown_by(version):
                self.meant.add(lead.id)

    def pull(self, step: Step, *, is_whole: bool = False) -> None:
        """Pull some windows, or all."""
        rng = Random(step.which)  # noqa: S311 - to be repeated
        deeds = []
        for kind, day, scope in product(KINDS, DAYS, SCOPES):
            if midnight(day) > self.house.now or not (is_whole or rng.random() < 0.6):
                continue
            answered = self.answer(kind, day, scope)
            for lead, version in answered:
                self.hand(lead, version)
            contents = [lead.content(version) for lead, version in answered]
            deeds.append(Deed("land", kind, contents, day, scope))
        self.work(step, *deeds)

    def answer(self, kind: str, day: date, scope: str) -> Handed:
        """The leads that the portal has of a window, with both midnights."""
        found: Handed = []
        for lead in self.leads:
            version = lead.at(self.house.now)
            if version is None or (lead.kind, version.scope) != (kind, scope):
                continue
            if midnight(day) <= version.created_at <= midnight(day + timedelta(days=1)):
                found.append((lead, version))
        return found

    def push(self, step: Step, everybody: Sequence[Lead]) -> None:
        there = [lead for lead in everybody if lead.at(self.house.now)]
        lead = there[step.which % len(there)]
        version = lead.at(self.house.now)
        if lead in self.leads and version:
            self.work(step, Deed("push", lead.kind, lead.content(version)))
            self.hand(lead, version)

    def publish(self, step: Step) -> None:
        self.work(step, Deed("publish"))
        self.assert_gone()

    def erase(self, step: Step) -> None:
        """Erase somebody who is known by then, if anybody is."""
        known = {
            lead.key: version.person
            for lead, version in self.handed
            if lead.id not in self.meant and version.person in PEOPLE
        }
        if not self.with_erasures or not known:
            return

        key, person = list(known.items())[step.which % len(known)]
        given = (
            {"lead": key},
            {"email": person.email},
            {"phone": person.phone, "name": person.name},
            person._asdict(),
        )
        request = Request(self.house.now, person, given[step.how % len(given)])
        wanted = {
            lead.id
            for lead, version in self.handed
            if request.identifiers.get("lead") == lead.key or request.is_shown_by(version)
        }
        if wanted - self.meant:
            self.work(step, Deed("erase", **request.identifiers))
            self.requests.append(request)
            self.meant |= wanted
            self.assert_gone()

    def back_up(self) -> None:
        if self.handed:
            self.houses += 1
            target = self.house.folder.parent / f"backup-{self.houses}"
            self.house.back_up(target)
            self.backup = target, [*self.handed]

    def restore(self) -> None:
        """Lose the data folder, but for the list of who was erased, and restore the newest backup."""
        if self.backup is None:
            return
        self.houses += 1
        before = self.house.folder
        folder = self.house.folder.parent / f"data-{self.houses}"
        target, handed = self.backup
        self.house = self.house.restore(target, folder)
        self.handed = [*handed]
        if (before / "privacy").exists():
            shutil.rmtree(folder / "privacy", ignore_errors=True)
            shutil.copytree(before / "privacy", folder / "privacy")
            self.house.publish()
        shutil.rmtree(before)
        self.assert_gone()

    def assert_gone(self) -> None:
        for kind in KINDS:
            assert not self.meant & {id_ for id_, _ in self.house.raw(kind)}
            if self.house.file.exists():
                assert not self.meant & self.house.leads(kind).keys()


# --- the judgement --------------------------------------------------------------------------------


def house_in(folder: Path) -> House:
    house = House(folder / "data")
    # The hash of a person depends on the folder's key.
    key = house.folder / ".state" / "person_key"
    key.parent.mkdir(parents=True, mode=0o700)
    key.write_text("5eed" * 16)
    key.chmod(0o600)
    house.scopes = SCOPES
    house.first_day = DAYS[0]
    house.now = BEGIN
    return house


def compared(tables: dict[str, list[Row]]) -> dict[str, list[str]]:
    """The rows without what says how they came about."""
    found = {}
    for name, rows in tables.items():
        for row in rows:
            for column in PROVENANCE & row.keys():
                del row[column]
        found[name] = sorted(map(repr, rows))
    return found


def check_seed(seed: str, folder: Path) -> None:
    rng = Random(seed)  # noqa: S311 - to be repeated
    everybody = seeded_leads(rng)
    steps = seeded_steps(rng)
    here = History(house_in(folder / "here"), everybody, with_erasures=True)
    here.run(steps, everybody)
    others = [lead for lead in everybody if lead.id not in here.meant]
    never = History(house_in(folder / "never"), others, with_erasures=False)
    never.run(steps, everybody)

    newest = {lead.id: version.text for lead, version in here.handed if lead.id not in here.meant}
    found = {id_: row["message"] for kind in KINDS for id_, row in here.house.leads(kind).items()}
    assert found == newest
    truth = compared(never.house.tables())
    for table, rows in compared(here.house.tables()).items():
        assert rows == truth[table], table


def test_a_person_who_was_erased_is_not_back_after_a_pull_a_push_and_a_restore(
    tmp_path: Path,
) -> None:
    """One history, told. The next test draws others."""
    jane, john = PEOPLE[:2]
    created_at = midnight(DAYS[0]) + HOUR
    of_jane = Lead("jane", "applicant", (Version(created_at, SCOPES[0], created_at, "Hers", jane),))
    of_john = Lead("john", "applicant", (Version(created_at, SCOPES[0], created_at, "His", john),))
    contents = {lead.id: lead.content(lead.versions[0]) for lead in (of_jane, of_john)}
    house = house_in(tmp_path / "here")
    house.land("applicant", contents.values(), DAYS[0])
    house.publish()
    house.back_up(tmp_path / "backup")

    house.erase(phone=jane.phone, name=jane.name)
    house.land("applicant", contents.values(), DAYS[0])
    house.push("applicant", contents["jane"])
    house.publish()
    shutil.copytree(house.folder / "privacy", tmp_path / "there" / "privacy")
    restored = house.restore(tmp_path / "backup", tmp_path / "there")

    never = house_in(tmp_path / "never")
    never.land("applicant", [contents["john"]], DAYS[0])
    never.publish()
    assert [*never.leads("applicant")] == ["john"]
    for one in (house, restored):
        assert {lead_id for lead_id, _ in one.raw("applicant")} == {"john"}
        assert compared(one.tables()) == compared(never.tables())


def seeds() -> list[str]:
    if "NEVER_WAS_SEED" in os.environ:
        return [os.environ["NEVER_WAS_SEED"]]
    return [
        f"{os.environ['CHAOS_SEED']} {n}"
        for n in range(int(os.environ.get("NEVER_WAS_SEEDS", "2")))
    ]


@pytest.mark.parametrize("number", range(len(seeds())))
def test_it_is_as_if_who_was_erased_had_never_been(tmp_path: Path, number: int) -> None:
    seed = seeds()[number]
    try:
        check_seed(seed, tmp_path)
    except BaseException as error:
        error.add_note(f"repeat it with NEVER_WAS_SEED='{seed}'")
        raise
