import itertools
import os
from pathlib import Path

import pytest

from leads_pipeline.durable import copy_file
from leads_pipeline.extents import shared_ranges

BLOCK = 4096
SIZE = 64 * BLOCK


def write(path: Path, content: bytes, at: int = 0) -> None:
    with path.open("r+b" if path.exists() else "wb") as file:
        file.seek(at)
        file.write(content)
        os.fsync(file.fileno())


def test_a_copy_shares_all_but_what_was_written_since(sharing: Path) -> None:
    one, other = sharing / "one", sharing / "other"
    write(one, os.urandom(SIZE))
    copy_file(one, other)
    assert shared_ranges(one, other) == [(0, SIZE)]

    write(other, b"x", 10 * BLOCK + 5)
    write(other, b"x" * BLOCK, 40 * BLOCK)

    ranges = shared_ranges(other, one)
    assert ranges == shared_ranges(one, other)
    assert not any(start <= at < end for start, end in ranges for at in (10 * BLOCK + 5, 40 * BLOCK))
    assert sum(end - start for start, end in ranges) == SIZE - 2 * BLOCK
    contents = one.read_bytes(), other.read_bytes()
    assert all(contents[0][start:end] == contents[1][start:end] for start, end in ranges)


def test_the_same_blocks_at_another_place_are_not_the_same_range(sharing: Path) -> None:
    one, moved = sharing / "here", sharing / "moved"
    write(one, os.urandom(SIZE))
    with one.open("rb") as read, moved.open("wb") as written:
        written.write(bytes(BLOCK))
        os.copy_file_range(read.fileno(), written.fileno(), SIZE - BLOCK, 0, BLOCK)
    assert shared_ranges(one, moved) == []


def test_more_extents_than_one_answer_holds_are_all_compared(sharing: Path) -> None:
    one, other = sharing / "many", sharing / "many-too"
    write(one, os.urandom(3000 * BLOCK))
    copy_file(one, other)
    for number in range(0, 3000, 2):
        with other.open("r+b") as file:
            file.seek(number * BLOCK)
            file.write(b"x" * BLOCK)
    ranges = shared_ranges(one, other)
    blocks = {*itertools.chain.from_iterable(range(start // BLOCK, end // BLOCK) for start, end in ranges)}
    assert blocks == set(range(1, 3000, 2))


def test_files_of_their_own_share_nothing(sharing: Path, tmp_path: Path) -> None:
    for folder in (sharing, tmp_path):
        one, other = folder / "own", folder / "own-too"
        for path in (one, other):
            write(path, b"x" * SIZE)
        assert shared_ranges(one, other) == []


def test_a_file_system_that_does_not_say_shares_nothing() -> None:
    memory = Path("/dev/shm")  # noqa: S108 - a file system in memory, which has no extents
    if not memory.is_dir():
        pytest.skip("No file system in memory here")
    path = memory / f"extents-{os.getpid()}"
    try:
        write(path, b"x" * SIZE)
        assert shared_ranges(path, path) == []
    finally:
        path.unlink()
