"""Everything that there is of a person: their leads in every version and place, and traces beside them.

Belongs here: the two passes of a search and what comes of them. Doesn't: reading files (places.py), whose a lead is
(person/), showing it (export.py, cli/privacy.py).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leads_pipeline.lake import Lake
from leads_pipeline.person.matching import Group, LeadKey, Sought
from leads_pipeline.person.showing import Evidence
from leads_pipeline.privacy.places import File, Row, Trace, UndecodedError, files_of, look_into


@dataclass(frozen=True, slots=True)
class Sight:
    """A row of a lead, and the file that it stands in."""

    file: File
    row: Row


@dataclass(frozen=True, slots=True)
class FoundLead:
    """A lead in all of its versions, wherever they lie. `names` are the person's, as the search came to know them."""

    kind: str
    lead_id: str
    group: Group
    sights: Sequence[Sight]
    names: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to.

    `traces` counts what shows the person beside rows of leads, by file and part of it. `undecoded` are files of which
    nobody can say what is in them, and why. `files` counts by place what was read. `is_shared`: somebody of another
    name has the telephone.
    """

    leads: Sequence[FoundLead]
    traces: Mapping[tuple[File, str], int]
    undecoded: Mapping[File, str]
    files: Mapping[str, int]
    is_shared: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether all that there is was read, so that what wasn't found isn't there."""
        return not self.undecoded


# Files between two words of how far it is: telling takes as long as looking into one.
_TELL_EVERY: Final = 100

# Which pass it is, and how many files it has read.
Tell = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class _Look:
    """What a pass over all files showed."""

    sights: Sequence[Sight]
    traces: Counter[tuple[File, str]]
    undecoded: Mapping[File, str]
    files: Counter[str]


def search(
    lake: Lake, dagster_home: Path, sought: Sought, *, may_be_shared: bool = False, tell: Tell = lambda _, __: None
) -> Found:
    """Look through every file for the person; then once more for every version of the leads that were found.

    Raises QuestionError where what is sought is shared by many people, unless it may be.
    """
    first = _look(lake, dagster_home, sought, lambda count: tell("Looking for the person", count))
    evidence: defaultdict[LeadKey, list[Evidence]] = defaultdict(list)
    for sight in first.sights:
        shown = sought.evidence(sight.row.texts())
        if sought.sees(shown) or (sight.row.kind and sight.row.lead_id in sought.lead_ids):
            evidence[sight.row.kind or "", sight.row.lead_id].append(shown)
    # Where a file doesn't say of what kind a lead is, and others do.
    of_known_kind = {lead_id for kind, lead_id in evidence if kind}
    for key in [key for key in evidence if not key[0] and key[1] in of_known_kind]:
        del evidence[key]
    groups = sought.grouped(evidence, may_be_shared=may_be_shared)
    if not groups:
        return Found([], first.traces, first.undecoded, first.files)

    ids = Sought(lead_ids=frozenset(lead_id for _, lead_id in groups))
    second = _look(lake, dagster_home, ids, lambda count: tell("Looking for every version", count))
    versions: defaultdict[LeadKey, list[Sight]] = defaultdict(list)
    for sight in second.sights:
        # A file that doesn't say the kind may have the lead of either.
        for key in groups:
            if key[1] == sight.row.lead_id and (not key[0] or sight.row.kind in (None, key[0])):
                versions[key].append(sight)
    names = sought.names_in(evidence)
    leads = [FoundLead(*key, group, versions[key], names) for key, group in groups.items()]
    leads.sort(key=lambda lead: (lead.group, lead.kind, lead.lead_id))
    # What a file shows by an address, it may show by an id once more.
    undecoded, is_shared = {**first.undecoded, **second.undecoded}, sought.is_shared(evidence)
    return Found(leads, first.traces | second.traces, undecoded, second.files, is_shared)


def _look(lake: Lake, dagster_home: Path, sought: Sought, tell: Callable[[int], None]) -> _Look:
    sights: list[Sight] = []
    traces: Counter[tuple[File, str]] = Counter()
    undecoded: dict[File, str] = {}
    files: Counter[str] = Counter()
    for number, file in enumerate(files_of(lake, dagster_home), 1):
        files[file.place] += 1
        if number % _TELL_EVERY == 0:
            tell(number)
        try:
            for one in look_into(lake, file, sought):
                if isinstance(one, Trace):
                    traces[file, one.table] += one.count
                else:
                    sights.append(Sight(file, one))
        except UndecodedError as error:
            undecoded[file] = str(error)
    return _Look(sights, traces, undecoded, files)
