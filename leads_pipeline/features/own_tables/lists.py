"""The agency's own answers to leads: answers.csv or answers.parquet, as it is.

Belongs here: reading the file. Doesn't: which rows count (sql/answers.sql). A row that can't be read says why.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.raw.durable import digest_of, reading
from leads_pipeline.warehouse.duck import file_name
from leads_pipeline.warehouse.step import Draft, Step
from leads_pipeline.warehouse.tables import fill

# `number` is the row of the file, 1 is the first below the header, NULL if the whole file is at fault.
ANSWERS: Final = "number bigint, lead_id varchar, answered_at timestamptz, problem varchar"

ANSWER_FILES: Final = {
    "answers.csv": "read_csv($path, header = true, all_varchar = true, delim = ',', quote = '\"', null_padding = true, "
    "strict_mode = false, normalize_names = true, hive_partitioning = false)",
    "answers.parquet": "read_parquet($path, hive_partitioning = false)",
}

# A moment without an offset is in the agency's zone. A date without a time doesn't count.
_ROWS: Final = r"""
select
    row_number() over () as number,
    nullif(trim(lead_id::varchar), '') as lead_id,
    case
        when not contains(answered_at::varchar, ':') then null
        when regexp_matches(trim(answered_at::varchar), '([Zz]|[+-]\d\d(:?\d\d)?)$')
            then try_cast(trim(answered_at::varchar) as timestamptz)
        else timezone($zone, try_cast(trim(answered_at::varchar) as timestamp))
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
        """Load them in the place of those of before."""
        rows = read_answers(answer_files(*self._folders), self._zone)
        with draft.transaction():
            draft.db.execute(f"create table if not exists pipeline.answers ({ANSWERS})")
            draft.db.execute("delete from pipeline.answers")
            fill(draft.db, "pipeline.answers", rows)


def answer_files(*folders: Path | None) -> list[Path]:
    """Return the files of the first folder that has any. Raises StorageError if the disk can't say."""
    for folder in filter(None, folders):
        with reading(folder):
            paths = [folder / name for name in ANSWER_FILES]
            if files := [path for path in paths if path.exists() and not path.is_fifo()]:  # a pipe has no end
                return files
    return []


def read_answers(files: Iterable[Path], zone: ZoneInfo) -> list[tuple[object, ...]]:
    """Read the rows of the files, with the columns of ANSWERS. Raises StorageError."""
    return [row for path in files for row in _read(path, zone)]


def _read(path: Path, zone: ZoneInfo) -> list[tuple[object, ...]]:
    # A connection of its own: an error would end the publication's transaction.
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        try:
            return db.execute(
                f"{_ROWS} from {ANSWER_FILES[path.name]}", {"path": file_name(path), "zone": zone.key}
            ).fetchall()
        except duckdb.BinderException:
            return [(None, None, None, f"{path.name} lacks the column lead_id or answered_at")]
        except duckdb.Error:
            return [(None, None, None, f"{path.name} is no CSV in UTF-8, or no Parquet file")]
