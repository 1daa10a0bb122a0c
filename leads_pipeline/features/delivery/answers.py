"""The meaning of a destination's answers.

Belongs here: what an answer says about the lead, and about the destination. Of its body, a
machine's error code and the lead's id there alone: the rest can repeat what the lead says. Doesn't:
sending (posting.py), what is done then (sending.py).
"""

import json
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlsplit

from leads_pipeline.features.delivery.form import OF_THE_LEAD, EventType, Form
from leads_pipeline.features.delivery.ledger import Version
from leads_pipeline.portal.http_library import httpx
from leads_pipeline.portal.pace import parse_retry_after

# A content type without its parameters. Anything else isn't repeated.
_CONTENT_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,40}")

# Where APIs have their error codes, and how these look. A number is a code, and not a telephone's.
_CODE_KEYS: Final = ("code", "errorCode", "error_code", "error", "category")
_ID_CHARACTERS_MAX: Final = 100
_CODE: Final = re.compile(r"[A-Za-z0-9]{1,40}(?:_[A-Za-z0-9]{1,40}){1,8}|[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an attempt. `trouble` says in words what failed, None if the destination has it.

    `is_of_the_lead`: the destination works, and refuses this one. `is_final`: it will never take
    it. `is_gone`: nothing more may be sent there. `is_unclear`: it may have the lead all the same.
    `status` is None without an answer. `code` is a machine's error code. `id_there` is the lead's
    id in the destination's system.
    """

    version: Version
    trouble: str | None = None
    status: int | None = None
    content_type: str = ""
    code: str = ""
    retry_after: float | None = None
    is_of_the_lead: bool = False
    is_final: bool = False
    is_gone: bool = False
    is_unclear: bool = False
    id_there: str | None = None


def outcome_of(
    version: Version,
    event_type: EventType,
    answer: httpx.Response,
    code: str,
    form: Form,
    now: datetime,
) -> Outcome:
    """Return what an answer to such an event means. `code` is the error code in its body."""
    status = answer.status_code
    content_type = content_type_of(answer)
    if form.is_done(event_type, status):
        return Outcome(version, status=status, content_type=content_type, code=code)

    is_final = form.is_final(event_type, status)
    is_destination_gone = not is_final and form.is_gone(event_type, status)
    is_lead_gone = status == HTTPStatus.GONE and not is_destination_gone
    what = ", ".join(filter(None, (content_type, code)))

    return Outcome(
        version,
        trouble=_trouble(answer, what, is_final=is_final, is_gone=is_destination_gone),
        status=status,
        content_type=content_type,
        code=code,
        retry_after=parse_retry_after(answer.headers.get("retry-after"), now),
        is_of_the_lead=is_final or is_lead_gone or status in OF_THE_LEAD,
        is_final=is_final,
        is_gone=is_destination_gone,
        is_unclear=status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.MULTI_STATUS,
    )


def content_type_of(answer: httpx.Response) -> str:
    """Return an answer's content type, empty if it is none."""
    found = _CONTENT_TYPE.match(answer.headers.get("content-type", "").lower())
    return found[0] if found else ""


def error_code(body: bytes, words_of_lead: Collection[str]) -> str:
    """Return a machine's error code in a JSON answer, empty if there is none that can be shown.

    One that has a word of the lead isn't shown, nor one without an underscore: a name could look
    so.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""

    for place in _places_of_codes(found):
        for key in _CODE_KEYS:
            code = str(place.get(key, ""))
            parts = code.casefold().split("_")
            if _CODE.fullmatch(code) and not any(part in words_of_lead for part in parts):
                return code
    return ""


def id_in(body: bytes, path: Sequence[str]) -> str | None:
    """Return the lead's id in a JSON answer. None if there is none that can be kept."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None

    for member in path:
        found = found.get(member) if isinstance(found, dict) else None
    if type(found) not in (int, str):
        return None

    text = str(found)
    is_usable = 0 < len(text) <= _ID_CHARACTERS_MAX and text.isprintable()
    return text if is_usable else None


def _places_of_codes(found: Any) -> list[dict[str, Any]]:
    """Return the objects that may have a code: itself, the first of a list or of `errors`."""
    first = found[0] if isinstance(found, list) and found else found
    if not isinstance(first, dict):
        return []
    inner = first.get("errors") or first.get("error")
    inner = inner[0] if isinstance(inner, list) else inner
    return [first, inner] if isinstance(inner, dict) else [first]


def _trouble(answer: httpx.Response, what: str, *, is_final: bool, is_gone: bool) -> str:
    status = answer.status_code
    if is_final:
        return f"answered {status} ({what or 'no content'}), after which a lead is given up"
    if answer.is_redirect:
        where = "?"
        with suppress(ValueError):
            where = urlsplit(str(answer.extensions.get("location") or "")).hostname or where
        return (
            f"answers with a redirect ({status}) to {where}, and none is followed. Correct its "
            "address."
        )
    if is_gone:
        return "is gone (410). Nothing more is sent until `leads-pipeline deliver retry`."
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"refuses the sender ({status}). Check its secrets."
    return f"answered {status} ({what or 'no content'})"
