"""Removes the person, or the message, from a lead's text.

Belongs here: which members stay, and the address that stands for the person. Doesn't: files and
days, cutting an answer into leads (bodies.py).
"""

import hmac
import re
from contextlib import suppress
from functools import cache
from typing import Any, Final
from uuid import UUID

from leads_pipeline.domain.contract import ChildTable, Field, FieldType, LeadKind, declared_members
from leads_pipeline.domain.json_pieces import container_in, list_parts, members_of, text_of
from leads_pipeline.errors import InvalidAnswerError
from leads_pipeline.features.privacy.contact_keys import keys_in
from leads_pipeline.features.privacy.identity import texts_of

# Values that are no free text: a number, a boolean, a moment, each as JSON or as text in the same
# form.
_NO_TEXT: Final = re.compile(rb'null|"?(true|false)"?|"?[-+0-9.:eETtZz]+"?')

# The one field of a lead with free text.
MESSAGE: Final = "message"

# The domain of an address that stands for a person.
_REMOVED: Final = "@removed.invalid"

_ID: Final = Field("id", FieldType.TEXT, "")


def cut_payload(kind: LeadKind, payload: str, address: str | None) -> str:
    """Keep the lead's declared fields that identify nobody, each exactly as received.

    Unknown members go too. `address` takes the place of the person's e-mail address. Cutting again
    changes nothing. Of what isn't JSON nothing stays but what stands before the broken place.
    """
    body = payload.encode()
    members: list[tuple[bytes, bytes]] = []

    with suppress(InvalidAnswerError):
        members = _members(body, container_in(body), _members_to_keep(kind))

    contacts = [value for key, value in members if text_of(key) == "contact"]
    contact = contacts[-1][1:-1] if contacts and contacts[-1].startswith(b"{") else b""
    members = [(key, value) for key, value in members if text_of(key) != "contact"]

    if address is not None:
        contact = b",".join(filter(None, (contact, b'"email":"%s"' % address.encode())))

    members += [(b'"contact"', b"{%s}" % contact)] if contact else []
    return _written(members).decode()


def without_message(payload: str) -> str:
    """Return the lead's text with an empty message.

    All else stays, and so does a message that is null.
    """
    body = payload.encode()
    try:
        places = [
            (start, end)
            for key, start, end in members_of(body, container_in(body))
            if text_of(key) == MESSAGE
        ]
    except InvalidAnswerError:  # broken, or no object: its message can't be found
        return payload
    for start, end in reversed(places):
        body = body if body[start:end] == b"null" else body[:start] + b'""' + body[end:]
    return body.decode()


def removed_address(payload: str, key: bytes) -> str | None:
    """Return the address that stands for the person of a lead. None if the lead shows nobody.

    The same key gives the same person the same address. An address that stands for somebody already
    stays.
    """
    texts = {path: text for path, text, _ in texts_of(payload)}
    email = texts.get("contact.email", "")
    if email.endswith(_REMOVED):
        return email
    keys = sorted(keys_in(email).emails) or sorted(
        keys_in(texts.get("contact.phoneNumber", "")).phones
    )
    return (
        f"{UUID(bytes=hmac.digest(key, keys[0].encode(), 'sha256')[:16])}{_REMOVED}"
        if keys
        else None
    )


@cache
def _members_to_keep(of: LeadKind | ChildTable) -> dict[str, Any]:
    """Return the declared members that identify nobody, a lead's id among them."""
    anonymous = [field for field in of.fields if not field.is_personal]
    if isinstance(of, ChildTable):
        return declared_members(anonymous, ())
    return declared_members([_ID, *anonymous], of.children)


def _members(body: bytes, span: tuple[int, int], kept: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    members: list[tuple[bytes, bytes]] = []
    if not body[slice(*span)].startswith(b"{"):
        return members

    with suppress(InvalidAnswerError):  # members before the broken place stay
        for key, start, end in members_of(body, span):
            declared = kept.get(text_of(key) or "")
            value = None if declared is None else _value(body, (start, end), declared)
            if value is not None:
                members.append((key, value))

    return members


def _value(body: bytes, span: tuple[int, int], declared: Any) -> bytes | None:
    """Return what stays of a declared member's value. None if it isn't as declared."""
    value = body[slice(*span)]
    if isinstance(declared, dict):
        return _written(_members(body, span, declared)) if value.startswith(b"{") else None

    if isinstance(declared, ChildTable):
        if not value.startswith(b"["):
            return None
        parts = list_parts("", body, span)
        return b"[%s]" % b",".join(
            _written(_members(body, part, _members_to_keep(declared))) for part in parts
        )

    if declared.type is FieldType.TEXT:
        return None if value.startswith((b"{", b"[")) else value

    return value if _NO_TEXT.fullmatch(value) else None


def _written(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"{%s}" % b",".join(b"%s:%s" % member for member in members)
