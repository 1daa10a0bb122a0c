"""Bringing the Delta tables up to date with leads.duckdb, by deltalake.

Belongs here: which days of a table are written, and which old files go. Doesn't: which days a publication touched
(warehouse/loading.py).

Each commit names the publication of leads.duckdb that it was written for. So a killed run leaves tables that name an
older publication, and the next run writes the days that were touched since. If leads.duckdb doesn't know the named
publication, the table is written anew: the file was rebuilt or rewritten without somebody, or someone else wrote here.
"""

import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from deltalake import ColumnProperties, CommitProperties, DeltaTable, Schema, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.delta.folder import DELTA, LOG, delete_tables, delta_folder, empty, store_of_tables
from leads_pipeline.duck import quoted
from leads_pipeline.durable import storing
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Version, Warehouse

# No least and greatest value of a column, a name say, in the log: it outlives the rows.
_CONFIGURATION: Final = {
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 days",
}

# A reader that has opened a version has this long to read it. After an erasure its files go at once.
_READERS_HOURS: Final = 1

_PUBLICATION: Final = "leadsPipelinePublication"

# deltalake gets these as they are; everything else becomes text, such as uuid and json.
_TYPES: Final = ("BIGINT", "BOOLEAN", "DATE", "DECIMAL", "DOUBLE", "INTEGER", "TIMESTAMP WITH TIME ZONE")

_ROWS_AT_ONCE: Final = 10_000

# deltalake has a writer open for each day: 1,100 days take 860 MB, and 2.1 GB with dictionaries, statistics and ZSTD.
_SMALL_WRITERS: Final = WriterProperties(
    default_column_properties=ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE")
)


@dataclass(frozen=True, slots=True)
class DeltaPublication:
    """What bringing the tables up to date did: each table's version, and the rows written to those that changed."""

    versions: Mapping[str, int]
    rows_written: Mapping[str, int]
    seconds: float


def publish_tables(lake: Lake) -> DeltaPublication:
    """Have each table below delta/ hold what the published leads.duckdb holds. Raises StorageError.

    One run at a time on this machine. If another machine commits to a table meanwhile, this run fails.
    """
    began = time.monotonic()
    with lake.lock(DELTA), Warehouse(lake).reading() as db, _readable_by_group(), storing(delta_folder(lake)):
        delta_folder(lake).mkdir(parents=True, exist_ok=True)
        if lake.store:
            empty(delta_folder(lake))
            (delta_folder(lake) / "README.md").write_text(f"The tables are in {lake.store.address}/{DELTA}/.\n")
        publications = _publications(db)
        versions, rows_written = {}, {}
        for name, columns in _columns_of_tables(db).items():
            table = _Table(lake, db, name, columns)
            if (rows := table.follow(publications)) is not None:
                rows_written[name] = rows
            versions[name] = table.version()
        _remove_others(lake, versions)
    return DeltaPublication(versions, rows_written, time.monotonic() - began)


def _publications(db: Version) -> dict[str, int]:
    """The publications that leads.duckdb remembers and their numbers, the newest last. Raises StorageError."""
    _, is_there = db.query(
        "select 1 from duckdb_tables() where schema_name = 'pipeline' and table_name = 'publications'"
    )
    if not is_there:
        raise StorageError("leads.duckdb was published by an older version. Publish it again, then run this again.")
    return dict(db.query("select id::varchar, number from pipeline.publications order by number")[1])


def _columns_of_tables(db: Version) -> dict[str, list[tuple[str, str, str | None]]]:
    """Each table and mart, with name, type and description of its columns."""
    tables: dict[str, list[tuple[str, str, str | None]]] = {}
    for table, *column in db.query(
        "select table_name, column_name, data_type, comment from duckdb_columns() where not internal "
        "and schema_name = 'main' and database_name = current_database() order by table_name, column_index"
    )[1]:
        tables.setdefault(table, []).append((column[0], column[1], column[2]))
    return tables


class _Table:
    """One Delta table, and what it is to hold."""

    def __init__(self, lake: Lake, db: Version, name: str, columns: Sequence[tuple[str, str, str | None]]) -> None:
        self._lake = lake
        self._db = db
        self._store = store_of_tables(lake)
        self._key = f"{DELTA}/{name}"
        self._uri = f"{self._store.address}/{self._key}"
        self._name = name
        self._columns = columns
        days = {table: "window_day" if table == kind.table else "day" for kind in LEAD_KINDS for table in kind.tables}
        # Tables of leads are written by days, all others whole.
        self._day = days.get(name)

    def version(self) -> int:
        """The newest version."""
        with self._telling_errors():
            return self._opened().version()

    def follow(self, publications: Mapping[str, int]) -> int | None:
        """Commit what differs from leads.duckdb; how many rows were written, or None if nothing differs."""
        *_, (newest, number) = publications.items()
        # Opened before the list is asked: if a machine with a longer list commits after that, ours is a conflict.
        table = self._ours()
        since = publications.get(self._written_for(table)) if table else None
        if since == number:
            return None
        _want_nobody_refused(self._lake, self._db)
        if table is None or since is None:
            return self._write_anew(table, newest)
        where = "true"
        if self._day:
            touched = "select day from pipeline.touched_days where publication > $since order by day"
            days = ", ".join(f"'{day}'" for (day,) in self._db.query(touched, {"since": since})[1])
            if not days:
                return None
            where = f"{self._day} in ({days})"
        rows = self._write(table, newest, where)
        with self._telling_errors():
            # With the files that killed runs left.
            table.vacuum(
                _READERS_HOURS,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
                commit_properties=_commit_properties(newest),
            )
        return rows

    def _write_anew(self, table: DeltaTable | None, publication: str) -> int:
        """Replace all rows, then delete every file and every entry of the log from before; how many rows there are.

        The table names no publication until that is done, so the next run begins anew if this one is killed. Version
        numbers go on: if the folder were deleted, a slower machine could commit its old version into the new table.
        """
        before = self._store.list(f"{self._key}/")
        if table is None:
            delete_tables(self._store, before)
            return self._write(None, publication, "true")
        rows = self._write(table, None, "true")
        with self._telling_errors():
            table = self._opened()
            table.create_checkpoint()
            kept = {f"{self._key}/{path}" for path in [*_sizes(table), f"{LOG}/_last_checkpoint"]}
            delete_tables(self._store, [key for key in before if key not in kept])
            write_deltalake(
                table, self._rows("false"), mode="append", commit_properties=_commit_properties(publication)
            )
        return rows

    def _write(self, table: DeltaTable | None, publication: str | None, where: str) -> int:
        """Commit the rows that the condition selects in place of the table's; how many they are."""
        is_whole = where == "true"
        [(count,)] = self._db.query(f"select count(*) from {quoted(self._name)} where {where}")[1]  # noqa: S608 - our own
        rows, noted = self._rows(where), _commit_properties(publication)
        with self._telling_errors():
            if table is None:
                write_deltalake(
                    self._uri,
                    rows,
                    mode="error",  # if another machine has made it meanwhile
                    partition_by=self._day,
                    name=self._name,
                    configuration=_CONFIGURATION,
                    storage_options=self._store.options,
                    writer_properties=_SMALL_WRITERS,
                    commit_properties=noted,
                )
            else:
                write_deltalake(
                    table,
                    rows,
                    mode="overwrite",
                    predicate=None if is_whole else where,
                    partition_by=self._day,
                    schema_mode="overwrite" if is_whole else None,
                    writer_properties=_SMALL_WRITERS,
                    commit_properties=noted,
                )
        return int(count)

    def _rows(self, where: str) -> pa.RecordBatchReader:
        """Rows of leads.duckdb, with the columns' descriptions."""
        selected = ", ".join(
            quoted(name)
            if type_.rstrip("[]").startswith(_TYPES)
            else f"{quoted(name)}::{_as_text(type_)} as {quoted(name)}"
            for name, type_, _ in self._columns
        )
        reader = self._db.batches(f"select {selected} from {quoted(self._name)} where {where}", _ROWS_AT_ONCE)  # noqa: S608
        comments = {name: comment for name, _, comment in self._columns if comment}
        schema = pa.schema(
            [
                field.with_metadata({"comment": comments[field.name]}) if field.name in comments else field
                for field in reader.schema
            ]
        )
        return pa.RecordBatchReader.from_batches(schema, reader)

    def _opened(self) -> DeltaTable:
        return DeltaTable(self._uri, storage_options=self._store.options)

    def _ours(self) -> DeltaTable | None:
        """The table as it is now; None if there is none, or not one as this version writes it, or files are damaged."""
        with suppress(DeltaError, OSError, ValueError):
            table = self._opened()
            described = table.metadata()
            is_ours = described.configuration == _CONFIGURATION and described.partition_columns == (
                [self._day] if self._day else []
            )
            return table if is_ours else None
        return None

    def _written_for(self, table: DeltaTable) -> str:
        """The publication that the newest commit names; none if the table isn't whole, or has other columns."""
        with suppress(DeltaError, OSError, ValueError):
            is_whole = self._lake.store is not None or all(
                (self._lake.folder / self._key / path).stat().st_size == size for path, size in _sizes(table).items()
            )
            if is_whole and table.schema() == Schema.from_arrow(self._rows("false").schema):
                return str(table.history(1)[0].get(_PUBLICATION, ""))
        return ""

    @contextmanager
    def _telling_errors(self) -> Iterator[None]:
        try:
            yield
        except CommitFailedError:
            raise StorageError(
                f"Another machine is writing {self._uri}, so this one did not. leads.duckdb is published. Run again, "
                "or set LEADS_TABLES on one of the machines only."
            ) from None
        except (DeltaError, OSError, ValueError) as error:
            raise StorageError(
                f"The Delta table {self._uri} can't be written ({type(error).__name__}; its message may quote a lead "
                "and is left out). Check the disk or the bucket, then run again. leads.duckdb is published."
            ) from None


def _commit_properties(publication: str | None) -> CommitProperties:
    """No retries: two machines that both replace all rows of an empty table would double them."""
    return CommitProperties(custom_metadata={_PUBLICATION: publication} if publication else None, max_commit_retries=0)


def _sizes(table: DeltaTable) -> dict[str, int]:
    """The files of the table's version, by their paths in its folder, and their bytes."""
    added = table.get_add_actions()
    paths, sizes = (added.column(name).to_pylist() for name in ("path", "size_bytes"))
    return dict(zip(map(str, paths), sizes, strict=True))


def _as_text(type_: str) -> str:
    """Text, or lists of text."""
    return "varchar" + type_[len(type_.rstrip("[]")) :]


def _want_nobody_refused(lake: Lake, db: Version) -> None:
    """Raise StorageError if the list has grown since leads.duckdb was published: the tables would bring people back."""
    lake.suppression.refresh()
    _, [(listed,)] = db.query("select coalesce(max(value), '') from pipeline.facts where name = 'listed'")
    if listed != lake.suppression.read().mark:
        raise StorageError(
            "The suppression list has changed since leads.duckdb was published, so the Delta tables were not written. "
            "Run again: leads.duckdb is published without the people on the list, and the tables follow."
        )


def _remove_others(lake: Lake, names: Collection[str]) -> None:
    """Remove what lies below delta/ and is no table of leads.duckdb."""
    store = store_of_tables(lake)
    below = tuple(f"{DELTA}/{name}/" for name in [*names, *(["README.md"] if lake.store else [])])
    delete_tables(store, [key for key in store.list(f"{DELTA}/") if not key.startswith(below)])
    if not lake.store:
        for path in delta_folder(lake).iterdir():
            if path.name not in names:
                shutil.rmtree(path)


@contextmanager
def _readable_by_group() -> Iterator[None]:
    """Let the owner's group read new files, as leads.duckdb. There is no setting for it in deltalake."""
    before = os.umask(0o027)
    try:
        yield
    finally:
        os.umask(before)
