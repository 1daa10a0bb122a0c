"""The keys that a text holds.

A key stands for all spellings of one e-mail address, telephone number or name. Formatting never
changes a key, and different digits never share one.

Belongs here: spelling, for Unicode, HTML and JSON. Doesn't: whose a lead is (identity.py).
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

import idna
import phonenumbers

# Nobody types a longer contact. The keys of a megabyte would take minutes.
CONTACT_MAX: Final = 1_000


class Keys(NamedTuple):
    """The addresses and numbers in a text: `jane@people.example`, `+447700900123`."""

    emails: frozenset[str]
    phones: frozenset[str]


def keys_in(text: str) -> Keys:
    """Return the keys of all addresses and numbers in a contact field, whatever is around them."""
    if text.isalpha():
        return Keys(frozenset(), frozenset())
    text = plain(text[:CONTACT_MAX])
    return Keys(frozenset(_emails_in(text)), frozenset(_phones_in(text)))


# Controls, and what Unicode calls ignorable: joiners, directions, variation selectors. Also two
# Arabic phrases that are one character each, and become 18.
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufdfa\ufdfb\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_RUN_OF_MARKS: Final = re.compile(r"([^\w\s\x00-\x7f]{32})[^\w\s\x00-\x7f]+")
_FOREIGN_DIGIT: Final = re.compile(r"[^\D0-9]")
_HTML_ENTITY: Final = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});?")
_PERCENT_CODE: Final = re.compile(r"(?:%[0-9a-fA-F]{2}){1,16}")
# Each costs a call, and a megabyte may consist of them.
_CODES_MAX: Final = 2_000


def plain(text: str) -> str:
    """Return a text as a reader sees it: decoded, in NFKC, without invisible characters."""
    if "&" in text:
        text = _HTML_ENTITY.sub(lambda code: html.unescape(code[0]), text, count=_CODES_MAX)
    if "%" in text:
        text = _PERCENT_CODE.sub(lambda code: unquote(code[0]), text, count=_CODES_MAX)

    text = _INVISIBLE.sub("", text)
    if text.isascii():
        return text

    # NFKC makes a space and an accent of it.
    text = text.replace("\u00b4", "'")
    # The narrow voicing marks of Japanese are letters that NFKC makes combining marks.
    text = text.replace("\uff9e", "\u3099").replace("\uff9f", "\u309a")
    # A run of combining marks takes quadratic time to normalise.
    text = unicodedata.normalize("NFKC", _RUN_OF_MARKS.sub(r"\1", text))
    # In lower case, a capital I with a dot is two characters.
    text = text.replace("\u2010", "-").replace("\u0130", "I")

    if _FOREIGN_DIGIT.search(text):
        text = _FOREIGN_DIGIT.sub(
            lambda digit: str(unicodedata.decimal(digit[0])), text, count=_CODES_MAX
        )

    return text


# --- addresses. They end at every quote, dash but the hyphen, bracket and closing mark of Unicode.

# Signs that write vowels and accents: no letters to Python.
_SIGN: Final = (
    "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0971-\u0df3\u0e31-\u0e3a\u0e47-\u0e4e"
    "\u0eb1-\u0ebc\u0f71-\u0f84\u102b-\u103e\u17b6-\u17d3\u3099\u309a"
)
# Latin letters and those of other scripts don't mix: an address ends where Japanese text goes on
# without a space.
_LATIN_LETTERS: Final = "a-z\u00df-\u00f6\u00f8-\u02af\u1e00-\u1eff"
_LATIN: Final = f"[{_LATIN_LETTERS}0-9_]"
_ACCENTS: Final = "\u0300-\u036f"
_OTHER: Final = rf"(?![{_LATIN_LETTERS}_])(?:\w|[{_SIGN}])"
# Marks inside of an address, between letters. The apostrophe is that of o'brien@people.example.
_WITHIN: Final = "[.+%&'-]"
# An address doesn't begin within a word, also of Greek, Cyrillic or Armenian, nor behind a mark
# that is no separator: the end of jane#home@people.example is somebody else's.
_INSIDE: Final = f"[{_LATIN_LETTERS}0-9_{_ACCENTS}\u0370-\u058f]"
_ADDRESS: Final = re.compile(
    rf"(?<!{_INSIDE})(?<!{_INSIDE}[!#$^*~])"
    rf"(?P<local>{_LATIN}(?:{_LATIN}|[{_ACCENTS}]|{_WITHIN}){{0,63}}"
    rf"|(?<!\w)(?<![{_SIGN}]){_OTHER}(?:{_OTHER}|{_WITHIN}){{0,63}})"
    rf"@(?P<domain>(?:(?:[^\W_]|[{_SIGN}-]){{1,63}}\.){{1,8}}"
    rf"(?:xn--[a-z0-9-]{{1,59}}|[{_LATIN_LETTERS}]{{2,63}}|(?:(?![0-9]){_OTHER}){{2,63}}))"
)
_QUOTED_LOCAL: Final = re.compile(r"""(?<![\w.+%&'-])"([^"@\s]{1,64})"@""")
# _mary@people.example_ is in italics. An address may begin with an underscore, but can't end with
# one.
_ITALIC: Final = re.compile(r"(?<![\w.+%&'-])_+(?=[^\s@]{1,64}@[^\s@_]{1,253}_)")
# The full stop of Japanese and Chinese is a dot of a domain, between two letters.
_IDEOGRAPHIC_DOT: Final = re.compile("(?<=[a-z0-9])\u3002(?=[a-z0-9])")
_APOSTROPHE: Final = "['\u2018\u2019\u201b\u02bb\u02bc\u2032\u00b4`]"
_APOSTROPHES: Final = re.compile(_APOSTROPHE)
_GMAIL: Final = frozenset({"gmail.com", "googlemail.com"})


def is_address(text: str) -> bool:
    """Whether a text is one address, with nothing else beside it."""
    return (
        text.isprintable() and _ADDRESS.fullmatch(_APOSTROPHES.sub("'", text.lower())) is not None
    )


def _emails_in(text: str) -> Iterator[str]:
    if "@" not in text:
        return

    text = _IDEOGRAPHIC_DOT.sub(".", text.lower())
    text = _ITALIC.sub("", _QUOTED_LOCAL.sub(r"\1@", text))

    for address in _ADDRESS.finditer(_APOSTROPHES.sub("'", text)):
        domain = _domain(address["domain"])
        local = address["local"].partition("+")[0].rstrip(".'-")
        if domain in _GMAIL:
            local = local.replace(".", "")
            domain = "gmail.com"
        if local and domain:
            yield f"{local}@{domain}"


def _domain(text: str) -> str:
    """Return a domain as the internet knows it (IDNA); nothing if it can be none."""
    if text.isascii() and "xn--" not in text:
        is_valid = not any(
            label.startswith("-") or label.endswith("-") for label in text.split(".")
        )
        return text if is_valid else ""
    with suppress(UnicodeError):
        return idna.encode(text, uts46=True).decode()
    return ""


# --- numbers --------------------------------------------------------------------------------------

_GROUP: Final = re.compile(r"(?P<plus>\+ ?\(?)?(?P<digits>[0-9]+)")
# Between the groups of one number. `9am`, `2bed` and `SW1` belong to none.
_BETWEEN: Final = "[\\s().\\-/_\u00b7\u2010-\u2015\u2022\u2212~]{1,4}"
_JOINED: Final = re.compile(_BETWEEN)
_GROUPS_MAX: Final = 14
_SHORTEST: Final = 8
_LONGEST: Final = 19  # 00, a code, (0), and 15 digits

# Dates and times are no part of a number: 01/02/25, 2025-02-01, 18:30, 8.00-20.30.
_DATE: Final = "(?:[0-3]?[0-9][./-][0-3]?[0-9][./-](?:20)?[0-9]{2}|20[0-9]{2}-[01][0-9]-[0-3][0-9])"
_TIME: Final = "[0-2]?[0-9][.:][0-5][0-9]"
_TO: Final = " ?[\u2010-\u2015-] ?"
_MOMENT: Final = re.compile(
    rf"(?<![0-9+])(?<![0-9][./-])(?:{_DATE}(?:{_TO}{_DATE})?|{_TIME}{_TO}{_TIME}|[0-2]?[0-9]:[0-5][0-9])"
    r"(?![./-]?[0-9])"
)

# Without 0 or +44: ten digits, or nine in the oldest numbers.
# https://www.ofcom.org.uk/phones-and-broadband
_BRITISH: Final = re.compile(r"[1-35789][0-9]{9}|1[0-9]{8}|800[0-9]{6}")
_USUAL: Final = re.compile(r"(?:\+44|0)([1-35789][0-9]{9})")


class _Group(NamedTuple):
    """Digits without a gap. `is_international`: a + is before them."""

    digits: str
    is_international: bool


def _phones_in(text: str) -> Iterator[str]:
    if usual := _USUAL.fullmatch(text):
        yield f"+44{usual[1]}"
        return
    for groups in _rows_of_groups(_MOMENT.sub(";", text)):
        # A run that is a whole number by itself counts before others are joined.
        rest: list[_Group] = []
        for group in groups:
            if number := _number([group], is_alone=True):
                yield from _joined_numbers(rest)
                rest = []
                yield number
            else:
                rest.append(group)
        yield from _joined_numbers(rest)


def _rows_of_groups(text: str) -> Iterator[list[_Group]]:
    """Yield groups of digits that may be parts of one number.

    Only spaces, brackets or dashes are between them.
    """
    row: list[_Group] = []
    end = 0

    for found in _GROUP.finditer(text):
        group = _Group(
            found["digits"], found["plus"] is not None and not found["digits"].startswith("0")
        )
        before = text[found.start() - 1 : found.start()]
        after = text[found.end() : found.end() + 1]
        is_in_word = len(group.digits) <= 2 and (before.isalpha() or after.isalpha())
        if is_in_word or group.is_international or not _JOINED.fullmatch(text, end, found.start()):
            yield row
            row = []
        if not is_in_word:
            row.append(group)
        end = found.end()

    yield row


def _joined_numbers(groups: Sequence[_Group]) -> Iterator[str]:
    start = 0
    while start < len(groups):
        ends = range(min(len(groups), start + _GROUPS_MAX), start, -1)
        numbers = (
            (end, _number(groups[start:end], is_alone=end - start == len(groups))) for end in ends
        )
        end, number = next(((end, number) for end, number in numbers if number), (start + 1, None))
        if number:
            yield number
        start = end


def _number(groups: Sequence[_Group], *, is_alone: bool) -> str | None:
    """Return the number that these groups are together.

    Without 0 or + in front, nothing else may stand beside them.
    """
    digits = "".join(group.digits for group in groups)
    # 00430000 is the end of +44 71 00430000, and no foreign number.
    if len(digits.removeprefix("00")) < _SHORTEST or len(digits) > _LONGEST:
        return None
    return _read(digits, is_international=groups[0].is_international, is_alone=is_alone)


@lru_cache(maxsize=4_096)
def _read(digits: str, *, is_international: bool, is_alone: bool) -> str | None:
    if digits.startswith("00") and not is_international:
        digits = digits[2:]
        is_international = True

    if is_international:
        return (
            _british_number(digits[2:].removeprefix("0"))
            if digits.startswith("44")
            else _foreign_number(digits)
        )
    if digits.startswith("0"):
        return _british_number(digits[1:])
    if is_alone and len(digits) in (10, 12, 13):
        return _british_number(
            digits.removeprefix("44").removeprefix("0") if len(digits) > 10 else digits
        )

    return None


def _british_number(national: str) -> str | None:
    return f"+44{national}" if _BRITISH.fullmatch(national) else None


def _foreign_number(digits: str) -> str | None:
    with suppress(phonenumbers.NumberParseException):
        number = phonenumbers.parse(f"+{digits}")
        # A number that is possible within its town alone is the beginning of a longer one.
        if (
            phonenumbers.is_possible_number_with_reason(number)
            == phonenumbers.ValidationResult.IS_POSSIBLE
        ):
            return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    return None


# --- names and postcodes --------------------------------------------------------------------------

# Letters that Unicode doesn't take apart into a letter and an accent.
_FOLDED: Final = str.maketrans(
    {
        "ł": "l",
        "ø": "o",
        "đ": "d",
        "ð": "d",
        "\N{LATIN SMALL LETTER DOTLESS I}": "i",
        "æ": "ae",
        "œ": "oe",
        "þ": "th",
        "ß": "ss",
        "ŀ": "l",
        "ħ": "h",
    }
)
# Accents of letters. Signs that write vowels stay: सीमा isn't सोमा.
_ACCENT: Final = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff]"
)
_WORD: Final = re.compile(rf"(?:[^\W\d_]|[{_SIGN}])+")
_POSTCODE: Final = re.compile(r"[A-Z]{1,2}[0-9][A-Z0-9]?[0-9][A-Z]{2}")


def name_key(*parts: str) -> str | None:
    """Return a name's words in alphabetical order, without accents and apostrophes.

    None without a letter. Addresses and digits in a name field are no part of the name.
    """
    text = plain(" ".join(part[:CONTACT_MAX] for part in parts))
    return " ".join(sorted({*words_of(text)})) or None


def words_of(text: str) -> list[str]:
    """Return a plain text's words, folded. Addresses and digits are none."""
    text = text.lower()
    if "@" in text:
        text = _ADDRESS.sub(" ", text)
    return _WORD.findall(folded(text))


def folded(text: str) -> str:
    """Return a plain text in lower case, without accents and apostrophes."""
    text = _APOSTROPHES.sub("", text.lower())
    if text.isascii():
        return text
    return _ACCENT.sub("", unicodedata.normalize("NFKD", text.translate(_FOLDED)))


def postcode_key(text: str) -> str | None:
    """Return a British postcode in capitals, without spaces and marks. None if it is none."""
    key = re.sub(r"[\W_]", "", plain(text[:CONTACT_MAX])).upper()
    return key if _POSTCODE.fullmatch(key) else None


# --- keys of entries of the list before `Entry.identity` 2. They stay as they were. ---------------

_FORMER_BESIDE_ADDRESS: Final = re.compile(r"""[\s<>()\[\],;:"'`|\\/?&=]+""")
_FORMER_BRITISH: Final = re.compile(r"(?:\+44|0) ?([1-9](?: ?[0-9]){9})")
_FORMER_RUN: Final = re.compile(r"\d{10,15}")
_SEVEN_DIGITS: Final = re.compile(r"(?:\d\D*){7}")


@lru_cache(maxsize=4_096)
def former_keys(text: str) -> Keys:
    """Return the keys that the addresses and numbers in a contact field had."""
    text = _former_plain(text[:CONTACT_MAX])
    return Keys(
        frozenset(_former_emails(text)), frozenset(filter(_was_number, _former_phones(text)))
    )


def former_name_key(text: str) -> str | None:
    """Return the key that a name had."""
    letters = unicodedata.normalize("NFKD", plain(text).casefold())
    folded_letters = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return " ".join(sorted(re.findall(r"[^\W\d_]+", folded_letters))) or None


def _former_plain(text: str) -> str:
    # An invisible character may stand between a letter and its accent.
    letters = unicodedata.normalize("NFKC", text)
    visible = (
        letter
        for letter in letters
        if letter.isspace() or unicodedata.category(letter) not in ("Cc", "Cf", "Cs")
    )
    return unicodedata.normalize("NFKC", "".join(visible))


def _former_emails(text: str) -> Iterator[str]:
    for spelling in {text, _former_plain(unquote(html.unescape(text)))}:
        for word in _FORMER_BESIDE_ADDRESS.split(spelling.replace('"@', "@")):
            local, _, domain = word.rpartition("@")
            local = _former_plain(local.casefold()).strip(".")
            local = local.partition("+")[0] or local
            domain = _former_domain(domain.strip(".-_!*#'"))
            if domain in _GMAIL:
                local = local.replace(".", "")
                domain = "gmail.com"
            if local and "." in domain:
                yield f"{local}@{domain}"


def _former_domain(text: str) -> str:
    with suppress(UnicodeError):
        return idna.encode(text, uts46=True).decode("ascii").lower()
    return _former_plain(text.casefold())


def _former_phones(text: str) -> list[str]:
    if british := _FORMER_BRITISH.fullmatch(text):
        return [f"+44{british[1].replace(' ', '')}"]
    if not _SEVEN_DIGITS.search(text):
        return []

    text = " ".join(text.replace("_", " ").split())
    leniency = phonenumbers.Leniency.POSSIBLE
    found = [
        match.number
        for match in phonenumbers.PhoneNumberMatcher(text, "GB", leniency, max_tries=65_535)
    ]
    if not any(_was_number(_e164(number)) for number in found):
        found = []
        for run in _FORMER_RUN.findall(text):
            with suppress(phonenumbers.NumberParseException):
                found.append(phonenumbers.parse(run, "GB"))
    return list(map(_e164, found))


def _e164(number: phonenumbers.PhoneNumber) -> str:
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)


def _was_number(key: str) -> bool:
    return 10 <= len(key) <= 16 and len(set(key[3:])) > 1


# --- spellings: where a text may hold a key -------------------------------------------------------


class Spelling(NamedTuple):
    """All spellings of an address, a number or a name in a text.

    `before` is what may stand in front of it. The pattern begins with a letter or digit, because
    such patterns are searched for ten times as fast.
    """

    pattern: re.Pattern[str]
    before: re.Pattern[str]

    def is_in(self, text: str) -> bool:
        """Whether a plain text has one of the spellings."""
        return any(
            self.before.search(text, max(0, found.start() - 24), found.start())
            for found in self.pattern.finditer(text)
        )


_NO_DOTS: Final = r"\.{0,64}"
# Marks that an address's key doesn't end with: jane.@people.example.
_LAST_MARKS: Final = rf"(?:\.|-|{_APOSTROPHE}){{0,64}}"
_GMAIL_PATTERN: Final = r"g(?:oogle)?mail\.com"
_TAG: Final = r"(?:\+[^\s@+]{0,64}){0,3}"
_NO_LOCAL_BEFORE: Final = re.compile(
    rf"(?<![{_LATIN_LETTERS}0-9])(?<![{_LATIN_LETTERS}0-9][._+%&'\u2019-])\Z"
)
_NO_LETTER_BEFORE: Final = re.compile(r"(?<!\w)\Z")


def spelled_email(key: str) -> Spelling:
    """An address in a plain text in lower case."""
    local, _, domain = key.rpartition("@")
    end = rf"(?![{_LATIN_LETTERS}0-9])" if domain.isascii() else r"(?!\w)"
    if domain == "gmail.com":
        local = _NO_DOTS.join(map(re.escape, local))
        domain = _GMAIL_PATTERN
    else:
        local = _APOSTROPHE.join(map(re.escape, local.split("'")))
        domain = rf"(?:{re.escape(domain)}|{re.escape(_readable(domain))})"
    return Spelling(re.compile(rf'{local}{_LAST_MARKS}{_TAG}"?@{domain}{end}'), _NO_LOCAL_BEFORE)


def _readable(domain: str) -> str:
    """Return a domain in its own script. One such as ab--cd.example has no other form."""
    with suppress(UnicodeError):
        return idna.decode(domain)
    return domain


def spelled_phone(key: str) -> Spelling:
    """A number in a plain text. No other digit touches it."""
    between = f"(?:{_BETWEEN})?"
    national = _national(key)
    code = key[1:].removesuffix(national)
    prefix = rf"(?:\+ ?\(?|00{between})?{code}{between}(?:0{between})?|0{between}"
    before = rf"(?<![0-9])(?:{prefix})\Z|(?<![0-9])(?<![0-9][ .-])\Z"
    return Spelling(re.compile(f"{between.join(national)}(?![0-9])"), re.compile(before))


def spelled_name(words: Sequence[str]) -> Spelling:
    """A name in a folded text, also with a genitive's s."""
    name = r"[\W_]{1,3}".join(map(re.escape, words))
    return Spelling(re.compile(rf"{name}s?(?![\w@])"), _NO_LETTER_BEFORE)


def _national(phone_key: str) -> str:
    """Return a number's digits without the code of its country."""
    return phonenumbers.national_significant_number(phonenumbers.parse(phone_key))


# What may be between two digits of one number in a JSON text.
_LOOSELY: Final = r"""(?:[^0-9"\\]|\\[bfnrt/"]){0,4}"""
_JSON_CODE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|b|\\)")


def plain_json(payload: str) -> str:
    """Return a JSON text as `plain` does, but for the escapes of JSON that are letters."""
    if "\\u" in payload or "\\b" in payload:
        payload = _JSON_CODE.sub(_decoded, payload)
        # Each half of a character beyond U+FFFF has a code.
        payload = payload.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return plain(payload).lower()


def _decoded(code: re.Match[str]) -> str:
    if code[0] == r"\\":
        return code[0]
    return chr(int(code[1] or "0", 16))


def loosely_spelled_phone(key: str) -> str:
    """Return a pattern that all spellings of a number have in a JSON text."""
    return _LOOSELY.join(_national(key))


def loosely_spelled_email(key: str) -> str:
    """Return a pattern that all spellings of an address have in a JSON text in lower case."""
    local, _, domain = key.rpartition("@")
    letters = _NO_DOTS.join(map(re.escape, local)) if domain == "gmail.com" else re.escape(local)
    return letters.replace("'", _APOSTROPHE) + _LAST_MARKS + r'(?:\+|\\?"?@)'
