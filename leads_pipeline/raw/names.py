"""Raw windows: a folder for each window, with files whose bytes never change.

    raw/applicant_leads/day=2026-11-19/scope=branch-101/1795000000000000-closed-20-0123456789abcdef.parquet

A name holds the moment of the newest fetch, how whole that was, the number of leads, and the hash
of the bytes. So a listing tells the state of each window.

Belongs here: names, and what a listing tells. Doesn't: reading and landing (landing.py), rows
(rows.py), the verbs of a store (store.py).
"""

import hashlib
import logging
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Final, Literal, NamedTuple

import msgspec

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.due import Failure
from leads_pipeline.domain.window import RETENTION, Scope, Window
from leads_pipeline.errors import SettingsError
from leads_pipeline.raw.rows import microseconds
from leads_pipeline.raw.store import Store

RAW: Final = "raw"
RESTRICTED: Final = "restricted"
QUARANTINE: Final = "quarantine"

# The end of a name in quarantine/: when the file was moved there, UTC.
MOMENT: Final = "%Y%m%dT%H%M%S.%fZ"

# Pushed leads of no configured scope. No scope of the settings has this key.
PUSH_SCOPE: Final = "push"

FAILED: Final = "_failed.json"
_NAME: Final = re.compile(
    r"([0-9]{16})-(open|closed|partial|rows)-([0-9]+)-([0-9a-f]{16})\.parquet", re.ASCII
)
_PLACE: Final = re.compile(r"(\w+)/(\w+)/day=(\d{4}-\d\d-\d\d)/scope=([^/]+)/", re.ASCII)
_KINDS: Final = {kind.table: kind for kind in LEAD_KINDS}
_FAILURE: Final = msgspec.json.Decoder(Failure)

logger = logging.getLogger(__name__)

FileState = Literal["rows", "open", "partial", "closed"]
# A later state wins: a complete window stays complete if a later fetch finds half of it deleted.
_STATES: Final[tuple[FileState, ...]] = ("rows", "open", "partial", "closed")


class Place(NamedTuple):
    """The place of a window.

    `scope` is a scope's key, or PUSH_SCOPE. `root` is RESTRICTED for leads that were set aside.
    """

    kind: LeadKind
    day: date
    scope: str
    root: str = RAW

    @classmethod
    def parse(cls, key: str) -> "Place | None":
        """Read the place from the key of a window's file. None if the file is no window's."""
        match = _PLACE.match(key)
        if match and match[2] in _KINDS:
            with suppress(ValueError, SettingsError):
                return cls(
                    _KINDS[match[2]], date.fromisoformat(match[3]), _checked(match[4]), match[1]
                )
        return None

    @property
    def key(self) -> str:
        """The folder's key, with a slash at its end. Raises SettingsError for an invalid scope."""
        scope = _checked(self.scope)
        return f"{self.root}/{self.kind.table}/day={self.day.isoformat()}/scope={scope}/"


def _checked(scope: str) -> str:
    """Keep an id from leaving the folder: a Scope can be made without its check."""
    return scope if scope == PUSH_SCOPE else Scope.parse(scope).key


def place_of(kind: LeadKind, window: Window) -> Place:
    """Return the place of a window."""
    return Place(kind, window.day, window.scope.key)


class RawFile(NamedTuple):
    """A raw file by its name alone.

    `fetch` is 0 in a file of `rows`. `leads` counts different ids.
    """

    key: str
    fetch: int
    state: FileState
    leads: int
    hash: str

    @classmethod
    def parse(cls, key: str) -> "RawFile | None":
        """Read a key. None for a name that isn't a raw file's."""
        match = _NAME.fullmatch(key, key.rfind("/") + 1)
        if match is None:
            return None
        fetch, state, leads, hash_ = match.groups()
        return cls(key, int(fetch), state, int(leads), hash_)  # type: ignore[arg-type]  # the pattern's states

    def named(self, folder: str) -> str:
        """Return the key that the file has in that folder."""
        return f"{folder}{self.fetch:016}-{self.state}-{self.leads}-{self.hash}.parquet"


@dataclass(slots=True)
class Folder:
    """A window's files.

    `has_failed`: a failure lies beside them, which may be older than the newest fetch.
    """

    files: list[RawFile] = field(default_factory=list)
    has_failed: bool = False

    @property
    def newest(self) -> RawFile | None:
        """The file of the newest whole fetch, None before the first."""
        return max(
            (file for file in self.files if file.fetch), key=attrgetter("fetch"), default=None
        )

    @property
    def state(self) -> FileState:
        """The state of all files together."""
        return most_whole("rows", *(file.state for file in self.files))

    @property
    def hash(self) -> str:
        """What changes with the files, but not with a newer fetch that found the same."""
        return hashlib.sha256(
            " ".join(sorted(file.hash for file in self.files)).encode()
        ).hexdigest()[:16]


def state_of(window: Window, asked_at: datetime) -> FileState:
    """Return the state of a window whose whole answer was asked for at that moment.

    Closed: the window had ended. Partial: the portal had begun to delete it by then.
    """
    if not window.is_closed(asked_at):
        return "open"
    return "closed" if asked_at <= window.start + RETENTION else "partial"


def list_folders(store: Store, prefix: str, now: datetime) -> dict[str, Folder]:
    """Return the windows' folders below the prefix, by their keys. Unknown names are ignored.

    A fetch of the future comes from a clock that ran ahead. The file's modification time counts
    instead. If that lies in the future too, the file counts as rows.
    """
    folders: dict[str, Folder] = {}
    latest = microseconds(now)

    for key in store.list(prefix):
        folder = key[: key.rfind("/") + 1]
        if file := RawFile.parse(key):
            if file.fetch > latest:
                modified_at = store.modified_at(key)
                fetch = microseconds(modified_at) if modified_at and modified_at <= now else 0
                file = file._replace(fetch=fetch, state=file.state if fetch else "rows")
            folders.setdefault(folder, Folder()).files.append(file)
        elif key.endswith(FAILED):
            folders.setdefault(folder, Folder()).has_failed = True

    return folders


def list_places(store: Store, root: str = RAW) -> list[Place]:
    """Return the places that have raw files, by kind, day and scope."""
    keys = (
        key
        for kind in LEAD_KINDS
        for key in store.list(f"{root}/{kind.table}/")
        if RawFile.parse(key)
    )
    return [place for place in dict.fromkeys(map(Place.parse, keys)) if place]


def read_failure(store: Store, key: str, folder: Folder) -> Failure | None:
    """Return the failure in the folder `key`, None unless it is newer than the newest fetch."""
    content = store.get(key + FAILED) if folder.has_failed else None
    if content is None:
        return None

    try:
        failure = _FAILURE.decode(content)
    except msgspec.DecodeError:  # damaged: the window is asked for anyway
        return None

    newest = folder.newest
    return failure if newest is None or microseconds(failure.failed_at) > newest.fetch else None


def set_aside(store: Store, key: str, now: datetime, what_now: str) -> None:
    """Move a damaged file to quarantine, and warn. `what_now` says what it means, in a sentence."""
    # The moment comes last, so that no reader of Parquet folders takes the file for data.
    aside = f"{QUARANTINE}/{key}.{now.astimezone(UTC).strftime(MOMENT)}"
    if store.rename(key, aside):
        logger.warning("%s is damaged and was moved to %s. %s", key, aside, what_now)


def most_whole(*states: FileState) -> FileState:
    """Return the state that all files together have."""
    return max(states, key=_STATES.index)
