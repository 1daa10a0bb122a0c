"""Whether the data folder is as it should be, and the store that it may be a copy of.

Belongs here: looking at it, one finding each. Doesn't: the services (services.py), what a finding is (findings.py).
"""

import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from leads_pipeline.errors import SettingsError, StorageError
from leads_pipeline.observe.damage import damage_message, damaged_files
from leads_pipeline.observe.doctor.findings import Finding, Light, Warned, look_at
from leads_pipeline.orchestration.resources import origin
from leads_pipeline.settings import Settings
from leads_pipeline.storage.data_folder import DataFolder
from leads_pipeline.storage.proof import prove
from leads_pipeline.storage.store import Store
from leads_pipeline.transform.reading import LeadsFile

# As far apart as two machines that keep time by themselves get.
CLOCK_WARN_SECONDS = 30
# A publication copies the warehouse aside; a day of leads takes megabytes.
SPACE_WARN_BYTES = 1_000_000_000
SPACE_FAIL_BYTES = 100_000_000
# A nightly one may fail once.
OLDEST_BACKUP = timedelta(days=2)


def examine_folder(settings: Settings, data: DataFolder) -> Iterator[Finding]:
    """The folder, and what lies in it."""
    folder = settings.data_dir
    folder_finding = look_at("data folder", lambda: writable(folder))
    yield folder_finding
    if folder_finding.light is Light.RED or not folder.exists():
        return
    if data.bucket is not None:
        yield look_at("object store", partial(_store, data, data.bucket))
    warehouse = LeadsFile(data)
    yield examine_space(data)
    yield examine_backup(data, datetime.now(UTC))
    yield look_at("one file system", lambda: _one_file_system(folder))
    yield look_at("file modes", lambda: _modes(folder))
    yield look_at("whole files", lambda: _whole(data))
    yield look_at("suppression list", lambda: _suppression(data))
    yield look_at("retention", lambda: _retention(settings))
    yield look_at("portal of the data", lambda: same_portal(settings, data))
    if warehouse.path.exists():
        yield look_at("warehouse", lambda: _warehouse(warehouse))


def writable(folder: Path) -> str:
    """Say that the folder can be written to, or made. Raises StorageError where neither can be."""
    there = folder
    try:
        there = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise StorageError(
            f"Nothing can be written to {there} ({error.strerror}). Make it this user's own, or set LEADS_DATA_DIR."
        ) from None
    return f"{folder} can be written to." if there == folder else f"{folder} is made at the first run."


def examine_space(data: DataFolder) -> Finding:
    """Whether there is room for the next publication."""
    return look_at("free space", lambda: _space(data.folder, LeadsFile(data)))


def examine_backup(data: DataFolder, now: datetime) -> Finding:
    """Whether backups are still made, where one ever was."""
    return look_at("backup", lambda: _backup(data, now))


def _backup(data: DataFolder, now: datetime) -> str:
    made_at = data.state.last_backup()
    if made_at is None:
        return "No backup yet. Leads that the portal has deleted exist only here. Run `leads-pipeline backup TARGET`."
    if now - made_at > OLDEST_BACKUP:
        raise StorageError(
            f"The last backup was made at {made_at:%Y-%m-%d %H:%M} UTC, and one is due each night. See why "
            "`leads-pipeline backup` doesn't run or fails, and run it."
        )
    return f"The last backup was made at {made_at:%Y-%m-%d %H:%M} UTC."


def _store(data: DataFolder, store: Store) -> str:
    seconds = round(prove(store).total_seconds())
    data.share()
    if abs(seconds) > CLOCK_WARN_SECONDS:
        raise Warned(
            f"{store.address} keeps what is created, but its clock and this machine's are {abs(seconds)} s apart. Of "
            "two machines the one that is ahead would have the newer leads: have both set their clocks by NTP."
        )
    return f"{store.address} creates a key once, lists it at once, and deletes it; its clock is this machine's."


def _space(folder: Path, warehouse: LeadsFile) -> str:
    free = shutil.disk_usage(folder).free
    copy = warehouse.path.stat().st_size if warehouse.path.exists() else 0
    what = f"{free / 1e9:.1f} GB are free"
    if free < SPACE_FAIL_BYTES + copy:
        raise StorageError(f"{what}, too little to copy leads.duckdb ({copy / 1e9:.1f} GB) aside. Make room.")
    if free < SPACE_WARN_BYTES + 2 * copy:
        size = f"leads.duckdb ({copy / 1e9:.1f} GB) once more, and twice after an erasure"
        raise Warned(f"{what}. A publication needs {size}. Make room soon.")
    return f"{what}."


def _one_file_system(folder: Path) -> str:
    device = folder.stat().st_dev
    if others := sorted(path.name for path in folder.iterdir() if path.is_dir() and path.stat().st_dev != device):
        raise StorageError(
            f"{', '.join(others)} in {folder} lie on another file system. Files are put in place by renaming, which "
            "works within one alone. Mount the data folder as a whole."
        )
    return f"All of {folder} lies on one."


def _modes(folder: Path) -> str:
    state = folder / ".state"
    private = [state / "tokens", *(state / "tokens").glob("*")] if (state / "tokens").exists() else []
    if too_open := [path for path in private if path.stat().st_mode & 0o077]:
        raise StorageError(f"Other users can read access tokens: chmod -R go= {too_open[0].parent}")
    # A checkout's own data/ can be entered by everybody; what lies in it is what counts.
    open_ones = [path for path in folder.iterdir() if path.stat().st_mode & 0o007 and path.name != "README.md"]
    if open_ones and folder.stat().st_mode & 0o001:
        raise Warned(
            f"Other users of this machine can read {', '.join(sorted(path.name for path in open_ones))} in {folder}, "
            f"where leads are, which are personal data: chmod o= {folder}"
        )
    return "Tokens and leads are closed to other users."


def _whole(data: DataFolder) -> str:
    if damaged := damaged_files(data):
        raise StorageError(damage_message(damaged))
    return "No damaged files."


def _suppression(data: DataFolder) -> str:
    suppressed = data.gate.entries.read()
    where = data.gate.entries.folder
    if not suppressed:
        return "Nobody is on it."
    if where.is_relative_to(data.folder):
        raise Warned(
            f"It lies in {where}: whoever restores the data folder from a backup takes it back, and people who were "
            "erased return. Move the folder to where other backups are made of it, and set LEADS_PRIVACY_DIR."
        )
    return f"It is whole, with its key, apart from the data: {where}."


def _retention(settings: Settings) -> str:
    if settings.keep_personal_days is None:
        raise Warned(
            "LEADS_KEEP_PERSONAL_DAYS is not set. Names, addresses and messages are kept for ever, for which UK GDPR "
            "asks a reason. Set it to the days that you need them; docs/privacy.md says what is deleted then."
        )
    return f"Personal fields are deleted after {settings.keep_personal_days} days, each night."


def same_portal(settings: Settings, data: DataFolder) -> str:
    """Say whose leads the folder holds. Raises SettingsError where they are another portal's than the settings name."""
    claimed = data.state.claimed_by()
    if claimed is None:
        return "No leads yet."
    if settings.base_url and claimed != origin(settings.base_url):
        raise SettingsError(
            f"It holds leads from {claimed}, and LEADS_BASE_URL is {origin(settings.base_url)}. Set LEADS_DATA_DIR to "
            "another folder; or, if this one was only the demo, delete it."
        )
    return f"Its leads come from {claimed}."


def _warehouse(warehouse: LeadsFile) -> str:
    _, [(rows,)] = warehouse.query("select count(*) from landed_windows")
    return f"leads.duckdb opens; it covers {rows} landed windows."
