"""The folder delta/: what lies there, that it can go as a whole, and that deltalake has to be installed for it.

Belongs here: what needs no deltalake, so that tables of which nobody wants more are seen and removed without it.
Doesn't: what is in the tables (publishing.py).
"""

import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from leads_pipeline.durable import storing, sync
from leads_pipeline.errors import SettingsError
from leads_pipeline.lake import Lake

DELTA: Final = "delta"
LOG: Final = "_delta_log"

# As leads.duckdb: the owner's group may be let in, and nobody writes what is replaced.
FOLDER_MODE: Final = 0o750
FILE_MODE: Final = 0o440


def delta_folder(lake: Lake) -> Path:
    """Where the tables lie, each in a folder of its name."""
    return lake.folder / DELTA


def make_shared_folder(folder: Path) -> None:
    """Make it, and what is missing above it, as a group that is let in may read it. Raises OSError."""
    if not folder.is_dir():
        make_shared_folder(folder.parent)
        folder.mkdir()
        folder.chmod(FOLDER_MODE)
        sync(folder.parent)


def data_files(lake: Lake, table: str) -> list[Path]:
    """The Parquet files of a table, whether or not its log has them. Raises OSError."""
    folder = delta_folder(lake) / table
    return sorted(path for path in folder.rglob("*.parquet") if LOG not in path.parts)


def remove_tables(lake: Lake) -> bool:
    """Remove all of it; whether there was anything. Raises StorageError.

    Nobody keeps them up to date any more, so that they would hold whoever is erased from now on.
    """
    folder = delta_folder(lake)
    if not folder.exists():
        return False
    with lake.lock(DELTA), storing(folder):
        shutil.rmtree(folder)
        sync(folder.parent)
    return True


def want_deltalake() -> str:
    """Say which deltalake is installed. Raises SettingsError where none is."""
    try:
        return f"They are written by deltalake {version('deltalake')}."
    except PackageNotFoundError:
        raise SettingsError(
            "LEADS_TABLES is delta, and the package deltalake isn't installed. Install it with "
            "`pip install --require-hashes -r requirements-delta.lock`, or the extra: leads-pipeline[delta]; or unset "
            "LEADS_TABLES, and the next publication removes the Delta tables."
        ) from None
