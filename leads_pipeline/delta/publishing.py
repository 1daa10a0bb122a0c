"""Bringing the Delta tables up to date with leads.duckdb: what differs is replaced, table by table, day by day.

Belongs here: telling what differs, the data files, the steps in their order. Doesn't: the log of a table (log.py).

A file's name has a digest of the rows that it was made from and the checksum of its bytes. So what a table holds is
known from its log and its files, whoever was killed over it, changed it or damaged it, and nothing is remembered
elsewhere. First all tables are committed, then the list of their versions is written, and only then what no version of
that list needs is removed: whoever reads by the list finds whole versions at every moment, or none.
"""

import hmac
import re
import secrets
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final

from leads_pipeline.delta.columns import WHOLE, Shape, shapes_of
from leads_pipeline.delta.folder import (
    DELTA,
    FILE_MODE,
    LOG,
    VERSIONS,
    delta_folder,
    make_shared_folder,
    remove_others,
)
from leads_pipeline.delta.log import DataFile, Log
from leads_pipeline.delta.mirror import Mirror
from leads_pipeline.delta.versions import (
    forget_earlier_versions,
    forget_versions,
    newest_versions,
    write_versions,
)
from leads_pipeline.duck import literal, quoted
from leads_pipeline.durable import publish_file, replace_file, storing
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Reader, Warehouse, checksum_of, digests_of

_NAME: Final = re.compile(r"(?P<part>[\w-]+)-(?P<digest>[0-9a-f]{32})-(?P<checksum>[0-9a-f]{8})-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True, slots=True)
class DeltaPublication:
    """What bringing the tables up to date did: each table's version, which were changed, and the parts written."""

    versions: Mapping[str, int]
    changed: Sequence[str]
    parts_written: Mapping[str, int]
    rows_written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of a day, or of a table that has none: how many, and a digest that changes with any of them."""

    rows: int
    digest: str


# Rows of a day, or of a table without days: their number, and two figures of their hashes.
_Row = tuple[int, int, int]

# Reading a GB takes half a second from the page cache.
LOOKED_AT_BYTES: Final = 1 << 30


def publish_tables(lake: Lake) -> DeltaPublication:
    """Have delta/ hold what the published leads.duckdb holds, and nothing of what it held before. Raises StorageError.

    One at a time, each from the version that is published once it is its turn. Where a store has the truth, the tables
    are there as well.
    """
    began = time.monotonic()
    with lake.lock(DELTA), Warehouse(lake).reading() as db:
        shapes = shapes_of(db)
        mirror = Mirror(lake, lake.store) if lake.store else None
        if mirror:
            mirror.take_over()
        due_files = _files_due(lake)
        followed = [_Table(lake, shape, due_files) for shape in shapes]
        for table in followed:
            table.follow(db)
        versions = {table.shape.name: table.log.version for table in followed}
        if newest_versions(lake) != versions:
            write_versions(lake, versions, mirror.next_list if mirror else lake.next_sequence())
        for table in followed:
            table.tidy()
        forget_earlier_versions(lake)
        with storing(delta_folder(lake)):
            remove_others(delta_folder(lake), {VERSIONS, *versions})
        if mirror:
            mirror.hand_over(partial(_want_nobody_refused, lake, db))
    return DeltaPublication(
        versions=versions,
        changed=[table.shape.name for table in followed if table.is_changed],
        parts_written={table.shape.name: table.parts_written for table in followed},
        rows_written=sum(table.rows_written for table in followed),
        seconds=time.monotonic() - began,
    )


def _want_nobody_refused(lake: Lake, db: Reader) -> None:
    """Raise StorageError where another machine's erasure has come meanwhile: the tables there may have followed it."""
    lake.suppression.refresh()
    _, [(whom,)] = db.query("select coalesce(max(value), '') from pipeline.facts where name = 'whom'")
    if whom != lake.suppression.read().whom:
        raise StorageError(
            f"The suppression list has changed since {Warehouse(lake).path} was published, so its tables are not put "
            "into the store. Run again: it is published without whom the list refuses, and the tables follow."
        )


def _files_due(lake: Lake) -> Set[Path]:
    """The data files that this run reads, to see that they are whole: all up to LOOKED_AT_BYTES, else the next ones."""
    state = lake.folder / ".state" / "delta-looks"
    folder = delta_folder(lake)
    with storing(folder):
        sizes = {path: path.stat().st_size for path in folder.glob("*/*.parquet") if path.is_file()}
    if (total := sum(sizes.values())) <= LOOKED_AT_BYTES:
        return sizes.keys()
    files = sorted(sizes)
    last = folder
    with suppress(OSError, ValueError):  # begun anew where nothing, or nothing legible, is remembered
        last = folder / state.read_text()
    begin = bisect_right(files, last)
    looked_at = [files[(begin + n) % len(files)] for n in range(max(len(files) * LOOKED_AT_BYTES // total, 1))]
    replace_file(state, str(looked_at[-1].relative_to(folder)).encode())
    return set(looked_at)


def _noted(db: Reader, table: str) -> dict[date, _Row]:
    """The digests that a publication has left, of an earlier version none."""
    _, is_there = db.query("select 1 from duckdb_tables() where schema_name = 'pipeline' and table_name = 'digests'")
    noted = "select null, day, rows, hash_xor, hash_sum from pipeline.digests where table_name = $table"
    return _rows(db, noted, {"table": table}) if is_there else {}


def _rows(db: Reader, statement: str, parameters: Mapping[str, object] | None = None) -> dict[Any, _Row]:
    """What `digests_of` selects, by day."""
    return {day: (rows, hash_xor, hash_sum) for _, day, rows, hash_xor, hash_sum in db.query(statement, parameters)[1]}


class _Table:
    """A table on its way from one version of leads.duckdb to the next."""

    def __init__(self, lake: Lake, shape: Shape, due: Set[Path]) -> None:
        self._lake = lake
        self._due = due
        self._folder = delta_folder(lake) / shape.name
        self.shape = shape
        self.log = Log(self._folder, shape)
        self.is_changed = False
        self.parts_written = 0
        self.rows_written = 0

    def follow(self, db: Reader) -> None:
        """Commit what differs; nothing where nothing does."""
        parts = self._parts(db)
        kept = self._kept(parts)
        gone = [file for file in self.log.sizes() if file not in kept.values()]
        missing = parts.keys() - kept.keys()
        if self.log.is_of_this_shape and not gone and not missing:
            return
        if not self.log.is_there:
            self._make_way()
        files = [self._written(db, part, parts[part]) for part in sorted(missing)]
        if self.log.is_there:
            self.log.replace(gone, files)
        else:
            self.log.begin(files)
        self.is_changed = True
        self.parts_written = len(files)
        self.rows_written = sum(file.rows for file in files)

    def tidy(self) -> None:
        """Remove what the newest version doesn't need. It is in the newest list."""
        self.log.forget_the_past()
        with storing(self._folder):
            remove_others(self._folder, {LOG, *self.log.sizes()})

    def _parts(self, db: Reader) -> dict[str, _Part]:
        """What the table should hold. The key keeps anybody from trying out what a digest may be of."""
        name, day, columns = quoted(self.shape.name), self.shape.day, self.shape.columns
        if day is None:
            rows: Mapping[Any, _Row] = _rows(db, digests_of("null", literal(WHOLE), columns, f"from {name}"))
        else:
            # Days are counted, which is quick; hashed are those alone whose digests the publication hasn't left.
            counts = dict(db.query(f"select {quoted(day)}, count(*) from {name} group by 1")[1])  # noqa: S608
            noted = {part: one for part, one in _noted(db, self.shape.name).items() if counts.get(part) == one[0]}
            missing = list(counts.keys() - noted.keys())
            some = f"from {name} where {quoted(day)} in (select unnest($days::date[]))"
            more = _rows(db, digests_of("null", quoted(day), columns, some), {"days": missing}) if missing else {}
            rows = noted | more
        key = self._lake.person_key()
        return {
            part: _Part(one[0], hmac.digest(key, repr((self.shape, part, *one)).encode(), "sha256")[:16].hex())
            for part, one in ((str(part), one) for part, one in rows.items())
        }

    def _kept(self, parts: Mapping[str, _Part]) -> dict[str, str]:
        """The files that hold a part as it should be, whole as far as they are looked at; one a part."""
        kept = {}
        for file, size in self.log.sizes().items() if self.log.is_of_this_shape else ():
            name = _NAME.fullmatch(file)
            if name and (part := parts.get(name["part"])) and name["digest"] == part.digest:
                path = self._folder / file
                with suppress(OSError):  # what can't be read is written anew
                    if path.stat().st_size == size and (path not in self._due or checksum_of(path) == name["checksum"]):
                        kept[name["part"]] = file
        return kept

    def _make_way(self) -> None:
        """Remove what can't be read as a table, and first the list that names a version of it."""
        with storing(self._folder):
            forget_versions(self._lake)
            make_shared_folder(self._folder)
            remove_others(self._folder, ())

    def _written(self, db: Reader, part: str, one: _Part) -> DataFile:
        """Write the file of a part, which no version names yet."""
        draft = self._folder / ".draft.parquet"
        with storing(draft):
            draft.unlink(missing_ok=True)
            db.query(f"copy ({self.shape.rows_of(part)}) to {literal(str(draft))} (format parquet, compression zstd)")
            draft.chmod(FILE_MODE)
            name = f"{part}-{one.digest}-{checksum_of(draft)}-{secrets.token_hex(4)}.parquet"
            publish_file(draft, self._folder / name)
        return DataFile(name, one.rows, part if self.shape.day else None)
