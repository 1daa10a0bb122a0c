"""A batch's raw files as a view, each lead once a day, the plain ones by themselves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from leads_pipeline.contract import NOT_JSON, LeadKind
from leads_pipeline.duck import glob_literal, link_or_copy, scratch_folder
from leads_pipeline.flatten.columns import extras_column
from leads_pipeline.flatten.plain import Plain, plain_leads
from leads_pipeline.lake import RAW_SCHEMA, Lake
from leads_pipeline.lake.arrays import array_of, mask_of


@contextmanager
def second_names(lake: Lake, name: str, paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The files under second names, so that a landing in the meantime can't change what is read."""
    with scratch_folder(lake, f"{name}-raw") as folder:
        frozen = [folder / f"{number}.parquet" for number in range(len(paths))]
        for path, link in zip(paths, frozen, strict=True):
            link_or_copy(path, link)
        yield frozen


# The columns, where there are no files, or none that has `sequence`: those of the first format count by their moment.
# By batches, as pyarrow imports pandas for what has none, see arrays.py.
_NO_ROWS: Final = pa.Table.from_batches([], RAW_SCHEMA.append(pa.field("file_row_number", pa.int64())))
_OF_FILES: Final = """
union all by name
from read_parquet(getvariable('raw_files'), hive_partitioning = false, file_row_number = true, union_by_name = true)
"""
_RAW: Final = """
select
    day, scope, lead_id, position, coalesce(sequence, epoch_us(fetched_at)) as sequence, fetched_at, source, payload,
    oddity, file_row_number
from (from no_rows {of_files})
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

# Of most batches each row is a lead, and each text is parsed as it is: then nothing is copied.
_IS_AS_RECEIVED: Final = f"""
select not exists (from dropped) and not exists (from raw where oddity = '{NOT_JSON}')
"""


def read_raw(db: duckdb.DuckDBPyConnection, kind: LeadKind, files: Sequence[Path]) -> int:
    """Make the views `raw`, of all rows without their texts, `plain_leads` and `odd_leads`; how many leads are odd.

    Each lead is in one of the two, once a day.

    Arrow tables, which DuckDB's threads read batch by batch: a table of its own is shared out by 122,880 rows, and a
    view of the files hands it each small file as one, and opens it again for each question (twice the time, measured).
    """
    db.execute("set variable raw_files = $files", {"files": list(map(glob_literal, files))})
    db.register("no_rows", _NO_ROWS)
    received = db.sql(_RAW.format(of_files=_OF_FILES if files else "")).to_arrow_table(batch_size=_ROWS_AT_ONCE)
    db.register("raw", received)
    db.execute(_DROPPED)
    if db.execute(_IS_AS_RECEIVED).fetchall() == [(True,)]:
        leads = received.drop_columns(["position", "file_row_number"]).rename_columns({"payload": "body"})
    else:
        leads = db.sql(_LEADS).to_arrow_table(batch_size=_ROWS_AT_ONCE)
    db.register("raw", received.drop_columns(["payload"]))
    read = plain_leads(kind)
    plain = [
        read(body) if oddity is None else None
        for batch in leads.to_batches()
        for oddity, body in zip(batch["oddity"].to_pylist(), batch["body"].cast(pa.binary()).to_pylist(), strict=True)
    ]
    odd = leads.filter(mask_of(each is None for each in plain)).combine_chunks()
    db.register("plain_leads", _with_what_is_new(leads, kind, plain))
    db.register("odd_leads", pa.Table.from_batches(odd.to_batches(_ROWS_AT_ONCE), leads.schema))
    return len(odd)


def _with_what_is_new(leads: pa.Table, kind: LeadKind, plain: Sequence[Plain | None]) -> pa.Table:
    """The plain ones among the leads, with columns of what plain.py has read of them."""
    read = [each for each in plain if each is not None]
    table = leads if None not in plain else leads.filter(mask_of(each is not None for each in plain))
    table = table.append_column("declared", array_of([each.declared for each in read], pa.string()))
    table = table.append_column("extra", array_of([each.extra for each in read], pa.string()))
    for number, child in enumerate(kind.children):
        extras = [each.extras[number] if each.extras else None for each in read]
        table = table.append_column(extras_column(child), array_of(extras, pa.list_(pa.string())))
    return table


# DuckDB's own vector has 2,048. An eighth of it is as fast, shares a day of few leads out among the threads, and the
# statement takes 70 MB less than with half of it (measured).
_ROWS_AT_ONCE: Final = 256
