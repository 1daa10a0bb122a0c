"""The agency's own answers to leads: answers.csv or answers.parquet, as it is.

Belongs here: reading the file. Doesn't: which rows count (sql/answers.sql). A row that can't be read says why.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.features.own_tables.own_table import is_utf_8
from leads_pipeline.raw.durable import digest_of, reading
from leads_pipeline.warehouse.duck import file_name
from leads_pipeline.warehouse.step import FORMER, Draft, Step
from leads_pipeline.warehouse.tables import columns_of, fill

# `number` is the row of the file, 1 is the first below the header, NULL if the whole file is at fault.
ANSWERS: Final = "number bigint, lead_id varchar, answered_at timestamptz, problem varchar"

# A workbook is among them only to be refused.
ANSWER_FILES: Final = ("answers.csv", "answers.parquet", "answers.xlsx")

_CSV: Final = (
    "read_csv($path, header = true, all_varchar = true, delim = '{delimiter}', quote = '\"', null_padding = true, "
    "strict_mode = false, normalize_names = true, hive_partitioning = false)"
)
_PARQUET: Final = "read_parquet($path, hive_partitioning = false)"

# A moment without an offset is in the agency's zone. A date without a time doesn't count. In 01/12/2026, as British
# spreadsheets write it, the day is first.
_ROWS: Final = r"""
select
    row_number() over () as number,
    nullif(trim(lead_id::varchar), '') as lead_id,
    case
        when not contains(answered_at::varchar, ':') then null
        when regexp_matches(trim(answered_at::varchar), '([Zz]|[+-]\d\d(:?\d\d)?)$')
            then try_cast(trim(answered_at::varchar) as timestamptz)
        else timezone(
            $zone,
            coalesce(
                try_cast(trim(answered_at::varchar) as timestamp),
                try_strptime(trim(answered_at::varchar), ['%d/%m/%Y %H:%M', '%d/%m/%Y %H:%M:%S'])
            )
        )
    end as answered_at,
    null as problem
"""


class LoadAnswers(Step):
    """Loads the answers of the first of these folders that has a file of them."""

    def __init__(self, folders: Sequence[Path | None], zone: ZoneInfo) -> None:
        self._folders = folders
        self._zone = zone

    def inputs(self) -> str:
        """The bytes of the files."""
        return repr([digest_of(path) for path in answer_files(*self._folders)])

    def rebuilds_if(self) -> str:
        """The columns."""
        return ANSWERS

    def fill(self, draft: Draft) -> None:
        """Load them in the place of those of before, which stay if a file can't be read."""
        rows = list[tuple[object, ...]]()
        problems = list[tuple[object, ...]]()
        for path in answer_files(*self._folders):
            try:
                rows += read_answers(path, self._zone)
            except _UnreadableError as error:
                problems.append((None, None, None, f"{path.name} {error}"))

        with draft.transaction():
            draft.db.execute(f"create table if not exists pipeline.answers ({ANSWERS})")
            if problems:
                rows = [*_rows_before(draft), *problems]
            draft.db.execute("delete from pipeline.answers")
            fill(draft.db, "pipeline.answers", rows)


class _UnreadableError(Exception):
    """No row of a file can be read. The text says why, and begins with a verb."""


def answer_files(*folders: Path | None) -> list[Path]:
    """Return the files of the first folder that has any. Raises StorageError if the disk can't say."""
    for folder in filter(None, folders):
        with reading(folder):
            paths = [folder / name for name in ANSWER_FILES]
            files = [path for path in paths if path.exists() and not path.is_fifo()]  # a pipe has no end
        if files:
            return [path for path in files if path.suffix != ".xlsx"] or files
    return []


def _rows_before(draft: Draft) -> list[tuple[object, ...]]:
    """Return the last rows that could be read. There are none if they may tell of somebody who was erased."""
    if draft.changes.forgets:
        return []
    table = "pipeline.answers"
    if draft.changes.has_former and columns_of(draft.db, "answers", "pipeline", FORMER):
        table = f"{FORMER}.{table}"
    return draft.db.execute(f"from {table} where number is not null").fetchall()


def read_answers(path: Path, zone: ZoneInfo) -> list[tuple[object, ...]]:
    """Read the rows of the file, with the columns of ANSWERS. Raises _UnreadableError, StorageError and OSError."""
    if path.suffix == ".xlsx":
        raise _UnreadableError("isn't read. In Excel, save it as CSV UTF-8")
    source = _PARQUET
    if path.suffix == ".csv":
        if not is_utf_8(path):
            raise _UnreadableError("isn't in UTF-8. In Excel, save it as CSV UTF-8")
        with path.open(encoding="utf-8-sig") as lines:
            header = lines.readline()
        source = _CSV.format(delimiter=";" if ";" in header else ",")

    # A connection of its own: an error would end the publication's transaction.
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        try:
            return db.execute(f"{_ROWS} from {source}", {"path": file_name(path), "zone": zone.key}).fetchall()
        except duckdb.BinderException:
            raise _UnreadableError("lacks the column lead_id or answered_at") from None
        except duckdb.Error:
            raise _UnreadableError("is no CSV, or no Parquet file") from None
