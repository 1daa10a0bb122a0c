"""A message to people: what is new, what is over, and what is still open.

Belongs here: its words. Doesn't: when it is due (alerts.py), how it is sent (channels.py).
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from leads_pipeline.health.finding import Finding, Level
from leads_pipeline.words import counted, moment

# Longer lists aren't read on a phone.
MOST_IN_FULL: Final = 20
_TITLE_CHARACTERS: Final = 150


@dataclass(frozen=True, slots=True)
class Digest:
    """One message for one channel.

    Each open finding is either in `new` or in `still_open`. A test has none at all.
    """

    at: datetime
    new: Sequence[Finding] = ()
    over: Sequence[Finding] = ()
    still_open: Sequence[Finding] = ()

    @property
    def has_new_error(self) -> bool:
        """Whether somebody should look now."""
        return any(one.level is Level.ERROR for one in self.new)

    @property
    def title(self) -> str:
        """One line, as for the subject of an e-mail."""
        open_errors = sum(one.level is Level.ERROR for one in self.still_open)
        problems = counted(open_errors, "problem")
        if self.new:
            what, named = _most_serious(self.new)
            start = f"New {what}" if len(named) == 1 else f"{len(named)} new {what}s"
            title = f"{start}: {_first_sentence(named[0].message)}"
        elif self.over:
            what, named = _most_serious(self.over)
            start = "Over" if len(named) == 1 else f"{len(named)} {what}s are over"
            rest = f"Still open: {problems}." if open_errors else "No problem is open."
            title = f"{start}: {_first_sentence(named[0].message)} {rest}"
        elif self.still_open:
            title = f"Still open: {problems}"
        else:
            title = "This is a test. Nothing is wrong."
        return f"[leads_pipeline] {textwrap.shorten(title, _TITLE_CHARACTERS, placeholder=' …')}"

    @property
    def text(self) -> str:
        """All of it as plain text."""
        paragraphs = [
            *_section("New", map(_shown, self.new)),
            *_section("Over, or acknowledged", map(self._ended, self.over)),
            *_section("Still open", map(_shown, self.still_open)),
        ]
        return "\n\n".join(paragraphs) or "Alerts of leads_pipeline arrive here."

    def _ended(self, over: Finding) -> str:
        message = _first_sentence(over.message)
        ended = moment(self.at)
        if over.since and over.since > self.at:  # noted while the clock ran ahead
            return f"{message}\nIt was over by {ended}."
        began = f"from {moment(over.since)} " if over.since else ""
        return f"{message}\nIt lasted {began}to {ended} at most."


def _most_serious(findings: Sequence[Finding]) -> tuple[str, Sequence[Finding]]:
    """Return the errors, or all if there is none, and what they are called."""
    errors = [one for one in findings if one.level is Level.ERROR]
    return ("problem", errors) if errors else ("warning", findings)


def _section(title: str, items: Iterable[str]) -> Iterator[str]:
    """Yield the paragraphs of a section: its title and its first items. None without items."""
    shown = list(items)
    if not shown:
        return

    yield f"{title}:"
    for item in shown[:MOST_IN_FULL]:
        yield "- " + textwrap.indent(item, "  ").lstrip()
    if len(shown) > MOST_IN_FULL:
        yield f"- and {len(shown) - MOST_IN_FULL} more: `leads-pipeline findings` lists them."


def _shown(one: Finding) -> str:
    since = f"Since {moment(one.since)}. " if one.since else ""
    what = f"{one.level.capitalize()}: {one.message}"
    return f"{what}\nWhat to do: {one.what_to_do}\n{since}More: `{one.link}`"


def _first_sentence(message: str) -> str:
    found = re.match(r".+?[.!?](?=\s|$)", message)
    return found[0] if found else message
