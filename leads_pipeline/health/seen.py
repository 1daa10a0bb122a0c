"""The answer to one question of `doctor` or `verify`, and what such questions share.

Belongs here: the form of an answer, for features that ask something. Doesn't: the questions
(features/doctor/, and the features' own).
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from leads_pipeline.errors import BusyError, LeadsPipelineError
from leads_pipeline.health.finding import Finding, Level
from leads_pipeline.portal import RetryPolicy, Tokens

# A person waits for the answer.
ONE_ATTEMPT: Final = RetryPolicy(max_attempts=1, refused_token_waits_seconds=(3.0,))


class Light(StrEnum):
    """How well something works.

    Green: works. Hint: works, and more could be set up. Yellow: something should be done. Red:
    doesn't work.
    """

    GREEN = "green"
    HINT = "hint"
    YELLOW = "yellow"
    RED = "red"


_LIGHTS: Final = {Level.ERROR: Light.RED, Level.WARNING: Light.YELLOW, Level.HINT: Light.HINT}


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to one question. `message` says what to do, unless the light is green."""

    check: str
    light: Light
    message: str


class Doubt(Exception):  # noqa: N818 - an answer on its way, not an error
    """The reason for a yellow light."""


def ask(check: str, question: Callable[[], str]) -> Seen:
    """Ask a question. It returns a line, or raises Doubt or LeadsPipelineError."""
    try:
        return Seen(check, Light.GREEN, question())
    except (Doubt, BusyError) as doubt:
        return Seen(check, Light.YELLOW, str(doubt))
    except LeadsPipelineError as error:
        return Seen(check, Light.RED, str(error))


def seen(finding: Finding) -> Seen:
    """Return a finding as a line."""
    return Seen(finding.key, _LIGHTS[finding.level], f"{finding.message} {finding.what_to_do}")


def summed_up(check: str, troubles: list[str], well: str) -> Seen:
    """Return a red line with all troubles, or a green one."""
    return (
        Seen(check, Light.RED, " ".join(troubles)) if troubles else Seen(check, Light.GREEN, well)
    )


def about_token(tokens: Tokens) -> str:
    """Get a token, and say how long it lasts."""
    minutes = tokens.get().lifetime_seconds / 60
    return f"It is valid. Tokens last {minutes:.0f} min."
