"""The step of a publication that makes data/tables.

Belongs here: which of the forms is made, and that the others go. Doesn't: the files
(parquet_tables.py, delta.py).
"""

import shutil
from datetime import datetime

from leads_pipeline.errors import SettingsError, how_to_install
from leads_pipeline.features.lake.parquet_tables import (
    TABLES,
    delete_tables,
    remove_tables,
    write_tables,
)
from leads_pipeline.features.lake.settings import LakeSettings
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import replace_file, storing
from leads_pipeline.raw.store import FolderStore
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.step import Publication, Step


class WriteTables(Step):
    """Makes data/tables as LEADS_TABLES says, once leads.duckdb is published.

    Other files there are deleted. If a publication is killed before that, the next one makes up for
    it.
    """

    name = TABLES
    makes = "the tables in data/tables"

    def __init__(self, data: DataFolder, tables: str) -> None:
        self._data = data
        self._tables = tables

    def after(self, publication: Publication) -> None:  # noqa: ARG002 - as any step
        """Bring the form that LEADS_TABLES names up to date, and remove the others."""
        if self._tables == "delta":
            self._write_delta()
            return
        self._delete_delta()
        if self._tables == "parquet":
            write_tables(self._data.folder)
        else:
            remove_tables(self._data.folder)

    def _write_delta(self) -> None:
        want_deltalake()
        # Only Delta tables need this extra package.
        from leads_pipeline.features.lake.delta import write_delta

        store = self._data.bucket or FolderStore(self._data.folder)
        write_delta(self._data.folder, store)
        if self._data.bucket is not None:
            note = f"The tables are in {store.address}/{TABLES}/.\n"
            replace_file(self._data.folder / TABLES / "README.md", note.encode())

    def _delete_delta(self) -> None:
        """Delete Delta tables of before. Nobody would bring them up to date."""
        folder = self._data.folder / TABLES
        if folder.is_dir() and not folder.is_symlink():
            delete_tables(self._data.bucket or FolderStore(self._data.folder))
            with storing(folder):
                shutil.rmtree(folder)


def steps(data: DataFolder, settings: PublicationSettings, _now: datetime) -> list[Step]:
    """Return what the lake adds to a publication."""
    return [WriteTables(data, settings.installation.of(LakeSettings).tables)]


def want_deltalake() -> str:
    """Say which deltalake is there. Raises SettingsError if none can be imported."""
    try:
        import deltalake

        return f"They are written by deltalake {deltalake.__version__}."
    except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
        raise SettingsError(
            "LEADS_TABLES is delta, and the package deltalake can't be used "
            f"({type(error).__name__}). {how_to_install('delta')} Or unset LEADS_TABLES, and the "
            "next publication removes the Delta tables."
        ) from None
