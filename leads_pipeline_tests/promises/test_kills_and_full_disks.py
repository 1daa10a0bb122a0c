"""A command is killed, or its disk fails, fills up or goes read-only under it, at any system call.

Then readers still find whole publications, and the same command ends well once the disk is well
again: each lead is published once in its newest version, no acknowledged push is lost, who was to
be erased is gone, and a backup brings everything back.
`FAULTS=200` tries so many calls; the seed chooses them.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from leads_pipeline_tests.promises import faults
from leads_pipeline_tests.promises.agency import BRANCHES, DAY, Agency, agency, lead, versions
from leads_pipeline_tests.support.serving import free_port
from leads_pipeline_tests.support.system_calls import NEVER, Fault, Outcome, needs_seccomp, run

pytestmark = [needs_seccomp, pytest.mark.slow]

JANE = "jane.roe@people.example"
KEY = "a-key-of-whoever-pushes"
PUSHED = [lead(f"pushed-{number}", 1) for number in range(3)]


@dataclass
class Site:
    """A data folder, a backup of it, and the portal.

    `before` holds a copy of the folders for each trial.
    """

    agency: Agency
    folder: Path
    before: Path
    # The leads that are published before the command, and those at the portal.
    old: dict[str, str]
    new: dict[str, str]
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def renew(self) -> None:
        """Bring the folders into the state before the command."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.before, self.folder, symlinks=True)

    def run(self, *arguments: str, fault: Fault = Fault.EIO, at: int = NEVER) -> Outcome:
        """Run a command, whose call of that number fails."""
        return self._watched(fault, at, faults.command, self.agency.environment(), arguments)

    def receive(self, leads: Any, fault: Fault = Fault.EIO, at: int = NEVER) -> Outcome:
        """Run the receiver, to which the leads are pushed; as above."""
        port = free_port()
        environment = {**self.agency.environment(), "LEADS_RECEIVE_KEY": KEY}
        return self._watched(fault, at, faults.receive, environment, port, leads)

    def _watched(self, fault: Fault, at: int, work: Callable[..., int], *arguments: Any) -> Outcome:
        return run(
            work, *arguments, self.folder.parent / "output", folder=self.folder, fault=fault, at=at
        )

    def succeed(self, *arguments: str) -> None:
        """Run a command without a fault."""
        done = self.run(*arguments)
        assert (done.is_done, done.result) == (True, 0), self.printed()

    def backfill(self) -> None:
        self.succeed(*BACKFILL)

    def publish_what_is_there(self) -> None:
        """Pull and publish while the portal has no leads."""
        leads = self.agency.leads.copy()
        self.agency.leads.clear()
        self.backfill()
        self.agency.leads.update(leads)

    def printed(self) -> str:
        return " ".join((self.folder.parent / "output").read_text().split())

    def acknowledged(self) -> set[str]:
        return {*(self.folder.parent / "acknowledged").read_text().split()}

    @property
    def published(self) -> dict[str, str]:
        return versions(self.agency.data)


BACKFILL = ("backfill", "--from", str(DAY), "--to", str(DAY))
ERASE = ("privacy", "erase", "--email", JANE, "--yes")
BACKUP = ("backup", "here/backups")
RESTORE = ("restore", "here/backups")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Leads of two branches, published and backed up, that have changed at the portal since."""
    folder = tmp_path_factory.mktemp("site")
    with agency(folder / "here" / "data") as there:
        site = Site(there, folder / "here", folder / "before", {}, {})
        site.folder.mkdir()
        for branch in BRANCHES:
            for number in range(3):
                there.put("applicant", branch, lead(f"applicant-{branch}-{number}", 1))
                there.put("appraisal", branch, lead(f"appraisal-{branch}-{number}", 1))
            there.put("applicant", branch, lead(f"jane-{branch}", 1, email=JANE))
        site.backfill()
        site.succeed(*BACKUP)
        site.old = site.published
        for branch in BRANCHES:
            for number in range(2, 5):
                there.put("applicant", branch, lead(f"applicant-{branch}-{number}", 2))
        site.new = {id_: str(one["message"]) for (_, _, id_), one in there.leads.items()}
        site.folder.rename(site.before)
        yield site


# --- the commands ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A command, what must hold after it, and how the folders come to be as it finds them.

    Without a command, leads are pushed to the receiver.
    """

    command: tuple[str, ...]
    check: Callable[[Site, bool], None]
    prepare: Callable[[Site], None] = lambda _: None

    def run(self, site: Site, fault: Fault, at: int) -> Outcome:
        """Do it in renewed folders."""
        site.renew()
        self.prepare(site)
        if self.command:
            return site.run(*self.command, fault=fault, at=at)
        return site.receive(PUSHED, fault, at)


def check_readers(site: Site) -> None:
    """Each window shows one version whole; what was published stays published."""
    published = site.published
    for prefix in ("applicant-101", "applicant-102", "appraisal-101", "appraisal-102"):
        shown, old, new = (
            {id_: text for id_, text in every.items() if id_.startswith(prefix)}
            for every in (published, site.old, site.new)
        )
        assert shown in (old, new), "a reader sees half of a window"


def check_backfill(site: Site, ended_well: bool) -> None:
    """Readers see whole windows. Each lead is published once, in its newest version."""
    check_readers(site)
    assert site.published == site.new or not ended_well
    site.backfill()
    assert site.published == site.new


def without_jane(leads: dict[str, str]) -> dict[str, str]:
    return {id_: text for id_, text in leads.items() if not id_.startswith("jane")}


def check_erasure(site: Site, ended_well: bool) -> None:
    """Published is everybody or everybody else, and after the next command she never comes back."""
    others = without_jane(site.old)
    assert site.published in ([others] if ended_well else [others, site.old])

    if site.published == others:
        # The list is never behind the data, so no pull brings her back.
        site.backfill()
        assert site.published == without_jane(site.new)

    before = site.published
    site.succeed(*ERASE)
    assert site.published == without_jane(before)

    # Nor is she back after the next pull.
    site.backfill()
    assert site.published == without_jane(site.new)


def restored(site: Site) -> dict[str, str]:
    """The leads that come of restoring the backup."""
    elsewhere = site.folder.parent / "elsewhere" / "data"
    shutil.rmtree(elsewhere.parent, ignore_errors=True)
    elsewhere.parent.mkdir()
    there = site.agency
    site.agency = replace(there, data=elsewhere)
    site.succeed(*RESTORE)
    site.publish_what_is_there()
    found = site.published
    site.agency = there
    return found


def check_backup(site: Site, ended_well: bool) -> None:
    """The newest backup or the one before it brings everything back."""
    assert restored(site) in ([site.new] if ended_well else [site.new, site.old])
    site.succeed(*BACKUP)
    assert restored(site) == site.new


def lose_the_data(site: Site) -> None:
    shutil.rmtree(site.agency.data)


def check_restoring(site: Site, ended_well: bool) -> None:
    """The same command, run again, brings everything back."""
    if not ended_well:
        site.succeed(*RESTORE)
    site.publish_what_is_there()
    assert site.published == site.old


def check_pushes(site: Site, _: bool) -> None:
    """Whatever was acknowledged is published, and the rest once the portal sends it again."""
    pushed = {str(one["id"]): str(one["message"]) for one in PUSHED}
    acknowledged = site.acknowledged()
    site.backfill()
    found = site.published
    assert site.new.items() <= found.items()
    assert acknowledged <= found.keys()
    assert found.items() <= (site.new | pushed).items()
    # The portal sends again whatever wasn't acknowledged.
    site.receive([one for one in PUSHED if one["id"] not in acknowledged])
    site.backfill()
    assert site.published == site.new | pushed


TRIALS = {
    "backfill": Trial(BACKFILL, check_backfill),
    "receive": Trial((), check_pushes),
    "erase": Trial(ERASE, check_erasure),
    "backup": Trial(BACKUP, check_backup, Site.backfill),
    "restore": Trial(RESTORE, check_restoring, lose_the_data),
}


# --- the faults -----------------------------------------------------------------------------------


def chosen(number: int, site: Site) -> tuple[str, Fault, int]:
    """A command, a fault and a call, by the seed.

    Each folder of the data folder is as likely as the others.
    """
    rng = Random(f"{os.environ['CHAOS_SEED']} {number}")  # noqa: S311 - to be repeated
    name = list(TRIALS)[number % len(TRIALS)]
    fault = rng.choice([Fault.KILL, Fault.KILL, Fault.EIO, Fault.EROFS, Fault.ENOSPC])
    if name not in site.outcomes:
        site.outcomes[name] = TRIALS[name].run(site, Fault.EIO, NEVER)
        assert site.outcomes[name].is_done, site.printed()
    outcome = site.outcomes[name]
    places = defaultdict(list)
    for at, call in enumerate(outcome.calls if fault is Fault.EIO else outcome.changes):
        places["/".join(call.split(" ", 1)[1].split("/")[:2])].append(at)
    return name, fault, rng.choice(places[rng.choice(list(places))])


NUMBERED: Final = [
    pytest.param(number, id=f"{list(TRIALS)[number % len(TRIALS)]} {number}")
    for number in range(int(os.environ.get("FAULTS", "5")))
]


@pytest.mark.parametrize("number", NUMBERED)
def test_after_a_fault_at_any_system_call_nothing_is_lost_and_the_next_command_ends_well(
    site: Site, number: int
) -> None:
    name, fault, at = chosen(number, site)
    outcome = TRIALS[name].run(site, fault, at)

    where = f"{name}: {fault.value} at {at}, {outcome.calls[min(at, len(outcome.calls) - 1)]}"
    try:
        check_end(site, name, fault, outcome, at)
        TRIALS[name].check(site, outcome.result == 0)
    except BaseException as error:
        error.add_note(where)
        error.add_note(site.printed())
        raise


def check_end(site: Site, name: str, fault: Fault, outcome: Outcome, at: int) -> None:
    """The command was killed, or it ended. It doesn't say that something landed that isn't on the
    disk.
    """
    if fault is Fault.KILL:
        return
    assert outcome.is_done
    if at >= len(outcome.calls):  # it made fewer calls this time
        return

    call = outcome.calls[at]
    assert outcome.result or name != "backfill" or not call.startswith("fsync data/raw/")
    # Dagster prints its own tracebacks. Nobody expects that the disk can't even say whether there
    # is a file.
    is_ours = name not in ("backfill", "erase") and "stat" not in call.split(" ")[0]
    assert "Traceback" not in site.printed() or not is_ours
