"""One Delta table: what its log says, a commit, and a log without a past. The only room that imports deltalake.

Belongs here: the log, and what deltalake's errors become. Doesn't: the data files, which DuckDB writes
(publishing.py).

deltalake keeps the log and isn't given a row: so neither statistics nor predicates can show anybody there, and a table
of any size goes by it in no memory.
"""

import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, PostCommitHookProperties, RemoveAction, create_table_with_add_actions

from leads_pipeline.delta.columns import Shape
from leads_pipeline.delta.folder import FILE_MODE, LOG, make_shared_folder
from leads_pipeline.durable import sync
from leads_pipeline.errors import StorageError

# Of other programs that write to a table: they note the least and the greatest value of no column, a name say.
_CONFIGURATION: Final = {
    "delta.dataSkippingNumIndexedCols": "0",
    "delta.logRetentionDuration": "interval 0 days",
    "delta.deletedFileRetentionDuration": "interval 0 days",
}

# What the newest list of versions names stays until there is the next one.
_NOTHING_AFTERWARDS: Final = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)

_LAST_CHECKPOINT: Final = "_last_checkpoint"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file to be added: its name in the table's folder, its rows, and their day where all are of one."""

    name: str
    rows: int
    day: str | None


class Log:
    """The log of the table in a folder, as it is when this is made. Whoever writes holds the lock of delta/."""

    def __init__(self, folder: Path, shape: Shape) -> None:
        self._folder = folder
        self._shape = shape
        self._schema = Schema.from_json(shape.schema)
        self._table = self._opened()

    @property
    def is_there(self) -> bool:
        """Whether there is a table that can be read, by every reader."""
        return self._table is not None

    @property
    def is_of_this_shape(self) -> bool:
        """Whether it is described as it should be."""
        return self._table is not None and self._table.schema() == self._schema

    @property
    def version(self) -> int:
        """The newest version. Raises StorageError where there is no table that can be read."""
        return self._there().version()

    def sizes(self) -> dict[str, int]:
        """The files of the newest version, by their paths in the table's folder, and their bytes."""
        if self._table is None:
            return {}
        with _telling_errors(self._folder):
            added = self._table.get_add_actions()
            paths, sizes = (added.column(name).to_pylist() for name in ("path", "size_bytes"))
        return dict(zip(map(str, paths), sizes, strict=True))

    def begin(self, files: Sequence[DataFile]) -> None:
        """Commit the first version, of these files. There is no log."""
        make_shared_folder(self._folder / LOG)
        with _telling_errors(self._folder):
            create_table_with_add_actions(
                str(self._folder),
                self._schema,
                list(map(self._added, files)),
                name=self._shape.name,
                configuration=_CONFIGURATION,
                post_commithook_properties=_NOTHING_AFTERWARDS,
            )
        self._committed()

    def replace(self, gone: Sequence[str], files: Sequence[DataFile]) -> None:
        """Commit a version without the files that are gone, and with these; all are replaced where the shape is new."""
        added: list[AddAction | RemoveAction] = [*map(self._added, files)]
        if is_same := self.is_of_this_shape:
            added += [RemoveAction(path, True, time.time_ns() // 1_000_000) for path in gone]
        with _telling_errors(self._folder):
            self._there().create_write_transaction(
                added,
                "append" if is_same else "overwrite",
                self._schema,
                post_commithook_properties=_NOTHING_AFTERWARDS,
            )
        self._committed()

    def forget_the_past(self) -> None:
        """Remove what the log has of earlier versions, and what a killed writer left there. Raises StorageError."""
        folder, name = self._folder / LOG, f"{self.version:020d}"
        kept = {f"{name}.json", f"{name}.checkpoint.parquet", _LAST_CHECKPOINT}
        with _telling_errors(folder):
            if not [path for path in folder.iterdir() if path.name not in kept]:
                return
            if not (folder / f"{name}.checkpoint.parquet").exists():
                self._there().create_checkpoint()
            self._sync()
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in kept:
                    path.unlink()
            sync(folder)

    def _opened(self) -> DeltaTable | None:
        if not (self._folder / LOG).is_dir():
            return None
        try:
            table = DeltaTable(str(self._folder))
            protocol, described = table.protocol(), table.metadata()
            # Of a table that another program has set something of, it stays set, and may refuse what we write.
            is_ours = (
                (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
                and described.configuration == _CONFIGURATION
                and not described.partition_columns
            )
        except (DeltaError, OSError, ValueError):
            return None
        return table if is_ours else None

    def _there(self) -> DeltaTable:
        if self._table is None:
            raise StorageError(f"{self._folder} can't be read as a Delta table. Run again: it is begun anew then.")
        return self._table

    def _committed(self) -> None:
        self._sync()
        self._table = self._opened()

    def _sync(self) -> None:
        """Have the log on the disk, which deltalake doesn't wait for, and as private as the tables."""
        folder = self._folder / LOG
        with _telling_errors(folder):
            for path in filter(Path.is_file, folder.iterdir()):
                path.chmod(FILE_MODE)
                sync(path)
            sync(folder)

    def _added(self, file: DataFile) -> AddAction:
        day = self._shape.day
        of_day = {} if day is None else {"minValues": {day: file.day}, "maxValues": {day: file.day}}
        return AddAction(
            path=file.name,
            size=(self._folder / file.name).stat().st_size,
            partition_values={},
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows, **of_day}),
        )


@contextmanager
def _telling_errors(path: Path) -> Iterator[None]:
    """Turn errors into ours. What deltalake says may quote what another program has written into a log."""
    try:
        yield
    except OSError as error:
        number = re.search(r"os error ([0-9]+)", str(error))  # as deltalake says it
        why = error.strerror or (os.strerror(int(number[1])) if number else type(error).__name__)
    except (DeltaError, ValueError) as error:
        why = f"deltalake raises {type(error).__name__}; its message may quote a lead and is left out"
    else:
        return
    raise StorageError(
        f"{path} can't be read or written: {why}. Check the disk and its rights, then run again. leads.duckdb is "
        "published and untouched; the versions that the newest list names stay until the next one."
    )
