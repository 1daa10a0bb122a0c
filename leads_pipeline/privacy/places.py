"""Every file that a person may lie in, decoded: Parquet, DuckDB, sqlite, the spool, and the rest as text.

Belongs here: walking the folders, telling what a file is by its content, handing out the rows and texts that a pattern
may be in. Doesn't: whose they are (person/), what is made of them (search.py).

What lies in the folder counts, not what should: the unfinished file of a killed writer, a second name in a scratch
folder and a copy that somebody left there are read like the files that they were.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.delta.folder import DELTA, LOG
from leads_pipeline.duck import SCRATCH_ROOT, WAREHOUSE_FILE, quoted
from leads_pipeline.errors import StorageError
from leads_pipeline.lake import Lake
from leads_pipeline.lake.quarantine import QUARANTINE
from leads_pipeline.person.matching import Sought
from leads_pipeline.person.showing import PathAndText, texts_of
from leads_pipeline.privacy.held import held_files
from leads_pipeline.warehouse import Reader, version_of

# A text that is no row of anything is read in pieces of this, each beginning with the end of the one before.
_PIECE_BYTES: Final = 8 * 1024 * 1024
_OVERLAP_BYTES: Final = 4096

# The place of a file that has no name any more.
HELD_OPEN: Final = "held open"

_KINDS: Final = {table: kind.name for kind in LEAD_KINDS for table in kind.tables}


@dataclass(frozen=True, slots=True)
class File:
    """A file, and the place that it belongs to, in words. `path` is for people: relative to the data folder."""

    place: str
    path: str
    file: Path


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a lead. `kind` is None where the file doesn't say it."""

    table: str
    kind: str | None
    lead_id: str
    columns: dict[str, Any]

    def texts(self) -> Iterator[PathAndText]:
        """Every text in it; what is JSON is read."""
        for name, value in self.columns.items():
            for one in value if isinstance(value, list) else [value]:
                if name == "payload" or (isinstance(one, str) and one.startswith(("{", "["))):
                    yield from texts_of(str(one))
                elif one is not None:
                    yield name, str(one)


@dataclass(frozen=True, slots=True)
class Trace:
    """What is shown beside leads: how often, and in which table or part of the file."""

    table: str
    count: int


def files_of(lake: Lake, dagster_home: Path) -> Iterator[File]:
    """Each file of the data folder and of Dagster's home, which may lie elsewhere. Symbolic links aren't followed.

    In the end those that lay there and that a program still has open, an analyst's old leads.duckdb say.
    """
    is_home_inside = dagster_home.is_relative_to(lake.folder)
    for root in [lake.folder] if is_home_inside else [lake.folder, dagster_home]:
        for path, folders, names in os.walk(root):
            folder = Path(path)
            if root != lake.folder and folder == lake.folder:
                folders.clear()  # it was the first
                continue
            is_dagster = folder.is_relative_to(dagster_home)
            inside = folder.relative_to(lake.folder).as_posix() if folder.is_relative_to(lake.folder) else ""
            for name in sorted(names):
                file = folder / name
                with suppress(OSError):
                    if stat.S_ISREG(file.lstat().st_mode):
                        shown = str(file) if not inside else name if inside == "." else f"{inside}/{name}"
                        yield File("Dagster's home" if is_dagster else _place(shown), shown, file)
    for held in held_files([lake.folder.resolve(), dagster_home.resolve()]):
        is_inside = held.path.is_relative_to(lake.folder.resolve())
        path = held.path.relative_to(lake.folder.resolve()).as_posix() if is_inside else str(held.path)
        yield File(HELD_OPEN, f"{path}, replaced or deleted, which process {held.process} still has open", held.file)


def _place(path: str) -> str:
    first, _, rest = path.partition("/")
    if first in ("raw", "staged", "spool") and any(part.startswith(".") for part in rest.split("/")):
        return f"{first}, unfinished"
    if path.startswith(f"{SCRATCH_ROOT}/"):
        return "scratch of DuckDB"
    if path != WAREHOUSE_FILE and WAREHOUSE_FILE in first:
        return f"{WAREHOUSE_FILE}, unfinished"
    return first


def look_into(lake: Lake, file: File, sought: Sought) -> Iterator[Row | Trace]:
    """The file's rows of leads that the pattern is in or whose id is sought, and traces of the person beside them.

    A row is to be looked at (Sought.evidence). Raises UndecodedError, when what could be read was handed out; a file
    that is gone meanwhile holds nothing.
    """
    try:
        with file.file.open("rb") as opened:
            head = opened.read(16)
        if head[:4] == b"PAR1":
            yield from _parquet(file, sought)
        elif head[8:12] == b"DUCK":
            yield from _duckdb(lake, file, sought)
        elif head == b"SQLite format 3\0":
            yield from _sqlite(file, sought)
            # Free pages too. What isn't ASCII there is numbers for the most part.
            yield from _text(file, sought, "pages", "ascii")
        elif file.place.startswith("spool") or file.path.startswith(f"{QUARANTINE}/spool/"):
            yield from _spool(file, sought)
        else:
            yield from _text(file, sought, "text")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UndecodedError(f"it can't be read: {error.strerror}") from None


class UndecodedError(Exception):
    """What lies in the file isn't known. Its text says why in a few words and quotes nothing."""


def _parquet(file: File, sought: Sought) -> Iterator[Row | Trace]:
    try:
        opened = pq.ParquetFile(file.file)
        yield from _footer(opened.metadata, sought)
        if LOG in Path(file.path).parts:
            yield from _checkpoint(opened, sought)
            return
        rows = _candidates(opened, sought)
    except (pa.ArrowException, ValueError):
        raise UndecodedError("it is a damaged or unfinished Parquet file") from None
    if rows:
        parts = (part.partition(".")[0] for part in reversed(Path(file.path).parts))
        name = next((part for part in parts if part in _KINDS), "")
        # Delta tables have the day in the path alone.
        days = dict(part.split("=", 1) for part in Path(file.path).parts if part.startswith(("window_day=", "day=")))
        for columns in rows:
            yield from _row_of(name or file.place, (days if file.place == DELTA else {}) | columns, sought)


def _checkpoint(opened: pq.ParquetFile, sought: Sought) -> Iterator[Trace]:
    """Of the log of a Delta table: nested, a row a data file."""
    if count := sum(sought.mentions(str(row)) for row in opened.read(use_threads=False).to_pylist()):
        yield Trace("log", count)


def _row_of(table: str, columns: dict[str, Any], sought: Sought) -> Iterator[Row | Trace]:
    """A row of a lead where it says which one, else a trace if it is one."""
    if columns.get("lead_id") is not None:
        yield Row(table, columns.get("kind") or _KINDS.get(table), str(columns["lead_id"]), columns)
    elif count := sum(sought.mentions(str(value)) for value in columns.values() if value is not None):
        yield Trace(table, count)


def _footer(metadata: pq.FileMetaData, sought: Sought) -> Iterator[Trace]:
    """Least and greatest value of each column, and what the writer noted."""
    noted = [value.decode(errors="replace") for value in (metadata.metadata or {}).values()]
    for group in range(metadata.num_row_groups):
        columns = metadata.row_group(group)
        for number in range(metadata.num_columns):
            statistics = columns.column(number).statistics
            if statistics is not None and statistics.has_min_max:
                noted += [str(statistics.min), str(statistics.max)]
    if sought.may_be_in("\n".join(noted)) and (count := sum(map(sought.mentions, noted))):
        yield Trace("footer", count)


def _candidates(opened: pq.ParquetFile, sought: Sought) -> list[dict[str, Any]]:
    """The rows that the pattern is in, or whose id is sought; the others never leave Arrow."""
    texts = [field.name for field in opened.schema_arrow if _is_text(field.type)]
    is_by_id = "lead_id" in texts
    read = opened.read(["lead_id"] if sought.ids_alone and is_by_id else texts, use_threads=False)
    # The stubs don't know how these functions go together.
    holds: list[Any] = []
    if is_by_id:
        holds.append(pc.is_in(read["lead_id"], pa.array(sorted(sought.lead_ids), pa.string())))
    if texts and not (sought.ids_alone and is_by_id):
        columns: list[Any] = [
            pc.binary_join(column, "\n") if pa.types.is_list(column.type) else column for column in read.columns
        ]
        holds.append(_holding(columns, sought))
    if not holds or not pc.any(chosen := reduce(pc.or_, holds)).as_py():
        return []
    return opened.read(use_threads=False).filter(chosen).to_pylist()


def _holding(columns: list[Any], sought: Sought) -> Any:
    """For each row whether one of its texts may show who is sought. Python looks at what Arrow can't rule out."""
    joined: Any = pc.binary_join_element_wise(*columns, "\n", null_handling="skip")
    joined = joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
    maybe: Any = pc.or_(pc.match_substring_regex(joined, sought.plain_pattern), pc.invert(pc.string_is_ascii(joined)))
    found = [False] * len(joined)
    for index in pc.indices_nonzero(maybe).to_pylist():
        found[index] = sought.may_be_in(joined[index].as_py())
    return pa.array(found, pa.bool_())


def _is_text(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or (pa.types.is_list(type_) and pa.types.is_string(type_.value_type))


def _duckdb(lake: Lake, file: File, sought: Sought) -> Iterator[Row | Trace]:
    try:
        with version_of(lake, file.file) as db:
            _, tables = db.query(
                "select schema_name, table_name, list(column_name), list(data_type) from duckdb_columns() "
                "where not internal group by all order by all"
            )
            for schema, table, names, types in tables:
                yield from _duckdb_table(db, schema, table, dict(zip(names, types, strict=True)), sought)
    except StorageError:
        raise UndecodedError("DuckDB can't open it now: it is damaged, or being written") from None


def _duckdb_table(db: Reader, schema: str, table: str, types: dict[str, str], sought: Sought) -> Iterator[Row | Trace]:
    texts = [quoted(name) for name, type_ in types.items() if type_.startswith(("VARCHAR", "JSON", "STRUCT", "MAP"))]
    if not texts:
        return
    # None of it is a received value: names are those of the file's catalogue, quoted, and the rest is bound.
    by_id = "lead_id in (select unnest($ids::varchar[]))" if "lead_id" in types else "false"
    by_text = (
        "false"
        if sought.ids_alone and "lead_id" in types
        else (f"regexp_matches(concat_ws(chr(10), {', '.join(f'{name}::varchar' for name in texts)}), $pattern)")
    )
    parameters = {"ids": sorted(sought.lead_ids), "pattern": sought.pattern}
    where = f"({by_id}) or ({by_text})"
    used = {name: value for name, value in parameters.items() if f"${name}" in where}
    columns, rows = db.query(f"from {quoted(schema)}.{quoted(table)} where {where}", used)
    for row in rows:
        yield from _row_of(table, dict(zip(columns, row, strict=True)), sought)


def _sqlite(file: File, sought: Sought) -> Iterator[Trace]:
    try:
        with closing(sqlite3.connect(f"{file.file.absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.text_factory = _decoded
            tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
            for table in tables:
                count = 0
                for row in db.execute(f"select * from {quoted(table)}"):  # noqa: S608 - a name of the file's catalogue
                    texts = (_decoded(one) if isinstance(one, bytes) else one for one in row)
                    for text in texts:
                        if isinstance(text, str):
                            count += sought.mentions(text)
                if count:
                    yield Trace(table, count)
    except sqlite3.Error:
        raise UndecodedError("sqlite can't read it now: it is damaged, or being written") from None


def _decoded(content: bytes) -> str:
    return content.decode(errors="replace")


def _spool(file: File, sought: Sought) -> Iterator[Row | Trace]:
    """Deliveries that no run has taken in; what isn't whole, as text."""
    content = file.file.read_bytes()
    rest = []
    for line in content.splitlines():
        try:
            record = msgspec.convert(msgspec.json.decode(line), dict[str, Any])
            kind, lead_id, payload = (str(record[name]) for name in ("kind", "lead_id", "payload"))
        except (msgspec.DecodeError, msgspec.ValidationError, KeyError):
            rest.append(_decoded(line))
            continue
        if lead_id in sought.lead_ids or sought.may_be_in(payload):
            yield Row("delivery", kind, lead_id, record)
    if count := sum(map(sought.mentions, rest)):
        yield Trace("text", count)


def _text(file: File, sought: Sought, part: str, encoding: str = "utf-8") -> Iterator[Trace]:
    count, end = 0, b""
    with file.file.open("rb") as opened:
        while piece := opened.read(_PIECE_BYTES):
            # What the piece before has shown as well is counted twice, rather than missed where it is cut in two.
            count += sought.mentions((end + piece).decode(encoding, "ignore"))
            end = piece[-_OVERLAP_BYTES:]
    if count:
        yield Trace(part, count)
