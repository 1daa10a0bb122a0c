"""The meaning of a destination's answers.

Belongs here: what an answer says about the lead, and about the destination. Never its body: that can repeat what the
lead says. Doesn't: sending (posting.py), what is done then (sending.py).
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from leads_pipeline.features.delivery.form import OF_THE_LEAD, Form
from leads_pipeline.features.delivery.ledger import Version
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.pace import parse_retry_after

# A content type without its parameters. Anything else isn't repeated.
_CONTENT_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,40}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt. `trouble` says in words what failed, None if the destination has the lead.

    `is_of_the_lead`: the destination works, and refuses this one. `is_final`: it will never take it. `is_gone`: nothing
    more may be sent there. `status` is None without an answer.
    """

    version: Version
    trouble: str | None = None
    status: int | None = None
    content_type: str = ""
    retry_after: float | None = None
    is_of_the_lead: bool = False
    is_final: bool = False
    is_gone: bool = False


def outcome_of(version: Version, answer: httpx.Response, form: Form, now: datetime) -> Outcome:
    """Return what an answer means."""
    status = answer.status_code
    content_type = content_type_of(answer)
    if answer.is_success or status in form.done:
        return Outcome(version, status=status, content_type=content_type)

    is_final = status in form.final
    return Outcome(
        version,
        _trouble(answer, content_type, is_final=is_final),
        status,
        content_type,
        retry_after=parse_retry_after(answer.headers.get("retry-after"), now),
        is_of_the_lead=is_final or status in OF_THE_LEAD,
        is_final=is_final,
        is_gone=status == HTTPStatus.GONE and not is_final,
    )


def content_type_of(answer: httpx.Response) -> str:
    """Return an answer's content type, empty if it is none."""
    found = _CONTENT_TYPE.match(answer.headers.get("content-type", "").lower())
    return found[0] if found else ""


def _trouble(answer: httpx.Response, content_type: str, *, is_final: bool) -> str:
    status = answer.status_code
    if is_final:
        return f"answered {status}, after which a lead is given up"
    if answer.is_redirect:
        where = "?"
        with suppress(ValueError):
            where = urlsplit(str(answer.extensions.get("location") or "")).hostname or where
        return f"answers with a redirect ({status}) to {where}, and none is followed. Correct its address."
    if status == HTTPStatus.GONE:
        return "is gone (410). Nothing more is sent until `leads-pipeline deliver retry`."
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"refuses the sender ({status}). Check its secrets."
    return f"answered {status} ({content_type or 'no content'})"
