"""The runbook: what each finding and each check means, and what to do.

Belongs here: the entries. They are made from the docstrings of the finders, and from sql/checks/.
docs/findings.md and `leads-pipeline explain` show them. Doesn't: the finders (findings.py,
window_findings.py), the form of a page.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from leads_pipeline.errors import QuestionError
from leads_pipeline.health.finding import FINDER_FAILED, Finder, Level, all_finders
from leads_pipeline.health.findings import CHECKS
from leads_pipeline.warehouse.checks import checks

_CANNOT_LOOK: Final = """\
A check can't be made.

Meaning: the disk, the bucket or `leads.duckdb` can't be read. Nobody is told of what this check
would find.
Do: do what the message says.
Over: when the check can be made. What it found before is neither over nor new.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the runbook, for a finding or a check.

    `parts` are its paragraphs, by the words that they begin with.
    """

    name: str
    title: str
    parts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RawCheck:
    """A check on raw leads in the Dagster UI: what should hold, and the finders that fail it."""

    description: str
    finders: tuple[Finder, ...]


RAW_CHECKS: Final[Mapping[str, RawCheck]] = {
    "windows": RawCheck(
        "No window is refused, failing, late or lost, and no answer has an unknown member",
        tuple(
            finder
            for name, finder in all_finders().items()
            if name.startswith(("windows-", "answer-"))
        ),
    ),
    "files": RawCheck("No file is damaged or missing", (all_finders()["files-damaged"],)),
}

# The check that says whether raw leads are fresh. A freshness policy goes by the asset, and counts
# any old window.
YESTERDAY: Final = "yesterday_has_landed"
YESTERDAY_TEXT: Final = (
    "Yesterday's windows have landed. Before 06:00 in LEADS_TIMEZONE, only refused ones fail it"
)


def finding_entries() -> list[Entry]:
    """Return the entries of all findings, in the order of their names."""
    found = [
        _entry(one.name, inspect.getdoc(one.find) or "", _levels(one))
        for one in all_finders().values()
    ]
    return [*found, _entry(FINDER_FAILED, _CANNOT_LOOK, Level.ERROR)]


def raw_check_entries() -> list[Entry]:
    """Return the entries of the checks on raw leads."""
    entries = []
    for name, check in RAW_CHECKS.items():
        findings = ", ".join(finder.name for finder in check.finders)
        entries.append(
            Entry(
                name,
                check.description,
                {"Findings": f"{findings}.", "Do": "what the message says."},
            )
        )
    return [*entries, Entry(YESTERDAY, YESTERDAY_TEXT, {"Do": "what the message says."})]


def table_check_entries() -> list[Entry]:
    """Return the entries of the checks on tables.

    A check of the tables of both kinds of leads has one entry.
    """
    entries = []
    for name, check in sorted({check.name: check for check in checks()}.items()):
        what_to_do = (
            check.what_to_do or "what the findings say. `leads-pipeline findings` lists them."
        )
        entries.append(Entry(name, check.description, {"Do": what_to_do}))
    return entries


def entry_of(key: str) -> Entry:
    """Return the entry of a finding by its key or the key's first part, or of a check by its name.

    Raises QuestionError if there is none.
    """
    findings = {entry.name: entry for entry in finding_entries()}
    checks = {entry.name: entry for entry in (*raw_check_entries(), *table_check_entries())}
    name, _, rest = key.partition("/")

    if name == CHECKS:  # its keys have the check and its table
        return checks.get(rest.partition("/")[0], findings[CHECKS])
    entry = findings.get(name) or checks.get(name)
    if entry is not None:
        return entry

    near = get_close_matches(name, [*findings, *checks], 1)
    guess = f" Did you mean {near[0]}?" if near else ""
    raise QuestionError(
        f"There is no finding and no check {name}.{guess} `leads-pipeline explain` lists them."
    )


def _entry(name: str, docstring: str, how_bad: str) -> Entry:
    title, _, rest = docstring.partition("\n\n")
    _, *pieces = re.split(r"^(Meaning|Do|Over): ", rest, flags=re.MULTILINE)

    parts = {"How bad": f"{how_bad}."}
    for word, text in zip(pieces[::2], pieces[1::2], strict=True):
        parts[word] = " ".join(text.split())
    return Entry(name, title, parts)


def _levels(finder: Finder) -> str:
    """Say how bad it can be, by the levels that its function names."""
    source = inspect.getsource(finder.find).replace("never_set_up", "Level.WARNING Level.HINT")
    return " or ".join(level.value for level in Level if f"Level.{level.name}" in source)
