"""Copies a file into a backup or out of one, and checks it on the way."""

import hashlib
import os
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from leads_pipeline.raw.durable import PRIVATE_FILE_MODE

_PART_BYTES: Final = 2**20


def copy_once(source: BinaryIO, target: Path, hash_: str) -> bool:
    """Copy to a new private file in one reading.

    Return False, and leave no file, if the source can't be read or is damaged. `hash_` is how its
    SHA-256 begins. The copy has the source's moment and isn't synced yet. Raises OSError if the
    target can't be written.
    """
    target.touch(PRIVATE_FILE_MODE, exist_ok=False)
    digest = hashlib.sha256()

    with target.open("wb") as file:
        while part := _part_of(source):
            digest.update(part)
            file.write(part)

    if part is None or not digest.hexdigest().startswith(hash_):
        target.unlink()
        return False

    if not isinstance(source, BytesIO):
        modified_ns = os.fstat(source.fileno()).st_mtime_ns
        os.utime(target, ns=(modified_ns, modified_ns))

    return True


def _part_of(source: BinaryIO) -> bytes | None:
    """Read the next bytes. None if that fails."""
    with suppress(OSError):
        return source.read(_PART_BYTES)
    return None
