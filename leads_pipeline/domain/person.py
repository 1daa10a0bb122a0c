"""Keys of a person: when two spellings of an address, a number, a name or a postcode mean the same person.

Formatting never changes a key, and different digits never share one. A text that is no address or number has no key.
Also: the keys in the texts of one lead (`Shown`), and the person who is sought (`Person`).
"""

import html
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote

import idna
import phonenumbers
from phonenumbers import Leniency, PhoneNumberFormat, PhoneNumberMatcher

from leads_pipeline.errors import QuestionError

# The country of a number that is written without one.
_REGION: Final = "GB"

# Shorter numbers are extensions or house numbers. E.164 ends at 15 digits.
_DIGITS_MIN, _DIGITS_MAX = 7, 15

# Most fields hold one British number and nothing else. For those no library is needed.
_BRITISH: Final = re.compile(r"(?:\+44|0) ?([1-9](?: ?[0-9]){9})")
_MAY_HOLD_NUMBER: Final = re.compile(rf"(?:\d\D*){{{_DIGITS_MIN}}}")
_DIGIT_RUN: Final = re.compile(r"\d{10,15}")

_GMAIL: Final = frozenset({"gmail.com", "googlemail.com"})
_MAY_HOLD_ADDRESS: Final = re.compile(r"[@%&]|[^\x00-\x7f]")
_BESIDE_ADDRESS: Final = re.compile(r"""[\s<>()\[\],;:"'`|\\/?&=]+""")
_ONE_ADDRESS: Final = re.compile(r"""[^\s<>()\[\],;:"\\@]+@[^\s<>()\[\],;:"\\@]+""")
_POSTCODE: Final = re.compile(r"[A-Z]{1,2}[0-9][A-Z0-9]?[0-9][A-Z]{2}")
_WORDS: Final = re.compile(r"[^\W\d_]+")

# Forms that hide a key from a plain search: characters beyond ASCII and escapes in JSON, HTML and URLs.
_DISGUISE: Final = re.compile(r"[^\x00-\x7f]|\\u|&#|&\w+;|%[0-9a-fA-F]{2}")


# --- keys -----------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """The text as a reader sees it: compatible forms are one (NFKC), and characters that can't be seen are gone."""
    if text.isascii() and text.isprintable():
        return text
    # Normalized twice: an invisible character may stand between a letter and its accent.
    return unicodedata.normalize("NFKC", "".join(filter(_is_seen, unicodedata.normalize("NFKC", text))))


def _is_seen(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs") or character.isspace()


def email_keys(text: str) -> frozenset[str]:
    """The e-mail addresses in a text: lower case, IDNA, without tags; without dots at Gmail. googlemail is gmail."""
    if not _MAY_HOLD_ADDRESS.search(text):
        return frozenset()
    seen = plain(text)
    texts = {seen, plain(unquote(html.unescape(seen)))} if "%" in seen or "&" in seen else {seen}
    return frozenset(
        key
        for one in texts
        if "@" in one
        for word in _BESIDE_ADDRESS.split(one.replace('"@', "@"))
        if "@" in word and (key := _email_key(word))
    )


def is_email(text: str) -> bool:
    """Whether the text is one e-mail address, without a name or anything else beside it."""
    return bool(text.isprintable() and _ONE_ADDRESS.fullmatch(text) and email_keys(text))


def _without_addresses(text: str) -> str:
    # A pattern would take minutes for a megabyte without blanks.
    return " ".join(word for word in text.split() if "@" not in word[1:-1])


def _email_key(address: str) -> str | None:
    local, _, domain = address.rpartition("@")
    local = plain(local.casefold()).strip(".")
    local = local.partition("+")[0] or local
    domain = _domain(domain.strip(".-_!*#'"))
    if domain in _GMAIL:
        local, domain = local.replace(".", ""), "gmail.com"
    return f"{local}@{domain}" if local and "." in domain else None


@lru_cache(maxsize=4096)
def _domain(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except UnicodeError:  # not a valid domain, but always the same text
        return plain(text.casefold())


def phone_keys(text: str) -> frozenset[str]:
    """Each telephone number in a text, in E.164 without extension, whatever words stand around it."""
    if british := _BRITISH.fullmatch(text):
        return _usable([f"+44{british[1].replace(' ', '')}"])
    if not _MAY_HOLD_NUMBER.search(text):
        return frozenset()
    seen = " ".join(plain(text).replace("_", " ").split())
    found = PhoneNumberMatcher(seen, _REGION, leniency=Leniency.POSSIBLE, max_tries=65_535)
    keys = _usable(phonenumbers.format_number(match.number, PhoneNumberFormat.E164) for match in found)
    # Two numbers with a mere dash between them are none to the library.
    return keys or _usable(_parsed(run) for run in _DIGIT_RUN.findall(seen))


def _parsed(digits: str) -> str:
    try:
        return str(phonenumbers.format_number(phonenumbers.parse(digits, _REGION), PhoneNumberFormat.E164))
    except phonenumbers.NumberParseException:
        return ""


def _usable(keys: Iterable[str]) -> frozenset[str]:
    """Those long enough to be one person's. A row of one digit is a placeholder."""
    return frozenset(
        key for key in keys if len(key) - 3 >= _DIGITS_MIN and len(key) - 1 <= _DIGITS_MAX and len(set(key[3:])) > 1
    )


def name_key(*parts: str) -> str | None:
    """The words of a name, in whatever order, case and accents they were typed."""
    return " ".join(sorted(_WORDS.findall(_without_accents(" ".join(parts))))) or None


def _without_accents(text: str) -> str:
    letters = unicodedata.normalize("NFKD", plain(text).casefold())
    return "".join(one for one in letters if not unicodedata.combining(one))


def postcode_key(text: str) -> str | None:
    """A British postcode without its space."""
    code = re.sub(r"[^0-9A-Z]", "", plain(text).upper())
    return code if _POSTCODE.fullmatch(code) else None


# --- what a lead shows ----------------------------------------------------------------------------------------------

# Fields of the portal are in camel case, columns in snake case. A recipient is the agency, not the person.
_RECIPIENT: Final = re.compile(r"(?i)recipient")
_CONTACT: Final = re.compile(r"(?i)(?:^|\.)contact|(?:e-?mail|phone|mobile|tel)[^.]*$")
_FIRST_NAME: Final = re.compile(r"(?i)(?:first|fore|given)_?name$")
_NAME: Final = re.compile(r"(?i)(?:(?:first|fore|given|last|sur|family)_?name|(?:^|contact[._])name)$")
_OWN_POSTCODE: Final = re.compile(r"(?i)consumer_?postcode$|property_?details.*postcode$")

# An object becomes a tuple of its members, because a dict would hide all but the last of a repeated name. It isn't
# strict, as the reader isn't: what is published must be found.
_DECODER: Final = json.JSONDecoder(strict=False, object_pairs_hook=tuple, parse_int=str, parse_float=str)


@dataclass(frozen=True, slots=True)
class Shown:
    """The person's keys in one version of a lead. `others` are its remaining texts, as received."""

    emails: frozenset[str] = frozenset()
    phones: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    postcodes: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()


class LeadRow(NamedTuple):
    """A version of a lead, as far as it matters whose it is. `day` is the day of its window."""

    kind: str
    lead_id: str
    day: date
    payload: str

    @property
    def created_at(self) -> datetime:
        """When it was created, UTC. If the portal doesn't say so, at the end of its day."""
        for path, text in texts_of(self.payload):
            if path in ("createdAt", "created_at"):
                with suppress(ValueError, OverflowError):
                    created = datetime.fromisoformat(text)
                    if created.tzinfo is not None and created.year > 1:
                        return created.astimezone(UTC)
        return datetime.combine(self.day + timedelta(days=1), time(), UTC)


def shown_by(payload: str) -> Shown:
    """Return the person's keys in a lead's exact JSON text. If it is no JSON, all of it counts as a text of others."""
    emails, phones, postcodes = set[str](), set[str](), set[str]()
    firsts, lasts, others = list[str](), list[str](), list[str]()
    for path, text in texts_of(payload):
        match role_of(path):
            case "recipient":
                continue
            case "first name":
                firsts.append(text)
            case "last name":
                lasts.append(text)
            case "contact":
                emails |= email_keys(text)
                phones |= phone_keys(text)
            case "postcode":
                postcodes |= {postcode_key(text) or ""} - {""}
            case _:
                others.append(text)
    names = {name_key(first, last) for first in firsts or [""] for last in lasts or [""]} - {None}
    return Shown(
        frozenset(emails),
        frozenset(phones),
        frozenset(filter(None, names)),
        frozenset(postcodes),
        tuple(others),
    )


def texts_of(payload: str, truths: Mapping[bool, str] | None = None) -> list[tuple[str, str]]:
    """Every text, number and name of a field in a JSON text, in order, each with the names that lead to it.

    The names are joined by dots. The path of a field's own name ends with a dot. `truths` are words for true and false.
    Without them, both are left out.
    """
    try:
        value = _DECODER.decode(payload)
    except (ValueError, RecursionError):
        return [("", payload)]
    left: list[tuple[str, Any]] = [("", value)]
    texts: list[tuple[str, str]] = []
    while left:
        path, value = left.pop()
        if isinstance(value, str):
            texts.append((path, value))
        elif isinstance(value, tuple):
            texts += [(f"{path}.", name) for name, _ in value]
            left += [(f"{path}.{name}" if path else name, one) for name, one in reversed(value)]
        elif isinstance(value, list):
            left += [(path, one) for one in reversed(value)]
        elif truths and isinstance(value, bool):
            texts.append((path, truths[value]))
    return texts


@lru_cache(maxsize=4096)
def role_of(path: str) -> str:
    """Return what a field holds: recipient, first name, last name, contact, postcode, or nothing."""
    if _RECIPIENT.search(path):
        return "recipient"
    if _NAME.search(path):
        return "first name" if _FIRST_NAME.search(path) else "last name"
    if _CONTACT.search(path):
        return "contact"
    return "postcode" if _OWN_POSTCODE.search(path) else ""


# --- who is sought --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Person:
    """The person who is sought, as keys. `spoken` are the names as they were given, to find them in messages."""

    emails: frozenset[str] = frozenset()
    phones: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    postcodes: frozenset[str] = frozenset()
    lead_ids: frozenset[str] = frozenset()
    spoken: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        emails: Sequence[str] = (),
        phones: Sequence[str] = (),
        lead_ids: Sequence[str] = (),
        names: Sequence[str] = (),
        postcodes: Sequence[str] = (),
    ) -> Self:
        """Read what a person typed. Raises QuestionError, which never repeats it."""
        person = cls(
            _given("E-mail address", emails, email_keys),
            _given("Telephone number", phones, phone_keys),
            _given("Name", names, lambda text: {name_key(text)}),
            _given("Postcode", postcodes, lambda text: {postcode_key(text)}),
            frozenset(lead_ids) - {""},  # as received: two ids can differ in a blank
            tuple(_without_accents(name) for name in names),
        )
        if person == cls():
            raise QuestionError("Name a person: --email, --phone, --lead, --name, --postcode or --from.")
        return person

    def may_be_in(self, payload: str) -> bool:
        """False if the text can't show the person. True means: decode it and compare keys."""
        return bool(_DISGUISE.search(payload) or self._pattern.search(payload))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        keys = [key.partition("@")[0] for key in self.emails]
        keys += [_national_digits(key) for key in self.phones]
        keys += [max(key.split(), key=len) for key in self.names]
        keys += self.postcodes
        return re.compile("|".join(filter(None, map(_loosely, keys))) or "(?!)", re.IGNORECASE)

    def is_mentioned_in(self, texts: Iterable[str]) -> bool:
        """Whether any of the texts has the address, the number or the whole name."""
        # Without the plain search first, each moment and id of a lead is searched for numbers: ten times as long.
        return any(
            (self.emails and not self.emails.isdisjoint(email_keys(text)))
            or (self.phones and not self.phones.isdisjoint(phone_keys(text)))
            # An address that wasn't given may have a name's letters by chance.
            or (self._spoken and self._spoken.search(_without_addresses(_without_accents(text))))
            for text in texts
            if self.may_be_in(text)
        )

    @cached_property
    def _spoken(self) -> re.Pattern[str] | None:
        # A first name alone is anybody's.
        names = [words for name in self.spoken if len(words := _WORDS.findall(name)) > 1]
        between = r"\W{1,3}"
        return re.compile("|".join(rf"\b{between.join(words)}\b" for words in names)) if names else None

    def sees(self, shown: Shown) -> bool:
        """Whether this version of a lead is a reason to show the lead."""
        return any(_reasons(self, frozenset(), shown, [shown], has_others=False))


# A kind's name and a lead's id.
LeadKey = tuple[str, str]


class Reason(StrEnum):
    """Why a lead is shown. Those of `THEIRS` make it theirs."""

    ID = "the given lead id"
    ADDRESS = "the given e-mail address"
    ADDRESS_AND_OTHER_NAME = "the given e-mail address, under another name than the given one"
    NUMBER = "the given telephone number, without a name or another e-mail address, and nobody else has the number"
    NUMBER_AND_NAME = "the given telephone number, under the given name"
    NUMBER_AND_NAME_OF_ADDRESS = (
        "the given telephone number, under a name that other leads have with the given e-mail address"
    )
    OTHER_NAME = "the given telephone number, under another name"
    OTHER_ADDRESS = "the given telephone number, under no name and with another e-mail address"
    NO_NAME = "the given telephone number, under no name, and others have the number too"
    MENTION = "mentioned in what somebody wrote"
    NAME = "the given name"
    POSTCODE = "the given postcode"
    NAME_AND_POSTCODE = "the given name and postcode"


THEIRS: Final = frozenset(
    {
        Reason.ID,
        Reason.ADDRESS,
        Reason.ADDRESS_AND_OTHER_NAME,
        Reason.NUMBER,
        Reason.NUMBER_AND_NAME,
        Reason.NUMBER_AND_NAME_OF_ADDRESS,
    }
)

# A household has two or three names on one number. More are an office or a placeholder.
NAMES_MAX: Final = 3


def reasons(
    person: Person, leads: Mapping[LeadKey, Sequence[Shown]], *, is_shared: bool = False
) -> dict[LeadKey, frozenset[Reason]]:
    """All reasons for each lead, from all of its versions. A lead without a reason is left out.

    Raises QuestionError if a given address or number has more than `NAMES_MAX` names, unless it may be shared.
    """
    versions = [shown for rows in leads.values() for shown in rows]
    if not is_shared:
        _refuse_shared(person, versions)
    names = own_names(person, versions)
    has_others = others_have_the_number(person, leads.values())
    found = {
        key: frozenset(
            reason for shown in rows for reason in _reasons(person, names, shown, rows, has_others=has_others)
        )
        | ({Reason.ID} if key[1] in person.lead_ids else set())
        for key, rows in leads.items()
    }
    return {key: why for key, why in found.items() if why}


def own_names(person: Person, versions: Iterable[Shown]) -> frozenset[str]:
    """The given names. If there are none, the names of leads with the given address.

    If names are given, no others count: a spouse may once have written with the person's address.
    """
    return person.names or frozenset().union(*(shown.names for shown in versions if person.emails & shown.emails))


def others_have_the_number(person: Person, leads: Collection[Sequence[Shown]]) -> bool:
    """Whether a lead has the given number under another name. Then a lead without a name may be anybody's.

    Each lead has all its versions.
    """
    names = own_names(person, chain.from_iterable(leads))
    return any(person.phones & shown.phones and not _names(shown, lead) <= names for lead in leads for shown in lead)


def _names(shown: Shown, lead: Sequence[Shown]) -> frozenset[str]:
    """The names of a version. The portal can empty them: those of the other versions still say whose number it is."""
    return shown.names or frozenset().union(*(one.names for one in lead))


def _reasons(
    person: Person, names: frozenset[str], shown: Shown, lead: Sequence[Shown], *, has_others: bool
) -> Iterator[Reason]:
    """Return the reasons of one version. `lead` are all versions of its lead."""
    if person.emails & shown.emails:
        is_other_name = bool(person.names) and not shown.names <= person.names
        yield Reason.ADDRESS_AND_OTHER_NAME if is_other_name else Reason.ADDRESS
    if person.phones & shown.phones:
        shown_names = _names(shown, lead)
        shown_emails = shown.emails or frozenset().union(*(one.emails for one in lead))
        if not shown_names <= names:
            yield Reason.OTHER_NAME
        elif shown_names:
            yield Reason.NUMBER_AND_NAME if person.names else Reason.NUMBER_AND_NAME_OF_ADDRESS
        elif has_others:
            yield Reason.NO_NAME
        else:
            has_other_address = bool(person.emails) and not shown_emails <= person.emails
            yield Reason.OTHER_ADDRESS if has_other_address else Reason.NUMBER
    if person.is_mentioned_in(shown.others):
        yield Reason.MENTION
    has_name, has_postcode = bool(person.names & shown.names), bool(person.postcodes & shown.postcodes)
    if has_name and has_postcode:
        yield Reason.NAME_AND_POSTCODE
    elif has_name and not person.postcodes:
        yield Reason.NAME
    elif has_postcode and not person.names:
        yield Reason.POSTCODE


def _refuse_shared(person: Person, versions: Sequence[Shown]) -> None:
    for what, given in (("address", person.emails), ("number", person.phones)):
        for key in given:
            names = frozenset[str]().union(*(one.names for one in versions if key in one.emails | one.phones))
            if len(names) > NAMES_MAX:
                raise QuestionError(
                    f"The {what} appears under {len(names)} names. It may be an office or a placeholder. Give an "
                    "identifier that only this person has, or add --shared and check each lead."
                )


def _given(what: str, texts: Sequence[str], read: Callable[[str], Iterable[str | None]]) -> frozenset[str]:
    keys: set[str] = set()
    for number, text in enumerate(texts, 1):
        found = {key for key in read(text) if key}
        if not found:
            raise QuestionError(f"{what} {number} isn't valid. Check its spelling.")
        keys |= found
    return frozenset(keys)


def _national_digits(phone_key: str) -> str:
    return str(phonenumbers.national_significant_number(phonenumbers.parse(phone_key)))


def _loosely(key: str) -> str:
    """The letters and digits of the key, with any other characters between. Only ASCII: see `_DISGUISE`."""
    # A line may end inside a number, in JSON by a letter. The library of numbers passes over an x between digits.
    between = r"(?:[^0-9A-Za-z]|\\[bfnrt]|x)*" if key.isdigit() else r"(?:[^0-9A-Za-z]|\\[bfnrt])*"
    return between.join(re.findall("[0-9A-Za-z]", key)) if key.isascii() else ""
