"""What a row of a lead shows of its person: which of its fields are names, addresses and numbers, and what they say.

Belongs here: reading a lead's texts, as received and as staged, without any input or output. Doesn't: what a text is as
a key (identity.py), whom that means (matching.py, suppression/).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from leads_pipeline.person.identity import email_keys, name_key, phone_keys, postcode_key, unescaped

# A text, and the names of the fields that lead to it, joined by dots.
PathAndText = tuple[str, str]

# Staged columns are in snake case, the portal's fields in camel case. Addresses at the agent's aren't the person's.
_RECIPIENT: Final = re.compile(r"(?i)recipient")
_CONTACT: Final = re.compile(r"(?i)(?:^|\.)contact|(?:e-?mail|phone|mobile|tel)[^.]*$")
_FIRST_NAME: Final = re.compile(r"(?i)(?:first|fore|given)_?name$")
_NAME: Final = re.compile(r"(?i)(?:(?:first|fore|given|last|sur|family)_?name|(?:^|contact[._])name)$")
_OWN_POSTCODE: Final = re.compile(r"(?i)consumer_?postcode$|property_?details.*postcode$")

# Between a field's name and its colon.
_SPACED: Final = re.compile(r'"\s+:')


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a row shows of its person and of who is sought. The sets hold keys; `people` the names that it bears."""

    emails: frozenset[str] = frozenset()
    phones: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()
    postcodes: frozenset[str] = frozenset()
    recipients: frozenset[str] = frozenset()
    is_mention: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """A row of a lead, as far as it shows whose it is. `texts` is called where ids don't decide.

    `contacts` are those of them that may be addresses and numbers, of which most rows have none that is listed; None
    where all have to be looked at.
    """

    kind: str
    lead_id: str
    day: date
    texts: Callable[[], Iterable[PathAndText]]
    contacts: Callable[[], Iterable[str] | None] = lambda: None

    @classmethod
    def of_raw(cls, row: Mapping[str, Any]) -> "Shown":
        """A row of a raw file."""
        return cls(
            row["kind"],
            row["lead_id"],
            row["day"],
            partial(texts_of, row["payload"]),
            partial(contacts_of, row["payload"]),
        )


def shown_by(texts: Iterable[PathAndText], is_mention: Callable[[str], bool] = lambda _: False) -> Evidence:
    """What the texts of a row show of its person; whoever knows whom to look for says which text mentions them."""
    emails: set[str] = set()
    phones: set[str] = set()
    recipients: set[str] = set()
    postcodes: set[str] = set()
    first: list[str] = []
    last: list[str] = []
    has_mention = False
    for path, text in texts:
        match _role(path):
            case "recipient":
                recipients |= email_keys(text)
            case "first name":
                first.append(text)
            case "last name":
                last.append(text)
            case "contact":
                emails |= email_keys(text)
                phones |= phone_keys(text)
            case "postcode":
                postcodes |= {postcode_key(text) or ""} - {""}
            case _:
                has_mention = has_mention or is_mention(text)
    people = {name_key(one, other) for one in first or [""] for other in last or [""]}
    return Evidence(
        frozenset(emails),
        frozenset(phones),
        frozenset(name for name in people if name),
        frozenset(postcodes),
        frozenset(recipients),
        has_mention,
    )


@lru_cache(maxsize=4096)
def _role(path: str) -> str:
    """What the field of that path holds of a person."""
    if _RECIPIENT.search(path):
        return "recipient"
    if is_name(path):
        return "first name" if _FIRST_NAME.search(path) else "last name"
    if is_contact(path):
        return "contact"
    return "postcode" if _OWN_POSTCODE.search(path) else ""


def is_name(path: str) -> bool:
    """Whether the field of that path holds a person's name."""
    return bool(_NAME.search(path))


def is_contact(path: str) -> bool:
    """Whether the field of that path holds the person's own address or number."""
    return bool(_CONTACT.search(path)) and not _RECIPIENT.search(path) and not is_name(path)


def texts_of(content: str, truths: Mapping[bool, str] | None = None) -> list[PathAndText]:
    """Every text, number and field's name of a JSON document, repeated fields too; what is no JSON, as one text.

    `truths` are the words for what is true and false, which nobody is known by: left out without them.
    """
    try:
        value = json.loads(content, object_pairs_hook=_Fields, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return [("", unescaped(content))]
    texts: list[PathAndText] = []
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        path, value = left.pop()
        if isinstance(value, _Fields):
            texts += [(f"{path}.", name) for name, _ in value.pairs]
            left += [(f"{path}.{name}" if path else name, one) for name, one in reversed(value.pairs)]
        elif isinstance(value, list):
            left += [(path, one) for one in reversed(value)]
        elif isinstance(value, str):
            texts.append((path, value))
        elif truths and isinstance(value, bool):
            texts.append((path, truths[value]))
    return texts


def contacts_of(content: str) -> list[str] | None:
    """The texts that a JSON document holds where `shown_by` looks for its person's addresses and numbers.

    A quarter of the time that `texts_of` takes. None where that alone can say: where a field is repeated or may be, a
    contact is a number, or the text is no JSON.
    """
    try:
        left: list[tuple[str, Any]] = [("", msgspec.json.decode(content))]
    except (ValueError, RecursionError):
        return None
    contacts: list[Any] = []
    fields = 0
    while left:
        path, value = left.pop()
        if type(value) is dict:
            fields += len(value)
            names, members = _contacts_among(path, tuple(value))
            contacts += names
            contacts += [value[name] for name in members]
            for name, one in value.items():
                if type(one) is dict or type(one) is list:
                    left.append((f"{path}.{name}" if path else name, one))
        elif type(value) is list:
            left += [(path, one) for one in value]
        elif _role(path) == "contact":
            contacts.append(value)
    texts = [one for one in contacts if type(one) is str]
    # Of a repeated field the decoder keeps one. A text with a quote and a colon in it counts like one more.
    is_whole = fields == content.count('":') and not _SPACED.search(content)
    return texts if is_whole and not any(type(one) is int or type(one) is float for one in contacts) else None


@lru_cache(maxsize=256)
def _contacts_among(path: str, names: tuple[str, ...]) -> tuple[Sequence[str], Sequence[str]]:
    """Of an object's fields, which names show an address or number, and whose values are contacts."""
    below = f"{path}." if path else ""
    shown = [one for one in names if email_keys(one) or phone_keys(one)] if _role(f"{path}.") == "contact" else []
    return shown, [one for one in names if _role(below + one) == "contact"]


class _Fields:
    """A JSON object with each of its fields, in order; a dict would hide all but the last of a name."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs
