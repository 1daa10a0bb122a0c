"""Which leads are as declared but for members that are new: nearly all are, and a short statement types them.

Belongs here: telling them, and what is new apart from what is declared. Doesn't: either statement (statement.py). In
doubt a lead isn't plain: the full statement reads any.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np

from leads_pipeline.contract import Field, FieldType, LeadKind
from leads_pipeline.flatten.repair import extras_of, list_in, members_of, unknown_in
from leads_pipeline.flatten.trees import Tree, put, tree_of, tree_of_lead

# What JSON holds of a declared field where its column says just that. What else a type takes, for example a number as
# text, is for the full statement. -0, which as a text is no 0, and numbers that DuckDB rewrites are no text's either.
_AS_DECLARED: Final[dict[FieldType, Any]] = {
    FieldType.TEXT: str | Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None,
    FieldType.BOOLEAN: bool | None,
    FieldType.INTEGER: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None,
    # The short statement casts these as strictly as the full one does, from the same texts.
    FieldType.NUMBER: int | float | None,
    FieldType.AMOUNT: int | float | None,
    FieldType.MOMENT: str | None,
}

# An amount with a fraction may have to be looked up in the lead's text, which an element of a list isn't.
_IN_LISTS: Final = _AS_DECLARED | {FieldType.AMOUNT: Annotated[int, msgspec.Meta(ge=-(10**12), le=10**12)] | None}

_ENCODER: Final = msgspec.json.Encoder()
_COLON: Final = ord(":")
_QUOTE: Final = ord('"')
# A third of the time that `in` takes for the first two of these bytes, where a text has many backslashes (measured).
_has_escaped_colon: Final = re.compile(rb"\\u003[aA]").search


class Plain(NamedTuple):
    """What the short statement reads of a lead.

    `declared`: its declared members as JSON, None where it has no others. `extra`: the others as `_extra` has them;
    `extras`: those of each of its lists' elements, in the order of the kind's children, None where a list has none.
    """

    declared: bytes | None = None
    extra: str | None = None
    extras: tuple[list[str | None] | None, ...] = ()


_AS_IT_IS: Final = Plain()

# Leads that are looked at together, as counting their colons takes a tenth of the time then. With one among them that
# isn't as declared, each is looked at alone.
_TOGETHER: Final = 8

_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)


@cache
def plain_leads(kind: LeadKind) -> Callable[[Sequence[bytes | None]], list[Plain | None]]:
    """What reads texts as leads of that kind whose declared members stand once each and are of their types.

    It gives None for any other text, and for None.
    """
    return _Leads(kind).read


class _Leads:
    def __init__(self, kind: LeadKind) -> None:
        types = {"id": str | msgspec.UnsetType} | _declared(kind.fields, _AS_DECLARED)
        self._lists = []
        for child in kind.children:
            elements = list[_struct(_declared(child.fields, _IN_LISTS))]  # type: ignore[misc, valid-type]  # made at run time
            put(types, child.path, elements | None)
            self._lists.append((child, tree_of(child.fields), _declared_in(elements)))
        lead = _struct(types)
        self._tree = tree_of_lead(kind)
        self._decode, self._declared_in_lead = msgspec.json.Decoder(lead).decode, _declared_in(lead)

    def read(self, bodies: Sequence[bytes | None]) -> list[Plain | None]:
        found: list[Plain | None] = []
        for start in range(0, len(bodies), _TOGETHER):
            some = bodies[start : start + _TOGETHER]
            if self._are_as_declared([body for body in some if body is not None]):
                found += [body if body is None else _AS_IT_IS for body in some]
            else:
                found += [body if body is None else self._read_one(body) for body in some]
        return found

    def _are_as_declared(self, bodies: Sequence[bytes]) -> bool:
        """Whether each has declared members alone, once each.

        msgspec takes the last of a key that stands twice, and says nothing: then more is left out than is new. Who
        leaves out a member leaves out its colon, and one comes in only where it was written as an escape: so where
        there are as many, nothing was left out, of one lead or of several.
        """
        try:
            declared = _ENCODER.encode_lines([self._decode(body) for body in bodies])
        except _UNREADABLE:
            return False
        received = b"".join(bodies)
        return _colons(received) == _colons(declared) and not _has_escaped_colon(received)

    def _read_one(self, body: bytes) -> Plain | None:
        if self._are_as_declared([body]):
            return _AS_IT_IS
        try:
            declared = self._declared_in_lead(body)
            left_out = _quotes(body) - _quotes(declared)
            if left_out == 0:
                return _AS_IT_IS
            members = members_of(body)
            extras = []
            for child, tree, declared_in_list in self._lists:
                found = list_in(child, members)
                of_elements = [] if found is None else extras_of(tree, found)
                new = ",".join(text for text in of_elements if text is not None).encode()
                left_out -= _quotes(new)
                if _has_objects(tree):  # which stand in what is declared and in what is new
                    left_out += _quotes(declared_in_list(b"[" + new + b"]"))
                extras.append(of_elements if new else None)
            extra = unknown_in(self._tree, members)
            if extra is not None:
                left_out -= _quotes(extra.encode()) - _quotes(self._declared_in_lead(extra.encode()))
        except _UNREADABLE:
            return None
        return Plain(declared, extra, tuple(extras)) if left_out == 0 else None


def _declared_in(type_: Any) -> Callable[[bytes], bytes]:
    """What gives the JSON of what a text has of the type."""
    decoder = msgspec.json.Decoder(type_)
    return lambda text: _ENCODER.encode(decoder.decode(text))


def _colons(json: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(json, np.uint8) == _COLON))


def _has_objects(tree: Tree) -> bool:
    return any(inner is not None for inner in tree.values())


def _quotes(json: bytes) -> int:
    """How many quotes stand around its keys and strings.

    What is looked for is a byte at a time, as two take five times as long (measured).
    """
    quotes = json.count(b'"')
    if b"\\" in json:
        is_escaped = False
        for text in json.split(b"\\")[1:]:  # each after a backslash
            if is_escaped:
                is_escaped = False  # that backslash is the second of a pair
            elif not text:
                is_escaped = True
            elif text[0] == _QUOTE:
                quotes -= 1
    return quotes


def _declared(fields: Sequence[Field], as_declared: Mapping[FieldType, Any]) -> Tree:
    types: Tree = {}
    for field in fields:
        put(types, field.path, as_declared[field.type])
    return types


def _struct(types: Tree) -> Any:
    """The type of an object with these members, any of which may be missing."""
    members = [
        (name, (_struct(inner) | None if isinstance(inner, dict) else inner) | msgspec.UnsetType, msgspec.UNSET)
        for name, inner in types.items()
    ]
    return msgspec.defstruct("Object", members, gc=False)
