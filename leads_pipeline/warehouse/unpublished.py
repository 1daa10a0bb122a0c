"""Raw windows as publishing reads them: what has changed, and each window's leads.

Belongs here: hashes of windows, which of them aren't published yet. Doesn't: files (raw/), a
window's leads (current_leads.py).
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.domain.window import days
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.gatekeeper import Gatekeeper
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import Folder, Place
from leads_pipeline.raw.store import Store
from leads_pipeline.raw.windows import list_days
from leads_pipeline.warehouse.current_leads import WindowKey, WindowLeads, current_leads
from leads_pipeline.warehouse.load_leads import LOADED_WINDOWS, by_window
from leads_pipeline.warehouse.published import LeadsFile

# A publication looks at the windows of so many days. Nobody pulls or pushes into older ones.
PUBLISHED_DAYS: Final = 60


def recent_days(now: datetime) -> Iterator[date]:
    """Return these days, up to tomorrow by UTC: somewhere it has begun."""
    return days(now.date() - timedelta(days=PUBLISHED_DAYS), now.date() + timedelta(days=1))


class RawWindows:
    """The raw windows of a store, behind the gate. Methods raise StorageError."""

    def __init__(
        self,
        store: Store,
        gate: Gatekeeper,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._gate = gate
        self._clock = clock
        self._raw = Raw(store, gate, clock)
        self._folders: dict[tuple[str, bool], dict[str, Folder]] = {}

    def folders(self, kind: LeadKind, *, of_all_days: bool) -> dict[str, Folder]:
        """List the folders of the last 60 days, or of all.

        They are listed once: 500 branches have 60,000 of them.
        """
        listed = kind.name, of_all_days
        if listed not in self._folders:
            now = self._clock()
            self._folders[listed] = list_days(
                self._store, kind, None if of_all_days else recent_days(now), now
            )
        return self._folders[listed]

    def hashes(self, *, of_all_days: bool) -> dict[WindowKey, str]:
        """Hash the files of each window of the last 60 days, or of all."""
        return {window: folder.hash for window, folder in self.landed(of_all_days=of_all_days)}

    def landed(self, *, of_all_days: bool) -> Iterator[tuple[WindowKey, Folder]]:
        """Yield the windows of the last 60 days, or of all, that have files."""
        for kind in LEAD_KINDS:
            for key, folder in self.folders(kind, of_all_days=of_all_days).items():
                place = Place.parse(key)
                if folder.files and place:
                    yield (kind.name, place.day, place.scope), folder

    def read(self, windows: Collection[WindowKey]) -> Iterator[WindowLeads]:
        """Yield each window's leads, as they may be shown."""
        for window in sorted(windows):
            yield current_leads(self._raw, self._gate, window)


def unpublished_days(data: DataFolder) -> list[date]:
    """Return the days with a window that leads.duckdb lacks, or has in an older state."""
    published: dict[WindowKey, str] = {}
    with suppress(LeadsPipelineError):  # there is none, or it is of another release or damaged
        published = by_window(LeadsFile(data).query(LOADED_WINDOWS)[1])
    hashes = RawWindows(data.store, data.gate).hashes(of_all_days=False)
    return sorted(
        {
            day
            for (kind, day, scope), hash_ in hashes.items()
            if published.get((kind, day, scope)) != hash_
        }
    )
