"""Who counts as the person: is a lead theirs, to look at, or neither, with all reasons?

Belongs here: what a version of a lead says of people, the person who is sought, and the rule.
Doesn't: spelling of addresses, numbers and names (contact_keys.py), files, keyed hashes, the list.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final, NamedTuple, Self

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import QuestionError
from leads_pipeline.features.privacy.contact_keys import (
    CONTACT_MAX,
    Spelling,
    folded,
    keys_in,
    loosely_spelled_email,
    loosely_spelled_phone,
    name_key,
    plain,
    plain_json,
    postcode_key,
    spelled_email,
    spelled_name,
    spelled_phone,
    words_of,
)

# --- what a version of a lead says ----------------------------------------------------------------

# The kind and the id.
LeadKey = tuple[str, str]

# The contract's own contact, by its path in a lead or by its column in leads.duckdb. No other field
# decides whose a lead is: `negotiator.email` is somebody else's.
FIRST_NAME: Final = frozenset({"contact.firstName", "contact_first_name"})
LAST_NAME: Final = frozenset({"contact.lastName", "contact_last_name"})
CONTACT: Final = frozenset(
    {"contact.phoneNumber", "contact.email", "contact_phone_number", "contact_email"}
)
OWN_POSTCODE: Final = frozenset(
    {
        "consumerPostcode",
        "propertyDetails.address.postcode",
        "consumer_postcode",
        "property_details_address_postcode",
    }
)

_CONTACT_FIELDS: Final = FIRST_NAME | LAST_NAME | CONTACT
_CONTACT_MEMBERS: Final = frozenset(path.partition(".")[0] for path in _CONTACT_FIELDS)

_DECODER: Final = json.JSONDecoder(
    strict=False, object_pairs_hook=tuple, parse_int=str, parse_float=str
)


class Text(NamedTuple):
    """A text or number in a lead.

    `path` is its place, dotted. With `is_member_name` it is the name of a member there. Only a name
    that is no plain word counts: it may be an address.
    """

    path: str
    text: str
    is_member_name: bool = False


def texts_of(payload: str, truths: Mapping[bool, str] | None = None) -> list[Text]:
    """Return every text and number of a JSON text, in order. If it is no JSON, it is one text.

    `truths` are words for true and false. Without them, both are left out.
    """
    try:
        value = _DECODER.decode(payload)
    except (ValueError, RecursionError):
        return [Text("", payload)]
    return _texts_in(value, truths)


def _texts_in(value: Any, truths: Mapping[bool, str] | None = None) -> list[Text]:
    texts: list[Text] = []
    left: list[tuple[str, Any]] = [("", value)]

    while left:
        path, value = left.pop()
        if isinstance(value, str):
            texts.append(Text(path, value))
        elif isinstance(value, tuple):
            texts += [
                Text(path, name, is_member_name=True)
                for name, _ in value
                if not name.isidentifier()
            ]
            left += [(f"{path}.{name}" if path else name, inner) for name, inner in reversed(value)]
        elif isinstance(value, list):
            left += [(path, inner) for inner in reversed(value)]
        elif truths and isinstance(value, bool):
            texts.append(Text(path, truths[value]))

    return texts


class LeadRow(NamedTuple):
    """A version of a lead, as far as it matters whose it is. `day` is the day of its window."""

    kind: str
    lead_id: str
    day: date
    payload: str

    @property
    def created_at(self) -> datetime:
        """When it was created, UTC. If the portal doesn't say so, at the end of its day."""
        for path, text, is_member_name in texts_of(self.payload):
            if path not in ("createdAt", "created_at") or is_member_name:
                continue
            with suppress(ValueError, OverflowError):
                created = datetime.fromisoformat(text)
                if created.tzinfo is not None and created.year > 1:
                    return created.astimezone(UTC)
        return datetime.combine(self.day + timedelta(days=1), time(), UTC)


class Contact(NamedTuple):
    """A contact as keys, or as keyed hashes of them."""

    emails: frozenset[str] = frozenset()
    phones: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


NO_CONTACT: Final = Contact()


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a lead: its own contact as keys, its own postcodes, and its texts as received.

    `names` are the names of its contact, `contact_texts` the fields of its contact, `other_texts`
    everything else.
    """

    contact: Contact
    postcodes: frozenset[str]
    names: tuple[str, ...]
    contact_texts: tuple[str, ...]
    other_texts: tuple[str, ...]


def read_version(payload: str) -> Version:
    """Return what a lead's exact JSON text, or its row of leads.duckdb as JSON, says of people."""
    return _version(texts_of(payload))


def read_contact(payload: str) -> Version:
    """Return the same without other texts, in a third of the time."""
    with suppress(ValueError, RecursionError):
        value = _DECODER.decode(payload)
        if isinstance(value, tuple):
            members = tuple((name, inner) for name, inner in value if name in _CONTACT_MEMBERS)
            return _version(_texts_in(members))
    return _version([])


def _version(texts: Iterable[Text]) -> Version:
    emails = set[str]()
    phones = set[str]()
    postcodes = set[str]()
    first_names = list[str]()
    last_names = list[str]()
    contact_texts = list[str]()
    other_texts = list[str]()

    for path, text, is_member_name in texts:
        if is_member_name or path not in _CONTACT_FIELDS:
            other_texts.append(text)
            if path in OWN_POSTCODE and (postcode := postcode_key(text)):
                postcodes.add(postcode)
            continue

        keys = keys_in(text)
        emails |= keys.emails
        phones |= keys.phones
        contact_texts.append(text)
        if path in FIRST_NAME:
            first_names.append(text)
        elif path in LAST_NAME:
            last_names.append(text)

    pairs = zip_longest(first_names, last_names, fillvalue="")
    names = tuple(f"{first} {last}" for first, last in pairs)
    name_keys = frozenset(filter(None, map(name_key, names)))
    contact = Contact(frozenset(emails), frozenset(phones), name_keys)
    return Version(contact, frozenset(postcodes), names, tuple(contact_texts), tuple(other_texts))


_APART: Final = "\n||||\n"

# --- who is sought --------------------------------------------------------------------------------


def lead_key(text: str) -> LeadKey:
    """Read `applicant/ID`. Raises QuestionError."""
    kind, _, lead_id = text.partition("/")
    if kind not in {kind.name for kind in LEAD_KINDS} or not lead_id:
        raise QuestionError("A lead is named by its kind and id: applicant/ID or appraisal/ID.")
    return kind, lead_id


@dataclass(frozen=True)
class Person:
    """The person who is sought: addresses, numbers and names as keys, postcodes and ids of leads.

    `spoken` are the words of each name in the order in which they were given. `not_leads` are
    somebody else's.
    """

    contact: Contact = NO_CONTACT
    postcodes: frozenset[str] = frozenset()
    lead_ids: frozenset[LeadKey] = frozenset()
    not_leads: frozenset[LeadKey] = frozenset()
    spoken: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(
        cls,
        emails: Sequence[str] = (),
        phones: Sequence[str] = (),
        lead_ids: Iterable[LeadKey] = (),
        names: Sequence[str] = (),
        postcodes: Sequence[str] = (),
        not_leads: Iterable[LeadKey] = (),
    ) -> Self:
        """Read what somebody typed. Raises QuestionError, which never repeats it."""
        contact = Contact(
            _given("E-mail address", emails, lambda text: keys_in(text).emails),
            _given("Telephone number", phones, lambda text: keys_in(text).phones),
            _given("Name", names, lambda text: filter(None, [name_key(text)])),
        )
        person = cls(
            contact=contact,
            postcodes=_given(
                "Postcode", postcodes, lambda text: filter(None, [postcode_key(text)])
            ),
            lead_ids=frozenset(lead_ids),
            not_leads=frozenset(not_leads),
            spoken=tuple(tuple(words_of(plain(name))) for name in names),
        )
        has_both = contact.names and person.postcodes

        if not (contact.emails or contact.phones or person.lead_ids or has_both):
            raise QuestionError(
                "Give an address, a number or a lead: --email, --phone, --lead or --from. A name "
                "or a postcode alone names nobody. Both together show leads to look at."
            )

        return person

    def may_be_in(self, payload: str) -> bool:
        """False if a lead's text can't show the person. True means: decode it and compare keys."""
        text = plain_json(payload)
        if any(pattern.search(text) for pattern in self._loose_patterns):
            return True
        return bool(self.spoken) and self._has_longest_word(folded(text))

    def _has_longest_word(self, text: str) -> bool:
        return any(sorted(words, key=len)[-1] in text for words in self.spoken)

    def is_shown_by(self, version: Version) -> bool:
        """Whether a version shows anything of the person."""
        given = self.contact
        shown = version.contact
        if not (given.emails.isdisjoint(shown.emails) and given.phones.isdisjoint(shown.phones)):
            return True
        if not (
            given.names.isdisjoint(shown.names) and self.postcodes.isdisjoint(version.postcodes)
        ):
            return True
        return self.is_mentioned_by(version)

    def is_mentioned_by(self, version: Version) -> bool:
        """Whether another field than the contact mentions the person by address, number or name.

        Or the contact has one so far behind that no key was read from it.
        """
        unread_texts = [text for text in version.contact_texts if len(text) > CONTACT_MAX]
        return self.is_mentioned_in([*version.other_texts, *unread_texts])

    def is_mentioned_in(self, texts: Iterable[str]) -> bool:
        """Whether any of the texts mentions the person by address, number or name."""
        # Nothing is written across the marks between two texts.
        text = plain(_APART.join(texts))
        return self._has_contact(text) or self._has_name(text)

    def _has_contact(self, text: str) -> bool:
        text = text.lower()
        return any(spelling.is_in(text) for spelling in self._contacts)

    def _has_name(self, text: str) -> bool:
        if not self.spoken:
            return False
        text = folded(text)
        return any(spelling.is_in(text) for spelling in self._names)

    @cached_property
    def _contacts(self) -> list[Spelling]:
        return [*map(spelled_email, self.contact.emails), *map(spelled_phone, self.contact.phones)]

    @cached_property
    def _names(self) -> list[Spelling]:
        """The names in the given order, and with the last word first."""
        orders = {
            order
            for words in self.spoken
            for order in (words, words[-1:] + words[:-1])
            if len(words) > 1
        }
        return [spelled_name(words) for words in sorted(orders)]

    @cached_property
    def _loose_patterns(self) -> list[re.Pattern[str]]:
        """Patterns that pass over most texts. A JSON text of theirs matches one, or has a name."""
        loose = [
            *map(loosely_spelled_email, self.contact.emails),
            *map(loosely_spelled_phone, self.contact.phones),
            *(r"[\W_]*".join(postcode.lower()) for postcode in self.postcodes),
        ]
        return [re.compile(pattern) for pattern in loose]


def _given(what: str, texts: Sequence[str], read: Callable[[str], Iterable[str]]) -> frozenset[str]:
    """Return the keys of what was given. Raises QuestionError if one has none."""
    keys = set[str]()
    for number, text in enumerate(texts, 1):
        found = {*read(text)}
        if not found:
            which = f" {number}" if len(texts) > 1 else ""
            raise QuestionError(f"{what}{which} isn't valid. Check its spelling.")
        keys |= found
    return frozenset(keys)


# --- the rule -------------------------------------------------------------------------------------


class Reason(StrEnum):
    """Why a lead is shown.

    Those of `THEIRS` make it theirs, with the others somebody has to look at it.
    """

    ID = "the given lead id"
    ADDRESS = "the given e-mail address"
    ADDRESS_OTHER_NAME = "the given e-mail address, under another name"
    NUMBER_AND_NAME = "the given telephone number, under the given name"
    NUMBER_AND_NAME_OF_ADDRESS = (
        "the given telephone number, under a name that other leads have with the given e-mail "
        "address"
    )
    NUMBER_OTHER_NAME = "the given telephone number, under another name"
    NUMBER_NO_NAME = "the given telephone number, under no name"
    MENTION = "mentioned in a message or another field"
    NAME = "the given name"
    POSTCODE = "the given postcode"
    NAME_AND_POSTCODE = "the given name and postcode"


THEIRS: Final = frozenset(
    {Reason.ID, Reason.ADDRESS, Reason.NUMBER_AND_NAME, Reason.NUMBER_AND_NAME_OF_ADDRESS}
)

# A household has two or three names on one number. More are an office or a placeholder.
NAMES_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose a contact is: the person's addresses, numbers and names, as keys or keyed hashes.

    With `is_named`, the names were given. Otherwise they are those beside the address.
    """

    contact: Contact
    is_named: bool

    def reasons(self, shown: Contact, other_names: frozenset[str] = frozenset()) -> set[Reason]:
        """Return why a version's contact is theirs or to look at.

        `other_names` are those of the lead's other versions. These count if the version has no
        name: the portal can empty it.
        """
        names = shown.names or other_names
        is_their_name = bool(names) and names <= self.contact.names
        reasons = set[Reason]()

        if not self.contact.emails.isdisjoint(shown.emails):
            is_under_other_name = self.is_named and bool(names) and not is_their_name
            reasons.add(Reason.ADDRESS_OTHER_NAME if is_under_other_name else Reason.ADDRESS)

        if not self.contact.phones.isdisjoint(shown.phones):
            if is_their_name:
                reasons.add(
                    Reason.NUMBER_AND_NAME if self.is_named else Reason.NUMBER_AND_NAME_OF_ADDRESS
                )
            else:
                reasons.add(Reason.NUMBER_OTHER_NAME if names else Reason.NUMBER_NO_NAME)
        return reasons


def judge(
    person: Person, leads: Mapping[LeadKey, Sequence[Version]], *, is_shared: bool = False
) -> dict[LeadKey, frozenset[Reason]]:
    """Return the leads that are theirs or to look at, each with all its reasons.

    Give all versions of each lead. Raises QuestionError if a given address or number has more than
    three names, unless `is_shared`.
    """
    if not is_shared:
        _refuse_shared(person, leads.values())
    owner = owner_of(person, leads)
    judged = {key: _reasons(person, owner, key, versions) for key, versions in leads.items()}
    return {key: reasons for key, reasons in judged.items() if reasons}


def owner_of(person: Person, leads: Mapping[LeadKey, Sequence[Version]]) -> Owner:
    """Return whom these leads can belong to.

    It is the person with the given names, else with those beside the given addresses. Leads of
    somebody else say nothing of the person's names.
    """
    given = person.contact
    if given.names:
        return Owner(given, is_named=True)

    beside = [
        version.contact.names
        for key, versions in leads.items()
        for version in versions
        if key not in person.not_leads and not given.emails.isdisjoint(version.contact.emails)
    ]
    return Owner(given._replace(names=frozenset().union(*beside)), is_named=False)


def names_of(versions: Iterable[Contact]) -> frozenset[str]:
    """Return the names in all of these versions."""
    return frozenset().union(*(contact.names for contact in versions))


def _reasons(
    person: Person, owner: Owner, key: LeadKey, versions: Sequence[Version]
) -> frozenset[Reason]:
    if key in person.not_leads:
        return frozenset()
    other_names = names_of(version.contact for version in versions)
    reasons = {
        reason for version in versions for reason in owner.reasons(version.contact, other_names)
    }
    if key in person.lead_ids:
        reasons.add(Reason.ID)
    if any(map(person.is_mentioned_by, versions)):
        reasons.add(Reason.MENTION)

    has_name = any(
        not person.contact.names.isdisjoint(version.contact.names) for version in versions
    )
    has_postcode = any(not person.postcodes.isdisjoint(version.postcodes) for version in versions)
    if has_name and has_postcode:
        reasons.add(Reason.NAME_AND_POSTCODE)
    # Alone they name nobody. Beside another reason they help to judge.
    elif has_name and reasons:
        reasons.add(Reason.NAME)
    elif has_postcode and reasons:
        reasons.add(Reason.POSTCODE)
    return frozenset(reasons)


def _refuse_shared(person: Person, leads: Iterable[Sequence[Version]]) -> None:
    names: dict[str, set[str]] = {}
    for versions in leads:
        for version in versions:
            for key in version.contact.emails | version.contact.phones:
                names.setdefault(key, set()).update(version.contact.names)

    for what, keys in (("address", person.contact.emails), ("number", person.contact.phones)):
        count = max((len(names.get(key, ())) for key in keys), default=0)
        if count > NAMES_MAX:
            raise QuestionError(
                f"The {what} appears under {count} names. It may be an office or a placeholder. "
                "Give an identifier that only this person has, or add --shared and check each "
                "lead."
            )
