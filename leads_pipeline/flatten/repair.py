"""What SQL can't do, for the few leads that need it: text that isn't JSON, numbers as written, unknown members."""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final

import duckdb
import msgspec
from duckdb.func import FunctionNullHandling

from leads_pipeline.contract import ChildTable, LeadKind
from leads_pipeline.duck import macros
from leads_pipeline.flatten.trees import Tree, tree_of, tree_of_lead

_ENCODER: Final = msgspec.json.Encoder()
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)

# Half of what Python's stack holds.
_MAX_NESTING: Final = 500


# Most leads that have many keys have the same.
_DIFFERENT_KEYS: Final = 32

# A Python function, the DuckDB types of its parameters, and of what it returns.
_Function = tuple[Callable[..., bool | str | list[str] | list[str | None] | None], list[Any], str]


def extra_functions(kind: LeadKind) -> dict[str, _Function]:
    """The functions that the kind's own statements call, by name."""
    functions: dict[str, _Function] = {
        "extra_of_lead": (partial(unknown_members, tree_of_lead(kind)), ["VARCHAR"], "VARCHAR")
    }
    for child in kind.children:
        functions[f"extras_of_{child.name}"] = (
            partial(_extras, child, tree_of(child.fields)),
            ["VARCHAR", "BIGINT"],
            "VARCHAR[]",
        )
        functions[f"elements_of_{child.name}"] = (partial(_elements, child), ["VARCHAR", "BIGINT"], "VARCHAR[]")
    return functions


def define_functions(db: duckdb.DuckDBPyConnection, extra: Mapping[str, _Function]) -> None:
    """Make the macros and functions that the statements call. DuckDB calls a function only for rows that reach it."""
    functions: dict[str, _Function] = {
        "mended": (_mended, ["VARCHAR"], "VARCHAR"),
        "written": (_written, ["VARCHAR", "VARCHAR"], "VARCHAR"),
        "a_part_repeats": (lru_cache(_DIFFERENT_KEYS)(_a_part_repeats), ["VARCHAR"], "BOOLEAN"),
        **extra,
    }
    for name, (function, parameters, returned) in functions.items():
        # DuckDB otherwise expects a function never to return NULL, and never to get one.
        db.create_function(name, function, parameters, returned, null_handling=FunctionNullHandling.SPECIAL)
    db.execute(macros("casts"))


def _mended(payload: str) -> str | None:
    """JSON for a text that isn't quite, None where it can't be had.

    For example of a message that was cut in the middle of an emoji (a lone surrogate), or with a line break unescaped.
    Numbers become text, exactly as written, and are cast from there.
    """
    try:
        value = json.loads(
            payload, strict=False, object_pairs_hook=_once, parse_float=str, parse_int=str, parse_constant=str
        )
        return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
    except (ValueError, RecursionError):
        return None


def _a_part_repeats(joined: str | None) -> bool | None:
    """Whether one of the parts that a quote separates stands twice; so it does of any key that does."""
    if joined is None:
        return None
    parts = joined.split('"')
    return len(set(parts)) < len(parts)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once each. Mending another would hide that a value was dropped."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice")
    return members


def _written(body: str | None, pointer: str) -> str | None:
    """The number at that JSON pointer as it was written. Of a key that stands twice the first counts, as in DuckDB."""
    if body is None:
        return None
    steps = pointer.split("/")[1:]
    try:
        if all(body.count(f'"{step}"') == 1 for step in steps):  # no list, and no key twice: quick
            raw = body.encode()
            for step in steps:
                raw = bytes(_MEMBERS.decode(raw)[step])
            if raw[:1] in b"-0123456789":
                return raw.decode()
        value = json.loads(body, object_pairs_hook=_first_wins, parse_float=str, parse_int=str)
        for step in steps:
            value = value[step]
    except (*_UNREADABLE, LookupError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def unknown_members(tree: Tree, text: str | None) -> str | None:
    """The object's members that the tree doesn't know, as JSON of the same nesting; None where it can't be read."""
    try:
        return None if text is None else unknown_in(tree, members_of(text.encode()))
    except _UNREADABLE:
        return None


def _elements(child: ChildTable, body: str, number: int) -> list[str] | None:
    """The elements of a lead's list, each as received; None where that many can't be cut out.

    All at once: to read the lead again for each of thousands took minutes.
    """
    try:
        elements = [str(element, "utf-8") for element in _ELEMENTS.decode(_list_of(child, body))]
    except _UNREADABLE:
        return None
    return elements if len(elements) == number else None


def _extras(child: ChildTable, tree: Tree, body: str, number: int) -> list[str | None] | None:
    """The unknown members of each element of a lead's list. One call a list: one an element took twice as long."""
    try:
        extras = extras_of(tree, _list_of(child, body))
    except _UNREADABLE:
        return None
    return extras if len(extras) == number else None


def extras_of(tree: Tree, elements: msgspec.Raw) -> list[str | None]:
    """The unknown members of each of a list's elements. Raises ValueError, msgspec.DecodeError or RecursionError."""
    try:
        return _unknown(tree, _OBJECTS.decode(elements))
    except msgspec.ValidationError:  # not all of them are objects
        return [unknown_members(tree, str(element, "utf-8")) for element in _ELEMENTS.decode(elements)]


def _list_of(child: ChildTable, body: str) -> msgspec.Raw:
    found = list_in(child, members_of(body.encode()))
    if found is None:
        raise ValueError("no list")
    return found


def list_in(child: ChildTable, members: dict[str, msgspec.Raw]) -> msgspec.Raw | None:
    """The list of a lead with those members, None where there is none. Raises as extras_of does."""
    *objects, name = child.path.split(".")
    for step in objects:
        inner = members.get(step)
        if inner is None or bytes(inner) == b"null":
            return None
        members = _MEMBERS.decode(inner)
    found = members.get(name)
    return None if found is None or bytes(found) == b"null" else found


_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_NESTING: Final = bytes(set(range(256)) - set(b"[{]}"))
_NOT_NESTING_OR_TEXT: Final = bytes(set(_NOT_NESTING) - set(b'"\\'))
# An opening bracket as 1, a closing one as the byte of -1.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def members_of(raw: bytes) -> dict[str, msgspec.Raw]:
    """The object's members. Raises RecursionError where it is nested so deep that a fuller stack couldn't read it.

    What is in `_extra` is the same whichever thread reads it: where Python's stack ends differs.
    """
    if raw.count(b"[") + raw.count(b"{") > _MAX_NESTING:
        # Strings without a bracket are two quotes then. What is left of others is looked for, which takes longer.
        brackets = raw.translate(None, _NOT_NESTING_OR_TEXT).replace(b'""', b"")
        if b'"' in brackets or b"\\" in brackets:
            brackets = _STRING.sub(b"", raw).translate(None, _NOT_NESTING)
        steps = brackets.translate(_STEPS)
        innermost = 0
        while steps and innermost < 4:  # most are in pairs, and thousands go at once
            steps = steps.replace(b"\x01\xff", b"")
            innermost += 1
        if innermost + max(accumulate(memoryview(steps).cast("b")), default=0) > _MAX_NESTING:
            raise RecursionError
    return _MEMBERS.decode(raw)


def unknown_in(tree: Tree, members: dict[str, msgspec.Raw]) -> str | None:
    """What is left of the members, from which those that the tree knows are taken. Raises as extras_of does."""
    (unknown,) = _unknown(tree, [members])
    return unknown


def _unknown(tree: Tree, objects: list[dict[str, msgspec.Raw]]) -> list[str | None]:
    """The same of each of the objects.

    The values are cut out of the text received: nothing is rounded or written anew. Members that are known are few,
    unknown ones may be thousands, as may objects: those are touched by msgspec alone.
    """
    for key, inner in tree.items():
        if inner is None:
            for members in objects:
                members.pop(key, None)
        else:
            for members in objects:
                if key in members:
                    _take_known(members, key, inner)
    texts = _ENCODER.encode_lines(objects).decode().split("\n")[:-1]
    if len(texts) != len(objects):  # a value has line breaks of its own
        texts = [_ENCODER.encode(members).decode() for members in objects]
    return [None if text == "{}" else text for text in texts]


def _take_known(members: dict[str, msgspec.Raw], key: str, tree: Tree) -> None:
    is_object = bytes(members[key]).lstrip().startswith(b"{")
    unknown = unknown_in(tree, _MEMBERS.decode(members[key])) if is_object else None
    if unknown is None:
        del members[key]
    else:
        members[key] = msgspec.Raw(unknown.encode())
