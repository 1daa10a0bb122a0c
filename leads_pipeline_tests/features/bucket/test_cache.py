"""A bucket that is read through a folder of this machine."""

from pathlib import Path

import pytest

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.features.bucket.cache import CachedStore
from leads_pipeline.raw.landing import Raw
from leads_pipeline.raw.names import place_of
from leads_pipeline.raw.rows import merged
from leads_pipeline.raw.store import FolderStore
from leads_pipeline_tests.support.keeping_out import KeptOut
from leads_pipeline_tests.support.sample_answers import CLOSED_AT, LATER, TWENTY, WINDOW, lead

PLACE = place_of(APPLICANT, WINDOW)


class Machine:
    """A machine with a cache. `fetched` are the keys that it has got from the bucket."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.fetched: list[str] = []
        bucket = FolderStore(folder.with_name("bucket"))
        get = bucket.get

        def getting(key: str) -> bytes | None:
            self.fetched.append(key)
            return get(key)

        monkeypatch.setattr(bucket, "get", getting)
        self.store = CachedStore(bucket, folder)
        self.raw = Raw(self.store, KeptOut(folder.with_name("kept_out")), lambda: LATER)

    def ids(self) -> set[str]:
        return {row.lead_id for row in merged(self.raw.read(PLACE).rows)}

    def cached(self) -> list[str]:
        return [path.name for path in self.folder.rglob("*.parquet")]


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Machine, Machine]:
    return Machine(tmp_path / "one", monkeypatch), Machine(tmp_path / "two", monkeypatch)


def test_a_raw_file_is_fetched_once_and_not_by_the_machine_that_landed_it(
    machines: tuple[Machine, Machine],
) -> None:
    one, two = machines
    one.raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "hash", "run-1")
    assert len(one.ids()) == len(two.ids()) == len(two.ids()) == 20
    assert (one.fetched, len(two.fetched)) == ([], 1)
    two.raw.land(APPLICANT, WINDOW, TWENTY, LATER, "hash", "run-2")
    assert len(two.fetched) == 1


def test_what_another_machine_deletes_goes_with_the_next_listing(
    machines: tuple[Machine, Machine],
) -> None:
    one, two = machines
    one.raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "hash", "run-1")
    assert two.ids()
    before = two.cached()

    one.raw.land(APPLICANT, WINDOW, [lead(30)], LATER, "other", "run-2")
    assert "lead-30" in two.ids()
    assert set(before).isdisjoint(two.cached())

    one.raw.rewrite(PLACE, lambda _: [])
    assert two.ids() == set()


def test_a_damaged_cache_is_fetched_again_and_nothing_is_set_aside(
    machines: tuple[Machine, Machine],
) -> None:
    one, _ = machines
    one.raw.land(APPLICANT, WINDOW, TWENTY, CLOSED_AT, "hash", "run-1")
    [path] = one.folder.rglob("*.parquet")
    path.write_bytes(b"damaged")
    assert len(one.ids()) == 20
    assert path.read_bytes() != b"damaged"
    assert one.store.list("quarantine/") == []
