"""The form in which a destination takes leads: the request of an event, and what answers mean.

Belongs here: what each form has to say. Doesn't: the two forms (webhook.py, request_form.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from leads_pipeline.errors import PermanentError
from leads_pipeline.portal.tokens import ClientCredentials

# Answers that are about the one lead. All other failures are the destination's.
OF_THE_LEAD: Final = frozenset({207, 400, 409, 413, 415, 422})

# The member of `data` by which templates ask for a lead's id in the destination's system.
ID_THERE: Final = "id_there"


class EventType(StrEnum):
    """What happened to a lead."""

    CREATED = "created"
    UPDATED = "updated"
    ERASED = "erased"


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a lead.

    `id` is the same at each attempt. `message` becomes the body of a webhook. `id_there` is the
    lead's id in the destination's system, None if it isn't known.
    """

    type: EventType
    id: str
    message: Mapping[str, Any] = field(repr=False)
    id_there: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request, ready to be sent. Its `repr` shows no secret and nothing of a lead."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)


class UnusableTemplateError(PermanentError):
    """A template makes no request of a lead. The message quotes nothing of the lead."""

    default_reason = "template"


class Form(Protocol):
    """A form. `credentials` are those of an access token, None if the destination wants none."""

    @property
    def host(self) -> str:
        """The host that is shown to people."""

    @property
    def address(self) -> str:
        """A text that differs if another endpoint is meant. It may hold secrets."""

    @property
    def credentials(self) -> ClientCredentials | None:
        """The client and the endpoint of its access tokens."""

    def sends(self, event_type: EventType) -> bool:
        """Whether the destination wants to know of such events."""

    def is_done(self, event_type: EventType, status: int) -> bool:
        """Whether an answer with that status means: it is there, or it is gone."""

    def is_final(self, event_type: EventType, status: int) -> bool:
        """Whether an answer with that status means: it will never be taken."""

    def id_path(self, event_type: EventType) -> Sequence[str]:
        """The members that lead to the lead's id in a JSON answer. Empty if it has none."""

    def is_gone(self, event_type: EventType, status: int) -> bool:
        """Whether an answer with that status means: nothing more may be sent there."""

    def request(self, event: Event, now: datetime) -> HttpRequest:
        """Return the request that tells of the event. Raises UnusableTemplateError."""
