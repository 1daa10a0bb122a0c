import errno
import os
import threading
from pathlib import Path

import pytest

from leads_pipeline.durable import publish_file, replace_file, syncing
from leads_pipeline.errors import StorageError


def test_what_is_synced_meanwhile_is_on_the_disk_in_the_end_or_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "draft"
    path.write_text("copied")
    synced = []
    is_begun = threading.Event()
    may_end = threading.Event()

    def fsync(descriptor: int) -> None:
        is_begun.set()
        assert may_end.wait(10)
        synced.append(os.pread(descriptor, 6, 0))
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def work_meanwhile() -> None:
        with syncing(path):
            assert is_begun.wait(10)
            assert synced == []
            may_end.set()

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        work_meanwhile()
    assert synced == [b"copied"]


def test_a_file_that_cannot_be_written_is_a_storage_error_that_says_what_to_do(tmp_path: Path) -> None:
    """A file where a folder should be: the one obstacle that stops root too."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")

    with pytest.raises(StorageError, match="can't be written"):
        replace_file(blocked / "x", b"")
    with pytest.raises(StorageError, match="can't be written"):
        publish_file(tmp_path / "missing", tmp_path / "target")
