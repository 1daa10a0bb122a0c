"""Which versions of the Delta tables belong together: delta/versions/, of which the newest file counts.

Belongs here: writing and reading it. Doesn't: the tables themselves (log.py).

A commit is atomic for one table alone. So a reader who needs parents and children of one moment takes the versions from
here, which are written once all tables are committed.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from leads_pipeline.delta.folder import FILE_MODE, VERSIONS, delta_folder, make_shared_folder, remove_others
from leads_pipeline.durable import publish_file, storing, sync
from leads_pipeline.lake import Lake


class _Versions(msgspec.Struct, frozen=True):
    """What a file says: when it was written, and the version of each table."""

    at: datetime
    tables: dict[str, int]


def newest_versions(lake: Lake) -> Mapping[str, int] | None:
    """The version of each table that belongs to those of the others; None where there is no whole list."""
    with suppress(IndexError, OSError, ValueError, msgspec.ValidationError):
        return msgspec.json.decode(_files(lake)[-1].read_bytes(), type=_Versions).tables
    return None


def write_versions(lake: Lake, versions: Mapping[str, int], number: int) -> None:
    """Have the newest list say these, and remove those before it. The tables are on the disk. Raises StorageError."""
    before = _files(lake)
    path = _folder(lake) / f"{number:020d}.json"
    content = msgspec.json.encode(_Versions(datetime.now(UTC), dict(versions)))
    with storing(path):
        make_shared_folder(path.parent)
        draft = path.with_name(f".{path.name}.tmp")
        draft.write_bytes(msgspec.json.format(content) + b"\n")
        draft.chmod(FILE_MODE)
        publish_file(draft, path)
        for old in before:  # at once: one that can't be read may have a higher number
            if old != path:
                old.unlink()
        sync(path.parent)


def forget_earlier_versions(lake: Lake) -> None:
    """Leave the newest list alone: whoever was killed over it left others, or a draft. Raises StorageError."""
    with storing(_folder(lake)):
        remove_others(_folder(lake), {_files(lake)[-1].name})


def forget_versions(lake: Lake) -> None:
    """Have no list: what the newest one says is about to be gone. Raises StorageError."""
    with storing(_folder(lake)):
        if _folder(lake).is_dir():
            remove_others(_folder(lake), ())


def _folder(lake: Lake) -> Path:
    return delta_folder(lake) / VERSIONS


def _files(lake: Lake) -> list[Path]:
    """Numbers rise, and are of one length."""
    return sorted(_folder(lake).glob("*.json"))
