"""What an entry of the list says, and which leads it means.

Belongs here: entries, the list as it was read, whom an entry means. Doesn't: the list's files (files.py), spelling
(person/).
"""

import hmac
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property, partial
from typing import Final

import msgspec

from leads_pipeline.person.identity import email_keys, mailbox_of, phone_keys
from leads_pipeline.person.redacting import redacted_payload
from leads_pipeline.person.showing import Evidence, PathAndText, Shown, shown_by

# 128 of its 256 bits: no two of what an agency ever sees have the same.
_HASH_BYTES: Final = 16

_CREATED_AT: Final = frozenset({"createdAt", "created_at"})


class Action(StrEnum):
    """What an entry says of a person: each means one thing alone, and who asks for two has two entries.

    OBJECT: their leads serve no direct marketing. REFUSE: no new enquiry of theirs is taken. REDACT: what the leads of
    others, which it names, say of them goes. MORE adds lead ids to an
    earlier entry, DONE says that one was carried out, LIFT that it ended.
    """

    ERASE = "erase"
    OBJECT = "object"
    REFUSE = "refuse"
    RESTRICT = "restrict"
    REDACT = "redact"
    LIFT = "lift"
    MORE = "more"
    DONE = "done"


class Entry(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A line of the list, without a word of the person's.

    It means the leads of the ids, and those that show the person and were created from `since` and before `until`. `of`
    is the number of the entry that it belongs to. With `any_tag` a lead belongs that shows the mailbox under another
    tag, with `any_name` one that shows the telephone under another name. With `is_shared` somebody else has the
    telephone, and what shows it without a name isn't the person's. `counts` is what was done, by place.
    """

    number: int
    at: datetime
    action: Action
    of: int = 0
    case: str = ""
    received: date | None = None
    since: datetime | None = None
    until: datetime | None = None
    emails: tuple[str, ...] = ()
    mailboxes: tuple[str, ...] = ()
    phones: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    any_tag: bool = False
    any_name: bool = False
    is_shared: bool = False
    leads: tuple[str, ...] = ()
    counts: dict[str, int] = {}


class Suppressed:
    """The list as it was read."""

    def __init__(self, key: bytes, entries: Sequence[Entry]) -> None:
        self._key = key
        self.entries = tuple(entries)

    def __bool__(self) -> bool:
        return bool(self.entries)

    @cached_property
    def state(self) -> str:
        """Changes with what the list withholds: who has applied it in that state need not do so again."""
        return self.whom and self.hashed("state", f"{self.whom} {sorted(self.learned_since(0))}")

    @cached_property
    def whom(self) -> str:
        """Changes with whom the list withholds and redacts, and not with the ids of their leads that it learns."""
        meant = [one.number for one in self.withheld.entries]
        meant += [one.number for one in self.entries if one.action is Action.REDACT]
        return self.hashed("whom", str(meant)) if meant else ""

    def learned_since(self, number: int) -> frozenset[str]:
        """Hashed ids of withheld people's leads that the list has learned after the entry of that number."""
        meant = {one.number for one in self.withheld.entries}
        more = (one for one in self.entries[number:] if one.action is Action.MORE and one.of in meant)
        return frozenset(lead for one in more for lead in one.leads)

    @cached_property
    def objected(self) -> str:
        """Changes with who has objected."""
        return self.hashed("objected", str([one.number for one in self.objections.entries])) if self.objections else ""

    @cached_property
    def active(self) -> tuple[Entry, ...]:
        """The entries that mean leads, with the ids that were added later, but for those that ended."""
        ended = {entry.of for entry in self.entries if entry.action is Action.LIFT}
        more: dict[int, list[str]] = {}
        for entry in self.entries:
            if entry.action is Action.MORE:
                more.setdefault(entry.of, []).extend(entry.leads)
        return tuple(
            msgspec.structs.replace(entry, leads=(*entry.leads, *more.get(entry.number, ())))
            for entry in self.entries
            if entry.action in _MEANING and entry.number not in ended
        )

    @cached_property
    def _leads(self) -> Mapping[int, frozenset[str]]:
        return {entry.number: frozenset(entry.leads) for entry in self.active}

    def knows(self, number: int, kind: str, lead_id: str) -> bool:
        """Whether the entry of that number has the lead's id."""
        return self.hashed_lead(kind, lead_id) in self._leads.get(number, ())

    def hashed(self, what: str, text: str) -> str:
        """The keyed hash of an address, a number, a name or an id."""
        return hmac.digest(self._key, f"{what}\0{text}".encode(), "sha256")[:_HASH_BYTES].hex()

    def hashed_lead(self, kind: str, lead_id: str) -> str:
        """The same of a lead."""
        return self.hashed("lead", f"{kind}\0{lead_id}")

    @cached_property
    def refusals(self) -> "Meant":
        """What mustn't be landed or kept: erased people's leads, and new enquiries of who refused them."""
        return self._meant(Action.ERASE, Action.REFUSE)

    @cached_property
    def withheld(self) -> "Meant":
        """What mustn't be staged or published: the same, and restricted people's leads."""
        return self._meant(Action.ERASE, Action.REFUSE, Action.RESTRICT)

    @cached_property
    def objections(self) -> "Meant":
        """What mustn't serve direct marketing."""
        return self._meant(Action.OBJECT)

    @cached_property
    def redactions(self) -> Mapping[str, Sequence[Entry]]:
        """The redactions by the leads that they are of."""
        by_lead: dict[str, list[Entry]] = {}
        for entry in self.entries:
            for lead in entry.leads if entry.action is Action.REDACT else ():
                by_lead.setdefault(lead, []).append(entry)
        return by_lead

    def redacted(self, kind: str, lead_id: str, payload: str) -> str:
        """The lead's payload without what it says of people whom somebody has decided to take out of it."""
        for entry in self.redactions.get(self.hashed_lead(kind, lead_id), ()):
            payload = redacted_payload(payload, partial(self._has, entry))
        return payload

    def _has(self, entry: Entry, what: str, key: str) -> bool:
        return self.hashed(what, key) in {"mailbox": entry.mailboxes, "phone": entry.phones, "name": entry.names}[what]

    def _meant(self, *actions: Action) -> "Meant":
        return Meant(self, [entry for entry in self.active if entry.action in actions])


class Meant:
    """The leads that some of the list's entries mean."""

    def __init__(self, suppressed: Suppressed, entries: Sequence[Entry]) -> None:
        self._list = suppressed
        self.entries = tuple(entries)
        self._by_lead = {lead: entry.number for entry in entries for lead in entry.leads}
        self._by_person = [entry for entry in entries if entry.emails or entry.mailboxes or entry.phones]
        self._emails = {one for entry in self._by_person for one in entry.emails}
        self._mailboxes = {one for entry in self._by_person if entry.any_tag for one in entry.mailboxes}
        self._phones = {one for entry in self._by_person for one in entry.phones}

    def __bool__(self) -> bool:
        return bool(self.entries)

    def leads(self, rows: Iterable[Shown]) -> dict[tuple[str, str], int]:
        """The leads, by kind and id, that any of the rows shows to be meant, and the number of the entry that does."""
        refused: dict[tuple[str, str], int] = {}
        for row in rows:
            key = (row.kind, row.lead_id)
            if key not in refused and (number := self._entry_of(row)):
                refused[key] = number
        return refused

    def is_known(self, kind: str, lead_id: str) -> bool:
        """Whether an entry has the lead's id, so that its other versions are meant whomever they show."""
        return self._list.hashed_lead(kind, lead_id) in self._by_lead

    def _entry_of(self, row: Shown) -> int:
        """The number of the first entry that means the row's lead; 0 where none does."""
        if number := self._by_lead.get(self._list.hashed_lead(row.kind, row.lead_id), 0):
            return number
        if not self._by_person:
            return 0
        contacts = row.contacts()
        if contacts is not None and not self._is_listed(contacts):
            return 0
        texts = list(row.texts())
        # Where the moment isn't known, the end or the beginning of its day, whichever lets it land: a new enquiry of
        # the day of an erasure, and what came on the day of a refusal before it. What those found is known by its id.
        created = _created(texts)
        latest = created or datetime.combine(row.day + timedelta(days=1), time(), UTC)
        earliest = created or datetime.combine(row.day, time(), UTC)
        in_time = [
            entry
            for entry in self._by_person
            if (entry.until is None or latest < entry.until) and (entry.since is None or earliest >= entry.since)
        ]
        if not in_time:
            return 0
        shown = shown_by(texts)
        return next((entry.number for entry in in_time if self._means(entry, shown)), 0)

    def _is_listed(self, contacts: Iterable[str]) -> bool:
        """Whether an entry has one of these addresses and numbers, without which none means a row."""
        hashed = self._list.hashed
        for text in contacts:
            for key in email_keys(text):
                if hashed("email", key) in self._emails:
                    return True
                if self._mailboxes and hashed("mailbox", mailbox_of(key)) in self._mailboxes:
                    return True
            if any(hashed("phone", key) in self._phones for key in phone_keys(text)):
                return True
        return False

    def _means(self, entry: Entry, shown: Evidence) -> bool:
        emails, phones, names, boxes = entry.emails, entry.phones, entry.names, entry.mailboxes
        if emails and any(self._list.hashed("email", one) in emails for one in shown.emails):
            return True
        mailboxes = {self._list.hashed("mailbox", mailbox_of(one)) for one in shown.emails}
        if entry.any_tag and not mailboxes.isdisjoint(boxes):
            return True
        if not phones or not any(self._list.hashed("phone", one) in phones for one in shown.phones):
            return False
        # Whoever shares the telephone is somebody else, unless a person has decided otherwise.
        if entry.any_name:
            return True
        if shown.people:
            return all(self._list.hashed("name", one) in names for one in shown.people)
        return not entry.is_shared and (not emails or mailboxes.issubset(boxes))


def _created(texts: Iterable[PathAndText]) -> datetime | None:
    for path, text in texts:
        if path in _CREATED_AT:
            with suppress(ValueError, OverflowError):
                created = datetime.fromisoformat(text)
                if created.tzinfo is not None and created.year > 1:
                    return created.astimezone(UTC)
    return None


# The actions that mean leads until they are lifted.
_MEANING: Final = frozenset({Action.ERASE, Action.OBJECT, Action.REFUSE, Action.RESTRICT})

NOBODY: Final = Suppressed(b"", ())


def hashes(suppressed: Suppressed, what: str, keys: Collection[str]) -> tuple[str, ...]:
    """The keyed hashes of those, sorted, so that their order tells nothing."""
    return tuple(sorted(suppressed.hashed(what, key) for key in keys))
