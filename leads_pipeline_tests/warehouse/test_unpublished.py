"""Which raw windows a publication looks at, and who passes the list while they are read."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT, ReceivedLead
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.warehouse.unpublished import RawWindows
from leads_pipeline_tests.support.keeping_out import KeptOut

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)
LEAD = ReceivedLead("a", '{"id":"a"}')
OTHER = ReceivedLead("b", '{"id":"b"}')


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path)


@pytest.fixture
def gate(tmp_path: Path) -> KeptOut:
    return KeptOut(tmp_path / "list")


def test_a_file_that_an_older_list_has_filtered_passes_the_list_when_it_is_read(
    store: FolderStore, gate: KeptOut
) -> None:
    place = Place(APPLICANT, date(2026, 11, 19), "branch-101")
    Raw(store, gate, lambda: NOW).add(place, [LEAD, OTHER], NOW)
    gate.keep_out("a")

    windows = RawWindows(store, gate, lambda: NOW)
    [window] = windows.read(windows.hashes(of_all_days=True).keys())

    assert [version.lead_id for version in window.versions] == ["b"]
