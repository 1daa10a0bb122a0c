"""Ready versions as events: their texts are read from raw when they are sent, and are kept nowhere.

Belongs here: finding a version's text again, and versions that raw no longer has. Doesn't: which
are due (due.py), a message's members (message.py).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from leads_pipeline.errors import StorageError
from leads_pipeline.features.delivery.due import read_each, version_of
from leads_pipeline.features.delivery.form import Event
from leads_pipeline.features.delivery.ledger import ERASED, Ledger, Version
from leads_pipeline.features.delivery.message import Messages, erased_event
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.names import Place
from leads_pipeline.raw.rows import LandedVersion
from leads_pipeline.warehouse.current_leads import WindowLeads, typed_leads

# How long a version waits whose file can't be read.
_UNREAD_WAIT_SECONDS: Final = 10.0


@dataclass
class Events:
    """Reads events. `error` is that of a window that can't be read."""

    data: DataFolder
    ledger: Ledger
    messages: Messages
    clock: Callable[[], datetime]
    error: StorageError | None = None

    def of(self, versions: Sequence[Version]) -> dict[Version, Event]:
        """Return the event of each version, in their order.

        The ledger drops those that raw no longer has.
        """
        found: dict[Version, Event] = {}
        of_raw = [version for version in versions if version.version != ERASED]
        for version in set(versions) - set(of_raw):
            found[version] = erased_event(version)
        windows = {(version.kind, version.day, version.scope) for version in of_raw}
        for window, read in read_each(self.data, windows):
            here = [
                version
                for version in of_raw
                if (version.kind, version.day, version.scope) == window
            ]
            if isinstance(read, StorageError):
                self.error = read
                self._wait(here)
                continue

            texts = _texts(read, here)
            self._drop(read, set(here) - texts.keys())
            leads: list[Any] = typed_leads(read.kind, texts.values()).to_pylist()
            for (version, landed), lead in zip(texts.items(), leads, strict=True):
                is_update = self.ledger.has_earlier(version)
                found[version] = self.messages.event(
                    read.kind, version, landed, lead, is_update=is_update
                )
        return {
            version: replace(found[version], id_there=self.ledger.id_there(version))
            for version in versions
            if version in found
        }

    def _wait(self, versions: Sequence[Version]) -> None:
        for unread in versions:
            next_at = self.clock().timestamp() + _UNREAD_WAIT_SECONDS
            self.ledger.note_unread(unread, next_at)

    def _drop(self, window: WindowLeads, gone: Collection[Version]) -> None:
        if not gone:
            return
        damaged = {file.place for file in self.data.quarantine.files()}
        for version in gone:
            self.ledger.drop(
                version, is_damaged=Place(window.kind, window.day, window.scope) in damaged
            )


def _texts(window: WindowLeads, versions: Sequence[Version]) -> dict[Version, LandedVersion]:
    """Return what has landed of each version."""
    by_lead = {version.lead_id: version for version in versions}  # one of each lead is ready
    texts: dict[Version, LandedVersion] = {}
    for landed in window.versions:
        version = by_lead.get(landed.lead_id)
        # A lead that was gone from an answer and came back has a higher number since.
        if version is None or landed.number < version.number:
            continue
        if version_of(landed) == version.version.partition("-")[0]:
            texts.setdefault(version, landed)
    return texts
