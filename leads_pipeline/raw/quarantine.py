"""Files that couldn't be read: damaged ones, and answers of the portal.

Belongs here: listing both, and keeping an answer. Doesn't: moving a damaged file there.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.domain.window import Window
from leads_pipeline.raw.names import MOMENT, QUARANTINE, Place, RawFile, place_of
from leads_pipeline.raw.store import FolderStore, Store

_ANSWERS: Final = f"{QUARANTINE}/answers/"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A damaged file. `place` is the window that it came from, None if it held no raw leads.

    `file` is its name as it was, None for a file of an earlier version. `set_aside_at` is None for
    a damaged leads.duckdb.
    """

    key: str
    place: Place | None
    file: RawFile | None
    set_aside_at: datetime | None

    @property
    def is_pushed(self) -> bool:
        """Whether it may hold pushed leads, which the portal doesn't send again."""
        return self.file.state == "rows" if self.file else "/pushed" in self.key


class Quarantine:
    """The folder quarantine/ of a store. A damaged leads.duckdb lies in this machine's `folder`.

    Methods raise StorageError.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._here = FolderStore(folder)

    def files(self) -> list[Quarantined]:
        """Return the damaged files, by key."""
        prefix = f"{QUARANTINE}/"
        keys = {*self._store.list(prefix), *self._here.list(prefix)}
        return [_quarantined(key) for key in sorted(keys) if not key.startswith(_ANSWERS)]

    def get(self, key: str) -> bytes | None:
        """Return the content of a damaged file or a kept answer."""
        return self._store.get(key) or self._here.get(key)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete damaged files or kept answers. Missing ones are no error."""
        keys = list(keys)
        self._store.delete(keys)
        self._here.delete(keys)

    def keep_answer(self, kind: LeadKind, window: Window, body: bytes) -> None:
        """Keep an unreadable answer as received, in place of the window's earlier one."""
        self._store.create(
            _ANSWERS + place_of(kind, window).key.partition("/")[2].rstrip("/"), body
        )

    def answers(self) -> list[str]:
        """Return the keys of all kept answers."""
        return self._store.list(_ANSWERS)

    def forget_answers(self, before: datetime) -> None:
        """Delete the answers that were kept before that moment."""
        kept_at = {key: self._store.modified_at(key) for key in self.answers()}
        self._store.delete([key for key, moment in kept_at.items() if moment and moment < before])


def _quarantined(key: str) -> Quarantined:
    name, _, moment = key.removeprefix(f"{QUARANTINE}/").rpartition(".parquet.")
    if not name:
        return Quarantined(key, None, None, None)

    former = f"{name}.parquet"
    try:
        set_aside_at = datetime.strptime(moment, MOMENT).replace(tzinfo=UTC)
    except ValueError:  # moved there by a person
        set_aside_at = None

    return Quarantined(key, Place.parse(former), RawFile.parse(former), set_aside_at)
