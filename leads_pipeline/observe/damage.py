"""Which files are damaged or missing, and what to do about it."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import LeadsPipelineError
from leads_pipeline.observe.finding import some
from leads_pipeline.observe.known import Known
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.quarantine import Quarantined
from leads_pipeline.storage.raw import QUARANTINE, Place, list_folders, list_places
from leads_pipeline.storage.rows import moment_of
from leads_pipeline.transform.duck import WAREHOUSE_FILE, quoted
from leads_pipeline.transform.reading import LeadsFile


def damaged_files(data: DataFolder) -> list[str]:
    """Files that are damaged or missing and that nothing whole has replaced, by their paths in the data folder.

    They are files in quarantine/, and folders of windows whose leads are published and that have no file any more.
    Raises StorageError.
    """
    aside = [file for file in data.quarantine.files() if not _is_replaced(data, file)]
    missing = _published(data) - {*list_places(data.store)} - {file.place for file in aside}
    return sorted([*(file.key for file in aside), *(place.key for place in missing)])


def _is_replaced(data: DataFolder, file: Quarantined) -> bool:
    """Whether a whole look has come since. What was pushed may be nowhere else. leads.duckdb is made anew."""
    if file.key == f"{QUARANTINE}/{WAREHOUSE_FILE}":
        return True
    if file.place is None or file.set_aside_at is None or file.is_pushed:
        return False
    folders = list_folders(data.store, file.place.key, datetime.now(UTC))
    newest = folders[file.place.key].newest if file.place.key in folders else None
    return newest is not None and moment_of(newest.look) > file.set_aside_at


def _published(data: DataFolder) -> set[Place]:
    """Return the windows that published leads are of."""
    file, places = LeadsFile(data), set[Place]()
    if not file.path.exists():
        return places
    with suppress(LeadsPipelineError), file.reading() as db:  # else a publication makes a new one
        for kind in LEAD_KINDS:
            rows = db.query(f"select distinct window_day, scope from {quoted(kind.table)}")[1]  # noqa: S608 - our own
            places |= {Place(kind, day, scope) for day, scope in rows}
    return places


def damage_message(files: Sequence[str]) -> str:
    """Say which files are damaged or missing."""
    are = "file is" if len(files) == 1 else "files are"
    return f"{len(files)} {are} damaged or missing: {some(files)}. Leads that were published stay published."


WHAT_TO_DO: Final = (
    "Check the disk. The service pulls windows again that the portal still has. For other files, see `What is damaged` "
    "in data/README.md."
)


def published_trouble(known: Known) -> str:
    """Say what is wrong with leads.duckdb, empty if nothing is. Before the first publication there is none."""
    if not known.has_published:
        return ""
    if not (known.data.folder / WAREHOUSE_FILE).exists():
        return "leads.duckdb is missing. The raw files have the leads, so none is lost."
    try:
        known.query("from landed_windows limit 1")
    except LeadsPipelineError:
        return "leads.duckdb is damaged: it can't be opened. The raw files have the leads, so none is lost."
    return ""
