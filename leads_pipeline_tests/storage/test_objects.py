"""One contract for every store: a folder, and a bucket of moto."""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.objects import ObjectStore, open_store, prove
from leads_pipeline.objects.folder import FolderStore
from leads_pipeline_tests.support.buckets import KEYS, made_bucket, running_moto


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The address of a server that speaks S3."""
    with running_moto() as address:
        yield address


def new_bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty bucket; the variables lead to it."""
    for name, value in {**KEYS, "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    open_store.cache_clear()
    return f"s3://{made_bucket(server)}"


@pytest.fixture
def bucket(moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return new_bucket(moto, monkeypatch)


@pytest.fixture(params=["folder", "moto", "moto/leads/of=us"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    if request.param == "folder":
        return open_store(f"{tmp_path.as_uri()}/a%20store")
    server, slash, prefix = request.param.partition("/")
    address = new_bucket(request.getfixturevalue(server), monkeypatch)
    return open_store(f"{address}{slash}{prefix}", plain_http=True)


KEY = "raw/applicant_leads/day=2026-11-19/scope=branch-101/leads-0f3a.parquet"


def test_a_key_is_taken_once(store: ObjectStore) -> None:
    assert store.create(KEY, b"first")
    assert not store.create(KEY, b"second")
    assert store.get(KEY) == b"first"


def test_of_many_that_create_one_key_at_once_one_is_told_that_it_did(store: ObjectStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(lambda number: store.create(KEY, str(number).encode()), range(8)))
    assert created.count(True) == 1
    assert store.get(KEY) == str(created.index(True)).encode()


@pytest.mark.parametrize("content", [b"", b"\0" * 12_000, os.urandom(7_000_000)], ids=["nothing", "little", "much"])
def test_what_was_created_is_got_to_the_last_bit(store: ObjectStore, content: bytes) -> None:
    assert store.create(KEY, content)
    assert store.get(KEY) == content


def test_what_is_not_there_is_nothing(store: ObjectStore) -> None:
    assert store.get(KEY) is None
    assert store.created_at(KEY) is None
    assert store.list("") == store.list("raw/") == []
    store.delete([])
    store.delete([KEY])


def test_each_key_is_listed_as_soon_as_it_is_created(store: ObjectStore) -> None:
    keys = sorted(f"raw/day={day}/leads-{number}" for day in range(3) for number in range(4))
    for key in reversed(keys):
        assert store.create(key, b"")
        assert key in store.list("raw/")
    assert store.create("raws/other", b"")
    assert store.list("raw/") == keys
    assert store.list("raw/day=1/") == keys[4:8]
    assert store.list("ra/") == []
    assert store.list("") == [*keys, "raws/other"]


@pytest.mark.slow
def test_more_than_a_page_of_keys_is_listed_and_deleted(store: ObjectStore) -> None:
    keys = sorted(f"raw/{number}" for number in range(1100))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda key: store.create(key, b"x"), keys))
    assert store.list("raw/") == keys
    store.delete(keys[1:])
    assert store.list("") == keys[:1]


def test_a_deleted_key_can_be_created_again(store: ObjectStore) -> None:
    store.create(KEY, b"first")
    store.delete([KEY, "never/there"])
    assert store.get(KEY) is None
    assert store.create(KEY, b"second")


def test_the_store_says_when_a_key_was_created(store: ObjectStore) -> None:
    before = datetime.now(UTC)
    store.create(KEY, b"")
    created = store.created_at(KEY)
    assert created is not None
    assert abs(created - before) < timedelta(seconds=5)


def test_two_prefixes_of_a_bucket_know_nothing_of_each_other(bucket: str) -> None:
    one, two = (open_store(f"{bucket}/{name}", plain_http=True) for name in ("a", "ab"))
    one.create(KEY, b"one")
    assert two.list("") == []
    assert two.create(KEY, b"two")
    assert one.get(KEY) == b"one"


def test_the_address_is_what_the_setting_says(store: ObjectStore) -> None:
    assert store.address.startswith(("s3://leads-", "file://"))


# --- what goes wrong, in words ----------------------------------------------------------------------------------------


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    store = open_store(f"{bucket}-which-nobody-made", plain_http=True)
    for verb in (lambda: store.list(""), lambda: store.create(KEY, b"a lead's text")):
        with pytest.raises(
            StorageError, match=r"s3://leads-\w+-which-nobody-made/.*Look whether the bucket exists"
        ) as told:
            verb()
        assert "lead's text" not in str(told.value)
        assert "a-secret" not in str(told.value)


def test_an_endpoint_of_http_is_not_talked_to_unless_it_may_be(bucket: str) -> None:
    with pytest.raises(StorageError):
        open_store(bucket, plain_http=False).list("")


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    open_store.cache_clear()
    with pytest.raises(SettingsError, match=r"pip install 'leads-pipeline\[s3\]'"):
        open_store("s3://leads")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="can't be written"):
        open_store(f"{tmp_path.as_uri()}/file/below").create(KEY, b"")


def test_what_a_writer_left_unfinished_is_no_key(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / ".0f3a.unfinished").write_bytes(b"half")
    assert store.list("") == []


# --- whether a store is one -------------------------------------------------------------------------------------------


def test_a_store_is_proved_and_nothing_of_it_stays(store: ObjectStore) -> None:
    assert abs(prove(store)) < timedelta(seconds=5)
    assert store.list("") == []


class Replacing(FolderStore):
    """Takes the condition, and overwrites."""

    def create(self, key: str, content: bytes) -> bool:
        super().delete([key])
        return super().create(key, content)


class Silent(Replacing):
    """Overwrites, and says that it didn't."""

    def create(self, key: str, content: bytes) -> bool:
        is_new = self.get(key) is None
        super().create(key, content)
        return is_new


class Slow(FolderStore):
    """Lists what was there a while ago."""

    def list(self, prefix: str) -> list[str]:
        return super().list(prefix)[:0]


class Keeping(FolderStore):
    """Deletes nothing."""

    def delete(self, keys: Sequence[str]) -> None:
        assert keys


class Full(FolderStore):
    """Has everything already."""

    def create(self, key: str, content: bytes) -> bool:
        return not super().create(key, content)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Replacing, "replaces an object although"),
        (Silent, "replaces an object although"),
        (Slow, "doesn't list a key"),
        (Keeping, "still has what was deleted"),
        (Full, "is taken that nobody"),
    ],
)
def test_a_store_that_does_not_keep_to_it_is_refused(kind: type[FolderStore], why: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"can't hold leads: it .*{why}"):
        prove(kind(tmp_path))


def test_nothing_is_landed_in_a_store_that_is_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "data", store=Replacing(tmp_path / "store"))
    with pytest.raises(StorageError, match="can't hold leads"):
        lake.refresh(())
    assert not (tmp_path / "data" / "raw").exists()
