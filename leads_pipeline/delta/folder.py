"""The folder delta/: where the tables lie, how they are removed, and whether deltalake is installed.

Belongs here: what needs no deltalake, so that unwanted tables are seen and removed without it. Doesn't: what is in the
tables (publishing.py).
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leads_pipeline.duck import scratch_folder
from leads_pipeline.durable import storing, sync, write_new
from leads_pipeline.errors import SettingsError, how_to_install
from leads_pipeline.lake import Lake
from leads_pipeline.objects import FolderStore, ObjectStore

DELTA: Final = "delta"
LOG: Final = "_delta_log"


def delta_folder(lake: Lake) -> Path:
    """Where the tables lie, each in a folder of its name. With a bucket, a README here says where they are."""
    return lake.folder / DELTA


def store_of_tables(lake: Lake) -> ObjectStore:
    """The bucket if the data folder has one, else the data folder itself."""
    return lake.store or FolderStore(lake.folder)


@contextmanager
def every_data_file(lake: Lake, table: str, scratch: str) -> Iterator[list[Path]]:
    """All Parquet files of the table, also those that no version needs. A bucket's are copied to a scratch folder.

    Raises StorageError.
    """
    with scratch_folder(lake, scratch) as folder:
        paths = []
        for key in store_of_tables(lake).list(f"{DELTA}/{table}/"):
            if not key.endswith(".parquet") or f"/{LOG}/" in key:
                continue
            path = lake.folder / key
            if lake.store:
                if (content := lake.store.get(key)) is None:
                    continue
                path = folder / key
                path.parent.mkdir(parents=True, exist_ok=True)
                write_new(path, content)
            paths.append(path)
        yield paths


def delete_tables(store: ObjectStore, keys: Sequence[str]) -> None:
    """Delete these keys, logs first: a reader then finds no table, and not half of one. Raises StorageError."""
    store.delete([key for key in keys if f"/{LOG}/" in key])
    store.delete([key for key in keys if f"/{LOG}/" not in key])


def remove_tables(lake: Lake) -> bool:
    """Remove all tables, from the bucket as well; whether there were any. Raises StorageError.

    Nobody brings them up to date any more, so they would keep everybody who is erased from now on.
    """
    folder = delta_folder(lake)
    if not (folder.exists() or folder.is_symlink()):
        return False
    with lake.lock(DELTA), storing(folder):
        if lake.store is not None:
            delete_tables(lake.store, lake.store.list(f"{DELTA}/"))
        if folder.is_dir():  # it may be another disk, by a link or mounted there
            empty(folder)
        if not folder.is_mount():
            folder.unlink() if folder.is_symlink() else folder.rmdir()
            sync(folder.parent)
    return True


def empty(folder: Path) -> None:
    """Remove everything in the folder. Raises OSError."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    sync(folder)


def want_deltalake() -> str:
    """Say which deltalake is there. Raises SettingsError if there is none, or if it can't be imported."""
    try:
        import deltalake

        return f"They are written by deltalake {deltalake.__version__}."
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
        raise SettingsError(
            f"LEADS_TABLES is delta, and the package deltalake can't be used ({type(error).__name__}). "
            f"{how_to_install('delta')} Or unset LEADS_TABLES, and the next publication removes the Delta tables."
        ) from None
