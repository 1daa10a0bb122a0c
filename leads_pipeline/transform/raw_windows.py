"""Raw windows as publishing reads them: what has changed, and each window's leads.

Belongs here: hashes of windows, rows as Arrow tables. Doesn't: files (storage/), a lead's columns (reader.py).
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS, lead_kind
from leads_pipeline.storage.landing import Raw, SuppressionList
from leads_pipeline.storage.raw import RAW, Folder, Place, list_folders
from leads_pipeline.storage.rows import merged, table_of
from leads_pipeline.storage.store import Store
from leads_pipeline.transform.flatten import Batch
from leads_pipeline.transform.publish import WindowKey

# A publication looks at the windows of so many days. Nobody pulls or pushes into older ones.
RECENT_DAYS: Final = 60


class RawWindows:
    """The raw windows of a store. `suppressed` keeps people out of files that an older list has filtered.

    Methods raise StorageError.
    """

    def __init__(
        self, store: Store, suppressed: SuppressionList, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._store, self._suppressed, self._clock = store, suppressed, clock
        self._raw = Raw(store, suppressed, clock)

    def hashes(self, *, of_all_days: bool) -> dict[WindowKey, str]:
        """What changes with a window's files, but not with a newer look that found the same."""
        now = self._clock()
        days = [now.date() + timedelta(days=1) - timedelta(days=ago) for ago in range(RECENT_DAYS)]
        found: dict[WindowKey, str] = {}
        for kind in LEAD_KINDS:
            folder = f"{RAW}/{kind.table}/"
            prefixes = [folder] if of_all_days else [f"{folder}day={day.isoformat()}/" for day in days]
            for prefix in prefixes:
                for key, files in list_folders(self._store, prefix, now).items():
                    if files.files:
                        found[_window_key(kind.name, key)] = _hash_of(files)
        return found

    def read(self, windows: Collection[WindowKey]) -> Iterator[Batch]:
        """Each window's rows: all versions, and the corrections."""
        for name, day, scope in sorted(windows):
            kind = lead_kind(name)
            contents = self._raw.read(Place(kind, day, scope))
            rows = merged(contents.rows)
            if any(opened.footer.list_number < self._suppressed.number for opened in contents.opened):
                rows = self._suppressed.admit(kind, day, scope, rows)
            yield Batch(kind, day, scope, table_of(rows), _hash_of(contents.folder))


def _window_key(kind: str, folder: str) -> WindowKey:
    _, _, day, scope, _ = folder.split("/")
    return kind, date.fromisoformat(day.removeprefix("day=")), scope.removeprefix("scope=")


def _hash_of(folder: Folder) -> str:
    return hashlib.sha256(" ".join(sorted(file.hash for file in folder.files)).encode()).hexdigest()[:16]
