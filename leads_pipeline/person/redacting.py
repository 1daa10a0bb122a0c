"""Taking a person's address, number and name out of what somebody else wrote, the rest of it as received.

Belongs here: what in a text is one of them, and a payload's text without. Doesn't: whose they are (suppression/).
"""

import json
import re
from collections.abc import Callable
from typing import Final

from leads_pipeline.person.identity import ADDRESS_ENDS, email_keys, mailbox_of, name_key, phone_keys, plain

REMOVED: Final = "[removed]"

# Whether a mailbox, a telephone or a name, by its key, is to go.
IsMeant = Callable[[str, str], bool]

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ADDRESS: Final = re.compile(f"[^{ADDRESS_ENDS}]+@[^{ADDRESS_ENDS}]*[^{ADDRESS_ENDS}.!]")
_DIGITS: Final = re.compile(r"\+?\d(?:[^0-9A-Za-z]{0,4}\d){6,}")
_WORD: Final = re.compile(r"[^\W\d_]+")

# The longest number has 15 digits and may have a prefix; the longest name that is looked for has as many words.
_DIGITS_MAX, _WORDS_MAX = 18, 5


def redacted_payload(payload: str, is_meant: IsMeant) -> str:
    """The JSON text with whatever is meant replaced in its strings; each other character stays."""

    def redacted(match: re.Match[str]) -> str:
        try:
            text = json.loads(match[0], strict=False)
        except ValueError:
            return redacted_text(match[0], is_meant)
        changed = redacted_text(text, is_meant)
        return match[0] if changed == text else json.dumps(changed)

    return _STRING.sub(redacted, payload)


def redacted_text(text: str, is_meant: IsMeant) -> str:
    """The text with whatever is meant replaced. Where invisible characters hide it, as a reader sees the text."""
    for seen in dict.fromkeys((text, plain(text))):
        changed = _ADDRESS.sub(
            lambda match: (
                REMOVED if any(is_meant("mailbox", mailbox_of(key)) for key in email_keys(match[0])) else match[0]
            ),
            seen,
        )
        changed = _DIGITS.sub(lambda match: _without_number(match[0], is_meant), changed)
        changed = _without_names(changed, is_meant)
        if changed != seen:
            return changed
    return text


def _without_number(run: str, is_meant: IsMeant) -> str:
    """Digits that may be several numbers in a row, without those that are meant; the longest first."""
    places = [place for place, character in enumerate(run) if character.isdigit()]
    for length in range(min(len(places), _DIGITS_MAX), 6, -1):
        for first in range(len(places) - length + 1):
            begin, end = places[first], places[first + length - 1] + 1
            begin -= first == 0 and run.startswith("+")
            if any(is_meant("phone", key) for key in phone_keys(run[begin:end])):
                return run[:begin] + REMOVED + _DIGITS.sub(lambda match: _without_number(match[0], is_meant), run[end:])
    return run


def _without_names(text: str, is_meant: IsMeant) -> str:
    words, parts, done, first = list(_WORD.finditer(text)), list[str](), 0, 0
    while first < len(words):
        last = first
        for after in range(min(first + _WORDS_MAX, len(words)) - 1, first, -1):
            key = name_key(text[words[first].start() : words[after].end()])
            if key and is_meant("name", key):
                last = after
                break
        if last > first:
            parts += [text[done : words[first].start()], REMOVED]
            done = words[last].end()
        first = last + 1
    return "".join([*parts, text[done:]])
