"""Pushed leads on their way from the receiver to the raw files: on the disk before the portal's delivery is answered.

Belongs here: the spool folder, and which day and scope a pushed lead belongs to. Doesn't: HTTP (receiver.py), the raw
files themselves (lake/). A receiver only adds files and the pipeline only takes whole ones away, so neither waits.
"""

import hashlib
import logging
import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from leads_pipeline.contract import PushedLead, ReceivedLead, lead_kind
from leads_pipeline.domain.answer import read_texts
from leads_pipeline.domain.person import LeadRow
from leads_pipeline.durable import make_folder, replace_file, storing, sync
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import PUSH_SCOPE, Lake
from leads_pipeline.lake.quarantine import QUARANTINE
from leads_pipeline.window import Scope, ScopeKind, today

# What is taken in at once and so held in memory: some 10,000 leads, an ordinary day's.
CHUNK_BYTES: Final = 32 * 1024 * 1024

# Nobody writes a file for that long: what is still unfinished then was left by a killed receiver, and never answered.
LEFTOVER_SECONDS: Final = 3600

# For whoever can't wait for that: longer than a delivery takes to be written, even on a slow disk.
WRITING_SECONDS: Final = 60

_SUFFIX: Final = ".pushed"

# Where the store has what waits.
_SPOOL: Final = "spool/"
_KEY: Final = re.compile(rf"{_SPOOL}[\w.-]+{re.escape(_SUFFIX)}", re.ASCII)

# Which of a lead's members name each kind of scope. A lead names no brand.
_SCOPE_FIELDS: Final = {
    ScopeKind.BRANCH: "portalBranchId",
    ScopeKind.COMPANY: "portalCompanyId",
    ScopeKind.GROUP: "portalGroupId",
}
_CREATED_AT: Final = "createdAt"
_PLACING_FIELDS: Final = frozenset({_CREATED_AT, *_SCOPE_FIELDS.values()})

logger = logging.getLogger(__name__)


class _Record(msgspec.Struct):
    """One pushed lead as a line of a spool file."""

    kind: str
    received_at: datetime
    lead_id: str
    payload: str
    oddity: str | None
    sequence: int | None = None  # in files from before there were sequences


@dataclass(slots=True)
class TakenIn:
    """What taking in did. `deliveries` counts leads per day, repeats included; `new` and `changed` different leads."""

    deliveries: Counter[date] = field(default_factory=Counter)
    new: int = 0
    changed: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Which day and scope a pushed lead belongs to.

    The day is its createdAt's in `zone`, so that a repeat meets its first delivery; the day it was received where
    createdAt is unknown, in the future, or before `first_day`, which has no partition. The scope is the configured one
    that the lead names, else PUSH_SCOPE.
    """

    scopes: Sequence[Scope]
    zone: ZoneInfo
    first_day: date

    def of(self, pushed: PushedLead) -> tuple[date, str]:
        """Day and scope key of a lead."""
        texts = read_texts(pushed.lead.payload, _PLACING_FIELDS)
        received = today(self.zone, pushed.received_at)
        created = self._day(texts.get(_CREATED_AT, ""))
        day = created if created and self.first_day <= created <= received else max(received, self.first_day)
        names = (scope.key for scope in self.scopes if _names(texts, scope))
        return day, next(names, PUSH_SCOPE)

    def _day(self, text: str) -> date | None:
        with suppress(ValueError, OverflowError):
            created = datetime.fromisoformat(text)
            if created.tzinfo is not None:
                return today(self.zone, created)
        return None


def _names(texts: Mapping[str, str], scope: Scope) -> bool:
    if scope.kind is ScopeKind.ALL:
        return True
    return scope.kind in _SCOPE_FIELDS and texts.get(_SCOPE_FIELDS[scope.kind]) == scope.id


class Spool:
    """The folder `spool/` of the data folder. Many receivers may add to it while the pipeline takes in.

    Its files hold personal data: folder 0700, files 0600. Every method raises StorageError where the folder can't take
    or give what it should.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._folder = lake.folder / "spool"

    def next_sequence(self) -> int:
        """The place of a delivery in the order of receipt, to be drawn when it is received (Lake.next_sequence)."""
        return self._lake.next_sequence()

    def add(self, pushed: Sequence[PushedLead]) -> None:
        """Keep these leads, all or none. When this returns, they are on the disk.

        Whom the suppression list keeps out is kept out when they are taken in.
        """
        if not pushed:
            return
        try:
            self._lake.suppression.read()
        except StorageError as error:
            logger.warning("A delivery was kept whole, and waits. %s", error)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(8)}{_SUFFIX}"
        if self._lake.store is not None:
            # There alone: whichever machine takes in next fetches it.
            self._lake.store.create(f"{_SPOOL}{name}", _file_of(pushed))
        else:
            replace_file(self._folder / name, _file_of(pushed))

    def drop_erased(self) -> int:
        """Take deliveries of leads that the suppression list erases out of what waits; how many."""
        removed = 0
        with self._lake.lock("spool"), storing(self._folder):
            self._sweep(WRITING_SECONDS)
            for path in self.waiting():
                pushed = self._read(path)
                erased = self._lake.verdict(map(_shown, pushed)).erased
                rest = [one for one in pushed if (one.kind.name, one.lead.lead_id) not in erased]
                if len(rest) == len(pushed):
                    continue
                removed += len(pushed) - len(rest)
                if rest and self._lake.store is not None:
                    self.add(rest)  # an object is never replaced
                elif rest:
                    replace_file(path, _file_of(rest))
                if not rest or self._lake.store is not None:
                    self._remove(path)
            if self._folder.is_dir():
                sync(self._folder)
        return removed

    def waiting(self) -> list[Path]:
        """The files that nobody has taken in yet, oldest first; with them those that lie in a store."""
        store = self._lake.store
        for key in filter(_KEY.fullmatch, store.list(_SPOOL) if store else ()):
            if not (self._lake.folder / key).exists() and store and (content := store.get(key)):
                replace_file(self._lake.folder / key, content)
        return sorted(self._folder.glob(f"*{_SUFFIX}"))

    def take_in(self, placement: Placement, run_id: str) -> Iterator[TakenIn]:
        """Land what waits as raw files, a portion at a time; a portion is removed once the caller asks for the next.

        Whoever is killed in between has confirmed nothing of a portion, and gets it again, to no harm. A file that
        can't be read is set aside with a warning; the others go on.
        """
        with self._lake.lock("spool"), storing(self._folder):
            self._sweep()
            for files in _chunks(self.waiting()):
                yield self._land(files, placement, run_id)
                for path in files:
                    self._remove(path)

    def _remove(self, path: Path) -> None:
        # Here last: what is still there would be fetched again. What two machines take in is landed twice, to no harm.
        if self._lake.store is not None:
            self._lake.store.delete([f"{_SPOOL}{path.name}"])
        path.unlink(missing_ok=True)

    def _land(self, files: Sequence[Path], placement: Placement, run_id: str) -> TakenIn:
        groups: dict[tuple[str, date, str], list[PushedLead]] = defaultdict(list)
        for path in files:
            for one in self._read(path):
                groups[one.kind.name, *placement.of(one)].append(one)
        taken = TakenIn()
        for (_, day, scope), group in groups.items():
            new, changed = self._lake.land_pushed(group[0].kind, day, scope, group, run_id)
            taken.deliveries[day] += len(group)
            taken.new += new
            taken.changed += changed
        return taken

    def _read(self, path: Path) -> list[PushedLead]:
        content = path.read_bytes()
        if not is_whole_delivery(content):
            self._set_aside(path)
            return []
        records = (_RECORDS.decode(line) for line in content.splitlines()[1:])
        return [
            PushedLead(
                lead_kind(one.kind), ReceivedLead(one.lead_id, one.payload, one.oddity), one.received_at, one.sequence
            )
            for one in records
        ]

    def _set_aside(self, path: Path) -> None:
        aside = self._lake.folder / QUARANTINE / path.relative_to(self._lake.folder)
        make_folder(aside.parent)
        path.replace(aside)
        logger.warning(
            "%s is damaged and was moved to %s: the leads in it are pulled with their windows, if the portal still has "
            "them. The other files are untouched.",
            path,
            aside,
        )

    def _sweep(self, older_than_seconds: float = LEFTOVER_SECONDS) -> None:
        for leftover in self._folder.glob(f".*{_SUFFIX}.*.tmp"):
            with suppress(FileNotFoundError):  # a receiver has just given it its name
                if time.time() - leftover.stat().st_mtime > older_than_seconds:
                    leftover.unlink()


_RECORDS: Final = msgspec.json.Decoder(_Record)


def is_whole_delivery(content: bytes) -> bool:
    """Whether a spool file's content is what was written there, to the last bit."""
    digest, _, lines = content.partition(b"\n")
    return digest == _digest(lines)


def _file_of(pushed: Sequence[PushedLead]) -> bytes:
    lines = b"".join(
        msgspec.json.encode(
            _Record(one.kind.name, one.received_at, one.lead.lead_id, one.lead.payload, one.lead.oddity, one.sequence)
        )
        + b"\n"
        for one in pushed
    )
    return _digest(lines) + b"\n" + lines


def _shown(pushed: PushedLead) -> LeadRow:
    lead = pushed.lead
    return LeadRow(pushed.kind.name, lead.lead_id, pushed.received_at.date(), lead.payload)


def _digest(lines: bytes) -> bytes:
    return hashlib.sha256(lines).hexdigest().encode()


def _chunks(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """The files in portions of about CHUNK_BYTES, so that memory stays bounded after weeks without a taking in."""
    chunk: list[Path] = []
    size = 0
    for path in paths:
        chunk.append(path)
        size += path.stat().st_size
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
