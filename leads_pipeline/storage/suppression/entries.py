"""The entries of the list, and the leads that each means.

Belongs here: entries, the list as it was read, whom an entry means. Doesn't: the list's files (files.py), spelling
(domain/person.py), taking leads out (gate.py).
"""

import hmac
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import date, datetime
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

import msgspec

from leads_pipeline.domain.person import LeadKey, LeadRow, shown_by

# 128 of its 256 bits: no two of what an agency ever sees have the same.
_HASH_BYTES: Final = 16


class Action(StrEnum):
    """The effect of an entry.

    ERASE keeps leads out of everything. RESTRICT keeps their raw rows in `restricted/` alone. OBJECT keeps people out
    of direct marketing. CLEAR empties the messages of the leads that it names. CORRECT says that leads were corrected:
    their corrections follow them from window to window. LACKING says that raw has lost the corrections of leads. LIFT
    ends an entry, LEARNED adds ids or contacts to one, DONE says that one was carried out. LOST stands for an entry
    that was lost with the list's newest files. REFUSE is of earlier versions, and does nothing any more.
    """

    ERASE = "erase"
    OBJECT = "object"
    RESTRICT = "restrict"
    CLEAR = "clear"
    CORRECT = "correct"
    LACKING = "lacking"
    LIFT = "lift"
    LEARNED = "learned"
    DONE = "done"
    LOST = "lost"
    REFUSE = "refuse"

    @classmethod
    def _missing_(cls, value: object) -> "Action | None":
        """Earlier versions had other words. They replaced a mention by [removed]; now the message is emptied."""
        return {"more": cls.LEARNED, "redact": cls.CLEAR}.get(str(value))


class Entry(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """An entry of the list, without personal data in clear: addresses, numbers, names and lead ids are keyed hashes.

    It means the leads of its ids, and the leads that show the person and were created before `until`. `cleared` are
    leads of others whose message is emptied. `of` is the number of the entry that it belongs to.
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
    cleared: tuple[str, ...] = ()
    # Somebody else has the number too: a lead with it and without a name isn't the person's.
    is_shared: bool = False
    # Written by earlier versions: values of the column `person`, addresses without tags, and whether the number alone
    # decided.
    persons: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ()
    any_name: bool = False


def _with(entry: Entry, learned: Sequence[Entry]) -> Entry:
    """The entry with the leads and contacts that it has learned."""
    more = {
        name: tuple(one for of in (entry, *learned) for one in getattr(of, name))
        for name in ("emails", "phones", "leads", "persons")
    }
    return msgspec.structs.replace(entry, **more) if learned else entry


class Suppressed:
    """The list as it was read.

    `active` are the entries that hold, each with what it has learned since. The others are the leads that entries mean:
    `erased` are kept out of everything, `restricted` are kept in `restricted/` alone, `out` are both. The messages of
    `cleared` are emptied, `corrected` have corrections, `objecting` are kept out of direct marketing. `lacking` are
    hashes of leads whose corrections raw has lost.
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
        # Earlier versions wrote an entry of its own.
        cleared = [(one, one.leads if one.action is Action.CLEAR else one.cleared) for one in self.active]
        entries = [Entry(number=one.number, at=one.at, action=Action.CLEAR, leads=ids) for one, ids in cleared if ids]
        self.cleared = Meant(self, entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    @cached_property
    def number(self) -> int:
        """The number of the newest entry by which leads may have to go, 0 if there is none.

        What an objection has learned takes no lead out, and a lost correction can't be put back.
        """
        objections = {entry.number for entry in self.entries if entry.action is Action.OBJECT}
        return max(
            (
                one.number
                for one in self.entries
                if one.action not in {Action.DONE, Action.LACKING}
                and not (one.action is Action.LEARNED and one.of in objections)
            ),
            default=0,
        )

    @cached_property
    def changed(self) -> Set[str]:
        """The hashed ids of leads that aren't shown as the portal sent them: kept out, with no message, corrected."""
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
        return tuple(
            _with(entry, learned.get(entry.number, []))
            for entry in self.entries
            if entry.action in _HOLDING and entry.number not in ended
        )

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
        entries = [one for one in self.active if one.action is Action.CORRECT]
        return Meant(self, [msgspec.structs.replace(one, leads=tuple({*one.leads} - gone)) for one in entries])

    def _meant(self, *actions: Action) -> "Meant":
        return Meant(self, [entry for entry in self.active if entry.action in actions])


# A landing asks three kinds of entries about the same leads, and decoding a text is nearly all of the work.
_shown_by: Final = lru_cache(maxsize=1_024)(shown_by)


class Meant:
    """The leads that some of the list's entries mean."""

    def __init__(self, suppressed: Suppressed, entries: Sequence[Entry]) -> None:
        self._list = suppressed
        self.entries = tuple(entries)
        self._by_lead = {lead: entry.number for entry in entries for lead in entry.leads}
        self._by_person = [entry for entry in entries if entry.emails or entry.phones]
        self._emails = {one for entry in self._by_person for one in entry.emails}
        self._phones = {one for entry in self._by_person for one in entry.phones}

    def __bool__(self) -> bool:
        return bool(self.entries)

    def is_known(self, kind: str, lead_id: str) -> bool:
        """Whether an entry has the lead's id. Then all versions of the lead are meant, whomever they show."""
        return bool(self._by_lead) and self._list.hashed_lead(kind, lead_id) in self._by_lead

    @property
    def known(self) -> Set[str]:
        """The hashed ids that the entries have."""
        return self._by_lead.keys()

    @property
    def persons(self) -> set[str]:
        """The people of the entries, as the column `person` has them."""
        return {person for entry in self.entries for person in entry.persons}

    def shown_in(self, payload: str) -> bool:
        """Whether a version shows an address or number of the entries. The lead may still be somebody else's."""
        emails, phones, _ = self._contact(payload)
        return not (self._emails.isdisjoint(emails) and self._phones.isdisjoint(phones))

    def leads(self, rows: Iterable[LeadRow]) -> dict[LeadKey, int]:
        """The leads that any of the rows shows to be meant, and the number of the entry that means each."""
        versions: dict[LeadKey, list[LeadRow]] = {}
        for row in rows if self.entries else ():
            versions.setdefault((row.kind, row.lead_id), []).append(row)
        found = {key: self._entry_of(key, of_lead) for key, of_lead in versions.items()}
        return {key: number for key, number in found.items() if number}

    def unknown(self, meant: Mapping[LeadKey, int]) -> dict[int, list[str]]:
        """The hashes of those that no entry knows by their id yet, by the number of the entry that means them."""
        by_entry: dict[int, list[str]] = {}
        for key, number in meant.items():
            if not self.is_known(*key):
                by_entry.setdefault(number, []).append(self._list.hashed_lead(*key))
        return by_entry

    def _entry_of(self, key: LeadKey, versions: Sequence[LeadRow]) -> int:
        """The number of the first entry that means the lead; 0 if there is none."""
        if number := self._by_lead.get(self._list.hashed_lead(*key), 0):
            return number
        if not self._by_person:
            return 0
        contacts = [self._contact(row.payload) for row in versions]
        # The portal can empty a name or an address: those of the other versions still say whose number it is.
        all_emails, all_names = (set().union(*(one[place] for one in contacts)) for place in (0, 2))
        for row, (emails, phones, names) in zip(versions, contacts, strict=True):
            if self._emails.isdisjoint(emails) and self._phones.isdisjoint(phones):
                continue
            # A new enquiry of an erased person lands.
            in_time = [entry for entry in self._by_person if entry.until is None or row.created_at < entry.until]
            for entry in in_time:
                if _shows(entry, emails or all_emails, phones, names or all_names):
                    return entry.number
        return 0

    def _contact(self, payload: str) -> tuple[Set[str], Set[str], Set[str]]:
        """Hashes of the addresses, numbers and names that a version shows."""
        shown, hashes = _shown_by(payload), self._list.hashes
        return {*hashes("mailbox", shown.emails)}, {*hashes("phone", shown.phones)}, {*hashes("name", shown.names)}


def _shows(entry: Entry, emails: Set[str], phones: Set[str], names: Set[str]) -> bool:
    """Whether a row is of the entry's person: by the rule of `domain.person.reasons`, on hashes."""
    if not emails.isdisjoint(entry.emails):
        return True
    if phones.isdisjoint(entry.phones):
        return False
    if names:
        return entry.any_name or names <= {*entry.names}
    return entry.any_name or (not entry.is_shared and (not entry.emails or emails <= {*entry.emails}))


_HOLDING: Final = frozenset({Action.ERASE, Action.OBJECT, Action.RESTRICT, Action.CLEAR, Action.CORRECT})

NOBODY: Final = Suppressed(b"", ())
