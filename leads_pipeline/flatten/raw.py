"""A batch's raw files as a view, each lead once a day."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.duck import glob_literal, link_or_copy, scratch_folder
from leads_pipeline.flatten.trees import NOT_JSON
from leads_pipeline.lake import Lake


@contextmanager
def second_names(lake: Lake, name: str, paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The files under second names, so that a landing in the meantime can't change what is read."""
    with scratch_folder(lake, f"{name}-raw") as folder:
        frozen = [folder / f"{number}.parquet" for number in range(len(paths))]
        for path, link in zip(paths, frozen, strict=True):
            link_or_copy(path, link)
        yield frozen


_NO_RAW_FILES: Final = """
create view raw as
select
    null::date as day, null::varchar as scope, null::varchar as lead_id, null::integer as position,
    null::bigint as sequence, null::timestamptz as fetched_at, null::varchar as source, null::varchar as payload,
    null::varchar as oddity, null::bigint as file_row_number
where false
"""

# A file of the first format has no sequence, and counts by its moment (lake/).
_RAW_FILES: Final = """
create view raw as
select
    day, scope, lead_id, position, coalesce(sequence, epoch_us(fetched_at)) as sequence, fetched_at, source, payload,
    oddity, file_row_number
from (
    select null::bigint as sequence where false
    union all by name
    select *
    from read_parquet(
        getvariable('raw_files'), hive_partitioning = false, file_row_number = true, union_by_name = true
    )
)
"""

# One file per day, scope and source, so these and a row number name a raw row.
_DROPPED: Final = """
create table dropped as
select day, scope, source, file_row_number
from raw
qualify row_number() over (partition by day, lead_id order by sequence desc, position desc, scope, source) > 1
"""

# `body` is what gets parsed: the payload itself, or for text that isn't JSON what can be mended of it.
_LEADS: Final = f"""
select
    day, lead_id, scope, fetched_at, sequence, source, oddity,
    case when oddity = '{NOT_JSON}' then coalesce(mended(payload), payload) else payload end as body
from raw
anti join dropped using (day, scope, source, file_row_number)
"""  # noqa: S608 - put together from constants alone


def read_raw(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Make the view `raw`, and the view `leads` with each lead once a day.

    An Arrow table, which DuckDB's threads read batch by batch: a table of its own is shared out by 122,880 rows, and a
    view of the files hands it each small file as one, which takes twice the time (measured).
    """
    db.execute("set variable raw_files = $files", {"files": list(map(glob_literal, files))})
    db.execute(_RAW_FILES if files else _NO_RAW_FILES)
    db.execute(_DROPPED)
    db.register("leads", db.sql(_LEADS).to_arrow_table(batch_size=_ROWS_AT_ONCE))


# DuckDB's own vector has 2,048. An eighth of it is as fast, shares a day of few leads out among the threads, and the
# statement takes 70 MB less than with half of it (measured).
_ROWS_AT_ONCE: Final = 256
