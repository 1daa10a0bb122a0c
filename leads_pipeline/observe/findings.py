"""What is wrong, or worth knowing, at this moment: one list for commands, Dagster's checks, alerts and metrics.

Belongs here: the finders, a function each. A finder's docstring is its entry in the runbook: what the finding means,
what to do, and when it is over.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Level(StrEnum):
    """An error loses leads, or keeps them from people. A warning will, if nobody acts. A hint is never alerted."""

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should know of.

    `key` names it for as long as it lasts: the finder's name, and what it found if there can be several
    (`windows-refused`, `drift/applicant/newField`). `message` says what happened and why it matters, `what_to_do` what
    to do now, as a command if there is one. `since` is when it began, None if that isn't known. `link` is its entry in
    the runbook. If `may_pass`, it often ends by itself: alerts wait an hour.
    """

    key: str
    level: Level
    message: str
    since: datetime | None
    what_to_do: str
    link: str
    may_pass: bool = False
