"""Cutting JSON into its pieces, each exactly as received, also where it isn't valid JSON somewhere inside of one.

Belongs here: members of an object and elements of a list, as bytes. Doesn't: what they mean (contract.py).
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from leads_pipeline.errors import InvalidAnswerError


def read_list(key: str, body: bytes) -> list[bytes]:
    """The elements of the list under `key` of a JSON object, each exactly as received.

    Raises InvalidAnswerError where the body isn't an object or `key` isn't a list in it.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    elements = _slice_fast(key, body)
    return _slice_by_structure(key, body) if elements is None else elements


_Elements = list[bytes]
_ENVELOPES: Final[dict[str, msgspec.json.Decoder[msgspec.Struct]]] = {}


def _slice_fast(list_key: str, body: bytes) -> _Elements | None:
    """Slice with msgspec; None where it can't be trusted: text that it refuses, or a list key that stands twice."""
    decoder = _ENVELOPES.get(list_key)
    if decoder is None:
        envelope = msgspec.defstruct("Envelope", [(list_key, list[msgspec.Raw])])
        decoder = _ENVELOPES[list_key] = msgspec.json.Decoder(envelope)
    try:
        elements = list(map(bytes, getattr(decoder.decode(body), list_key)))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    around = b'{"%s":[]}' % list_key.encode()
    is_nothing_else = len(body) == len(around) + sum(map(len, elements)) + max(len(elements) - 1, 0)  # and the commas
    return elements if is_nothing_else or body.count(around[1:-4]) == 1 else None


_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)
_CLOSING: Final = {b"{": b"}", b"[": b"]"}


def _slice_by_structure(list_key: str, body: bytes) -> _Elements:
    """Slice by brackets, commas and strings alone, so that what stands inside an element can't spoil the others.

    No recursion, so depth costs nothing. A key that stands twice gives both lists.
    """
    check_object(body)
    elements: _Elements = []
    has_list = False
    for key, start, end in members_of(body, only_value(body)):
        if text_of(key) != list_key:
            continue
        has_list = True
        elements += [body[a:b] for a, b in list_parts(list_key, body, start, end)]
    if not has_list:
        raise InvalidAnswerError(
            f"The body ({len(body)} bytes) is a JSON object without the list {list_key!r}.", reason="list missing"
        )
    return elements


def check_object(body: bytes) -> None:
    """Raise InvalidAnswerError where the body is nothing or no JSON object."""
    if not body.strip():
        raise InvalidAnswerError("The body is empty where a JSON object was due.", reason="empty body")
    if not body.lstrip().startswith(b"{"):
        raise InvalidAnswerError(
            f"The body ({len(body)} bytes) is no JSON object: {_looks_like(body)}.", reason="not a JSON object"
        )


def list_parts(list_key: str, body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans of the elements of the list at [start, end). Raises InvalidAnswerError where it is none."""
    if body[start : start + 1] != b"[":
        raise InvalidAnswerError(f"{list_key!r} is not a list.", reason="list missing")
    return _parts(body, start, end)


def only_value(body: bytes) -> tuple[int, int]:
    """Where the one value of the body begins and ends. Raises InvalidAnswerError where brackets don't match."""
    stack: list[bytes] = []
    start = end = -1
    position = 0
    for token in _TOKEN.finditer(body):
        text = token.group()
        if body[position : token.start()].strip() or end >= 0:
            break  # an unterminated string, or something after the end
        position = token.end()
        if text in _CLOSING:
            start = token.start() if start < 0 else start
            stack.append(_CLOSING[text])
        elif text in (b"}", b"]"):
            if not stack or stack.pop() != text:
                break
            end = token.end() if not stack else end
    else:
        if end >= 0 and not body[position:].strip():
            return start, end
    raise InvalidAnswerError(
        f"The body ({len(body)} bytes) is broken JSON: cut off, or with brackets that don't match.",
        reason="broken JSON",
    )


def _parts(body: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans between the commas of the container at [start, end), without surrounding white space."""
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


def members_of(body: bytes, span: tuple[int, int]) -> Iterator[tuple[bytes, int, int]]:
    """Key text and value span of each member of the object at `span`."""
    for start, end in _parts(body, *span):
        key = _TOKEN.match(body, start, end)
        colon = _TOKEN.search(body, key.end(), end) if key else None
        if key is None or colon is None or colon.group() != b":":
            raise InvalidAnswerError("The body is broken JSON: a key without a value.", reason="broken JSON")
        yield key.group(), *_trimmed(body, colon.end(), end)


def value_of(body: bytes, span: tuple[int, int], name: str) -> tuple[int, int] | None:
    """Span of the member's value in the object at `span`; the last one where the key stands twice, as json has it."""
    values = [(start, end) for key, start, end in members_of(body, span) if text_of(key) == name]
    return values[-1] if values else None


def _trimmed(body: bytes, start: int, end: int) -> tuple[int, int]:
    while start < end and body[start : start + 1].isspace():
        start += 1
    while end > start and body[end - 1 : end].isspace():
        end -= 1
    return start, end


def text_of(value: bytes) -> str | None:
    """The string that `value` is the JSON of, None where it isn't one."""
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
    return "it begins like neither JSON nor HTML"
