"""Which raw windows a publication looks at, and who passes the list while they are read."""

from pathlib import Path

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.warehouse.unpublished import RawWindows
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, WINDOW, lead


def test_a_file_that_an_older_list_has_filtered_passes_the_list_when_it_is_read(
    tmp_path: Path,
) -> None:
    store = FolderStore(tmp_path)
    gate = KeptOut(tmp_path / "list")
    Raw(store, gate).land(APPLICANT, WINDOW, [lead(1), lead(2)], CLOSED_AT, "hash", "run")
    gate.keep_out("lead-01")

    windows = RawWindows(store, gate)
    [window] = windows.read(windows.hashes(of_all_days=True).keys())

    assert [version.lead_id for version in window.versions] == ["lead-02"]
