"""When two spellings mean the same person: keys of e-mail addresses, telephone numbers, names and postcodes.

Belongs here: what a text is as a key, without any input or output. Doesn't: which lead it stands in (matching.py).
Formatting never changes a key, and different digits never share one. What is no address or number has none.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final

import idna

# The country of a number that is written without one.
_REGION: Final = "GB"

# E.164 ends at 15 digits; below 7 a number is one of a switchboard, or a house's.
_DIGITS_MIN, _DIGITS_MAX = 7, 15

_GMAIL: Final = frozenset({"gmail.com", "googlemail.com"})

# What ends an address in a text, as part of a class of characters.
ADDRESS_ENDS: Final = r"""\s<>()\[\],;:"'`|\\/?&="""
_BESIDE_ADDRESS: Final = re.compile(f"[{ADDRESS_ENDS}]+")

# Most numbers, of which it takes no library to say what they are: a country code or a zero, and ten digits.
_BRITISH: Final = re.compile(r"(?:\+44|0) ?([1-9](?: ?[0-9]){9})")

# What stands between two numbers in one field. A comma is a pause on some telephones; what follows it then is too
# short to be a number.
_ASCII_DIGIT: Final = re.compile("[0-9]")
_BETWEEN_NUMBERS: Final = re.compile(r"[/,;|&\r\n]|\b(?:or|and)\b")

_POSTCODE: Final = re.compile(r"[A-Z]{1,2}[0-9][A-Z0-9]?[0-9][A-Z]{2}")

_ESCAPE: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
_QUOTING: Final = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(.)")
_WHITE: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def plain(text: str) -> str:
    """The text as a reader sees it: one form of each character, and none that can't be seen.

    Control and format characters (bidirectional marks, joiners, NUL) go, but for white space; so do halves of surrogate
    pairs, which have no UTF-8 form.
    """
    if text.isascii() and text.isprintable():
        return text
    whole = text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "ignore")
    # Normalised once more, as characters meet that an invisible one has kept apart.
    return unicodedata.normalize("NFKC", _unseen().sub("", unicodedata.normalize("NFKC", whole)))


# What is beyond holds rare ideographs, no form of a letter or a digit, and tags that can't be seen.
_CHARACTERS: Final = (*range(0x20000), *range(0xE0000, 0xE1000))


@cache
def _unseen() -> re.Pattern[str]:
    return re.compile(_class_of(lambda one: unicodedata.category(one) in ("Cc", "Cf") and not one.isspace()))


@cache
def disguises() -> str:
    """A class for regular expressions: the characters beyond ASCII that can stand for one of a key's, or hide in it."""

    def is_disguise(one: str) -> bool:
        return unicodedata.category(one) in ("Cc", "Cf", "Nd") or bool(
            re.search("[0-9a-z@]", unicodedata.normalize("NFKC", one).casefold())
        )

    return _class_of(lambda one: not one.isascii() and is_disguise(one))


def _class_of(holds: Callable[[str], bool]) -> str:
    """The characters of which that is so, as a class that Python, Arrow and DuckDB read."""
    ranges: list[list[int]] = []
    for code in _CHARACTERS:
        if not 0xD800 <= code < 0xE000 and holds(chr(code)):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "[" + "".join(f"{_in_class(first)}-{_in_class(last)}" for first, last in ranges) + "]"


def _in_class(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x80 else chr(code)


def unescaped(text: str) -> str:
    """The text with JSON's escapes of characters read, for what is JSON only in parts."""
    return _ESCAPE.sub(lambda match: _characters(match[0]), text)


def without_quoting(text: str) -> str:
    """The same for what is JSON, with its escapes of white space, quotes and backslashes too."""
    return _QUOTING.sub(lambda match: _characters(match[1]) if match[1] else _WHITE.get(match[2], match[2]), text)


def _characters(escapes: str) -> str:
    units = b"".join(int(unit, 16).to_bytes(2, "big") for unit in escapes.split("\\u")[1:])
    return units.decode("utf-16-be", "ignore")


def email_keys(text: str) -> frozenset[str]:
    """The e-mail addresses in the text, each without its tag: jane+homes@ is jane@.

    Case, invisible characters and the form of an internationalised domain make no difference; at Gmail nor do dots and
    the older domain.
    """
    seen = plain(text)
    if "@" not in seen:
        return frozenset()
    words = (word for word in _BESIDE_ADDRESS.split(seen) if "@" in word)
    return frozenset(key for word in words if (key := _email_key(word)))


def _email_key(address: str) -> str | None:
    local, _, domain = address.rpartition("@")
    local = plain(local.casefold()).strip(".")
    local = local.partition("+")[0] or local
    domain = _domain(domain.strip(".-_!*#'"))
    if domain in _GMAIL:
        local, domain = local.replace(".", "") or local, "gmail.com"
    return f"{local}@{domain}" if local and "." in domain else None


@lru_cache(maxsize=4096)
def _domain(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except UnicodeError:  # no domain of the Internet's, and still one and the same
        return plain(text.casefold())


def mailbox_of(email_key: str) -> str:
    """The address without its tag: most providers deliver jane+homes@ to jane@, and nobody can know that all do."""
    local, _, domain = email_key.partition("@")
    return f"{local.partition('+')[0] or local}@{domain}"


def phone_keys(text: str) -> frozenset[str]:
    """The telephone numbers in a field, each as E.164 has it, without its extension.

    07700 900123, +44 (0)7700 900123 and 0044 7700 900123 are one. A row of one digit alone is no number.
    """
    if british := _BRITISH.fullmatch(text):
        national = british[1].replace(" ", "")
        return frozenset({f"+44{national}"}) if len(set(national)) > 1 else frozenset()
    if text.isascii() and len(_ASCII_DIGIT.findall(text)) < _DIGITS_MIN:
        return frozenset()  # most texts of a lead, of which an erasure reads each
    return _parsed_phone_keys(text)


def _parsed_phone_keys(text: str) -> frozenset[str]:
    # Imported here: only whoever looks for a number pays for it.
    import phonenumbers

    keys = set()
    for part in _BETWEEN_NUMBERS.split(plain(text).casefold()):
        if sum(character.isdigit() for character in part) < _DIGITS_MIN:
            continue
        try:
            number = phonenumbers.parse(part, _REGION)
        except phonenumbers.NumberParseException:
            continue
        key: str = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
        if _DIGITS_MIN <= len(key) - 1 <= _DIGITS_MAX and len(set(national_digits(key))) > 1:
            keys.add(key)
    return frozenset(keys)


def national_digits(phone_key: str) -> str:
    """The digits that stand in every spelling of the number, with or without the country's."""
    import phonenumbers  # as above

    number: str = phonenumbers.national_significant_number(phonenumbers.parse(phone_key))
    return number


def name_key(*parts: str) -> str | None:
    """The name's words, in whatever order, case and accents they were typed."""
    words = re.findall(r"[^\W\d_]+", without_accents(plain(" ".join(parts))))
    return " ".join(sorted(words)) or None


def without_accents(seen: str) -> str:
    """The text in small letters, without what stands above or below them."""
    letters = unicodedata.normalize("NFKD", seen.casefold())
    return "".join(one for one in letters if not unicodedata.combining(one))


def postcode_key(text: str) -> str | None:
    """A British postcode without its space."""
    code = re.sub(r"[^0-9A-Z]", "", plain(text).upper())
    return code if _POSTCODE.fullmatch(code) else None
