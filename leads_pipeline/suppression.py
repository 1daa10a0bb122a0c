"""The suppression list: who was erased, objected or is restricted, as keyed hashes that outlive the data.

Belongs here: its file, its key, its chain, and which leads an entry means. Doesn't: refusing them (lake/, spool.py,
flatten/, warehouse/), finding a person (privacy/), spelling (person/).

A line is an entry, added and synced, never changed. Each has a chained HMAC under the list's own key, so that a line
that is gone, added or changed shows. The data folder remembers the last entry that it knew (the guard): a list that
lacks it is not the list. Where the list, its key or its chain isn't what it should be, reading it raises StorageError,
and who was about to land a lead stops: nobody comes back because a file was lost.
"""

import fcntl
import hmac
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path
from typing import Final

import msgspec

from leads_pipeline.durable import PRIVATE_FILE_MODE, make_folder, reading, replace_file, storing, sync
from leads_pipeline.errors import StorageError
from leads_pipeline.person.identity import email_keys, mailbox_of, phone_keys
from leads_pipeline.person.redacting import redacted_payload
from leads_pipeline.person.showing import Evidence, PathAndText, Shown, shown_by

LIST_FILE: Final = "suppressed"
KEY_FILE: Final = "key"

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


class SuppressionList:
    """The list's files in their folder, and the guard in the data folder. Many processes may use it at once."""

    def __init__(self, folder: Path, guard: Path) -> None:
        self.folder = folder
        self.guard = guard

    @property
    def path(self) -> Path:
        """The list's file."""
        return self.folder / LIST_FILE

    def read(self) -> Suppressed:
        """The list as it is now. Raises StorageError where it isn't whole, or isn't the one that the guard knows.

        It is asked for at each landing, so what hasn't changed isn't read again.
        """
        identity = tuple(map(_identity, (self.path, self.guard, self.folder / KEY_FILE)))
        if identity[:2] == (None, None):
            return NOBODY
        cached = _cache.get(self.folder)
        if cached is not None and cached[0] == (self.guard, *identity):
            return cached[1]
        suppressed = self._read()
        _cache[self.folder] = ((self.guard, *identity), suppressed)
        return suppressed

    def append(self, make: Callable[[Suppressed, int], Entry]) -> Entry:
        """Add the entry that is made of the list, for its hashes, and the next number. It is on the disk afterwards."""
        with self._held():
            key = self._made_key()
            entries, chain, size = self._entries(key)
            suppressed = Suppressed(key, entries)
            entry = make(suppressed, len(entries) + 1)
            content = msgspec.json.encode(entry)
            chain = _chained(key, chain, content)
            with storing(self.path):
                is_new = not self.path.exists()
                descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE_MODE)
                try:
                    # What a killed process had begun was never acknowledged to anybody.
                    os.ftruncate(descriptor, size)
                    line = f"{chain} ".encode() + content + b"\n"
                    if os.pwrite(descriptor, line, size) != len(line):
                        raise StorageError(f"{self.path} can't be written to its end. Free some space, then run again.")
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                if is_new:
                    sync(self.folder)
            replace_file(self.guard, f"{entry.number} {chain}\n".encode())
        return entry

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Against whoever else adds an entry."""
        path = self.folder / ".lock"
        with storing(path):
            make_folder(self.folder)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _read(self) -> Suppressed:
        key = self._key()
        entries, _, _ = self._entries(key)
        return Suppressed(key, entries)

    def _entries(self, key: bytes) -> tuple[list[Entry], str, int]:
        """The entries, the chain's end, and the size of the file without a line that somebody had only begun."""
        number, known_chain = self._guarded()
        with reading(self.path):
            try:
                content = self.path.read_bytes()
            except FileNotFoundError:
                content = b""
        entries: list[Entry] = []
        chain, size, is_known = "", 0, number == 0
        for line in content.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            written, _, text = line[:-1].partition(b" ")
            chain = _chained(key, chain, text)
            if not hmac.compare_digest(written, chain.encode()):
                raise self._broken(f"its line {len(entries) + 1} isn't as it was written, or its key isn't its own")
            entries.append(_ENTRY.decode(text))
            is_known = is_known or (len(entries), chain) == (number, known_chain)
            size += len(line)
        if not is_known:
            raise self._broken(f"it lacks the entry {number} that this data folder knows")
        return entries, chain, size

    def _guarded(self) -> tuple[int, str]:
        with reading(self.guard):
            try:
                number, _, chain = self.guard.read_text(encoding="ascii", errors="replace").strip().partition(" ")
            except FileNotFoundError:
                return 0, ""
        if not number.isdigit():
            raise self._broken(f"{self.guard}, which says how far it goes, can't be read")
        return int(number), chain

    def _key(self) -> bytes:
        path = self.folder / KEY_FILE
        with reading(path):
            try:
                text = path.read_text(encoding="ascii", errors="replace").strip()
                return bytes.fromhex(text)
            except FileNotFoundError:
                raise self._broken(f"{path} is gone") from None
            except ValueError:
                raise self._broken(f"{path} holds no key") from None

    def _made_key(self) -> bytes:
        """The key, made where there is neither a list nor a guard yet."""
        path = self.folder / KEY_FILE
        if not (path.exists() or self.path.exists() or self.guard.exists()):
            replace_file(path, f"{secrets.token_hex(32)}\n".encode())
        return self._key()

    def _broken(self, why: str) -> StorageError:
        return StorageError(
            f"The suppression list {self.path} can't be used: {why}. Nothing is landed, staged or published until it "
            "can, as people who were erased would come back. Put list and key back from a backup, both of them, or "
            "point LEADS_PRIVACY_DIR to where they are. What was landed before is untouched.",
            reason="suppression list",
        )


_ENTRY: Final = msgspec.json.Decoder(Entry)

# What each list's files looked like when they were read, and what they said.
_cache: Final[dict[Path, tuple[tuple[object, ...], Suppressed]]] = {}


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - at each landing
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path} can't be looked at: {error.strerror}. Check the disk and its rights.") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _chained(key: bytes, before: str, content: bytes) -> str:
    return hmac.digest(key, before.encode() + b"\n" + content, "sha256").hex()


def hashes(suppressed: Suppressed, what: str, keys: Collection[str]) -> tuple[str, ...]:
    """The keyed hashes of those, sorted, so that their order tells nothing."""
    return tuple(sorted(suppressed.hashed(what, key) for key in keys))
