"""Tables of leads.duckdb as files for spreadsheets and BI: CSV, Parquet, xlsx.

Belongs here: how each format writes a value. Doesn't: `privacy export`, which answers a person
(features/privacy/).

A spreadsheet takes text that begins with = or + for a formula, and anybody can write a lead's
message. So CSV follows OWASP's rule against CSV injection, unless it is for programs. In xlsx, text
cells are never formulas.
"""

import codecs
import math
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
from xlsxwriter import Workbook
from xlsxwriter.exceptions import FileCreateError
from xlsxwriter.format import Format
from xlsxwriter.worksheet import Worksheet

from leads_pipeline.errors import QuestionError
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.durable import make_folder, publish_file, storing
from leads_pipeline.warehouse.duck import literal, quoted, telling_errors
from leads_pipeline.warehouse.published import attached_version, check_follows_list

ALL: Final = "all"
FORMATS: Final = ("csv", "parquet", "xlsx")

# For programs: as DuckDB writes it, with the values, types and headers of leads.duckdb.
_AS_IT_IS: Final = {"parquet": "format parquet, compression zstd", "csv": "format csv"}

# Excel takes a moment with microseconds for text.
_FOR_PEOPLE: Final = "format csv, force_quote *, timestampformat '%Y-%m-%d %H:%M:%S'"

# For the owner, and for the group that the folder belongs to, as the published files.
_FILE_MODE: Final = 0o640

# Excel's limits: rows of a sheet below its header, UTF-16 units of a cell, digits of a number, the
# first year.
SHEET_ROWS: Final = 1_048_575
CELL_UNITS: Final = 32_767
_FIRST_LONG_NUMBER: Final = 10**15
_FIRST_YEAR: Final = 1900
_CUT: Final = " … (cut)"

# Columns are as wide as the first rows need, in characters, but not so wide that the next one is
# out of sight. The button of the filter takes some of it.
_ROWS_MEASURED: Final = 1000
_WIDEST: Final = 50
_FILTER_WIDTH: Final = 3

# DuckDB's types that aren't text in a spreadsheet, by how they begin. Dates have a format of
# Excel's.
_TYPES: Final = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INTEGER",
    "BIGINT",
    "HUGEINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL",
)
_DATES: Final = {"DATE": "yyyy-mm-dd", "TIMESTAMP": "yyyy-mm-dd hh:mm:ss"}
# Numbers that nobody adds up. Excel shows 12 digits as 4.47E+11.
_IDS: Final = ("id", "uprn", "sequence")

# How a formula begins, also after a character that begins a cell where another separator is usual.
_FORMULA: Final = r"(^|[;\t\r\n])([=+\-@＝＋－＠])"  # noqa: RUF001 - some spreadsheets read these as =, +, - and @
_LEADING: Final = r"^[\t\r\n]"
_CONTROLS: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x{fffe}\x{ffff}]"


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written. `cut` counts texts that are longer than a cell of Excel."""

    file: Path
    rows: int
    sheets: int = 1
    cut: int = 0


def write_export(
    data: DataFolder,
    table: str,
    folder: Path,
    format_: str,
    zone: str,
    *,
    is_raw: bool = False,
    sheet_rows: int = SHEET_ROWS,
) -> list[Exported]:
    """Write a table or a view, or ALL, as published now.

    Each file is replaced as a whole, after all are written.

    `is_raw` is about CSV: it is for programs then. Otherwise moments are in `zone`, and texts are
    made harmless.

    Raises QuestionError if there is no such table, or the folder is in the data folder. Raises
    StorageError if nothing is published yet, or the disk can't take it.
    """
    folder = folder.absolute()
    data.want_outside(folder)
    with data.state.lock("export"), attached_version(data) as db:
        found = "select table_name from information_schema.tables where table_catalog = 'published'"
        names = [
            name
            for (name,) in db.execute(f"{found} and table_schema = 'main' order by all").fetchall()
        ]
        if table not in (ALL, *names):
            raise QuestionError(
                f"There is no such table. Take one of these, or `{ALL}`: {', '.join(names)}."
            )

        # Before the suppression list is read: so the receipt of a later entry names the folder.
        data.state.note_export(folder)
        check_follows_list(db, data)

        drafts = folder / ".leads-export.tmp"
        shutil.rmtree(drafts, ignore_errors=True)  # a killed export's, as this one holds the lock
        try:
            with storing(folder), telling_errors(folder):
                make_folder(drafts)
                written = [
                    _write(
                        db,
                        name,
                        drafts / f"{name}.{format_}",
                        zone,
                        is_raw=is_raw,
                        sheet_rows=sheet_rows,
                    )
                    for name in (names if table == ALL else [table])
                ]
                for one in written:
                    one.file.chmod(_FILE_MODE)
                    publish_file(one.file, folder / one.file.name)
        finally:
            shutil.rmtree(drafts, ignore_errors=True)
    return [replace(one, file=folder / one.file.name) for one in written]


def _write(
    db: duckdb.DuckDBPyConnection,
    name: str,
    file: Path,
    zone: str,
    *,
    is_raw: bool,
    sheet_rows: int,
) -> Exported:
    table = quoted(name)
    format_ = file.suffix.removeprefix(".")
    if is_raw or format_ == "parquet":
        [(count,)] = db.execute(
            f"copy {table} to {literal(str(file))} ({_AS_IT_IS[format_]})"
        ).fetchall()
        return Exported(file, count)

    described = db.execute(f"describe {table}").fetchall()
    columns = [
        _column(column, type_, zone, is_csv=format_ == "csv") for column, type_, *_ in described
    ]
    rows = f"select {', '.join(column.sql for column in columns)} from {table}"  # noqa: S608 - our own names
    if format_ == "csv":
        return _write_csv(db, rows, file)
    return _write_xlsx(db.execute(rows), columns, file, sheet_rows)


class _Column(NamedTuple):
    """A column of a spreadsheet: its header, the SQL of its values, and Excel's format for them."""

    header: str
    sql: str
    format: str


def _column(name: str, type_: str, zone: str, *, is_csv: bool) -> _Column:
    header = name
    value = quoted(name)
    is_text = _is_text(name, type_)
    excel_format = "General" if is_text else _excel_format(type_)

    if is_text:
        value = f"regexp_replace({value}::varchar, {literal(_CONTROLS)}, '', 'g')"
        if is_csv:
            value = _harmless(value)
    elif type_ == "TIMESTAMP WITH TIME ZONE":
        header = f"{name} ({zone})"
        value = f"timezone({literal(zone)}, {value})"
    elif type_.startswith("TIMESTAMP"):
        value = f"{value}::timestamp"  # pandas writes nanoseconds, which Excel takes for text

    if is_csv:  # a file of the agency's own names its columns
        header = re.sub(_FORMULA, r"\1'\2", header)
    return _Column(header, f"{value} as {quoted(header)}", excel_format)


def _is_text(name: str, type_: str) -> bool:
    """Whether a spreadsheet is to take a column for text, as it takes numbers of ids."""
    is_list = type_.endswith("]")
    is_known = type_.removeprefix("U").startswith((*_TYPES, *_DATES))
    return is_list or not is_known or name.rpartition("_")[2] in _IDS


def _excel_format(type_: str) -> str:
    for kind, excel_format in _DATES.items():
        if type_.startswith(kind):
            return excel_format
    return "General"


def _harmless(text: str) -> str:
    """Return SQL that puts an apostrophe before what a spreadsheet would take for a formula."""
    text = rf"regexp_replace({text}, {literal(_FORMULA)}, '\1''\2', 'g')"
    return rf"regexp_replace({text}, {literal(_LEADING)}, '''\0')"


def _write_csv(db: duckdb.DuckDBPyConnection, rows: str, file: Path) -> Exported:
    """Write each value in quotes. Without the mark Excel doesn't take the file for UTF-8."""
    unmarked = file.with_suffix(".unmarked")
    [(count,)] = db.execute(f"copy ({rows}) to {literal(str(unmarked))} ({_FOR_PEOPLE})").fetchall()
    with unmarked.open("rb") as source, file.open("wb") as target:
        target.write(codecs.BOM_UTF8)
        shutil.copyfileobj(source, target)
    return Exported(file, count)


def _write_xlsx(
    rows: duckdb.DuckDBPyConnection, columns: Sequence[_Column], file: Path, sheet_rows: int
) -> Exported:
    """Write the rows to a sheet `data`, and to `data 2` and so on if there are too many for one."""
    out = _Buffer()
    options = {
        "constant_memory": True,
        "tmpdir": str(file.parent),
        "use_zip64": True,
        "strings_to_urls": False,
    }
    book = Workbook(out, {**options, "strings_to_formulas": False})
    styles = {column.format: book.add_format({"num_format": column.format}) for column in columns}
    bold = book.add_format({"bold": True})

    sheets = [_Sheet(book, "data", columns, styles, bold)]
    for row in iter(rows.fetchone, None):
        if sheets[-1].rows == sheet_rows:
            sheets[-1].end()
            sheets.append(_Sheet(book, f"data {len(sheets) + 1}", columns, styles, bold))
        sheets[-1].add(row)
    sheets[-1].end()

    try:
        book.close()
    except FileCreateError as error:
        raise error.args[0] from None  # an OSError
    file.write_bytes(out.getbuffer())

    rows_written = sum(sheet.rows for sheet in sheets)
    texts_cut = sum(sheet.cut for sheet in sheets)
    return Exported(file, rows_written, len(sheets), texts_cut)


class _Sheet:
    """A sheet with a header. `rows` and `cut` count as in `Exported`."""

    def __init__(
        self,
        book: Workbook,
        name: str,
        columns: Sequence[_Column],
        styles: Mapping[str, Format],
        bold: Format,
    ) -> None:
        self.rows = 0
        self.cut = 0
        headers = [column.header for column in columns]
        self._styles = [styles[column.format] for column in columns]
        self._widths = [len(header) + _FILTER_WIDTH for header in headers]

        self._sheet = book.add_worksheet(name)
        self._sheet.add_write_handler(str, _write_text)
        self._sheet.freeze_panes(1, 0)
        for number, style in enumerate(self._styles):  # rows take it as they are written
            self._sheet.set_column(number, number, None, style)
        self._sheet.write_row(0, 0, headers, bold)

    def add(self, row: Sequence[object]) -> None:
        """Write a row."""
        cells = [_cell(value) for value in row]
        for value, cell in zip(row, cells, strict=True):
            if isinstance(value, str) and value != cell:
                self.cut += 1

        if self.rows < _ROWS_MEASURED:
            widths = zip(self._widths, map(_width, cells), strict=True)
            self._widths = [max(pair) for pair in widths]

        self.rows += 1
        self._sheet.write_row(self.rows, 0, cells)

    def end(self) -> None:
        """Set the filter, and the columns' widths."""
        self._sheet.autofilter(0, 0, self.rows, len(self._styles) - 1)
        for number, style in enumerate(self._styles):
            self._sheet.set_column(number, number, min(self._widths[number], _WIDEST), style)


def _write_text(sheet: Worksheet, row: int, column: int, text: str, *style: Format) -> int | None:
    """Write it as text. xlsxwriter 3.2 takes {=1+1} for a formula, whatever its options say.

    None leaves an empty text to xlsxwriter, which writes no cell.
    """
    return sheet.write_string(row, column, text, *style) if text else None


def _width(cell: object) -> int:
    """Return how many characters Excel shows of it."""
    return len(cell.split("\n", 1)[0]) if isinstance(cell, str) else len(str(cell))


class _Buffer(BytesIO):
    """A file in memory that stays open.

    After a full disk, zipfile writes to it once more when it is collected.
    """

    def close(self) -> None: ...


def _cell(value: object) -> object:
    """Return what Excel can hold of a value."""
    match value:
        case str() if len(value) > CELL_UNITS // 2:  # a character may take two units
            units = value.encode("utf-16-le")
            kept = units[: 2 * (CELL_UNITS - len(_CUT))].decode("utf-16-le", "ignore") + _CUT
            return kept if len(units) > 2 * CELL_UNITS else value
        case float() if not math.isfinite(value):
            return None
        case int() if abs(value) >= _FIRST_LONG_NUMBER:
            return str(value)
        case date() if value.year < _FIRST_YEAR:
            return str(value)
    return value
