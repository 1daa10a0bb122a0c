"""Which leads are exactly as declared, told in C: most are, and a short statement types them.

Belongs here: telling them. Doesn't: either statement (statement.py). In doubt a lead isn't plain: the full statement
reads any.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from leads_pipeline.contract import Field, FieldType, LeadKind
from leads_pipeline.flatten.trees import Tree, put

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
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)


@cache
def plain_leads(kind: LeadKind) -> Callable[[bytes], bool]:
    """What tells whether a text is a lead of that kind with nothing but declared members, each once and of its type."""
    declared = {"id": str} | _declared(kind.fields, _AS_DECLARED)
    for child in kind.children:
        put(declared, child.path, list[_struct(_declared(child.fields, _IN_LISTS))] | None)  # type: ignore[misc]  # made at run time
    decoder = msgspec.json.Decoder(_struct(declared))

    def is_plain(body: bytes) -> bool:
        try:
            lead = decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, ValueError):
            return False
        # msgspec takes the last of a key that stands twice, and says nothing: then what it read has fewer quotes.
        return _quotes(_ENCODER.encode(lead)) == _quotes(body)

    return is_plain


def _quotes(json: bytes) -> int:
    """How many quotes stand around its keys and strings."""
    return (_ESCAPE.sub(b"", json) if b"\\" in json else json).count(b'"')


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
    return msgspec.defstruct("Object", members, forbid_unknown_fields=True, gc=False)
