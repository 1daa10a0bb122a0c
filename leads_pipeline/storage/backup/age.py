"""How old the newest backup is.

Belongs here: what is too old. Doesn't: who is told of it (observe/doctor/, observe/health.py, observe/watch.py).
"""

from datetime import datetime, timedelta
from typing import Final

from leads_pipeline.errors import StorageError
from leads_pipeline.storage.data_folder import DataFolder

# A nightly one may fail once.
OLDEST_BACKUP: Final = timedelta(days=2)


def last_backup(data: DataFolder, now: datetime) -> str:
    """Say when one was last made. Raises StorageError where there are no new ones any more."""
    made_at = data.state.last_backup()
    if made_at is None and data.bucket is not None:
        return f"None was ever made, and {data.store.address} has what the portal deletes."
    if made_at is None:
        return (
            "None was ever made: what the portal has deleted is on this disk alone. `leads-pipeline backup` copies it "
            "to another."
        )
    if now - made_at > OLDEST_BACKUP:
        raise StorageError(
            f"The last one was made at {made_at:%Y-%m-%d %H:%M} UTC, and one is due each night: what has come since is "
            "on this disk alone once the portal deletes it. See why `leads-pipeline backup` doesn't run, or doesn't "
            "come to its end, and run it."
        )
    return f"The last one was made at {made_at:%Y-%m-%d %H:%M} UTC."
