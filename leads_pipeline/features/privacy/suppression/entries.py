"""The entries of the list, and the leads that each means.

Belongs here: entries, the list as it was read, whom an entry means. Doesn't: the list's files
(files.py), who counts as the person (identity.py), taking leads out (gate.py).
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.features.privacy.contact_keys import former_keys, former_name_key
from leads_pipeline.features.privacy.identity import (
    THEIRS,
    Contact,
    LeadKey,
    LeadRow,
    Owner,
    names_of,
    read_contact,
)

# 128 of its 256 bits: no two of what an agency ever sees have the same.
_HASH_BYTES: Final = 16


class Action(StrEnum):
    """The effect of an entry.

    ERASE keeps leads out of everything. RESTRICT keeps their raw rows in `restricted/` alone.
    OBJECT keeps people out of direct marketing. CLEAR empties the messages of the leads that it
    names. CORRECT says that leads were corrected: their corrections follow them from window to
    window. LACKING says that raw has lost the corrections of leads. LIFT ends an entry, LEARNED
    adds ids or contacts to one, DONE says that one was carried out. ACCESS notes a request for a
    copy of the data, and DONE its answer. LOST stands for an entry that was lost with the list's
    newest files. REFUSE is of earlier versions, and does nothing any more.
    """

    ERASE = "erase"
    OBJECT = "object"
    RESTRICT = "restrict"
    CLEAR = "clear"
    CORRECT = "correct"
    LACKING = "lacking"
    LIFT = "lift"
    ACCESS = "access"
    LEARNED = "learned"
    DONE = "done"
    LOST = "lost"
    REFUSE = "refuse"

    @classmethod
    def _missing_(cls, value: object) -> "Action | None":
        """Read the words of earlier versions.

        They replaced a mention by [removed]; now the message is emptied.
        """
        return {"more": cls.LEARNED, "redact": cls.CLEAR}.get(str(value))


class Entry(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """An entry of the list, without personal data in clear.

    Addresses, numbers, names and lead ids are keyed hashes.

    It means the leads of its ids, and the leads that are the person's and were created before
    `until`. `not_leads` are somebody else's, whatever they show. `cleared` are leads of others
    whose message is emptied. `lost` are theirs, but raw had lost them, so they could neither be set
    aside nor corrected. `of` is the number of the entry that it belongs to. With `is_named`, the
    names were given. `identity` is the edition of the rule and of the keys in identity.py.
    """

    number: int
    at: datetime
    action: Action
    of: int = 0
    case: str = ""
    received: date | None = None
    until: datetime | None = None
    emails: tuple[str, ...] = ()
    phones: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    leads: tuple[str, ...] = ()
    not_leads: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    is_named: bool = False
    identity: int = 1
    # Of identity 1. Somebody else has the number too: a lead with it and without a name isn't the
    # person's.
    is_shared: bool = False
    # Written by earlier versions: values of the column `person`, addresses without tags, and
    # whether the number alone decided.
    persons: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ()
    any_name: bool = False


def _with_learned(entry: Entry, learned: Sequence[Entry]) -> Entry:
    """The entry with the leads and contacts that it has learned."""
    if not learned:
        return entry

    emails = [*entry.emails]
    phones = [*entry.phones]
    leads = [*entry.leads]
    persons = [*entry.persons]
    for more in learned:
        emails += more.emails
        phones += more.phones
        leads += more.leads
        persons += more.persons
    return msgspec.structs.replace(
        entry,
        emails=tuple(emails),
        phones=tuple(phones),
        leads=tuple(leads),
        persons=tuple(persons),
    )


class Suppressed:
    """The list as it was read.

    `active` are the entries that hold, each with what it has learned since. The others are the
    leads that entries mean: `erased` are kept out of everything, `restricted` are kept in
    `restricted/` alone, `out` are both. The messages of `cleared` are emptied, `corrected` have
    corrections, `objecting` are kept out of direct marketing. `lacking` are hashes of leads whose
    corrections raw has lost.
    """

    def __init__(self, key: bytes, entries: Sequence[Entry]) -> None:
        self._key = key
        self.entries = tuple(entries)
        self.active = self._active()
        self.erased = self._meant(Action.ERASE)
        self.restricted = self._meant(Action.RESTRICT)
        self.out = self._meant(Action.ERASE, Action.RESTRICT)
        self.lacking = self._lacking()
        self.corrected = self._corrected()
        self.objecting = self._meant(Action.OBJECT)
        self.cleared = self._cleared()

    def __bool__(self) -> bool:
        return bool(self.entries)

    @cached_property
    def newest_entry(self) -> int:
        """The number of the newest entry by which leads may have to go, 0 if there is none.

        What an objection has learned takes no lead out, and a lost correction can't be put back.
        """
        objections = {entry.number for entry in self.entries if entry.action is Action.OBJECT}
        newest = 0
        for entry in self.entries:
            is_of_objection = entry.action is Action.LEARNED and entry.of in objections
            if entry.action not in _TAKING_NOTHING_OUT and not is_of_objection:
                newest = max(newest, entry.number)
        return newest

    @cached_property
    def done(self) -> Set[int]:
        """The numbers of the requests that were carried out or answered."""
        return {entry.of for entry in self.entries if entry.action is Action.DONE}

    @cached_property
    def changed(self) -> Set[str]:
        """The hashed ids of leads that aren't shown as the portal sent them.

        They are kept out, corrected, or have no message.
        """
        return self.out.known | self.cleared.known | self.corrected.known

    def hashed(self, what: str, text: str) -> str:
        """The keyed hash of an address, a number, a name or an id."""
        return hmac.digest(self._key, f"{what}\0{text}".encode(), "sha256")[:_HASH_BYTES].hex()

    def hashes(self, what: str, keys: Iterable[str]) -> tuple[str, ...]:
        """The same of many, sorted, so that their order tells nothing."""
        return tuple(sorted(self.hashed(what, key) for key in keys))

    def hashed_lead(self, kind: str, lead_id: str) -> str:
        """The same of a lead."""
        return self.hashed("lead", f"{kind}\0{lead_id}")

    def _active(self) -> tuple[Entry, ...]:
        ended = {entry.of for entry in self.entries if entry.action is Action.LIFT}
        learned: dict[int, list[Entry]] = {}
        for entry in self.entries:
            if entry.action is Action.LEARNED:
                learned.setdefault(entry.of, []).append(entry)

        active = list[Entry]()
        for entry in self.entries:
            if entry.action in _HOLDING and entry.number not in ended:
                active.append(_with_learned(entry, learned.get(entry.number, [])))
        return tuple(active)

    def _lacking(self) -> frozenset[str]:
        """The leads of LACKING that weren't corrected again or erased since."""
        lacking = set[str]()
        for entry in self.entries:
            if entry.action is Action.LACKING:
                lacking.update(entry.leads)
            elif entry.action is Action.CORRECT:
                lacking.difference_update(entry.leads)
        return frozenset(lacking - self.erased.known)

    def _corrected(self) -> "Meant":
        gone = self.lacking | self.erased.known
        entries = list[Entry]()
        for entry in self.active:
            if entry.action is Action.CORRECT:
                entries.append(msgspec.structs.replace(entry, leads=tuple({*entry.leads} - gone)))
        return Meant(self, entries)

    def _cleared(self) -> "Meant":
        entries = list[Entry]()
        for entry in self.active:
            # Earlier versions wrote an entry of its own.
            leads = entry.leads if entry.action is Action.CLEAR else entry.cleared
            if leads:
                entries.append(
                    Entry(number=entry.number, at=entry.at, action=Action.CLEAR, leads=leads)
                )
        return Meant(self, entries)

    def _meant(self, *actions: Action) -> "Meant":
        return Meant(self, [entry for entry in self.active if entry.action in actions])


# The edition of the rule, and of keys of names, that new entries have.
IDENTITY: Final = 2

# A landing asks three kinds of entries about the same leads, and decoding a text is nearly all of
# the work.
_read_contact: Final = lru_cache(maxsize=1_024)(read_contact)


class _Person:
    """The person of an entry, by contact."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        contact = Contact(frozenset(entry.emails), frozenset(entry.phones), frozenset(entry.names))
        self._owner = Owner(contact, is_named=entry.is_named)

    def has(self, shown: Contact, other_names: frozenset[str]) -> bool:
        """Whether a version's contact is theirs."""
        return not THEIRS.isdisjoint(self._owner.reasons(shown, other_names))

    def had(
        self, shown: Contact, other_names: frozenset[str], other_emails: frozenset[str]
    ) -> bool:
        """Whether it is theirs by the rule of identity 1, with its keys of names."""
        entry = self.entry
        emails = shown.emails or other_emails
        names = shown.names or other_names

        if not emails.isdisjoint(entry.emails):
            return True
        if shown.phones.isdisjoint(entry.phones):
            return False
        if entry.any_name:
            return True
        if names:
            return names <= {*entry.names}

        return not entry.is_shared and (not entry.emails or emails <= {*entry.emails})


class Meant:
    """The leads that some of the list's entries mean."""

    def __init__(self, suppressed: Suppressed, entries: Sequence[Entry]) -> None:
        self._list = suppressed
        self.entries = tuple(entries)
        self._by_lead: dict[str, int] = {}
        self._people: list[_Person] = []
        self._emails = set[str]()
        self._phones = set[str]()
        self._has_former = False

        for entry in entries:
            self._by_lead.update(dict.fromkeys(entry.leads, entry.number))
            if entry.emails or entry.phones:
                self._people.append(_Person(entry))
                self._emails.update(entry.emails)
                self._phones.update(entry.phones)
                self._has_former = self._has_former or entry.identity < IDENTITY

    def __bool__(self) -> bool:
        return bool(self.entries)

    def is_known(self, kind: str, lead_id: str) -> bool:
        """Whether an entry has the lead's id.

        Then all versions of the lead are meant, whomever they show.
        """
        return bool(self._by_lead) and self._list.hashed_lead(kind, lead_id) in self._by_lead

    def known_among(self, kind: LeadKind, lead_ids: Iterable[str]) -> set[str]:
        """Those of these leads whose ids an entry has. A lead that left raw is known by its id."""
        return {lead_id for lead_id in lead_ids if self.is_known(kind.name, lead_id)}

    @property
    def known(self) -> Set[str]:
        """The hashed ids that the entries have."""
        return self._by_lead.keys()

    @property
    def persons(self) -> set[str]:
        """The people of the entries, as the column `person` has them."""
        persons = set[str]()
        for entry in self.entries:
            persons.update(entry.persons)
        return persons

    def shown_in(self, payload: str) -> bool:
        """Whether a version shows an address or number of the entries.

        The lead may still be somebody else's.
        """
        contacts = [self._contact(payload)]
        if self._has_former:
            contacts.append(self._former_contact(payload))
        return any(self._has_contact_of(contact) for contact in contacts)

    def _has_contact_of(self, contact: Contact) -> bool:
        return not (
            self._emails.isdisjoint(contact.emails) and self._phones.isdisjoint(contact.phones)
        )

    def leads(self, rows: Iterable[LeadRow]) -> dict[LeadKey, int]:
        """Return the leads that the rows show to be meant, each with the number of its entry."""
        if not self.entries:
            return {}

        versions: dict[LeadKey, list[LeadRow]] = {}
        for row in rows:
            versions.setdefault((row.kind, row.lead_id), []).append(row)

        found: dict[LeadKey, int] = {}
        for key, of_lead in versions.items():
            if number := self._entry_of(key, of_lead):
                found[key] = number
        return found

    def unknown(self, meant: Mapping[LeadKey, int]) -> dict[int, list[str]]:
        """Return the hashes of those that no entry knows by id yet, by their entry's number."""
        by_entry: dict[int, list[str]] = {}
        for key, number in meant.items():
            if not self.is_known(*key):
                by_entry.setdefault(number, []).append(self._list.hashed_lead(*key))
        return by_entry

    def _entry_of(self, key: LeadKey, versions: Sequence[LeadRow]) -> int:
        """The number of the first entry that means the lead; 0 if there is none."""
        hashed = self._list.hashed_lead(*key)
        if number := self._by_lead.get(hashed, 0):
            return number
        if not self._people:
            return 0

        for row in versions:
            if not self.shown_in(row.payload):
                continue
            for person in self._people:
                # A new enquiry of an erased person lands.
                is_in_time = person.entry.until is None or row.created_at < person.entry.until
                is_excepted = hashed in person.entry.not_leads
                if is_in_time and not is_excepted and self._is_of(person, row, versions):
                    return person.entry.number
        return 0

    def _is_of(self, person: _Person, row: LeadRow, versions: Sequence[LeadRow]) -> bool:
        """Whether a version is of this person.

        The portal can empty a name: then that of another version counts.
        """
        if person.entry.identity == IDENTITY:
            contacts = [self._contact(version.payload) for version in versions]
            return person.has(self._contact(row.payload), names_of(contacts))

        former = [self._former_contact(version.payload) for version in versions]
        emails = frozenset[str]().union(*(contact.emails for contact in former))
        return person.had(self._former_contact(row.payload), names_of(former), emails)

    def _contact(self, payload: str) -> Contact:
        """The hashes of the keys in a version's contact."""
        contact = _read_contact(payload).contact
        return Contact(
            emails=frozenset(self._list.hashes("mailbox", contact.emails)),
            phones=frozenset(self._list.hashes("phone", contact.phones)),
            names=frozenset(self._list.hashes("name", contact.names)),
        )

    def _former_contact(self, payload: str) -> Contact:
        """The same with the keys that entries of identity 1 have."""
        version = _read_contact(payload)
        keys = [former_keys(text) for text in version.contact_texts]
        emails = {email for of_text in keys for email in of_text.emails}
        phones = {phone for of_text in keys for phone in of_text.phones}
        names = filter(None, map(former_name_key, version.names))

        return Contact(
            emails=frozenset(self._list.hashes("mailbox", emails)),
            phones=frozenset(self._list.hashes("phone", phones)),
            names=frozenset(self._list.hashes("name", names)),
        )


# Entries by which no lead has to go.
_TAKING_NOTHING_OUT: Final = frozenset({Action.DONE, Action.LACKING, Action.ACCESS})

_HOLDING: Final = frozenset(
    {Action.ERASE, Action.OBJECT, Action.RESTRICT, Action.CLEAR, Action.CORRECT}
)

NOBODY: Final = Suppressed(b"", ())
