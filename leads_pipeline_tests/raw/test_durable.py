import errno
import os
from pathlib import Path

import pytest

from leads_pipeline.raw.durable import copy_file, replace_file, sync


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="this system has no copy_file_range")
@pytest.mark.parametrize("code", [errno.EXDEV, None])
def test_a_copy_that_the_kernel_refuses_or_stops_is_made_as_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """Some file systems tell of no bytes copied in place of an error (docs of copy_file_range, its
    bugs).
    """
    content = os.urandom(300_000)
    source = tmp_path / "source"
    target = tmp_path / "target"
    source.write_bytes(content)
    copied: list[int] = []
    copy_in_kernel = os.copy_file_range

    def stopping(read: int, written: int, count: int) -> int:
        if not copied:
            copied.append(copy_in_kernel(read, written, count // 2))
            return copied[0]
        if code is None:
            return 0
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "copy_file_range", stopping)
    copy_file(source, target)
    assert (copied, target.read_bytes() == content) == ([150_000], True)


def test_a_file_and_its_folder_are_on_the_disk_before_the_writer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    path = tmp_path / "folder" / "file"
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(
            (Path(f"/proc/self/fd/{descriptor}").readlink().suffix or "folder", path.exists())
        )
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    replace_file(path, b"content")
    # The folder above it, the draft before it gets its name, and the folder after.
    assert synced == [("folder", False), (".tmp", False), ("folder", True)]


def test_a_file_that_cannot_be_synced_is_an_error_and_a_folder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 82: older SMB mounts can't sync a folder."""
    for code in (errno.EINVAL, errno.ENOTSUP):

        def refuse(_: int, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", refuse)
        sync(tmp_path)
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match=os.strerror(code)):
            sync(tmp_path / "file")
