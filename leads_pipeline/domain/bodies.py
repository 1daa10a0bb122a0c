"""Cutting what the portal sends into leads, each with its exact text.

Belongs here: which bodies are answers, the id of a lead. Doesn't: requests (portal/), where a piece
of JSON begins and ends (json_pieces.py), what a lead's members mean (contract.py), typed rows
(warehouse/typed_rows.py).
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from leads_pipeline.domain.contract import (
    LeadKind,
    ReceivedLead,
)
from leads_pipeline.domain.json_pieces import (
    container_in,
    cut_list,
    members_of,
    text_of,
)
from leads_pipeline.errors import InvalidAnswerError

# Beginnings of names of members of answers that come in pages, without case, `_` and `-`.
_PAGING: Final = re.compile(
    r"next|pag(e|ing|ination)|total|cursor|count$|has(more|next)|more(results|available)|(is)?truncated|offset"
)

# Usual names of members beside a list, likewise. Any other name may repeat the request, so it is
# not shown.
_USUAL: Final = re.compile(
    r"(total|count)(count|pages|results|records|elements|items|hits|leads|applicants|appraisals)?"
    r"|(page|result|record|element|item|hit|lead|applicant|appraisal)s?count|numfound|(num|number)?(of)?pages"
    r"|next(page|token|cursor|link|ur[il])?|has(more|next|nextpage)|more(results|available)?|(is)?truncated"
    r"|meta(data)?|links?|data|pag(e|ing|ination)|(page|batch)?size|limit|offset|cursor|version|status|errors?|warnings?"
    r"|messages?|request(id)?|(generated|created|updated)(at|on)?|timestamp|time|date|from|to|kind|type"
)

# How deep members within members are looked at, as in `meta.paging.next`.
_DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """A body, cut into its leads.

    `unknown_members` are those beside the list, each with its path and JSON type as
    `meta.nextToken/text`. A name that could be a person's is `…` there.
    """

    leads: tuple[ReceivedLead, ...]
    unknown_members: frozenset[str]


def cut_leads(kind: LeadKind, body: bytes) -> CutAnswer:
    """Cut a 200 body into its leads.

    An answer is a JSON object that holds the kind's list; an empty list means no leads. The list's
    key counts in any spelling, and each time it occurs. An odd lead, such as NaN, a lone surrogate
    or an integer of 5,000 digits, is kept and flagged. The other leads are not affected. Raises
    InvalidAnswerError for everything else; its message describes the body without quoting it.
    """
    elements, members = cut_list(kind.list_key, body)
    beside = {name: parsed(value) for name, value in members if name is not None}
    return CutAnswer(
        leads=tuple(ReceivedLead(*received(element)) for element in elements),
        unknown_members=frozenset(_typed_members(beside, depth=_DEPTH)),
    )


def read_texts(payload: str, names: Collection[str]) -> dict[str, str]:
    """Return a lead's top-level members that hold text or a number, as text.

    The lead may be invalid JSON. Members behind a broken place are lost. If its brackets don't
    match, all are.
    """
    body = payload.encode()
    texts = dict[str, str]()
    with contextlib.suppress(InvalidAnswerError):
        for key, start, end in members_of(body, container_in(body)):
            name = text_of(key)
            text = _text_or_number(body[start:end])
            if name is not None and name in names and text is not None:
                texts[name] = text
    return texts


def is_of_paging(path: str) -> bool:
    """Whether an unknown member's name means that answers come in pages, as `meta.nextToken`."""
    return _PAGING.match(_plain(path.rpartition(".")[2])) is not None


def _typed_members(members: Mapping[str, object], depth: int) -> Iterator[str]:
    """Yield path and JSON type of each member, and of the members within it."""
    for name, value in members.items():
        shown = _name_to_show(name)
        yield f"{shown}/{_json_type(value)}"
        if isinstance(value, dict) and depth > 1:
            yield from (f"{shown}.{inner}" for inner in _typed_members(value, depth - 1))


def _name_to_show(name: str) -> str:
    """Return a usual name as it is, else `…`, behind the word of paging that it begins with."""
    plain = _plain(name)
    if _USUAL.fullmatch(plain) and re.fullmatch(r"[A-Za-z_-]+", name):
        return name
    word = _PAGING.match(plain)
    return f"{word[0]}…" if word else "…"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def parsed(value: bytes) -> object:
    """Return what a piece of JSON means. What can't be read stays as it is."""
    try:
        # An integer of 5,000 digits is a float, and no error.
        return json.loads(value, parse_int=float)
    except (ValueError, RecursionError):
        return value


def _json_type(value: object) -> str:
    types = {
        str: "text",
        bool: "boolean",
        float: "number",
        dict: "object",
        list: "list",
        type(None): "null",
    }
    return types.get(type(value), "unreadable")


# --- one lead -------------------------------------------------------------------------------------


class _Identified(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()


_IDENTIFIED: Final = msgspec.json.Decoder(_Identified)
_STRING: Final = msgspec.json.Decoder(str)


def received(element: bytes) -> tuple[str, str]:
    """Return the element's id, or the hash of its bytes if it has none, and its exact text."""
    try:
        payload = element.decode()
    except UnicodeDecodeError:
        # ISO 8859-1 maps every byte to a character, so the exact bytes can be had back with
        # .encode("latin-1").
        payload = element.decode("latin-1")

    try:
        element_id = _text_or_number(bytes(_IDENTIFIED.decode(payload).id))
    except msgspec.ValidationError:  # not an object
        element_id = None
    except (msgspec.DecodeError, RecursionError):  # it still merges with later versions
        element_id = read_texts(payload, ("id",)).get("id")

    return element_id or f"sha256:{hashlib.sha256(element).hexdigest()}", payload


def _text_or_number(raw: bytes) -> str | None:
    """Return a string's text, or a number exactly as it was written.

    None for a blank string, a string with a lone surrogate, and any other value.
    """
    with contextlib.suppress(msgspec.DecodeError):
        text = _STRING.decode(raw)
        return text if text.strip() else None

    is_number = re.fullmatch(rb"-?[0-9][0-9.eE+-]*", raw) is not None
    return raw.decode() if is_number else None
