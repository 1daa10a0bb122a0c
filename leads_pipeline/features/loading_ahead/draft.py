"""The draft that is loaded ahead: where it lies, and what it was begun from.

It lies in a folder of its own. A publication takes it by renaming the folder, so from then on no
helper can make a file in it: nobody who is erased comes back by a helper that still runs.
"""

import hashlib
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.raw.durable import PRIVATE_FOLDER_MODE, storing
from leads_pipeline.raw.state import State
from leads_pipeline.warehouse.current_leads import WindowKey
from leads_pipeline.warehouse.duck import connection
from leads_pipeline.warehouse.editions import FOLDER_MODE, remove_folder
from leads_pipeline.warehouse.load_leads import LOADED_WINDOWS, by_window, made_by
from leads_pipeline.warehouse.tables import columns_of

# The file in the folder.
FILE: Final = "leads.duckdb"

# The lock that the helper holds as long as it runs.
LOCK: Final = "following"

# What a publication needs of the rounds lies in this schema of the draft. The publication drops it.
AHEAD: Final = "ahead"

# The number of the publication in rows that were loaded ahead, until one adopts them.
LOADED_AHEAD: Final = 0

# What each round notes of its leads, for the publication.
OF_ROUNDS: Final = ("touched", "received_ids")


class Origin(NamedTuple):
    """The state that a draft was begun from: the file, how rows are made, and who is shown.

    `edition` is the published file's name, empty if nothing was published. `made_by` is a hash,
    because the text has the key of people.
    """

    edition: str
    made_by: str
    forgets_if: str

    @classmethod
    def of(cls, edition: Path | None, zone: ZoneInfo, state: State, forgets_if: str) -> Self:
        """Return what a draft would be begun from now."""
        made = made_by(zone, state.person_key())
        return cls(
            edition.name if edition else "", hashlib.sha256(made.encode()).hexdigest(), forgets_if
        )


class DraftFolder:
    """The folder of the draft of a data folder. Methods raise StorageError."""

    def __init__(self, data_folder: Path) -> None:
        self._editions = data_folder / ".versions"
        self.path = self._editions / "ahead"
        self.file = self.path / FILE

    def make(self) -> None:
        """Make the folder, for this user alone."""
        with storing(self.path):
            self._editions.mkdir(mode=FOLDER_MODE, exist_ok=True)
            self.path.mkdir(mode=PRIVATE_FOLDER_MODE, exist_ok=True)

    def take(self) -> Path:
        """Rename the folder to a publication's draft, if it is there.

        Return the new path, also if there was no folder. A helper that still runs can't make a
        file in it any more.
        """
        taken = self._editions / f"draft-ahead_{secrets.token_hex(8)}"
        with storing(self.path), suppress(FileNotFoundError):
            self.path.rename(taken)
        return taken

    def remove(self) -> None:
        """Remove the folder, if it is there."""
        self.discard(self.take())

    def discard(self, taken: Path) -> None:
        """Remove what was taken, if there was something."""
        with storing(taken):
            remove_folder(taken)


def windows_from(origin: Origin, data_folder: Path, draft: Path) -> dict[WindowKey, str] | None:
    """Return the windows in the draft.

    None if it was begun from something else, or can't be read.
    """
    if not draft.exists():
        return None
    with suppress(StorageError, BugError), connection(data_folder, draft) as db:
        # A helper may have been killed before it noted one.
        if db.execute(f"from {AHEAD}.origin").fetchall() == [origin]:
            return windows_in(db)
    return None


def windows_in(db: duckdb.DuckDBPyConnection) -> dict[WindowKey, str]:
    """Return the windows that are loaded, with the hashes of their files."""
    if not columns_of(db, "windows", "pipeline"):
        return {}
    return by_window(db.execute(LOADED_WINDOWS).fetchall())
