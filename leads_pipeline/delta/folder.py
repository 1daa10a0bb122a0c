"""The folder delta/: what lies there, that it can go as a whole, and that deltalake has to be installed for it.

Belongs here: what needs no deltalake, so that tables of which nobody wants more are seen and removed without it.
Doesn't: what is in the tables (publishing.py).
"""

import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leads_pipeline.duck import scratch_folder
from leads_pipeline.durable import storing, sync, write_new
from leads_pipeline.errors import SettingsError, how_to_install
from leads_pipeline.lake import Lake
from leads_pipeline.objects import ObjectStore
from leads_pipeline.warehouse import FOLLOWERS

DELTA: Final = FOLLOWERS
LOG: Final = "_delta_log"
VERSIONS: Final = "versions"

# In a store: where the lists of versions are, and what says that everything beside it is the pipeline's.
LISTS: Final = f"{DELTA}/{VERSIONS}/"
MARK: Final = f"{DELTA}/README.md"

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


@contextmanager
def every_data_file(lake: Lake, table: str, scratch: str) -> Iterator[list[Path]]:
    """Those of the table here, and copies of what the store has of it from elsewhere, in a scratch folder of that name.

    A name has the checksum of what is in the file, so what goes by the name of one here is that one. Raises
    StorageError.
    """
    paths = data_files(lake, table)
    with scratch_folder(lake, scratch) as folder:
        for key in lake.store.list(f"{DELTA}/{table}/") if lake.store else ():
            is_elsewhere = key.endswith(".parquet") and not is_log(key) and not (lake.folder / key).exists()
            if is_elsewhere and lake.store and (content := lake.store.get(key)) is not None:
                paths.append(folder / Path(key).name)
                write_new(paths[-1], content)
        yield paths


def delete_tables(store: ObjectStore, keys: Iterable[str]) -> None:
    """Delete these keys, lists of versions before logs, logs before what they name, the mark last.

    Raises StorageError.
    """
    groups: tuple[list[str], ...] = ([], [], [], [])
    for key in keys:
        groups[0 if key.startswith(LISTS) else 1 if is_log(key) else 3 if key == MARK else 2].append(key)
    for group in filter(None, groups):
        store.delete(group)


def is_log(key: str) -> bool:
    """Whether the store's key is of a table's log."""
    return f"/{LOG}/" in key


def remove_tables(lake: Lake) -> bool:
    """Remove all of it, from the store as well; whether there was anything. Raises StorageError.

    Nobody keeps them up to date any more, so that they would hold whoever is erased from now on. Where the store's
    newest list of versions isn't the one here, its tables are another machine's, which goes on with them.
    """
    folder = delta_folder(lake)
    if not (folder.exists() or folder.is_symlink()):
        return False
    with lake.lock(DELTA), storing(folder):
        if lake.store is not None and MARK in (keys := lake.store.list(f"{DELTA}/")):
            lists = [key for key in keys if key.startswith(LISTS)]
            newest = lake.folder / max(lists, default="")
            if not lists or (newest.is_file() and newest.read_bytes() == lake.store.get(max(lists))):
                delete_tables(lake.store, keys)
        if folder.is_dir():  # it may be another disk, by a link or mounted there
            remove_others(folder, ())
        if not folder.is_mount():
            _remove(folder)
            sync(folder.parent)
    return True


def remove_others(folder: Path, names: Collection[str]) -> None:
    """Remove what is in the folder by other names, and wait for the disk. Raises OSError."""
    others = [path for path in folder.iterdir() if path.name not in names]
    for path in others:
        _remove(path)
    if others:
        sync(folder)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def want_deltalake() -> str:
    """Say which deltalake is there. Raises SettingsError where none is, or one that can't be imported."""
    try:
        import deltalake

        return f"They are written by deltalake {deltalake.__version__}."
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
        raise SettingsError(
            f"LEADS_TABLES is delta, and the package deltalake can't be used ({type(error).__name__}). "
            f"{how_to_install('delta')} Or unset LEADS_TABLES, and the next publication removes the Delta tables."
        ) from None
