"""What a finding of the doctor's is.

Belongs here: what was seen, and in which light. Doesn't: looking (services.py, folder.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from leads_pipeline.errors import BusyError, LeadsPipelineError

# How many things of one cause are named; the rest are counted.
MOST_NAMED = 10


class Light(StrEnum):
    """Green: works. Yellow: works, and something should be done. Red: doesn't work."""

    GREEN = "green"
    YELLOW = "yellow"
    RED = "red"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `message` tells what was seen and, unless it is green, what to do."""

    check: str
    light: Light
    message: str


def some_of(names: Sequence[str]) -> str:
    """The first names in a line; a last mark tells of others."""
    return ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")


class Warned(Exception):  # noqa: N818 - a finding on its way, not an error
    """What makes a finding yellow."""


def look_at(check: str, see: Callable[[], str]) -> Finding:
    """What is seen, green where it is said and not raised."""
    try:
        return Finding(check, Light.GREEN, see())
    except (Warned, BusyError) as warning:
        return Finding(check, Light.YELLOW, str(warning))
    except LeadsPipelineError as error:
        return Finding(check, Light.RED, str(error))
