"""A copy, on another disk, of what nobody can give back; and the way back from it.

Belongs here: what is copied in which order, the copy's own files, restoring. Doesn't: carrying the copy to another
machine, which tools for that do better (docs/operate.md); whether the layers of a folder agree (cli/backup.py asks).

This is the door: whoever backs up or restores imports from here, and the rooms from each other, downwards: copying and
restoring; store and parts. What is too old is in age.
"""

from leads_pipeline.storage.backup.age import last_backup
from leads_pipeline.storage.backup.copying import BackedUp, back_up
from leads_pipeline.storage.backup.parts import Roots, settings_files
from leads_pipeline.storage.backup.restoring import Restored, restore
from leads_pipeline.storage.backup.store import Backup, Store

__all__ = ["BackedUp", "Backup", "Restored", "Roots", "Store", "back_up", "last_backup", "restore", "settings_files"]
