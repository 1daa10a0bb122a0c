"""What a bucket does besides the contract of every store (raw/test_store.py), and its errors."""

import sys
from pathlib import Path

import pytest

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.features.bucket.store import open_store
from leads_pipeline_tests.support.buckets import new_bucket

KEY = "raw/applicant_leads/day=2026-11-19/scope=branch-101/0f3a.parquet"


def test_two_prefixes_of_a_bucket_know_nothing_of_each_other(moto: str) -> None:
    bucket = new_bucket(moto)
    one, two = (open_store(f"{bucket}/{name}", plain_http=True) for name in ("a", "ab"))
    one.create(KEY, b"one")
    assert two.list("") == []


def test_a_bucket_that_is_not_there_is_named(moto: str) -> None:
    store = open_store(f"{new_bucket(moto)}-which-nobody-made", plain_http=True)
    said = r"s3://leads-\w+-which-nobody-made/.*Look whether the bucket exists"

    with pytest.raises(StorageError, match=said):
        store.list("")
    with pytest.raises(StorageError, match=said) as told:
        store.create_once(KEY, b"a lead's text")

    assert "lead's text" not in str(told.value)
    assert "a-secret" not in str(told.value)


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 110: a wheel named a lock file and a folder of the checkout."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setattr("leads_pipeline.errors.__file__", str(tmp_path / "package" / "errors.py"))
    open_store.cache_clear()

    with pytest.raises(SettingsError, match=r"`pip install 'leads-pipeline\[s3\]'`"):
        open_store("s3://leads")
