"""The gate of a data folder, as the core is given it and as this feature uses it.

Belongs here: putting gate and list together. Doesn't: what they do (suppression/).
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

from leads_pipeline.errors import BugError, StorageError
from leads_pipeline.features.privacy.keys_of_days import key_of_day
from leads_pipeline.features.privacy.settings import PrivacySettings
from leads_pipeline.features.privacy.suppression import Gate, SuppressionList
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.gatekeeper import GUARD, LIST
from leads_pipeline.raw.state import State
from leads_pipeline.raw.store import Store
from leads_pipeline.settings import Settings


def gatekeeper(
    folder: Path,
    store: Store,
    bucket: Store | None,
    state: State,
    clock: Callable[[], datetime],
    settings: Settings | None,
) -> Gate:
    """Return the gate of the data folder of these parts.

    Without settings, the list is in the folder.
    """
    mine = PrivacySettings() if settings is None else settings.of(PrivacySettings)
    entries = SuppressionList(mine.privacy_dir or folder / LIST, folder / GUARD, bucket)
    if mine.keep_personal_days is None:
        return Gate(store, entries, clock, note_landed=state.note_landed)
    return Gate(store, entries, clock, partial(key_of_day, state), state.note_landed)


def gate_of(data: DataFolder) -> Gate:
    """Return the gate of a data folder."""
    if not isinstance(data.gate, Gate):
        raise BugError("The data folder was opened before leads_pipeline.features was imported.")
    return data.gate


def list_of(data: DataFolder) -> SuppressionList:
    """Return the suppression list of a data folder."""
    return gate_of(data).entries


def newest_entry(settings: Settings) -> str:
    """Return a text that changes with the suppression list.

    So the service publishes without the person, if the command was killed right after the request
    was noted.
    """
    try:
        return f"entry {DataFolder.of(settings).gate.newest_entry}"
    except StorageError as error:
        return str(error)
