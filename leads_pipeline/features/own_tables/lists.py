"""The agency's own lists about leads: when it answered, what came of a lead, what it cost.

Belongs here: which lists there are, and reading their files. Doesn't: which rows count
(sql/answers.sql, sql/outcomes.sql). A row that can't be read says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS
from leads_pipeline.errors import StorageError
from leads_pipeline.features.own_tables.own_table import is_utf_8
from leads_pipeline.raw.durable import digest_of, reading
from leads_pipeline.warehouse.duck import file_name
from leads_pipeline.warehouse.step import FORMER, Draft, Step
from leads_pipeline.warehouse.tables import columns_of, insert

_TEXT: Final = "nullif(trim({0}::varchar), '')"
_AMOUNT: Final = "try_cast(replace({0}::varchar, ',', '') as decimal(18, 2))"
_ZONED: Final = r"""
    when regexp_matches(trim({0}::varchar), ':.*([Zz]|[+-]\d\d(:?\d\d)?)$')
        then try_cast(trim({0}::varchar) as timestamptz)
    else timezone(
        $zone,
        coalesce(
            try_cast(trim({0}::varchar) as timestamp),
            try_strptime(trim({0}::varchar), ['%d/%m/%Y %H:%M', '%d/%m/%Y %H:%M:%S', '%d/%m/%Y'])
        )
    )
end"""
# A moment without an offset is in the agency's zone. In 01/12/2026, as British spreadsheets write
# it, the day is first.
_DAY_OR_MOMENT: Final = f"case {_ZONED}"
_MOMENT: Final = f"case when not contains({{0}}::varchar, ':') then null {_ZONED}"


@dataclass(frozen=True, slots=True)
class OwnColumn:
    """A column of a list: its name in the file and in the table, its type, and how it is read."""

    written: str
    name: str
    type: str
    reading: str

    def expression(self, suffix: str) -> str:
        """Return what reads it from a file of that kind.

        In a CSV, DuckDB's keywords get an underscore.
        """
        name = "_at" if suffix == ".csv" and self.written == "at" else self.written
        return self.reading.format(f'"{name}"')


@dataclass(frozen=True, slots=True)
class OwnList:
    """A list that the agency keeps in a CSV or Parquet file of that name.

    `number` is the row of the file, 1 is the first below the header. It is NULL if a feature wrote
    the file, or the whole file is at fault.
    """

    name: str
    columns: Sequence[OwnColumn]

    @property
    def table(self) -> str:
        """The columns of its table."""
        columns = ", ".join(f"{column.name} {column.type}" for column in self.columns)
        return f"number bigint, {columns}, problem varchar"


_LEAD_ID: Final = OwnColumn("lead_id", "lead_id", "varchar", _TEXT)
LISTS: Final = (
    OwnList("answers", [_LEAD_ID, OwnColumn("answered_at", "answered_at", "timestamptz", _MOMENT)]),
    OwnList(
        "outcomes",
        [
            _LEAD_ID,
            OwnColumn("outcome", "outcome", "varchar", _TEXT),
            # A date without a time is the beginning of that day.
            OwnColumn("at", "happened_at", "timestamptz", _DAY_OR_MOMENT),
        ],
    ),
    OwnList(
        "lead_prices",
        [
            OwnColumn("portal_source", "portal_source", "varchar", _TEXT),
            OwnColumn("price", "price", "decimal(18, 2)", _AMOUNT),
        ],
    ),
)

_READERS: Final = {
    ".csv": "read_csv($path, header = true, all_varchar = true, delim = '{delimiter}', quote = "
    "'\"', null_padding = true, strict_mode = false, normalize_names = true, hive_partitioning "
    "= false)",
    ".parquet": "read_parquet($path, hive_partitioning = false)",
}

# A workbook is among them only to be refused.
_SUFFIXES: Final = (*_READERS, ".xlsx")
# The files of LEADS_MARTS_DIR that are no tables of their own.
LIST_FILES: Final = frozenset(f"{one.name}{suffix}" for one in LISTS for suffix in _SUFFIXES)


_Rows = list[tuple[object, ...]]


class _UnreadableError(Exception):
    """No row of a file can be read. The text says why, and begins with a verb."""


class LoadLists(Step):
    """Loads each list from the first of these folders that has a file of it.

    Files that features write are loaded too: those of a list lie in a folder of its name below
    `data_folder`.
    """

    def __init__(self, folders: Sequence[Path | None], data_folder: Path, zone: ZoneInfo) -> None:
        self._folders = folders
        self._data_folder = data_folder
        self._zone = zone

    def updates_if(self) -> str:
        """The names and bytes of the files, or why a folder can't be read."""
        files: list[Path] = []
        try:
            for one in LISTS:
                files += list_files(one, *self._folders)
                files += self._files_of_features(one)
        except StorageError as error:
            return str(error)

        return repr([(path.name, digest_of(path)) for path in files])

    def rebuilds_if(self) -> str:
        """The columns."""
        return repr([one.table for one in LISTS])

    def fill(self, draft: Draft) -> None:
        """Load them in the place of those of before, which stay if a file can't be read."""
        for one in LISTS:
            rows, problem_rows = self._read(one)

            with draft.transaction():
                draft.db.execute(f"create table if not exists pipeline.{one.name} ({one.table})")
                # Half a list would be wrong: if one file can't be read, no other counts either.
                if problem_rows:
                    rows = [*_rows_before(one, draft), *problem_rows]
                draft.db.execute(f"delete from pipeline.{one.name}")  # noqa: S608 - our own names
                insert(draft.db, f"pipeline.{one.name}", rows)
                self._load_files_of_features(one, draft)

    def _files_of_features(self, one: OwnList) -> list[Path]:
        return sorted((self._data_folder / one.name).glob("*.csv"))

    def _load_files_of_features(self, one: OwnList, draft: Draft) -> None:
        """Add the rows of leads that are shown. A person can't mend the others."""
        rows, problem_rows = self._read_files(one, self._files_of_features(one))
        without_numbers = [(None, *row[1:]) for row in rows]
        if not without_numbers and not problem_rows:
            return

        tables = [f"select lead_id from {kind.table}" for kind in LEAD_KINDS]  # noqa: S608 - our own names
        insert(draft.db, f"pipeline.{one.name}", without_numbers)
        draft.db.execute(
            f"delete from pipeline.{one.name} "  # noqa: S608 - our own names
            f"where number is null and problem is null and lead_id not in "
            f"({' union all '.join(tables)})"
        )
        insert(draft.db, f"pipeline.{one.name}", problem_rows)

    def _read(self, one: OwnList) -> tuple[_Rows, _Rows]:
        """Return the rows of the list, and rows that say what is wrong with its files."""
        try:
            files = list_files(one, *self._folders)
        except StorageError as error:
            return [], [_problem(one, str(error))]
        return self._read_files(one, files)

    def _read_files(self, one: OwnList, files: Sequence[Path]) -> tuple[_Rows, _Rows]:
        rows: _Rows = []
        problems: _Rows = []
        for path in files:
            try:
                rows += _read(one, path, self._zone)
            except _UnreadableError as error:
                problems.append(_problem(one, f"{path.name} {error}"))
            except OSError as error:
                problems.append(_problem(one, f"{path.name} can't be read: {error.strerror}"))
        return rows, problems


def list_files(one: OwnList, *folders: Path | None) -> list[Path]:
    """Return the list's files of the first folder that has any.

    Raises StorageError if a folder can't be read or isn't there, as a share that isn't mounted.
    """
    for folder in filter(None, folders):
        with reading(folder):
            folder.stat()
            paths = [folder / f"{one.name}{suffix}" for suffix in _SUFFIXES]
            # A pipe has no end.
            files = [path for path in paths if path.exists() and not path.is_fifo()]
        if files:
            return [path for path in files if path.suffix != ".xlsx"] or files
    return []


def _problem(one: OwnList, what: str) -> tuple[object, ...]:
    """Return the row that says what is wrong with the whole list."""
    return (None, *[None] * len(one.columns), what)


def _rows_before(one: OwnList, draft: Draft) -> _Rows:
    """Return the last rows that could be read from files of the agency's own.

    There are none if they may tell of somebody who was erased.
    """
    if draft.changes.forgets:
        return []
    table = f"pipeline.{one.name}"
    if draft.changes.has_former and columns_of(draft.db, one.name, "pipeline", FORMER):
        table = f"{FORMER}.{table}"
    # Rows of features have no number, and are loaded again. Rows of problems have none either.
    return draft.db.execute(f"from {table} where number is not null").fetchall()


def _source(path: Path) -> str:
    """Return what reads the file. Raises _UnreadableError and OSError."""
    if path.suffix == ".xlsx":
        raise _UnreadableError("isn't read. In Excel, save it as CSV UTF-8")
    if path.suffix != ".csv":
        return _READERS[path.suffix]
    if not is_utf_8(path):
        raise _UnreadableError("isn't in UTF-8. In Excel, save it as CSV UTF-8")
    with path.open(encoding="utf-8-sig") as lines:
        header = lines.readline()
    return _READERS[path.suffix].format(delimiter=";" if ";" in header else ",")


def _read(one: OwnList, path: Path, zone: ZoneInfo) -> _Rows:
    """Return the rows of the file. Raises _UnreadableError and OSError."""
    columns = ", ".join(column.expression(path.suffix) for column in one.columns)
    statement = f"select row_number() over (), {columns}, null from {_source(path)}"  # noqa: S608 - our own names
    parameters = {"path": file_name(path)}
    if "$zone" in statement:
        parameters["zone"] = zone.key
    # A connection of its own: an error would end the publication's transaction.
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        try:
            return db.execute(statement, parameters).fetchall()
        except duckdb.BinderException:
            names = " or ".join(column.written for column in one.columns)
            raise _UnreadableError(f"lacks the column {names}") from None
        except duckdb.Error:
            raise _UnreadableError("is no CSV, or no Parquet file") from None
