"""One contract for every store: a folder, and a bucket of moto."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from leads_pipeline.features.bucket.store import open_store
from leads_pipeline.raw.store import FolderStore, Store
from leads_pipeline_tests.support.buckets import new_bucket


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A folder, or the keys of a bucket with a prefix. test_names.py has a whole bucket."""
    if request.param == "folder":
        return open_store(f"{tmp_path.as_uri()}/a%20store")
    address = new_bucket(request.getfixturevalue("moto"))
    return open_store(f"{address}/leads/of=us", plain_http=True)


WINDOW = "raw/applicant_leads/day=2026-11-19/scope=branch-101/"
KEY = f"{WINDOW}0f3a.parquet"


def test_what_was_created_last_is_got_to_the_last_bit(store: Store) -> None:
    for content in (b"", os.urandom(7_000_000)):
        store.create(KEY, content)
        assert store.get(KEY) == content
    assert store.list("") == [KEY]


def test_of_many_that_create_a_key_once_one_is_first(store: Store) -> None:
    # moto looks for the key and writes it in two steps, so its writers come one after the other.
    with ThreadPoolExecutor(8 if isinstance(store, FolderStore) else 1) as pool:
        created = list(
            pool.map(lambda number: store.create_once(KEY, str(number).encode()), range(8))
        )
    assert created.count(True) == 1
    assert store.get(KEY) == str(created.index(True)).encode()


def test_who_creates_a_key_once_and_finds_their_own_content_was_first(store: Store) -> None:
    """The answer to the first request may have been lost."""
    assert store.create_once(KEY, b"ours")
    assert store.create_once(KEY, b"ours")
    assert not store.create_once(KEY, b"theirs")


def test_what_is_not_there_is_nothing(store: Store) -> None:
    assert store.get(KEY) is None
    assert store.list("") == store.list("raw/") == []
    assert not store.rename(KEY, f"{KEY}2")
    store.delete([])
    store.delete([KEY])
    store.delete_drafts("raw/")


def test_each_key_is_listed_as_soon_as_it_is_created(store: Store) -> None:
    keys = sorted(f"raw/day={day}/leads-{number}" for day in range(3) for number in range(4))
    for key in reversed(keys):
        store.create(key, b"")
        assert key in store.list("raw/")
    store.create("raws/other", b"")
    assert store.list("raw/") == keys
    assert store.list("raw/day=1/") == keys[4:8]
    assert store.list("") == [*keys, "raws/other"]


@pytest.mark.slow
def test_more_than_a_page_of_keys_is_listed_and_deleted(store: Store) -> None:
    keys = sorted(f"raw/{number}" for number in range(1100))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.create(key, b"x"), keys))
    assert store.list("raw/") == keys
    store.delete(keys[1:])
    assert store.list("") == keys[:1]


def test_a_renamed_file_has_its_new_key_alone(store: Store) -> None:
    store.create(KEY, b"lead")
    aside = f"quarantine/{KEY}"
    assert store.rename(KEY, aside)
    assert store.list("") == [aside]
    assert store.get(aside) == b"lead"


def test_a_file_that_is_renamed_during_a_listing_of_a_long_folder_is_listed(tmp_path: Path) -> None:
    """Of a disk's folder with 1,500 names, one listing in thirty misses it (not of a folder in
    memory).
    """
    for number in range(1500):
        (tmp_path / f"other-{number:04}").touch()
    looks = [tmp_path / f"look-{number}" for number in range(100)]
    looks[0].touch()
    store = FolderStore(tmp_path)
    moments = Random(1)  # noqa: S311

    def rename(look: Path, next_look: Path) -> None:
        time.sleep(moments.uniform(0, 0.004))
        look.rename(next_look)

    with ThreadPoolExecutor(1) as pool:
        for look, next_look in pairwise(looks):
            renaming = pool.submit(rename, look, next_look)
            assert any(key.startswith("look-") for key in store.list(""))
            renaming.result()


# --- unfinished files -----------------------------------------------------------------------------


def test_what_a_killed_writer_left_is_no_key_and_can_be_deleted(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.create(KEY, b"whole")
    left = tmp_path / WINDOW / ".0f3a.tmp"
    left.write_bytes(b"half")
    assert store.list("") == [KEY]
    store.delete_drafts("raw/")
    assert not left.exists()
    assert store.get(KEY) == b"whole"


def test_a_writer_whose_draft_is_deleted_writes_it_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)

    def write() -> None:
        for number in range(10):
            store.create(f"raw/{number}", b"lead")
            assert store.create_once(f"once/{number}", b"key")

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        while not writing.done():
            store.delete_drafts("")

    writing.result()
    assert len(store.list("")) == 20
