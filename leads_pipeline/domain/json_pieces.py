"""Cuts JSON into pieces, each exactly as received.

One piece with invalid JSON doesn't spoil the others.

Belongs here: members of an object and elements of a list, as bytes. Doesn't: what they mean
(bodies.py).
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from leads_pipeline.errors import InvalidAnswerError

Span = tuple[int, int]
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])

# So many bytes of a list find it in the body.
_BEGINNING: Final = 256


def cut_list(key: str, body: bytes) -> tuple[list[bytes], list[tuple[str | None, bytes]]]:
    """Return the elements of a JSON object's list `key`, each as received, and the other members.

    The key counts in any spelling, and each time it occurs. Raises InvalidAnswerError if the body
    isn't an object, or `key` isn't a list in it.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        text = bytes(_MEMBERS.decode(body)[key])
        elements = list(map(bytes, _ELEMENTS.decode(text)))
    except (msgspec.DecodeError, KeyError, RecursionError, UnicodeDecodeError):
        return _cut_by_structure(key, body)

    # The text around the list is short. A key that stands twice there is found by structure, as
    # msgspec keeps one. If another member holds the same list, that one is emptied. It stays a
    # list, and the elements are the same.
    # To search for the whole text takes longer than to decode it.
    start = body.find(text[:_BEGINNING])
    if body[start : start + len(text)] != text:
        return _cut_by_structure(key, body)

    members = _named_members(body[:start] + b"[]" + body[start + len(text) :])
    if [name for name, _ in members].count(key) > 1:
        return _cut_by_structure(key, body)

    return elements, [member for member in members if member[0] != key]


def _cut_by_structure(key: str, body: bytes) -> tuple[list[bytes], list[tuple[str | None, bytes]]]:
    """Cut by brackets, commas and strings alone. So a broken element can't spoil the others."""
    members = _named_members(body)
    lists = [value for name, value in members if name == key]
    if not lists:
        raise InvalidAnswerError(
            f"The body ({len(body)} bytes) is a JSON object without the list {key!r}.",
            reason="list missing",
        )
    elements = [
        value[slice(*span)] for value in lists for span in list_parts(key, value, (0, len(value)))
    ]
    return elements, [member for member in members if member[0] != key]


def _named_members(body: bytes) -> list[tuple[str | None, bytes]]:
    return [
        (text_of(key), body[start:end]) for key, start, end in members_of(body, object_in(body))
    ]


def object_in(body: bytes) -> Span:
    """Return the span of the body's JSON object. Raises InvalidAnswerError if the body is none."""
    if not body.strip():
        raise InvalidAnswerError(
            "The body is empty. It should be a JSON object.", reason="empty body"
        )
    if not body.lstrip().startswith(b"{"):
        raise InvalidAnswerError(
            f"The body ({len(body)} bytes) is no JSON object: {_looks_like(body)}.",
            reason="not a JSON object",
        )
    return container_in(body)


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)
_CLOSING: Final = {b"{": b"}", b"[": b"]"}


def list_parts(list_key: str, body: bytes, span: Span) -> Iterator[Span]:
    """Return the element spans of the list at `span`. Raises InvalidAnswerError if it is none."""
    if body[span[0] : span[0] + 1] != b"[":
        raise InvalidAnswerError(f"{list_key!r} is not a list.", reason="list missing")
    return _parts(body, *span)


def container_in(body: bytes) -> Span:
    """Return the span of the body's one object or list. Words before it don't matter.

    Raises InvalidAnswerError if there is none, it isn't whole, or something follows it.
    """
    span = _whole_container(body)
    if span is None:
        raise InvalidAnswerError(
            f"The body ({len(body)} bytes) is broken JSON: cut off, or with brackets that don't "
            "match.",
            reason="broken JSON",
        )
    return span


def _whole_container(body: bytes) -> Span | None:
    closing: list[bytes] = []  # the brackets that are still to come
    start = -1
    position = 0

    for token in _TOKEN.finditer(body):
        if body[position : token.start()].strip():  # an unterminated string
            return None
        position = token.end()

        text = token.group()
        if text in _CLOSING:
            if start < 0:
                start = token.start()
            closing.append(_CLOSING[text])
        elif text in (b"}", b"]"):
            if not closing or closing.pop() != text:
                return None
            if not closing:
                return None if body[position:].strip() else (start, position)

    return None


def _parts(body: bytes, start: int, end: int) -> Iterator[Span]:
    """Yield the trimmed spans between the commas of the container at [start, end)."""
    depth = 0
    begin = start + 1

    for token in _TOKEN.finditer(body, start + 1, end - 1):
        text = token.group()
        if text in _CLOSING:
            depth += 1
        elif text in (b"}", b"]"):
            depth -= 1
        elif text == b"," and depth == 0:
            yield _trimmed(body, begin, token.start())
            begin = token.end()

    if body[begin : end - 1].strip() or begin > start + 1:
        yield _trimmed(body, begin, end - 1)


def members_of(body: bytes, span: Span) -> Iterator[tuple[bytes, int, int]]:
    """Yield key text and value span of each member of the object at `span`."""
    for start, end in _parts(body, *span):
        key = _TOKEN.match(body, start, end)
        colon = _TOKEN.search(body, key.end(), end) if key else None
        if key is None or colon is None or colon.group() != b":":
            raise InvalidAnswerError(
                "The body is broken JSON: a key without a value.", reason="broken JSON"
            )
        yield key.group(), *_trimmed(body, colon.end(), end)


def _trimmed(body: bytes, start: int, end: int) -> Span:
    while start < end and body[start : start + 1].isspace():
        start += 1
    while end > start and body[end - 1 : end].isspace():
        end -= 1
    return start, end


def text_of(value: bytes) -> str | None:
    """Return the string that `value` is the JSON of. None if it isn't a string."""
    try:
        text = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None


def _looks_like(body: bytes) -> str:
    head = body.lstrip()[:200].lower()
    if head.startswith(b"<"):
        return "it looks like HTML or XML, as a gateway or a login page would send"
    if head.startswith(b"["):
        return "it is a list"
    return "it begins like no JSON object, and no HTML"
