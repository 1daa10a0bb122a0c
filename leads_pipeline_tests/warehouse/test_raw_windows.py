"""Which raw windows a publication looks at, and who passes the list while they are read."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.storage.landing import Raw
from leads_pipeline.storage.raw import Place
from leads_pipeline.storage.store import FolderStore
from leads_pipeline.warehouse.raw_windows import RawWindows
from leads_pipeline_tests.support.keeping_out import KeptOut

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
DAY = date(2026, 11, 19)


class Windows:
    """Raw windows as they are landed, and as a publication reads them."""

    def __init__(self, folder: Path) -> None:
        self._store, self.list = FolderStore(folder), KeptOut(folder / "list")
        self._raw = Raw(self._store, self.list, lambda: NOW)

    def land(self, day: date, *ids: str) -> None:
        leads = [ReceivedLead(lead_id, json.dumps({"id": lead_id})) for lead_id in ids]
        self._raw.add(Place(APPLICANT, day, "branch-101"), leads, NOW)

    def publication(self) -> RawWindows:
        return RawWindows(self._store, self.list, lambda: NOW)

    def days(self, *, of_all_days: bool) -> list[date]:
        return sorted(day for _, day, _ in self.publication().hashes(of_all_days=of_all_days))

    def ids(self) -> list[str]:
        windows = self.publication()
        read = windows.read(windows.hashes(of_all_days=True).keys())
        return [version.lead_id for window in read for version in window.versions]


@pytest.fixture
def windows(tmp_path: Path) -> Windows:
    return Windows(tmp_path)


def test_windows_of_the_last_60_days_are_looked_at_and_older_ones_only_with_all(windows: Windows) -> None:
    newest, oldest, older = (NOW.date() + timedelta(days=days) for days in (1, -60, -61))
    for day in (newest, oldest, older):
        windows.land(day, "a")
    assert windows.days(of_all_days=False) == [oldest, newest]
    assert windows.days(of_all_days=True) == [older, oldest, newest]


def test_a_file_that_an_older_list_has_filtered_passes_the_list_when_it_is_read(windows: Windows) -> None:
    windows.land(DAY, "a", "b")
    windows.list.keep_out("a")
    assert windows.ids() == ["b"]
