"""The format of a data folder or a bucket: the number that says which versions work with it.

Belongs here: the number, and refusing the files of another version. Doesn't: what files look like
(rows.py, names.py).
"""

import re
from typing import Final

from leads_pipeline.errors import SettingsError
from leads_pipeline.raw.names import RAW
from leads_pipeline.raw.rows import FORMAT
from leads_pipeline.raw.store import Store

# The key of the number in a folder, and in a bucket.
IN_FOLDER: Final = ".state/raw_format"
IN_BUCKET: Final = "state/raw_format"

# Files of versions before 3: windows and an inventory, and pushed leads that waited.
_EARLIER_NAMES: Final = re.compile(r"(?:leads|pushed|items)(?:-[0-9a-f]{32})?\.parquet", re.ASCII)
_EARLIER_FOLDER: Final = "spool/"


def check_format(store: Store, key: str) -> None:
    """Raise SettingsError if another version wrote the files of the store.

    `key` is that of the number. Nothing is written. Raises StorageError if the store can't be read.
    """
    format_there = (store.get(key) or b"").decode(errors="replace").strip()
    if not format_there:
        if _has_earlier_files(store):
            raise SettingsError(
                f"{store.address} has files of an early version of leads-pipeline, which this one "
                "can't read: copy its privacy/ into a new folder, name that in LEADS_DATA_DIR, "
                "and pull the days that the portal still has.",
                reason="another version's data folder",
            )
        return

    if format_there != str(FORMAT):
        raise SettingsError(
            f"{store.address} has the format {format_there} of another version of leads-pipeline, "
            f"and this one works with {FORMAT}: install that version again, or set LEADS_DATA_DIR "
            "to another folder.",
            reason="another version's data folder",
        )


def note_format(store: Store, key: str) -> None:
    """Write the number, unless the store has one. Raises StorageError."""
    if store.get(key) is None:
        store.create_once(key, f"{FORMAT}\n".encode())


def _has_earlier_files(store: Store) -> bool:
    names = [key.rpartition("/")[2] for key in store.list(f"{RAW}/")]
    return bool(store.list(_EARLIER_FOLDER)) or any(map(_EARLIER_NAMES.fullmatch, names))
