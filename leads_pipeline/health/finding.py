"""The form of a finding, asking all finders, and acknowledging findings.

Belongs here: the form. Doesn't: the finders (findings.py, which loads them), the facts (facts.py).
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from importlib import import_module
from typing import Final

from leads_pipeline.domain.moments import not_after
from leads_pipeline.errors import BugError, LeadsPipelineError, QuestionError
from leads_pipeline.extensions import brought
from leads_pipeline.health.facts import Facts
from leads_pipeline.health.leads_duckdb import UnreadableFileError
from leads_pipeline.settings import THIS_MACHINE, origin
from leads_pipeline.warehouse.published import LeadsFile

# A finder that fails is a finding with this name and the finder's.
FINDER_FAILED: Final = "finder-failed"

# The finding that tells of a leads.duckdb that can't be read.
LEADS_DUCKDB: Final = "leads-duckdb"


class Level(StrEnum):
    """How urgent a finding is.

    An error needs a person now. A warning becomes an error if nobody acts. A hint is never alerted.
    """

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should know of.

    `key` names it for as long as it lasts: the finder's name, and what it found if there can be
    several (`windows-lost/2026-11-19`, `drift/applicant/newField`). `message` says what happened
    and why it matters, `what_to_do` what to do now, as a command if there is one. `since` is when
    it began, None if that isn't known. `link` is the command that prints its entry in the runbook.
    If `may_pass`, it often ends by itself: alerts wait an hour.

    A finder gives as `key` what tells it from its other findings. `find_all` puts the finder's name
    before it.
    """

    key: str = field(default="", kw_only=True)
    level: Level
    message: str
    what_to_do: str
    since: datetime | None = None
    link: str = ""
    may_pass: bool = False


Find = Callable[[Facts], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Finder:
    """A function over the facts. Its docstring is the entry in the runbook.

    `stays`: it happened, and has no end. A person ends it by `leads-pipeline acknowledge KEY`.
    `is_verified`: `verify` asks it.
    """

    name: str
    find: Find
    stays: bool
    is_verified: bool = False


_FINDERS: Final[dict[str, Finder]] = {}


def all_finders() -> dict[str, Finder]:
    """Return all finders, those of features among them, by their names and in their order."""
    import_module("leads_pipeline.health.findings")
    brought("finders")
    return dict(sorted(_FINDERS.items()))  # not in the order of imports


def finder(name: str, *, stays: bool = False, is_verified: bool = False) -> Callable[[Find], Find]:
    """Make a function a finder of that name."""

    def add(find: Find) -> Find:
        _FINDERS[name] = Finder(name, find, stays, is_verified)
        return find

    return add


def find_all(
    facts: Facts, finders: Iterable[Finder] | None = None
) -> tuple[list[Finding], set[str]]:
    """Return what all finders find, and the names of those that fail.

    Errors come first, then the oldest. Acknowledged findings are left out. A finder that fails is a
    finding itself, unless the reason is a leads.duckdb that is a finding already.
    """
    found, failed = _ask(facts, finders or all_finders().values())

    is_told = any(one.key == LEADS_DUCKDB for one in found)
    for name, reason in failed.items():
        if not (is_told and isinstance(reason, UnreadableFileError)):
            what_to_do = f"Do what the message says. Until then, nobody is told of {name}."
            finding = Finding(Level.ERROR, str(reason), what_to_do, key=name, may_pass=True)
            found.append(_of(FINDER_FAILED, finding, facts.now))

    acknowledged = facts.data.state.acknowledged()
    unacknowledged = [one for one in found if one.key not in acknowledged]
    return sorted(unacknowledged, key=_urgency), {*failed}


def _ask(
    facts: Facts, finders: Iterable[Finder]
) -> tuple[list[Finding], dict[str, LeadsPipelineError]]:
    """Return what these finders find, and why others of them fail, by their names."""
    found = list[Finding]()
    failed = dict[str, LeadsPipelineError]()
    with LeadsFile(facts.data).kept_open():
        for finder in finders:
            try:
                # One by one: what a finder yields before it fails counts.
                for finding in finder.find(facts):
                    found.append(_of(finder.name, finding, facts.now))
            except LeadsPipelineError as error:
                failed[finder.name] = error
            except Exception as error:  # noqa: BLE001 - a fault of one finder must not silence the others
                what = f"{type(error).__name__}; its message may quote a lead and is left out"
                failed[finder.name] = BugError(
                    f"This finder of leads-pipeline has a fault ({what}). Please report it."
                )
    return found, failed


def _urgency(finding: Finding) -> tuple[int, datetime]:
    """Order errors first, then the oldest."""
    return [*Level].index(finding.level), finding.since or datetime.max.replace(tzinfo=UTC)


def find(facts: Facts, finders: Iterable[Finder] | None = None) -> list[Finding]:
    """Return what all finders find (see `find_all`)."""
    return find_all(facts, finders)[0]


def _of(finder: str, one: Finding, now: datetime) -> Finding:
    key = re.sub(r"[\s()=]+", "-", one.key).strip("-")  # so that nobody has to quote it in a shell
    since = not_after(one.since, now) if one.since else None
    return replace(
        one, key=f"{finder}/{key}" if key else finder, link=explanation(finder), since=since
    )


def finder_of(key: str) -> str:
    """Return the name of the finder that a finding's key begins with."""
    return key.partition("/")[0]


def explanation(finder: str) -> str:
    """Return the command that prints the finder's entry in the runbook."""
    return f"leads-pipeline explain {finder}"


def acknowledge(facts: Facts, keys: Iterable[str]) -> list[Finding]:
    """Take the findings with these keys off the list, and return them.

    The name of a finder stands for all that it found. Raises QuestionError if a finding isn't open,
    or ends only when its cause does.
    """
    findings = find(facts)
    chosen = list[Finding]()
    for key in keys:
        of_key = [one for one in findings if key in (one.key, finder_of(one.key))]
        if not of_key:
            raise QuestionError(
                f"No open finding has the key {key}. `leads-pipeline findings` lists the keys."
            )
        finder = all_finders().get(finder_of(key))
        if finder is None or not finder.stays:
            raise QuestionError(
                f"{key} can't be acknowledged: it ends when its cause does. {of_key[0].what_to_do}"
            )
        chosen += of_key

    facts.data.state.acknowledge(one.key for one in chosen)
    return chosen


def never_set_up(facts: Facts) -> Level:
    """Return how bad it is that something was never set up.

    It is a warning, or a hint with the simulator on this machine.
    """
    base_url = facts.settings.base_url
    return Level.WARNING if base_url and origin(base_url) != THIS_MACHINE else Level.HINT
