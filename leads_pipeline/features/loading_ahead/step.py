"""The step of a publication that goes on from what was loaded ahead.

Belongs here: which draft is adopted, and that its leads count as the publication's. Doesn't: the
draft (draft.py), loading the windows that it lacks (warehouse/load_leads.py).
"""

# ruff: noqa: S608 - only our own names are in the statements

from contextlib import suppress
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import StorageError
from leads_pipeline.features.loading_ahead.draft import (
    AHEAD,
    FILE,
    LOADED_AHEAD,
    LOCK,
    OF_ROUNDS,
    DraftFolder,
    Origin,
    windows_from,
)
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.warehouse.duck import quoted
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.step import Base, Draft, Publication, Step
from leads_pipeline.warehouse.tables import columns_of


class AdoptDraft(Step):
    """Adopts the draft if it was begun from what is there now, else deletes it."""

    name = "loading ahead"

    def __init__(self, data: DataFolder, zone: ZoneInfo) -> None:
        self._data = data
        self._zone = zone
        self._draft = DraftFolder(data.folder)

    def base(self, published: Path | None, forgets_if: str) -> Base | None:
        """Take the draft, and return it to go on from.

        None if it was begun from something else, can't be read, or a helper still runs. Then it is
        deleted.
        """
        origin = Origin.of(published, self._zone, self._data.state, forgets_if)
        # Taken before it is read: one that kills its reader is gone then.
        taken = self._draft.take()
        windows = None

        # Nobody waits for a helper that still runs.
        with suppress(StorageError), self._data.state.lock(LOCK, timeout_seconds=0):
            windows = windows_from(origin, self._data.folder, taken / FILE)

        if windows is None:
            self._draft.discard(taken)
            return None

        return Base(taken / FILE, windows)

    def fill(self, draft: Draft) -> None:
        """Have leads that were loaded ahead count as those of this publication."""
        if not columns_of(draft.db, "origin", AHEAD):
            return
        with draft.transaction():
            _adopt_rounds(draft)
            draft.db.execute(f"drop schema {AHEAD} cascade")

    def after(self, publication: Publication) -> None:  # noqa: ARG002 - as any step
        """Delete what a helper has begun from the file that was just replaced."""
        self._draft.remove()


def _adopt_rounds(draft: Draft) -> None:
    db = draft.db
    if not columns_of(db, OF_ROUNDS[0], AHEAD):  # killed before its first round
        return
    for name in OF_ROUNDS:
        db.execute(f"insert into {name} from {AHEAD}.{name}")
    for kind in LEAD_KINDS:
        db.execute(
            f"update {quoted(kind.table)} set published_in = {draft.changes.edition_number} "
            f"where published_in = {LOADED_AHEAD}"
        )


def steps(data: DataFolder, settings: PublicationSettings, _now: datetime) -> list[Step]:
    """Return what loading ahead adds to a publication."""
    return [AdoptDraft(data, settings.zone)]
