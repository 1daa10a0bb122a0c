"""The Parquet files of the data folder, and what else has to survive a crash there.

Belongs here: landing, reading, quarantine, staged replacement, locks, whose data the folder holds. Doesn't: HTTP
(portal/), what a lead's fields mean (flatten/), the DuckDB file (warehouse/), durable writing (durable.py).

This is the door: whoever uses a lake imports from here, and the rooms from each other, downwards: refreshing,
rewriting, raw and inventory, gate, shared, quarantine, sealed, rows; staged, sealed; all of them state.
"""

from typing import Self

from leads_pipeline.lake.raw import PUSH_SCOPE, LandedWindow, Landing
from leads_pipeline.lake.refreshing import Refreshing
from leads_pipeline.lake.rows import RAW_COLUMNS, RAW_INVENTORY_COLUMNS, RAW_SCHEMA, RawColumn
from leads_pipeline.lake.staged import StagedFiles
from leads_pipeline.objects import store_of
from leads_pipeline.settings import Settings

__all__ = [
    "PUSH_SCOPE",
    "RAW_COLUMNS",
    "RAW_INVENTORY_COLUMNS",
    "RAW_SCHEMA",
    "Lake",
    "LandedWindow",
    "Landing",
    "RawColumn",
]


class Lake(Refreshing, StagedFiles):
    """The files below one data folder. Many processes and threads may use it at once; it creates what it needs.

    Whatever holds personal data lies in folders of mode 0700 and files of mode 0600. Every method raises StorageError
    where the folder can't take or give what it should; what was there before is then still there.
    """

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The lake that the settings name, with its suppression list, wherever that lies."""
        return cls(settings.data_dir, settings.privacy_dir, store_of(settings.store, plain_http=settings.plain_http))

    @classmethod
    def refreshed(cls, settings: Settings) -> Self:
        """The same, with all that the store has of it."""
        lake = cls.of(settings)
        lake.refresh()
        return lake
