"""Bringing a data folder in line with the suppression list, before anything of it is published.

Belongs here: going through raw windows and rows set aside. Doesn't: the gate that each passes, whom
an entry means (suppression/), publishing (orchestration/).

The list comes first: from then on nobody lands what it keeps out. A window is rewritten as a whole
or not at all. The folder notes how far it follows the list once that is published. So the next
publication finishes a killed sweep.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.features.privacy.gatekeeper import gate_of
from leads_pipeline.features.privacy.receipt import forget_deliveries_of_erased
from leads_pipeline.features.privacy.search import learn_lost
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place, list_places
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE

logger = logging.getLogger(__name__)

# A sweep of millions of leads takes half an hour. A process that holds the lock for longer has
# hung, or is suspended.
_LONGEST_SWEEP_SECONDS: Final = 3600.0


@dataclass(slots=True)
class Swept:
    """The result of going through the folder.

    `windows` counts those that were rewritten. The folder follows the list up to `newest_entry`.
    `failed` has the error of each window that failed. People on the list may still be in it.
    """

    windows: int = 0
    newest_entry: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def sweep(data: DataFolder, *, since: datetime | None = None) -> Swept:
    """Take what the list keeps out from raw windows, and land what was lifted.

    A publication has to follow. With `since`, only windows with files that have appeared since
    then, unless the list learns a lead's id meanwhile. Raises StorageError if the list can't be
    read.
    """
    swept = Swept()
    with data.state.lock("sweep", timeout_seconds=_LONGEST_SWEEP_SECONDS):
        data.delete_drafts()
        if since is None:
            _learn_lost(data, swept)

        while True:
            swept.newest_entry = data.gate.newest_entry
            swept.windows += gate_of(data).sweep_restricted()
            for place in list_places(data.store):
                if since is None or _has_appeared(data, place, since):
                    _rewrite(data, place, swept)

            # A lead that is met by its contact has other versions, with other contacts. Its id is
            # known now, so all windows are gone through again.
            if data.gate.newest_entry == swept.newest_entry:
                return swept
            since = None


def _learn_lost(data: DataFolder, swept: Swept) -> None:
    try:
        learn_lost(data)
    except LeadsPipelineError as error:  # after the publication it can be read
        swept.failed[WAREHOUSE_FILE] = str(error)


def _rewrite(data: DataFolder, place: Place, swept: Swept) -> None:
    try:
        swept.windows += data.raw.rewrite(place)
    except StorageError as error:
        _ = data.gate.newest_entry  # raises if the list is at fault, and not this window
        swept.failed[place.key] = str(error)
    else:
        swept.failed.pop(place.key, None)  # it failed when it was gone through before


def learn_lost_again(data: DataFolder, swept: Swept) -> None:
    """Look again at leads that raw has lost, if leads.duckdb couldn't be read before publishing."""
    if WAREHOUSE_FILE not in swept.failed:
        return
    learn_lost(data)
    if data.gate.newest_entry == swept.newest_entry:
        del swept.failed[WAREHOUSE_FILE]


def clear_ledgers(data: DataFolder) -> None:
    """Forget deliveries of erased leads that a restored backup or another machine has left.

    Log to whom they were.
    """
    for line in forget_deliveries_of_erased(data):
        logger.warning("%s", line)


def sweep_what_appeared(data: DataFolder) -> Swept:
    """Sweep windows with files that appeared since the last call.

    Somebody may have put them back by hand. Those that landing wrote are among them, and have
    nothing that the list keeps out.
    """
    began_at = datetime.now(UTC)
    since = data.state.looked_at()
    is_past = since is not None and since <= began_at  # else the clock ran ahead
    swept = sweep(data, since=since if is_past else None)
    if not swept.failed:
        data.state.note_looked(began_at)
    return swept


def _has_appeared(data: DataFolder, place: Place, since: datetime) -> bool:
    """Whether the window's folder or a file in it is newer than that moment.

    It goes by the time that no copying tool can set back. A publication has read what is new in a
    bucket. A folder that was moved here has a new moment, and its files have none.
    """
    folder = data.folder_of_raw / place.key
    with suppress(FileNotFoundError):
        paths = [folder, folder.parent, *folder.iterdir()]
        return any(path.stat().st_ctime >= since.timestamp() for path in paths)
    return False
