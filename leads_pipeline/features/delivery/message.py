"""An event of a lead as a message: what webhooks carry, and what templates read.

Belongs here: the members of a message. Doesn't: signatures (webhook.py), templates
(request_form.py), sending.
"""

import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from leads_pipeline.domain.contract import (
    ENUMERATIONS,
    LEAD_KINDS,
    ChildTable,
    LeadKind,
    member_in_words,
)
from leads_pipeline.features.delivery.form import Event, EventType
from leads_pipeline.features.delivery.ledger import Version
from leads_pipeline.raw.branches import Branches
from leads_pipeline.raw.rows import LandedVersion, moment_of
from leads_pipeline.warehouse.typed_rows import EXTRA, PROBLEMS

# The version of the message's format. It is raised if a member goes or changes its meaning. New
# members don't raise it.
FORMAT: Final = 2

# The markets of leads, as the macro market_of names them (sql/macros/marts.sql).
MARKETS: Final = ("sales", "lettings", "unknown")

# The members of `data` that templates may ask for: those of all kinds together.
ERASED_MEMBERS: Final = frozenset({"kind", "lead_id"})
DATA_MEMBERS: Final = ERASED_MEMBERS | {
    "version",
    "occurred_at",
    "lead_day",
    "scope",
    "branch",
    "market",
    "person",
    "source",
    "words",
    "payload",
    PROBLEMS,
    EXTRA,
    *(declared.column for kind in LEAD_KINDS for declared in kind.fields),
    *(child.name for kind in LEAD_KINDS for child in kind.children),
}

_PERSONAL: Final = {
    declared.column for kind in LEAD_KINDS for declared in kind.fields if declared.is_personal
}

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")

_HASH_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class Messages:
    """Makes messages, with the agency's names of branches, time zone and key of people."""

    zone: ZoneInfo
    branches: Branches
    person_key: bytes = field(repr=False)

    def event(
        self,
        kind: LeadKind,
        version: Version,
        landed: LandedVersion,
        lead: Mapping[str, Any],
        *,
        is_update: bool,
    ) -> Event:
        """Return the event that a version is.

        `lead` is the landed version as `typed_leads` returns it.

        The names are those of the columns in leads.duckdb. `payload` is what the portal sent.
        """
        columns = _columns(kind, lead)
        created_at = columns["created_at"]
        occurred_at = moment_of(max(landed.number, landed.corrected_at))
        data = {
            "kind": kind.name,
            "lead_id": version.lead_id,
            "version": version.version,
            "occurred_at": occurred_at,
            "lead_day": created_at.astimezone(self.zone).date() if created_at else version.day,
            "scope": version.scope,
            "branch": self.branches.names.get(version.scope, version.scope),
            "market": market_of(lead),
            "person": self._person(lead),
            "source": landed.source,
            "words": _in_words(kind, columns),
            **columns,
            **_lists(kind, lead),
            "payload": json_or_text(landed.payload),
        }
        event_type = EventType.UPDATED if is_update else EventType.CREATED
        return _event(event_type, version, occurred_at, data)

    def _person(self, lead: Mapping[str, Any]) -> str | None:
        """As the macro person_of does (sql/macros/people.sql), so that analysts see the same."""
        contact = lead["contact"]
        # DuckDB's lower() maps each character by itself.
        email = "".join(character.lower()[:1] for character in (contact["email"] or "").strip(" "))
        digits = re.sub(r"[^0-9]", "", contact["phoneNumber"] or "")
        known_by = email or re.sub(r"^(?:00)?440?|^0", "", digits)
        if not known_by:
            return None
        return str(
            uuid.UUID(hmac.new(self.person_key, known_by.encode(), hashlib.sha256).hexdigest()[:32])
        )


def market_of(lead: Mapping[str, Any]) -> str:
    """As the macro market_of does (sql/macros/marts.sql)."""
    declared = {"ENQUIRY_TYPE_SALES": "sales", "ENQUIRY_TYPE_LETTINGS": "lettings"}.get(
        lead["enquiryType"]
    )
    if declared:
        return declared

    intent = lead["intent"] or ""
    if intent.endswith(("_BUY", "_SELL")):
        return "sales"
    return "lettings" if intent.endswith(("_RENT", "_LET")) else "unknown"


def words_of_lead(event: Event) -> set[str]:
    """Return the words of a lead's personal fields, in small letters."""
    data = event.message["data"]
    texts = [str(data.get(column) or "") for column in _PERSONAL]
    return set(re.findall(r"\w+", " ".join(texts).casefold()))


def erased_event(version: Version) -> Event:
    """Return the event of an erasure. It has the id alone."""
    return _event(
        EventType.ERASED,
        version,
        moment_of(version.number),
        {"kind": version.kind, "lead_id": version.lead_id},
    )


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return a message as JSON."""
    return _ENCODER.encode(message)


def masked(body: bytes) -> str:
    """Return a body with its members' names, and the shapes of its values."""
    text = body.decode(errors="replace")
    try:
        return json.dumps(_shape(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        names = [part.partition("=")[0] if "=" in part else "" for part in text.split("&")]
        return "&".join(f"{name}=…" for name in names)


def _shape(value: Any) -> Any:
    match value:
        case dict():
            shapes = {name: _shape(inner) for name, inner in value.items()}
            # Their members' names are the portal's, or a person's.
            return shapes | dict.fromkeys(shapes.keys() & {"payload", EXTRA}, "…")
        case list():
            return [_shape(inner) for inner in value]
        case bool() | None:
            return value
    return re.sub(r"\d", "0", re.sub(r"[^\W\d_]", "x", str(value)))


def _event(event_type: EventType, version: Version, at: datetime, data: Mapping[str, Any]) -> Event:
    message = {"type": f"lead.{event_type}", "timestamp": at, "format": FORMAT, "data": data}
    text = "\0".join((version.kind, version.lead_id, version.version))
    return Event(
        event_type, f"msg_{hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]}", message
    )


def _columns(of: LeadKind | ChildTable, values: Mapping[str, Any]) -> dict[str, Any]:
    columns = {declared.column: _member(values, declared.path) for declared in of.fields}
    extra = values[EXTRA]
    return columns | {PROBLEMS: values[PROBLEMS], EXTRA: json_or_text(extra) if extra else None}


def _lists(kind: LeadKind, lead: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    lists = {}
    for child in kind.children:
        lists[child.name] = [
            _columns(child, element) for element in _member(lead, child.path) or ()
        ]
    return lists


def _in_words(kind: LeadKind, columns: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of enumerated fields for people to read, by column.

    One in another form stays as it is.
    """
    words = {}
    for declared in kind.fields:
        if declared.path in ENUMERATIONS:
            value = (columns[declared.column] or "").strip()
            words[declared.column] = member_in_words(value) or value or "unknown"
    return words


def _member(values: Mapping[str, Any], path: str) -> Any:
    for step in path.split("."):
        values = values[step]
    return values


def json_or_text(text: str) -> Any:
    """As JSON, exactly as it is written. As a text if it is none."""
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (ValueError, RecursionError):
        return text
    return msgspec.Raw(text.encode())
