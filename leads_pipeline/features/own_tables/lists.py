"""The agency's own lists about leads, as they are: when it answered, what came of a lead, what a lead costs.

Belongs here: which lists there are, and reading their files. Doesn't: which rows count (sql/answers.sql,
sql/outcomes.sql). A row that can't be read says why.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.raw.durable import digest_of, reading
from leads_pipeline.warehouse.duck import file_name
from leads_pipeline.warehouse.step import Draft, Step
from leads_pipeline.warehouse.tables import fill

_TEXT: Final = "nullif(trim({0}::varchar), '')"
_AMOUNT: Final = "try_cast({0} as decimal(18, 2))"
_ZONED: Final = r"""
    when regexp_matches(trim({0}::varchar), ':.*([Zz]|[+-]\d\d(:?\d\d)?)$')
        then try_cast(trim({0}::varchar) as timestamptz)
    else timezone($zone, try_cast(trim({0}::varchar) as timestamp))
end"""
# A moment without an offset is in the agency's zone.
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
        """Return what reads it from a file of that kind. In a CSV, DuckDB's keywords get an underscore."""
        name = "_at" if suffix == ".csv" and self.written == "at" else self.written
        return self.reading.format(f'"{name}"')


@dataclass(frozen=True, slots=True)
class OwnList:
    """A list that the agency keeps in a CSV or Parquet file of that name.

    `number` is the row of the file, 1 is the first below the header, NULL if the whole file is at fault.
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
    ".csv": "read_csv($path, header = true, all_varchar = true, delim = ',', quote = '\"', null_padding = true, "
    "strict_mode = false, normalize_names = true, hive_partitioning = false)",
    ".parquet": "read_parquet($path, hive_partitioning = false)",
}

# The files of LEADS_MARTS_DIR that are no tables of their own.
LIST_FILES: Final = frozenset(f"{one.name}{suffix}" for one in LISTS for suffix in _READERS)


class LoadLists(Step):
    """Loads each list from the first of these folders that has a file of it."""

    def __init__(self, folders: Sequence[Path | None], zone: ZoneInfo) -> None:
        self._folders = folders
        self._zone = zone

    def inputs(self) -> str:
        """The bytes of the files."""
        return repr([digest_of(path) for one in LISTS for path in list_files(one, *self._folders)])

    def rebuilds_if(self) -> str:
        """The columns."""
        return repr([one.table for one in LISTS])

    def fill(self, draft: Draft) -> None:
        """Load them in the place of those of before."""
        for one in LISTS:
            rows = read_list(one, list_files(one, *self._folders), self._zone)
            with draft.transaction():
                draft.db.execute(f"create table if not exists pipeline.{one.name} ({one.table})")
                draft.db.execute(f"delete from pipeline.{one.name}")  # noqa: S608 - our own names
                fill(draft.db, f"pipeline.{one.name}", rows)


def list_files(one: OwnList, *folders: Path | None) -> list[Path]:
    """Return the list's files of the first folder that has any. Raises StorageError if the disk can't say."""
    for folder in filter(None, folders):
        with reading(folder):
            paths = [folder / f"{one.name}{suffix}" for suffix in _READERS]
            if files := [path for path in paths if path.exists() and not path.is_fifo()]:  # a pipe has no end
                return files
    return []


def read_list(one: OwnList, files: Iterable[Path], zone: ZoneInfo) -> list[tuple[object, ...]]:
    """Read the rows of the files, with the columns of the list. Raises StorageError."""
    return [row for path in files for row in _read(one, path, zone)]


def _read(one: OwnList, path: Path, zone: ZoneInfo) -> list[tuple[object, ...]]:
    columns = ", ".join(column.expression(path.suffix) for column in one.columns)
    statement = f"select row_number() over (), {columns}, null from {_READERS[path.suffix]}"  # noqa: S608 - our own names
    parameters = {"path": file_name(path)}
    if "$zone" in statement:
        parameters["zone"] = zone.key
    nothing = [None] * len(one.columns)
    # A connection of its own: an error would end the publication's transaction.
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        try:
            return db.execute(statement, parameters).fetchall()
        except duckdb.BinderException:
            names = " or ".join(column.written for column in one.columns)
            return [(None, *nothing, f"{path.name} lacks the column {names}")]
        except duckdb.Error:
            return [(None, *nothing, f"{path.name} is no CSV in UTF-8, or no Parquet file")]
