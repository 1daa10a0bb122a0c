"""Keeping people out of raw windows and of what is published.

Belongs here: what the core asks, and the gate of an installation without the feature `privacy`.
Doesn't: the suppression list and its own gate (features/privacy/).
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final, Protocol

from leads_pipeline.domain.contract import LeadKind
from leads_pipeline.errors import StorageError
from leads_pipeline.raw.durable import reading
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.rows import Row
from leads_pipeline.raw.store import FolderStore, Store

# The list's folder in a data folder, in a bucket and in a backup.
LIST: Final = "privacy"

# The data folder remembers here the newest entry of the list that it knew, wherever the list is.
GUARD: Final = ".state/privacy"

# The files of a list that somebody is on: of this version, and of earlier ones. Its key may be
# there before.
_WITH_ENTRIES: Final = (f"{LIST}/list/", f"{LIST}/suppressed", f"{LIST}/entries/")


class Gatekeeper(Protocol):
    """Keeps people out, by the suppression list.

    Its methods raise StorageError if the list can't be used. `folder` has the list's files.
    """

    @property
    def folder(self) -> Path:
        """The folder of the list's files. It may be missing."""

    @property
    def newest_entry(self) -> int:
        """The number of the newest entry by which rows may have to go, read anew each time.

        It only grows. Requests that were answered or finished don't count.
        """

    def knows(self, kind: LeadKind, lead_ids: Collection[str]) -> bool:
        """Whether the list names one of these leads by its id.

        Then its rows may have to go or to change.
        """

    def admit(self, place: Place, rows: list[Row]) -> list[Row]:
        """Return the rows that may lie in the window, in their order.

        Their payloads are as they may lie there. Rows that are set aside are durable in their other
        place when this returns.
        """

    def kept_out(self, kind: LeadKind, lead_ids: Collection[str]) -> set[str]:
        """Return which of these leads the list keeps out of what is published, by their ids."""

    def objecting(self, kind: LeadKind, lead_ids: Collection[str]) -> set[str]:
        """Return the ids of the leads of people who object to direct marketing."""

    def objecting_people(self) -> set[str]:
        """Return those people whom the list knows as the column `person` has them."""

    def exchange_with_bucket(self) -> None:
        """Exchange entries with the bucket's list, if there is a bucket.

        Another machine may have erased somebody.
        """

    def take_over(self, root: Path) -> None:
        """Take over all entries of the copy that is `privacy` in that folder.

        Raises StorageError if the two lists contradict each other.
        """


class OpenGate:
    """Lets everybody in: the Gatekeeper of an installation without the feature `privacy`.

    Nobody is on a list there. If there is a list all the same, or the data folder knew one, each
    method raises StorageError. Privacy is no switch.
    """

    def __init__(self, data: Path, bucket: Store | None = None) -> None:
        self.folder = data / LIST
        self._guard = data / GUARD
        self._data = FolderStore(data)
        self._bucket = bucket

    @property
    def newest_entry(self) -> int:
        """The number of no entry."""
        self._want_no_list()
        return 0

    def knows(self, kind: LeadKind, lead_ids: Collection[str]) -> bool:  # noqa: ARG002 - as any gatekeeper
        """Whether the list names one of these leads."""
        self._want_no_list()
        return False

    def admit(self, place: Place, rows: list[Row]) -> list[Row]:  # noqa: ARG002 - as any gatekeeper
        """Return all of them."""
        self._want_no_list()
        return rows

    def kept_out(self, kind: LeadKind, lead_ids: Collection[str]) -> set[str]:  # noqa: ARG002 - as any gatekeeper
        """Return none of them."""
        self._want_no_list()
        return set()

    def objecting(self, kind: LeadKind, lead_ids: Collection[str]) -> set[str]:  # noqa: ARG002 - as any gatekeeper
        """Return none of them."""
        self._want_no_list()
        return set()

    def objecting_people(self) -> set[str]:
        """Return nobody."""
        self._want_no_list()
        return set()

    def exchange_with_bucket(self) -> None:
        """Look for a list in the bucket, too. That takes a request, so the other methods don't."""
        self._want_no_list()
        if self._bucket is not None:
            _want_no_entries(self._bucket)

    def take_over(self, root: Path) -> None:
        """Raise StorageError if the copy has entries."""
        self._want_no_list()
        _want_no_entries(FolderStore(root))

    def _want_no_list(self) -> None:
        with reading(self._guard):
            has_known_a_list = self._guard.exists()
        if has_known_a_list:
            raise _unread(str(self.folder))
        _want_no_entries(self._data)


def _want_no_entries(store: Store) -> None:
    """Raise StorageError if a list has entries there."""
    if any(key.startswith(_WITH_ENTRIES) for key in store.list(f"{LIST}/")):
        raise _unread(f"{store.address}/{LIST}")


def _unread(list_: str) -> StorageError:
    return StorageError(
        f"There is a suppression list ({list_}), and this installation lacks the feature "
        "`privacy`, which reads it. Nothing is landed or published, because people who were "
        "erased would come back. Put the folder leads_pipeline/features/privacy back, and its "
        "line in leads_pipeline/features/__init__.py. Or install a whole leads-pipeline. What was "
        "landed before is untouched.",
        reason="suppression list",
    )
