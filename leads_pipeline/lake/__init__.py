"""The Parquet files of the data folder, and what else has to survive a crash there.

Belongs here: landing, reading, quarantine, staged replacement, locks, whose data the folder holds. Doesn't: HTTP
(client/), what a lead's fields mean (flatten/), the DuckDB file (warehouse/), durable writing (durable.py).

This is the door: whoever uses a lake imports from here, and the rooms from each other, downwards: rewriting, raw and
inventory, refusing, quarantine, sealed, rows; staged, sealed; all of them state.
"""

from leads_pipeline.lake.inventory import Inventory
from leads_pipeline.lake.raw import PUSH_SCOPE, LandedWindow, Landing
from leads_pipeline.lake.rewriting import RawRewriting
from leads_pipeline.lake.staged import StagedFiles

__all__ = ["PUSH_SCOPE", "Lake", "LandedWindow", "Landing"]


class Lake(RawRewriting, Inventory, StagedFiles):
    """The files below one data folder. Many processes and threads may use it at once; it creates what it needs.

    Whatever holds personal data lies in folders of mode 0700 and files of mode 0600. Every method raises StorageError
    where the folder can't take or give what it should; what was there before is then still there.
    """
