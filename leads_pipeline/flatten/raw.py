"""A batch's raw files as a view, each lead once a day, the plain ones by themselves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from leads_pipeline.contract import NOT_JSON, LeadKind
from leads_pipeline.duck import glob_literal, link_or_copy, scratch_folder
from leads_pipeline.flatten.columns import extras_column
from leads_pipeline.flatten.plain import Plain, plain_leads
from leads_pipeline.lake import RAW_SCHEMA, Lake
from leads_pipeline.lake.arrays import array_of, mask_of
from leads_pipeline.lake.rows import CORRECTION


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
    day, scope, lead_id, position, coalesce(sequence, epoch_us(fetched_at)) as sequence, fetched_at, source, {payload}
    oddity, file_row_number
from (from no_rows {of_files})
"""

# One file per day, scope and source, so these and a row number name a raw row.
_DROPPED: Final = f"""
create table dropped as
select day, scope, source, file_row_number from raw where source = '{CORRECTION}'
union all
(
    select day, scope, source, file_row_number
    from raw
    where source <> '{CORRECTION}'
    qualify row_number() over (partition by day, lead_id order by sequence desc, position desc, scope, source) > 1
)
"""  # noqa: S608 - put together from constants alone

# All corrections of a lead as one merge patch. Later ones count.
_CORRECTIONS: Final = f"""
create table corrections as
select day, lead_id, list_reduce(list(payload::json order by sequence), lambda a, b: json_merge_patch(a, b)) as patch
from received
where source = '{CORRECTION}'
group by all
"""  # noqa: S608 - likewise

# `body` is what gets parsed: the payload itself, or for text that isn't JSON what can be mended of it.
_LEADS: Final = f"""
select
    day, lead_id, scope, fetched_at, sequence, source, oddity,
    case
        when oddity = '{NOT_JSON}' then coalesce(mended(payload), payload)
        when patch is not null then json_merge_patch(payload, patch)::varchar
        else payload
    end as body
from part
left join corrections using (day, lead_id)
anti join dropped using (day, scope, source, file_row_number)
"""  # noqa: S608 - put together from constants alone

# Of most batches each row is a lead, and each text is parsed as it is: then nothing is copied.
_IS_AS_RECEIVED: Final = f"""
select not exists (from dropped) and not exists (from part where oddity = '{NOT_JSON}')
"""


# What is flattened in one statement, up to a file more. Planning one takes as long as flattening 3,000 leads; the texts
# of so many are gone when the memory peaks, which is when a large day is written (measured).
PART_ROWS: Final = 20_000


def read_raw(db: duckdb.DuckDBPyConnection, files: Mapping[Path, int | None]) -> Iterator[pa.Table]:
    """Make the view `raw`, of all rows without their texts, and the table `dropped` of those that are no leads.

    `files` are given with the number of their rows, where that is known. Returns the rows with their texts, in parts
    that are read when they are asked for; at least one.

    Arrow tables, which DuckDB's threads read batch by batch: a table of its own is shared out by 122,880 rows, and a
    view of the files hands it each small file as one, and opens it again for each question (twice the time, measured).
    A single part's files are opened once, as that takes longer than all else of reading them.
    """
    db.register("no_rows", _NO_ROWS)
    parts = list(_in_parts(files))
    received = _received(db, list(files), "payload," if len(parts) == 1 else "")
    db.register("raw", received.drop_columns(["payload"]) if len(parts) == 1 else received)
    db.execute(_DROPPED)
    if db.execute(f"select exists (from raw where source = '{CORRECTION}')").fetchall() == [(True,)]:
        db.register("received", received if len(parts) == 1 else _received(db, list(files), "payload,"))
        db.execute(_CORRECTIONS)
        db.unregister("received")
    else:
        db.execute("create table corrections (day date, lead_id varchar, patch json)")
    return _handed_over([received]) if len(parts) == 1 else (_received(db, part, "payload,") for part in parts)


def _handed_over(tables: list[pa.Table]) -> Iterator[pa.Table]:
    """The tables, none of which is held here any longer."""
    while tables:
        yield tables.pop()


def _in_parts(files: Mapping[Path, int | None]) -> Iterator[list[Path]]:
    part, its_rows = list[Path](), 0
    for file, rows in files.items():
        if its_rows >= PART_ROWS:
            yield part
            part, its_rows = [], 0
        part.append(file)
        its_rows += pq.read_metadata(file).num_rows if rows is None else rows
    yield part


def _received(db: duckdb.DuckDBPyConnection, files: Sequence[Path], payload: str) -> pa.Table:
    db.execute("set variable raw_files = $files", {"files": list(map(glob_literal, files))})
    rows = _RAW.format(payload=payload, of_files=_OF_FILES if files else "")
    table: pa.Table = db.sql(rows).to_arrow_table(batch_size=_ROWS_AT_ONCE)
    return table


def read_part(db: duckdb.DuckDBPyConnection, kind: LeadKind, received: pa.Table) -> int:
    """Make the views `plain_leads` and `odd_leads` of these rows; how many leads are odd.

    Each lead is in one of the two, once a day.
    """
    db.register("part", received)
    if db.execute(_IS_AS_RECEIVED).fetchall() == [(True,)]:
        leads: pa.Table = received.drop_columns(["position", "file_row_number"]).rename_columns({"payload": "body"})
    else:
        leads = db.sql(_LEADS).to_arrow_table(batch_size=_ROWS_AT_ONCE)
    db.unregister("part")
    read, plain = plain_leads(kind), list[Plain | None]()
    for batch in leads.to_batches():
        texts = zip(batch["oddity"].to_pylist(), batch["body"].view(pa.binary()).to_pylist(), strict=True)
        plain += read([body if oddity is None else None for oddity, body in texts])
    is_odd = [each is None for each in plain]
    odd = leads.filter(mask_of(is_odd)).combine_chunks() if any(is_odd) else leads.slice(0, 0)
    db.register("plain_leads", _with_what_is_new(leads, kind, plain))
    db.register("odd_leads", pa.Table.from_batches(odd.to_batches(_ROWS_AT_ONCE), leads.schema))
    return len(odd)


def _with_what_is_new(leads: pa.Table, kind: LeadKind, plain: Sequence[Plain | None]) -> pa.Table:
    """The plain ones among the leads, with columns of what plain.py has read of them."""
    read = [each for each in plain if each is not None]
    table = leads if None not in plain else leads.filter(mask_of([each is not None for each in plain]))
    new = {
        "declared": array_of([each.declared for each in read], pa.string()),
        "extra": array_of([each.extra for each in read], pa.string()),
    }
    for number, child in enumerate(kind.children):
        extras = [each.extras[number] if each.extras else None for each in read]
        new[extras_column(child)] = array_of(extras, pa.list_(pa.string()))
    for name, values in new.items():
        table = table.append_column(name, values)
    return table


# DuckDB's own vector has 2,048. An eighth of it is as fast, shares a day of few leads out among the threads, and the
# statement takes 70 MB less than with half of it (measured).
_ROWS_AT_ONCE: Final = 256
