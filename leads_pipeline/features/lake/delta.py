"""Delta tables for analysts: the tables of leads in data/tables or a bucket, from leads.duckdb.

Belongs here: which days are written, and which old files go. Doesn't: the rows (parquet_tables.py).

Each commit names the edition of leads.duckdb that it was written for. If that edition is still
there, nobody was erased since, and the days that were touched since are written. Otherwise the
table's folder is written anew. If each day was touched, leads.duckdb may have been built anew: the
table is overwritten, so that no former day or column stays.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from leads_pipeline.errors import StorageError
from leads_pipeline.features.lake.parquet_tables import (
    TABLES,
    delete_tables,
    remove_tables,
    rows_of,
)
from leads_pipeline.raw.store import Store
from leads_pipeline.warehouse.duck import WAREHOUSE_FILE
from leads_pipeline.warehouse.editions import number_of
from leads_pipeline.warehouse.published import attached
from leads_pipeline.warehouse.tables import Table, lead_tables

# No least and greatest value of a column, a name say, in the log: it outlives the rows.
_CONFIGURATION: Final = {
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
}

# A reader that has opened a version has this long to read it.
_READERS_HOURS: Final = 1

_EDITION: Final = "leadsPipelineVersion"

# deltalake has a writer open for each day: 1,100 days take 860 MB, and 2.1 GB with dictionaries,
# statistics and ZSTD.
_SMALL_WRITERS: Final = WriterProperties(
    default_column_properties=ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
)


def write_delta(folder: Path, store: Store) -> None:
    """Have the store's Delta tables hold the tables of leads as published.

    `folder` is the data folder. The caller holds the lock of publications. Raises StorageError.
    """
    remove_tables(folder)
    file = (folder / WAREHOUSE_FILE).resolve()
    editions_here = {number_of(edition) for edition in file.parent.glob("leads-*.duckdb")}

    with attached(folder, file) as db, _readable_by_group():
        publications = dict(
            db.execute("select day, publication from pipeline.touched_days").fetchall()
        )
        for table in lead_tables():
            with _telling_errors(f"{store.address}/{TABLES}/{table.name}") as uri:
                there = _open_table(uri, store.options)
                written_for = _written_for(there) if there else 0
                if written_for == number_of(file):
                    continue

                # Its edition is gone, perhaps because somebody had to go: no older file may stay.
                if written_for not in editions_here:
                    there = None
                    written_for = 0
                    delete_tables(store, f"{TABLES}/{table.name}/")

                days = {day for day, number in publications.items() if number > written_for}
                is_whole = days == publications.keys()
                _write(
                    db,
                    table,
                    days,
                    there or uri,
                    store.options,
                    number_of(file),
                    is_whole=is_whole,
                )

    names = tuple(f"{TABLES}/{table.name}/" for table in lead_tables())
    store.delete([key for key in store.list(f"{TABLES}/") if not key.startswith(names)])


def _write(
    db: duckdb.DuckDBPyConnection,
    table: Table,
    days: Collection[date],
    target: DeltaTable | str,
    options: dict[str, str],
    edition_number: int,
    *,
    is_whole: bool,
) -> None:
    parts = rows_of(db, table, days)
    first = next(parts)
    batches = (batch for part in chain([first], parts) for batch in part.to_batches())
    # No retries: of two machines that write at once, one is to fail.
    noted = CommitProperties(custom_metadata={_EDITION: str(edition_number)}, max_commit_retries=0)
    of_days = ", ".join(f"'{day.isoformat()}'" for day in sorted(days))

    if days or is_whole:
        write_deltalake(
            target,
            pa.RecordBatchReader.from_batches(first.schema, batches),
            partition_by="lead_day",
            mode="overwrite",
            name=table.name,
            configuration=_CONFIGURATION,
            schema_mode="overwrite",
            storage_options=options,
            predicate=None if is_whole else f"lead_day in ({of_days})",
            writer_properties=_SMALL_WRITERS,
            commit_properties=noted,
        )

    if isinstance(target, DeltaTable):
        # With the files that killed runs left.
        target.vacuum(
            _READERS_HOURS,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
            commit_properties=noted,
        )


def _open_table(uri: str, options: dict[str, str]) -> DeltaTable | None:
    """Open the table. None if there is none that can be read."""
    with suppress(DeltaError, OSError, ValueError):
        return DeltaTable(uri, storage_options=options)
    return None


def _written_for(table: DeltaTable) -> int:
    """Return the edition that the newest commit names. 0 if it names none."""
    return int(table.history(1)[0].get(_EDITION, 0))


@contextmanager
def _telling_errors(uri: str) -> Iterator[str]:
    try:
        yield uri
    except CommitFailedError:
        raise StorageError(
            f"Another machine is writing {uri}, so this one did not. leads.duckdb is published. "
            "Run again, or set LEADS_TABLES on one of the machines only."
        ) from None
    except (DeltaError, OSError, ValueError) as error:
        raise StorageError(
            f"The Delta table {uri} can't be written ({type(error).__name__}; its message may "
            "quote a lead and is left out). Check the disk or the bucket, then run again. "
            "leads.duckdb is published."
        ) from None


@contextmanager
def _readable_by_group() -> Iterator[None]:
    """Let the owner's group read new files, as leads.duckdb. deltalake has no setting for it."""
    before = os.umask(0o027)
    try:
        yield
    finally:
        os.umask(before)
