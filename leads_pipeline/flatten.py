"""One day's raw leads, flattened: declared fields typed into columns, lists into child tables, the rest kept as JSON.

Belongs here: the DuckDB statement that contract.py's declarations become, and what a strict cast is. Doesn't: where
files lie (lake/), each lead once over all days (warehouse/).
"""

import json
import logging
import re
import secrets
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from itertools import accumulate
from json.encoder import encode_basestring_ascii
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import duckdb
import msgspec
from duckdb.func import FunctionNullHandling

from leads_pipeline.contract import INVENTORY_FIELDS, UNKNOWN_MOMENT, ChildTable, Field, FieldType, LeadKind
from leads_pipeline.duck import (
    DUCKDB_TYPES,
    Column,
    connection,
    glob_literal,
    link_or_copy,
    literal,
    quoted,
    scratch_folder,
)
from leads_pipeline.errors import LeadsPipelineError, StorageError
from leads_pipeline.lake import Lake, LandedWindow
from leads_pipeline.window import offsets

# Two batches side by side keep two cores busier than two threads at one, whose planning and writing they can't share.
FLATTENING_THREADS: Final = 2

# What is flattened in one statement: its planning takes as long as 3,000 leads, and 10,000 take 200 MB. The number of
# days bounds how many files of days with few leads are held at once.
BATCH_LEADS: Final = 10_000
BATCH_DAYS: Final = 31

# Of the data folder: warehouse/'s, which staging reads where staged files are gone.
WAREHOUSE_FILE: Final = "leads.duckdb"

# Contract's words for text that JSON's grammar refuses; _mended knows most such texts.
_NOT_JSON: Final = "not valid JSON"
_NOT_AN_OBJECT: Final = "not an object"
_ODDITIES: Final = {_NOT_JSON, _NOT_AN_OBJECT, "not UTF-8, kept as ISO 8859-1", "no id", "_extra"}

# Stands for what the portal or a lead wrote, wherever that may be personal.
HIDDEN: Final = "…"

logger = logging.getLogger(__name__)

# What the contract knows of an object: a dict for an object of its own, None for anything else.
_Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StagedDay:
    """What flattening a day did.

    `rows` counts the staged rows per table; the kind's own table holds `raw_rows - duplicates + retained` of them.
    `retained` are leads that the day's raw files have lost and that were staged or published before. `duplicates`
    are further rows of a lead id within the day: older versions, or held by several scopes. `lead_ids` counts
    the different ids in the kind's staged table, as written, `unexplained` the leads that lack a key field which the
    payload has, without `_problems` saying so: a fault of flattening. `problems` counts leads and child rows by what
    `_problems` says, without names that the contract doesn't know; `extra` by such names, as received.
    """

    kind: str
    day: date
    raw_rows: int
    duplicates: int
    retained: int
    lead_ids: int
    unexplained: int
    rows: Mapping[str, int]
    problems: Mapping[str, int]
    extra: Mapping[str, int]


class UnbalancedError(StorageError):
    """What flattening made of a day, which `staged` says, lacks something that its raw files have or holds it twice."""

    def __init__(self, staged: StagedDay, rows: int) -> None:
        super().__init__(
            f"The {staged.kind} leads of {staged.day} don't add up once they are flattened: of {staged.raw_rows} raw "
            f"rows {staged.duplicates} are repeats, {staged.retained} leads are retained, {rows} were to be staged, "
            f"with {staged.lead_ids} different ids; {staged.unexplained} lack a key field that their payload has. "
            "That day's staged files stay as they were, raw has every lead, and the other days go on. It is a fault of "
            "leads-pipeline: please report it.",
            reason="flattening",
        )
        self.staged = staged


def staged_columns(kind: LeadKind) -> dict[str, tuple[Column, ...]]:
    """The columns of every table that a day of the kind is staged into, in order."""
    tables = {kind.table: (*_LEAD_COLUMNS, *_declared(kind.fields), *_DRIFT_COLUMNS)}
    tables |= {child.name: (*_CHILD_COLUMNS, *_declared(child.fields), *_DRIFT_COLUMNS) for child in kind.children}
    return tables | {windows_table(kind): _WINDOW_COLUMNS}


def windows_table(kind: LeadKind) -> str:
    """Name of the table with one row per raw file of the kind."""
    return f"{kind.name}_windows"


def staged_tables(kind: LeadKind) -> tuple[str, ...]:
    """Every table that a day of the kind is staged into: the leads, their children, the windows."""
    return (*kind.tables, windows_table(kind))


@dataclass(frozen=True, slots=True)
class StagedWindow:
    """A window as the staged files have it. `is_damaged`: its raw file was damaged or gone when its day was staged."""

    day: date
    scope: str
    rows: int
    looked_at: datetime
    is_damaged: bool


def unstaged_days(lake: Lake, kind: LeadKind, since: date) -> list[date]:
    """Landed days of which a window's last answer, or a pushed lead, isn't staged.

    Before `since` only those of which no window ever was. Decided by what the files say, as a run may have been
    killed between landing and staging. Raises StorageError.
    """
    staged: defaultdict[date, set[tuple[str, datetime]]] = defaultdict(set)
    for window in staged_windows(lake, kind):
        staged[window.day].add((window.scope, window.looked_at))
    asked = [day for day in lake.landed_days(kind) if day >= since or day not in staged]
    unstaged = _days_with_unstaged_pushes(lake, kind, asked)
    for day in asked:
        if not {(landed.scope, landed.looked_at) for landed in lake.known_windows(kind, day)} <= staged[day]:
            unstaged.add(day)
    return sorted(unstaged)


def _days_with_unstaged_pushes(lake: Lake, kind: LeadKind, days: Iterable[date]) -> set[date]:
    """Those of the days that have a pushed lead of which neither that version is staged nor a newer one."""
    pushed = {day: leads for day in days if (leads := lake.pushed_leads(kind, day))}
    paths = [path for day in pushed if (path := lake.whole_staged(kind.table, day)) is not None]
    staged: dict[tuple[date, str], int] = {}
    if paths:
        with connection(lake, f"pushed-{secrets.token_hex(8)}") as db:
            rows = db.execute(
                """
                select window_day, lead_id, coalesce(sequence, epoch_us(fetched_at))
                from (
                    select null::bigint as sequence where false
                    union all by name
                    from read_parquet($files, hive_partitioning = false, union_by_name = true)
                )
                where lead_id in (select unnest($ids::varchar[]))
                """,
                {
                    "files": list(map(glob_literal, paths)),
                    "ids": [lead_id for leads in pushed.values() for lead_id in leads],
                },
            ).fetchall()
        staged = {(day, lead_id): sequence for day, lead_id, sequence in rows}
    return {
        day
        for day, leads in pushed.items()
        if any(staged.get((day, lead_id), -1) < sequence for lead_id, sequence in leads.items())
    }


def staged_windows(lake: Lake, kind: LeadKind) -> list[StagedWindow]:
    """The windows of every staged day, by day and scope. Those of a damaged file aren't among them."""
    table = windows_table(kind)
    files = [file.path for file in lake.staged_files(table) if lake.whole_staged(table, file.day)]
    if not files:
        return []
    with connection(lake, f"windows-{secrets.token_hex(8)}") as db:
        rows = db.execute(
            """
            select window_day, scope, rows, coalesce(looked_at, fetched_at), coalesce(is_damaged, false)
            from (
                select null::boolean as is_damaged, null::timestamptz as looked_at where false
                union all by name
                from read_parquet($files, hive_partitioning = false, union_by_name = true)
            )
            order by window_day, scope
            """,
            {"files": list(map(glob_literal, files))},
        ).fetchall()
    return [StagedWindow(*row) for row in rows]


def flatten_day(lake: Lake, kind: LeadKind, day: date, zone: ZoneInfo, given_up: Set[str] = frozenset()) -> StagedDay:
    """Flatten one day, as flatten_days does. Raises StorageError."""
    ((_, staged),) = flatten_days(lake, kind, [day], zone, given_up)
    if isinstance(staged, LeadsPipelineError):
        raise staged
    return staged


def flatten_days(
    lake: Lake, kind: LeadKind, days: Iterable[date], zone: ZoneInfo, given_up: Set[str] = frozenset()
) -> Iterator[tuple[date, StagedDay | LeadsPipelineError]]:
    """Write each day's staged files from its raw files. The same raw files always give the same bytes.

    No lead ever leaves a day's raw files, so one that was staged and is in none of them any more was lost with a file:
    it stays, and so does the window, marked as damaged. `given_up` are keys of scopes of which nothing stays.

    Each lead id once within the day: the highest `sequence` wins, then the highest position, then the first scope.
    `lead_day` is the local day of `created_at` in `zone`, so that a lead at exactly midnight, which the windows of two
    days hold, has one; where the moment is unknown it is the window's day.

    Days come out as they are done. One that fails, or whose rows don't add up, fails alone: its own files stay as they
    were. Planning the statement takes DuckDB as long as 3,000 leads, so days are flattened together, up to BATCH_LEADS.
    """
    left = deque(sorted(set(days)))
    with ThreadPoolExecutor(FLATTENING_THREADS, "flattening") as pool:
        under_way = {
            pool.submit(_flatten_next, lake, kind, left, zone, given_up)
            for _ in range(min(FLATTENING_THREADS, len(left)))
        }
        while under_way:
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield from future.result()
                if left:
                    under_way.add(pool.submit(_flatten_next, lake, kind, left, zone, given_up))


def _flatten_next(
    lake: Lake, kind: LeadKind, left: deque[date], zone: ZoneInfo, given_up: Set[str]
) -> list[tuple[date, StagedDay | LeadsPipelineError]]:
    """Flatten as many days from the left of the queue as make a batch."""
    taken: list[date] = []
    try:
        return [(staged.day, staged) for staged in _flatten_batch(lake, kind, left, taken, zone, given_up)]
    except LeadsPipelineError as error:
        if len(taken) == 1:
            return [(taken[0], error)]
        return [one for day in taken for one in _flatten_next(lake, kind, deque([day]), zone, given_up)]


def _flatten_batch(
    lake: Lake, kind: LeadKind, left: deque[date], taken: list[date], zone: ZoneInfo, given_up: Set[str]
) -> list[StagedDay]:
    with ExitStack() as stack:
        targets: dict[date, dict[str, Path]] = {}
        windows: list[LandedWindow] = []
        files: list[Path] = []
        while len(taken) < BATCH_DAYS and sum(window.rows for window in windows) < BATCH_LEADS:
            try:
                day = left.popleft()
            except IndexError:
                break  # the other threads have taken the rest
            taken.append(day)
            targets[day] = stack.enter_context(lake.replacing_staged(staged_tables(kind), day))
            landed = lake.landed_windows(kind, day)
            windows += landed
            files += [*(window.path for window in landed), *lake.pushed_files(kind, day)]
        if not taken:
            return []
        # The day's lock is held, so the name is this thread's.
        name = f"staged-{taken[0].isoformat()}"
        frozen = stack.enter_context(_frozen(lake, name, files))
        # The last batch, often the only one, may have both cores.
        with connection(lake, name, threads=1 if left else FLATTENING_THREADS) as db:
            db.execute("set preserve_insertion_order = false")  # each file is sorted when it is written
            _define(db, _extra_functions(kind))
            _read_raw(db, frozen)
            _flatten(db, kind, zone)
            _fill_windows(db, kind, windows)
            _retain(db, kind, _before(db, lake, kind, taken, name), given_up)
            for day, paths in targets.items():
                _write(db, kind, day, paths)
            return [_balanced(kind, staged) for staged in _counted(db, kind, targets)]


_LEAD_COLUMNS: Final = (
    Column("lead_id", "varchar", "The lead's own id; sha256: and the hash of its payload where it has none"),
    Column("lead_day", "date", "Local day on which the lead was submitted; the window's day where that is unknown"),
    Column(
        "scope",
        "varchar",
        "Scope whose window held this version, e.g. branch-101; push for a delivery of no configured one",
    ),
    Column("fetched_at", "timestamptz", "When this version of the lead was first received, UTC"),
    Column(
        "sequence",
        "bigint",
        "Number of the last answer or delivery that held this version; of two versions the higher one is the newer",
        stand_in="epoch_us(staged.fetched_at)",
    ),
    Column("source", "varchar", "How this version was received: pull or push"),
    Column("window_day", "date", "Day of the window that held this version; lead_day may be the next at midnight"),
)
_CHILD_COLUMNS: Final = (
    Column("lead_id", "varchar", "The lead that it belongs to"),
    Column("position", "integer", "Place in the lead's list, from 0"),
)
_DRIFT_COLUMNS: Final = (
    Column("_problems", "varchar[]", "Fields whose value fits no column, and what else is odd; raw has the exact text"),
    Column("_extra", "json", "Fields that the contract doesn't know, nested and written as received"),
)
_WINDOW_COLUMNS: Final = (
    Column("scope", "varchar", "Scope of the window, e.g. branch-101"),
    Column("window_day", "date", "Day of the window in the pipeline's time zone"),
    Column("window_start", "timestamptz", "First moment of the window, UTC"),
    Column("window_end", "timestamptz", "First moment after the window, UTC"),
    Column("rows", "bigint", "Leads landed for the window; one that several windows hold counts in each"),
    Column(
        "looked_at",
        "timestamptz",
        "When the last answer was fetched, whether it changed anything or not, UTC",
        stand_in="staged.fetched_at",
    ),
    Column("fetched_at", "timestamptz", "When the last answer that changed something was fetched, UTC"),
    Column("run_id", "varchar", "Run that landed that answer"),
    Column("attempts", "integer", "Requests that the answer took, retries included"),
    Column("is_closed", "boolean", "Whether an answer from after the window's end was landed"),
    Column("is_partial", "boolean", "Whether the portal had begun to delete the window before it was pulled whole"),
    Column("is_damaged", "boolean", "Whether its raw file is damaged or gone, and its leads are those held before"),
)


def _declared(fields: Sequence[Field]) -> tuple[Column, ...]:
    return tuple(Column(field.column, DUCKDB_TYPES[field.type], field.description) for field in fields)


# --- reading raw -------------------------------------------------------------------------------------------------


@contextmanager
def _frozen(lake: Lake, name: str, paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The files under second names, so that a landing in the meantime can't change what is read."""
    with scratch_folder(lake, f"{name}-raw") as folder:
        frozen = [folder / f"{number}.parquet" for number in range(len(paths))]
        for path, link in zip(paths, frozen, strict=True):
            link_or_copy(path, link)
        yield frozen


# Parquet's statistics hold values, and zstd's level 3 is raw's; neither costs speed.
_PARQUET: Final = "(format parquet, compression zstd, compression_level 3)"

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
    case when oddity = '{_NOT_JSON}' then coalesce(mended(payload), payload) else payload end as body
from raw
anti join dropped using (day, scope, source, file_row_number)
"""  # noqa: S608 - put together from constants alone


def _read_raw(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
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


# --- strict casts ------------------------------------------------------------------------------------------------

# try_cast alone reads '5.7' as the integer 6, 'yes' as true, '0x1F' as 31 and '1_000' as 1000, so the form comes
# first. A number or a boolean that was sent as text in the same form counts: nothing is lost by it. Exponents count
# where the value is exact (Java writes prices from ten million on as 1.25E7).
_NUMBER_FORM: Final = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
# A number of so few digits is one double; what is too small for any is none.
_EXACT_AS_DOUBLE: Final = (
    f"regexp_full_match(v, '{_NUMBER_FORM}') and length(v) <= 18"
    " and (try_cast(v as double) <> 0 or not regexp_matches(v, '[1-9].*[eE]|[1-9][^eE]*$'))"
)
_INTEGER_FORM: Final = r"-?(0|[1-9][0-9]*)(\.0+)?"
_AMOUNT_FORM: Final = r"-?(0|[1-9][0-9]*)(\.[0-9]{1,2}0*)?"
# RFC 3339 without its leap to other calendars: years 1000 to 2999; the seconds may be missing (openapi.yaml,
# Timestamp). `:60` is the leap second, read as the second after.
_MOMENT_FORM: Final = (
    r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-5][0-9](:([0-5][0-9]|60)(\.[0-9]+)?)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):?[0-5][0-9])"
)

# `written` is the number as it was written: DuckDB reads one with a fraction as a double, which rewrites 250000.10 as
# 250000.1 and keeps 15 digits. It is asked for only where that matters, as fetching it parses the lead again.
_MACROS: Final = (
    """
    as_text(v, json_type, written) as case
        when (starts_with(v, '{') or starts_with(v, '[')) and json_type in ('OBJECT', 'ARRAY') then null
        when v between '-' and ':' and (contains(v, '.') or contains(v, 'e')) and json_type = 'DOUBLE' then written
        when v = '0' and json_type <> 'VARCHAR' then written
        else v
    end""",
    "as_boolean(v) as case v when 'true' then true when 'false' then false end",
    f"""
    as_integer(v) as case
        when regexp_full_match(v, '{_INTEGER_FORM}') then try_cast(split_part(v, '.', 1) as bigint)
        when {_EXACT_AS_DOUBLE} and abs(try_cast(v as double)) < 9007199254740992
            and trunc(try_cast(v as double)) = try_cast(v as double) then try_cast(try_cast(v as double) as bigint)
    end""",
    "integer_text(v, written) as case when contains(v, '.') or contains(v, 'e') then coalesce(written, v) else v end",
    f"""
    as_number(v) as case
        when regexp_full_match(v, '{_NUMBER_FORM}') and isfinite(try_cast(v as double)) then try_cast(v as double)
    end""",
    f"""
    as_amount(v) as case
        when regexp_full_match(v, '{_AMOUNT_FORM}') then try_cast(v as decimal(18, 2))
        when {_EXACT_AS_DOUBLE}
            and try_cast(v as decimal(18, 2))::double = try_cast(v as double) then try_cast(v as decimal(18, 2))
    end""",
    # Prices often come with a fraction. One of up to 15 digits is read as the double nearest to it, which has them all.
    """
    amount_text(v, written) as case
        when length(v) > 15 or contains(v, 'e') or v in ('0.0', '-0.0') then coalesce(written, v)
        else v
    end""",
    f"""
    as_moment(v) as case
        when not regexp_full_match(v, '{_MOMENT_FORM}') then null
        when v[17:19] = ':60' then try_cast(upper(v[:17] || '59' || v[20:]) as timestamptz) + interval 1 second
        else try_cast(upper(v) as timestamptz)
    end""",
    """
    repeated(keys) as list_sort(list_transform(
        list_filter(map_entries(list_aggregate(keys, 'histogram')), lambda entry: entry.value > 1),
        lambda entry: entry.key
    ))""",
)


# --- the statements ----------------------------------------------------------------------------------------------


def _flatten(db: duckdb.DuckDBPyConnection, kind: LeadKind, zone: ZoneInfo) -> None:
    """Make a table of typed rows for each of the kind's tables. Only the contract's own names are in the statements."""
    define_local_time(db, zone)
    db.execute(f"create table {quoted(kind.table)} as {_lead_statement(kind)}")
    db.unregister("leads")
    for child in kind.children:
        db.execute(f"create table {quoted(child.name)} as {_child_statement(kind, child)}")


def define_local_time(db: duckdb.DuckDBPyConnection, zone: ZoneInfo) -> None:
    """Make zone_offsets: since when the zone's clocks are ahead of UTC by how much, to be joined asof."""
    db.execute(
        "create temp table zone_offsets as "
        "select unnest($since::timestamptz[]) as since, unnest($ahead_of_utc::interval[]) as ahead_of_utc",
        {"since": [since for since, _ in offsets(zone)], "ahead_of_utc": [offset for _, offset in offsets(zone)]},
    )


def _lead_statement(kind: LeadKind) -> str:
    """The columns of the staged table; beside them what children and counts need: the text, and each list as JSON."""
    ctes = _typed(
        source="select *, body as doc from leads",
        tree=_tree_of_lead(kind),
        fields=kind.fields,
        lists=kind.children,
        extra="extra_of_lead(body)",
        first_problem=f"coalesce(oddity, case when item is null then '{_NOT_JSON}' end)",
    )
    lists = "".join(f", item{_member(child.path)}::varchar as {_list(child)}" for child in kind.children)
    return f"""
{ctes}
select
    lead_id,
    coalesce((timezone('UTC', created_at) + zone_offsets.ahead_of_utc)::date, day) as lead_day,
    scope,
    fetched_at,
    sequence,
    source,
    day as window_day,
    {_stacked(quoted(field.column) for field in kind.fields)},
    problems as _problems,
    extra_json as _extra,
    body{lists}
from typed
asof left join zone_offsets on typed.created_at >= zone_offsets.since
"""  # noqa: S608 - put together from the contract's constants alone


def _child_statement(kind: LeadKind, child: ChildTable) -> str:
    all_null = f"coalesce({', '.join(_text(field) for field in child.fields)}) is null"
    tree = _tree(child.fields)
    steps = child.path.split(".")
    ways_there = ", ".join(literal(".".join(steps[:number])) for number in range(1, len(steps) + 1))
    # Of a list whose key, or whose owner's, stands twice DuckDB reads the first, and msgspec would the last.
    ctes = _typed(
        source=f"""
    select
        window_day, lead_id, unnest(range(len(docs)))::integer as position,
        unnest(docs) as doc, unnest(bodies) as body, unnest(extras) as extra_of_element
    from (
        select *,
            case
                when not regexp_matches({_list(child)}, {literal(_number_in(child))}) then docs
                when is_first then elements_of_{child.name}(body, len(docs))
            end as bodies,
            case
                when regexp_full_match({_list(child)}, {literal(_plain_list(tree))}) then null
                when is_first then extras_of_{child.name}(body, len(docs))
            end as extras
        from (
            select *,
                try(json_transform({_list(child)}, '["JSON"]'))::varchar[] as docs,
                not list_has_any(_problems, [{ways_there}]) as is_first
            from {quoted(kind.table)}
        )
        where len(docs) > 0
    )""",  # noqa: S608 - put together from the contract's constants alone
        tree=tree,
        fields=child.fields,
        lists=(),
        extra="extra_of_element",
        first_problem=f"case when {all_null} and json_type(doc) is distinct from 'OBJECT' then '{_NOT_AN_OBJECT}' end",
    )
    return f"""
{ctes}
select
    lead_id,
    position,
    {_stacked(quoted(field.column) for field in child.fields)},
    problems as _problems,
    extra_json as _extra,
    window_day
from typed
"""  # noqa: S608 - put together from the contract's constants alone


def _typed(
    *,
    source: str,
    tree: _Tree,
    fields: Sequence[Field],
    lists: Sequence[ChildTable],
    extra: str,
    first_problem: str,
) -> str:
    """The steps that leads and list elements share, up to the columns, `problems` and `extra`.

    `source` gives `doc`, the JSON text of one object as DuckDB has it, and `body`, the same as it was received, or NULL
    where that can't be had.
    """
    objects = _objects(tree)
    shape = _shape(tree, lists)
    levels = [(f"keys[{number}]", path, known) for number, (path, known) in enumerate(objects.items(), start=1)]
    problems = [
        first_problem,
        *(_untyped(field) for field in fields),
        *(_no_object(path, fields, lists) for path in objects if path),
        *(_no_list(child) for child in lists),
        # What is new but can't be cut out is in raw alone, which has to be said.
        "case when extra is not null and extra_json is null then '_extra' end",
    ]
    # Few leads have a problem, and only for those is each looked for.
    is_odd = [
        f"({first_problem}) is not null",
        "extra is not null and extra_json is null",
        *(f"({_text(field)} is null) <> ({quoted(field.column)} is null)" for field in fields),
        *(_seems_no_object(path, fields, lists) for path in objects if path),
        *(_is_no_list(child) for child in lists),
    ]
    return f"""
with source as ({source}),
parsed as (
    select *,
        try(json_transform(doc, {literal(json.dumps(shape))})) as item,
        try(json_keys(doc, [{", ".join(literal(_pointer(path)) for path in objects)}])) as keys
    from source
),
texts as (
    select *,
        {_stacked(f"{_read(field)} as {_text(field)}" for field in fields)},
        {" or ".join(_has_more(keys, path, known) for keys, path, known in levels)} as has_more
    from parsed
),
cast_strictly as (
    select *,
        {_stacked(f"{_cast(field)} as {quoted(field.column)}" for field in fields)},
        case when has_more and ({" or ".join(_has_new(keys, known) for keys, _, known in levels)})
            then coalesce({extra}, '') end as extra
    from texts
),
checked as (
    select *, try_cast(extra as json) as extra_json
    from cast_strictly
),
typed as (
    select *,
        list_concat(
            case when {" or ".join(is_odd)}
                then list_filter([{_stacked(problems)}], lambda problem: problem is not null) else [] end,
            case when has_more then flatten([{_stacked(_repeated(keys, path) for keys, path, _ in levels)}]) end
        ) as problems
    from checked
)"""  # noqa: S608 - put together from the contract's constants alone


def _read(field: Field) -> str:
    """The field's text; a number's as it was written, where json_transform's rendering may differ."""
    read = f"item{_member(field.path)}"
    if field.type in (FieldType.AMOUNT, FieldType.INTEGER):
        return f"{field.type.value}_text({read}, {_written_at(field)})"
    return read


def _cast(field: Field) -> str:
    if field.type is FieldType.TEXT:
        kind = f"json_type(doc, {literal(_pointer(field.path))})"
        return f"as_text({_text(field)}, {kind}, {_written_at(field)})"
    return f"as_{field.type.value}({_text(field)})"


def _written_at(field: Field) -> str:
    return f"written(body, {literal(_pointer(field.path))})"


def _untyped(field: Field) -> str:
    unknown = f" and not starts_with({_text(field)}, '{UNKNOWN_MOMENT}')" if field.type is FieldType.MOMENT else ""
    column = quoted(field.column)
    return f"case when {_text(field)} is not null and {column} is null{unknown} then {literal(field.path)} end"


def _no_object(path: str, fields: Sequence[Field], lists: Sequence[ChildTable]) -> str:
    return (
        f"case when {_seems_no_object(path, fields, lists)}"
        f" and json_type(doc, {literal(_pointer(path))}) <> 'OBJECT' then {literal(path)} end"
    )


def _seems_no_object(path: str, fields: Sequence[Field], lists: Sequence[ChildTable]) -> str:
    """json_transform reads a scalar or a list as an object whose fields are all NULL, so only then is it looked up."""
    inside = [_text(field) for field in fields if field.path.startswith(f"{path}.")]
    inside += [f"item{_member(child.path)}::varchar" for child in lists if child.path.startswith(f"{path}.")]
    return f"item{_member(path)} is not null and coalesce({', '.join(inside)}) is null"


def _no_list(child: ChildTable) -> str:
    return f"case when {_is_no_list(child)} then {literal(child.path)} end"


def _is_no_list(child: ChildTable) -> str:
    return f"not starts_with(item{_member(child.path)}::varchar, '[')"


def _has_more(keys: str, path: str, known: _Tree) -> str:
    """Whether an object has more members than those read: new ones, repeated ones, or just declared ones that are null.

    Cheap, and true of few leads; only those are looked at closely.
    """
    read = " + ".join(f"(item{_member(f'{path}.{name}' if path else name)} is not null)::integer" for name in known)
    return f"coalesce(len({keys}) > {read}, false)"


def _has_new(keys: str, known: _Tree) -> str:
    return f"not list_has_all([{', '.join(map(literal, known))}], {keys})"


def _repeated(keys: str, path: str) -> str:
    """A key that stands twice is a problem, as one of its values is in no column: the first counts, as in DuckDB."""
    prefix = literal(f"{path}." if path else "")
    return (
        f"case when list_unique({keys}) < len({keys})"
        f" then list_transform(repeated({keys}), lambda key: {prefix} || key) else [] end"
    )


# What DuckDB writes of a text without escapes, of a boolean and of a null.
_PLAIN_VALUE: Final = r'(?:"[^"\\]*"|true|false|null)'


def _plain_list(tree: _Tree) -> str:
    """The form of a list, as DuckDB writes it, of which its text as received would say nothing more.

    No element has an unknown member or a number, which DuckDB may have rewritten. That is true of most lists, and much
    cheaper to know than to cut the elements out of what was received.
    """
    return rf"\[(?:(?:{_plain_object(tree)}|{_PLAIN_VALUE})(?:, ?)?)*\]"


def _number_in(child: ChildTable) -> str:
    """What a list has in it, as DuckDB writes it, where a declared field of an element is a number."""
    names = "|".join(re.escape(field.path.rpartition(".")[2]) for field in child.fields)
    return rf'"(?:{names})":[^"{{\[tfn]'


def _plain_object(tree: _Tree) -> str:
    members = "|".join(
        f'"{re.escape(name)}":' + (_PLAIN_VALUE if known is None else f"(?:{_plain_object(known)}|{_PLAIN_VALUE})")
        for name, known in tree.items()
    )
    return rf"\{{(?:(?:{members}),?)*\}}"


def _shape(tree: _Tree, lists: Sequence[ChildTable]) -> _Tree:
    """What json_transform makes of an object: all text, casts come after."""
    shape = {name: "VARCHAR" if known is None else _shape(known, ()) for name, known in tree.items()}
    for child in lists:
        _put(shape, child.path, "JSON")
    return shape


def _objects(tree: _Tree, path: str = "") -> dict[str, _Tree]:
    """Every declared object by its path, the outermost ("") first."""
    found = {path: tree}
    for name, known in tree.items():
        if known is not None:
            found |= _objects(known, f"{path}.{name}" if path else name)
    return found


def _put(tree: _Tree, path: str, value: object) -> None:
    *objects, name = path.split(".")
    for step in objects:
        tree = tree.setdefault(step, {})
    tree[name] = value


def _pointer(path: str) -> str:
    """The path as a JSON pointer (RFC 6901)."""
    return "".join(f"/{step}" for step in path.split(".") if step)


def _member(path: str) -> str:
    return "".join(f".{quoted(step)}" for step in path.split("."))


def _text(field: Field) -> str:
    return quoted(f"text of {field.column}")


def _list(child: ChildTable) -> str:
    return quoted(f"list of {child.name}")


def _stacked(parts: Iterable[str]) -> str:
    return ",\n        ".join(parts)


# --- inventory ---------------------------------------------------------------------------------------------------

INVENTORY_COLUMNS: Final = (
    Column("item_id", "varchar", "The item's own id; sha256: and the hash of its payload where it has none"),
    Column("first_seen_day", "date", "First day on which a search found the item"),
    Column("last_seen_day", "date", "Last day on which a search found the item"),
    Column("fetched_at", "timestamptz", "When this version of the item was first received, UTC"),
    Column("searched_address", "varchar", "Place whose search found this version"),
    *_declared(INVENTORY_FIELDS),
    *_DRIFT_COLUMNS,
)

_INVENTORY: Final = f"""
select
    item_id, address as searched_address, fetched_at, payload, oddity,
    min(day) over item as first_seen_day,
    max(day) over item as last_seen_day,
    case when oddity = '{_NOT_JSON}' then coalesce(mended(payload), payload) else payload end as body,
    body as doc
from (
    select null::bigint as sequence where false
    union all by name
    select * from read_parquet($files, hive_partitioning = false, union_by_name = true)
)
window item as (partition by item_id)
qualify row_number() over (
    partition by item_id order by day desc, coalesce(sequence, epoch_us(fetched_at)) desc, position desc
) = 1
"""  # noqa: S608 - put together from constants alone


def insert_inventory(db: duckdb.DuckDBPyConnection, files: Sequence[Path], table: str) -> None:
    """Fill the table, of INVENTORY_COLUMNS, with the newest state of every item in the inventory files."""
    tree = {"id": None} | _tree(INVENTORY_FIELDS)
    ctes = _typed(
        source=_INVENTORY,
        tree=tree,
        fields=INVENTORY_FIELDS,
        lists=(),
        extra="extra_of_item(body)",
        first_problem=f"coalesce(oddity, case when item is null then '{_NOT_JSON}' end)",
    )
    _define(db, {"extra_of_item": (partial(_extra, tree), ["VARCHAR"], "VARCHAR")})
    db.execute(
        f"""
        insert into {quoted(table)}
        {ctes}
        select item_id, first_seen_day, last_seen_day, fetched_at, searched_address,
            {_stacked(quoted(field.column) for field in INVENTORY_FIELDS)}, problems, extra_json
        from typed
        order by item_id
        """,  # noqa: S608 - put together from the contract's constants alone
        {"files": list(map(glob_literal, files))},
    )


# --- what raw has lost --------------------------------------------------------------------------------------------


def _before(
    db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, days: Sequence[date], name: str
) -> Mapping[str, str]:
    """For each staged table a statement of what was staged of these days, whose locks are held.

    Where a staged file is gone or damaged, it is what is published of its day.
    """
    found: dict[str, list[str]] = {}
    unread: dict[str, list[date]] = {}
    for table in staged_tables(kind):
        paths = {day: lake.whole_staged(table, day) for day in days}
        unread[table] = [day for day, path in paths.items() if path is None]
        if files := [path for path in paths.values() if path is not None]:
            variable = f"before {table}"
            db.execute(f"set variable {quoted(variable)} = $files", {"files": list(map(glob_literal, files))})
            source = (
                f"read_parquet(getvariable({literal(variable)}), hive_partitioning = true, "
                "hive_types = {'day': date}, union_by_name = true)"
            )
            found.setdefault(table, []).append(_as_declared(db, kind, table, source, "day"))
    published = lake.folder / WAREHOUSE_FILE
    if any(unread.values()) and published.exists():
        with _frozen(lake, f"{name}-published", [published]) as [file]:
            try:
                db.execute(f"attach {literal(str(file))} as published (read_only)")
                tables = "select table_name from duckdb_tables() where database_name = 'published'"
                there = {name for (name,) in db.execute(tables).fetchall()}
                for table, missing in unread.items():
                    # A list that was declared since has no table there yet.
                    if missing and _published_name(kind, table) in there:
                        found.setdefault(table, []).append(_published(db, kind, table, missing))
                db.execute("detach published")
            except duckdb.Error as error:
                # It is built anew from what is staged, so it must keep no day from being staged.
                logger.warning("%s can't be read (%s): nothing is retained from it.", published, type(error).__name__)
    return {table: " union all by name ".join(selects) for table, selects in found.items()}


def _published(db: duckdb.DuckDBPyConnection, kind: LeadKind, table: str, days: Sequence[date]) -> str:
    """What is published of those days of the table, as a copy, so that a damaged file is noticed now."""
    is_windows = table == windows_table(kind)
    day = "window_day" if is_windows or table == kind.table else "day"
    db.execute(
        f"create table {quoted(f'published {table}')} as "  # noqa: S608 - only our own names
        f"select * from published.{quoted(_published_name(kind, table))} "
        f"where {day} in (select unnest($days::date[])){f' and kind = {literal(kind.name)}' if is_windows else ''}",
        {"days": list(days)},
    )
    return _as_declared(db, kind, table, quoted(f"published {table}"), day)


def _published_name(kind: LeadKind, table: str) -> str:
    return "landed_windows" if table == windows_table(kind) else table


def _as_declared(db: duckdb.DuckDBPyConnection, kind: LeadKind, table: str, source: str, day: str) -> str:
    """The columns of the table that the source has or that others stand in for, in today's types; its day as well."""
    there = {name for name, *_ in db.execute(f"describe select * from {source}").fetchall()}  # noqa: S608
    read = {
        column.name: f"try_cast({quoted(column.name)} as {column.type})" if column.name in there else column.stand_in
        for column in staged_columns(kind)[table]
        if column.name != "window_day"
    }
    selected = ", ".join(f"{expression} as {quoted(name)}" for name, expression in read.items() if expression)
    return f"select {selected}, {day} as window_day from {source} as staged"  # noqa: S608 - only our own names


def _retain(db: duckdb.DuckDBPyConnection, kind: LeadKind, before: Mapping[str, str], given_up: Set[str]) -> None:
    """Add to the tables what raw has lost, and make the table `lost` of its leads.

    Lost is a lead of which no raw file of its day has that version or a newer one any more. `is_held` says that raw
    has an older one, which it replaces.
    """
    leads, windows = quoted(kind.table), quoted(windows_table(kind))
    db.execute("create table lost (lead_id varchar, window_day date, is_held boolean)")
    db.execute("set variable given_up = $given_up::varchar[]", {"given_up": sorted(given_up)})
    if windows_table(kind) in before:
        db.execute(
            f"""
            insert into {windows} by name
            select held.*, true as is_damaged
            from (select columns(lambda c: c <> 'is_damaged') from ({before[windows_table(kind)]})) as held
            anti join {windows} as landed on landed.scope = held.scope and landed.window_day = held.window_day
            where not list_contains(getvariable('given_up'), held.scope)
            """  # noqa: S608 - only our own names, here and below
        )
    if kind.table not in before:
        return
    db.execute(
        f"""
        insert into lost
        select held.lead_id, held.window_day, new.lead_id is not null
        from ({before[kind.table]}) as held
        left join {leads} as new on new.lead_id = held.lead_id and new.window_day = held.window_day
        where (new.sequence is null or new.sequence < held.sequence)
            and not list_contains(getvariable('given_up'), held.scope)
        """  # noqa: S608
    )
    if not _is_any(db, "lost"):
        return
    is_lost = "(lead_id, window_day) in (select (lead_id, window_day) from lost)"
    for table in kind.tables:
        db.execute(f"delete from {quoted(table)} where {is_lost}")  # noqa: S608
        if table in before:
            db.execute(
                f"insert into {quoted(table)} by name "  # noqa: S608
                f"select * replace (coalesce(_problems, []) as _problems) from ({before[table]}) where {is_lost}"
            )
    # It may have been staged with another time zone.
    db.execute(
        f"""
        update {leads} set lead_day = coalesce(
            (
                timezone('UTC', created_at)
                + (select max_by(ahead_of_utc, since) from zone_offsets where since <= created_at)
            )::date,
            window_day
        )
        where {is_lost}
        """  # noqa: S608
    )


def _is_any(db: duckdb.DuckDBPyConnection, table: str) -> bool:
    return db.execute(f"select count(*) from {quoted(table)}").fetchall() != [(0,)]  # noqa: S608


# --- writing and counting -----------------------------------------------------------------------------------------


def _fill_windows(db: duckdb.DuckDBPyConnection, kind: LeadKind, landed: Sequence[LandedWindow]) -> None:
    """Make the table with one row per window that was read, so that the coverage comes the same way as the leads.

    A push lands none. Rows are counted and not taken from the footers, so that they agree with the leads beside them.
    """
    given = ", ".join(
        f"unnest(${c.name}::{c.type}[]) as {c.name}" for c in _WINDOW_COLUMNS if c.name not in ("rows", "is_damaged")
    )
    db.execute(
        f"""
        create table {quoted(windows_table(kind))} as
        with windows as (select {given}),
        landed as (
            select scope, day as window_day, count(distinct lead_id) as rows
            from raw
            where source = 'pull'
            group by all
        )
        select * replace (coalesce(rows, 0)::bigint as rows), false as is_damaged
        from windows
        left join landed using (scope, window_day)
        """,  # noqa: S608 - put together from constants alone
        {
            "scope": [window.scope for window in landed],
            "window_day": [window.day for window in landed],
            "window_start": [window.start for window in landed],
            "window_end": [window.end for window in landed],
            "looked_at": [window.looked_at for window in landed],
            "fetched_at": [window.fetched_at for window in landed],
            "run_id": [window.run_id for window in landed],
            "attempts": [window.attempts for window in landed],
            "is_closed": [window.is_closed for window in landed],
            "is_partial": [window.is_partial for window in landed],
        },
    )


def _write(db: duckdb.DuckDBPyConnection, kind: LeadKind, day: date, targets: Mapping[str, Path]) -> None:
    """Write a day's rows of each table, sorted, so that they don't depend on how they came.

    By a table of its own: what DuckDB writes of a column shows whether other days of the batch have a NULL in it.
    """
    order = {kind.table: "lead_id", windows_table(kind): "scope"}
    for table, columns in staged_columns(kind).items():
        db.execute(
            f"create or replace table one_day as select {', '.join(quoted(column.name) for column in columns)} "  # noqa: S608
            f"from {quoted(table)} where window_day = $day order by {order.get(table, 'lead_id, position')}",
            {"day": day},
        )
        db.execute(f"copy one_day to $target {_PARQUET}", {"target": str(targets[table])})


def _counted(
    db: duckdb.DuckDBPyConnection, kind: LeadKind, targets: Mapping[date, Mapping[str, Path]]
) -> list[StagedDay]:
    """What was done, by day: rows and ids as the files have them, the rest as the tables they were written from."""
    raw_rows = _by_day(db, "select day, count(*) from raw group by day")
    duplicates = _by_day(db, "select day, count(*) from dropped group by day")
    duplicates += _by_day(db, "select window_day, count(*) from lost where is_held group by window_day")
    retained = _by_day(db, "select window_day, count(*) from lost group by window_day")
    unexplained = _by_day(db, _unexplained(kind))
    problems, extra = _problem_counts(db, kind), _extra_counts(db, kind)
    return [
        StagedDay(
            kind=kind.name,
            day=day,
            raw_rows=raw_rows[day],
            duplicates=duplicates[day],
            retained=retained[day],
            lead_ids=_read_count(db, "distinct lead_id", paths[kind.table]),
            unexplained=unexplained[day],
            rows={table: _read_count(db, "*", path) for table, path in paths.items()},
            problems=problems[day],
            extra=extra[day],
        )
        for day, paths in targets.items()
    ]


def _balanced(kind: LeadKind, staged: StagedDay) -> StagedDay:
    """The day, whose files are about to replace others. Raises UnbalancedError."""
    rows = staged.rows[kind.table]
    if staged.raw_rows - staged.duplicates + staged.retained == rows == staged.lead_ids and not staged.unexplained:
        return staged
    raise UnbalancedError(staged, rows)


def _by_day(db: duckdb.DuckDBPyConnection, statement: str) -> Counter[date]:
    return Counter(dict(db.execute(statement).fetchall()))


def _read_count(db: duckdb.DuckDBPyConnection, what: str, path: Path) -> int:
    sql = f"select count({what}) from read_parquet($path)"  # noqa: S608 - two constants
    return int(db.execute(sql, {"path": glob_literal(path)}).fetchall()[0][0])


# Fields that a lead is worth little without, looked up in the payload once more by other means than the statement's.
_WITNESSES: Final = {
    "created_at": "createdAt",
    "contact_email": "contact.email",
    "contact_phone_number": "contact.phoneNumber",
}


def _unexplained(kind: LeadKind) -> str:
    is_missed = " or ".join(
        f"{column} is null and not starts_with(coalesce(try(json_extract_string(body, '$.{path}')),"
        f" '{UNKNOWN_MOMENT}'), '{UNKNOWN_MOMENT}')"
        for column, path in _WITNESSES.items()
    )
    return f"""
select window_day, count(*)
from {quoted(kind.table)}
where len(_problems) = 0 and ({is_missed})
group by window_day
"""  # noqa: S608 - put together from constants alone


def _problem_counts(db: duckdb.DuckDBPyConnection, kind: LeadKind) -> defaultdict[date, Counter[str]]:
    counts: defaultdict[date, Counter[str]] = defaultdict(Counter)
    trees = trees_of(kind)
    for table, prefix in _prefixes(kind).items():
        rows = db.execute(
            f"select window_day, problem, count(*) from (select window_day, unnest(_problems) as problem "  # noqa: S608
            f"from {quoted(table)}) group by all"
        ).fetchall()
        for day, problem, count in rows:
            counts[day][prefix + declared_part(trees[table], problem)] += count
    return counts


def _extra_counts(db: duckdb.DuckDBPyConnection, kind: LeadKind) -> defaultdict[date, Counter[str]]:
    """How many rows have each member that the contract doesn't know. By DuckDB, as there may be thousands a lead."""
    trees = trees_of(kind)
    counts: defaultdict[date, Counter[str]] = defaultdict(Counter)
    for table, prefix in _prefixes(kind).items():
        objects = list(_objects(trees[table]).items())
        rows = db.execute(
            f"""
            select window_day, object, key, count(*)
            from (
                select window_day, object, unnest(keys) as key
                from (
                    select
                        window_day, unnest(range(len($pointers))) as object,
                        unnest(json_keys(_extra, $pointers)) as keys
                    from {quoted(table)}
                    where _extra is not null
                )
            )
            group by all
            """,  # noqa: S608 - the contract's own names alone
            {"pointers": [_pointer(path) for path, _ in objects]},
        ).fetchall()
        for day, number, key, count in rows:
            path, declared = objects[number]
            if declared.get(key) is None:  # otherwise it is an object with something new in it
                counts[day][prefix + (path and f"{path}.") + key] += count
    return counts


def _prefixes(kind: LeadKind) -> dict[str, str]:
    """What stands before a path in the counts, by table: nothing for the lead's own, `viewingTimes[].` for a list's."""
    return {kind.table: ""} | {child.name: f"{child.path}[]." for child in kind.children}


# --- what SQL can't do, for the few leads that need it -----------------------------------------------------------

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECTS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, ValueError)

# Half of what Python's stack holds.
_MAX_NESTING: Final = 500


# A Python function, the DuckDB types of its parameters, and of what it returns.
_Function = tuple[Callable[..., str | list[str] | list[str | None] | None], list[Any], str]


def _extra_functions(kind: LeadKind) -> dict[str, _Function]:
    functions: dict[str, _Function] = {"extra_of_lead": (partial(_extra, _tree_of_lead(kind)), ["VARCHAR"], "VARCHAR")}
    for child in kind.children:
        functions[f"extras_of_{child.name}"] = (partial(_extras, child), ["VARCHAR", "BIGINT"], "VARCHAR[]")
        functions[f"elements_of_{child.name}"] = (partial(_elements, child), ["VARCHAR", "BIGINT"], "VARCHAR[]")
    return functions


def _define(db: duckdb.DuckDBPyConnection, extra: Mapping[str, _Function]) -> None:
    """Make the macros and functions that the statements call. DuckDB calls a function only for rows that reach it."""
    for macro in _MACROS:
        db.execute(f"create temp macro {macro}")
    functions: dict[str, _Function] = {
        "mended": (_mended, ["VARCHAR"], "VARCHAR"),
        "written": (_written, ["VARCHAR", "VARCHAR"], "VARCHAR"),
        **extra,
    }
    for name, (function, parameters, returned) in functions.items():
        # DuckDB otherwise expects a function never to return NULL, and never to get one.
        db.create_function(name, function, parameters, returned, null_handling=FunctionNullHandling.SPECIAL)


def _mended(payload: str) -> str | None:
    """JSON for a text that isn't quite, None where it can't be had.

    For example of a message that was cut in the middle of an emoji (a lone surrogate), or with a line break unescaped.
    Numbers become text, exactly as written, and are cast from there.
    """
    try:
        value = json.loads(
            payload, strict=False, object_pairs_hook=_once, parse_float=str, parse_int=str, parse_constant=str
        )
        return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
    except (ValueError, RecursionError):
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once each. Mending another would hide that a value was dropped."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key stands twice")
    return members


def _written(body: str | None, pointer: str) -> str | None:
    """The number at that JSON pointer as it was written. Of a key that stands twice the first counts, as in DuckDB."""
    if body is None:
        return None
    steps = pointer.split("/")[1:]
    try:
        if all(body.count(f'"{step}"') == 1 for step in steps):  # no list, and no key twice: quick
            raw = body.encode()
            for step in steps:
                raw = bytes(_MEMBERS.decode(raw)[step])
            if raw[:1] in b"-0123456789":
                return raw.decode()
        value = json.loads(body, object_pairs_hook=_first_wins, parse_float=str, parse_int=str)
        for step in steps:
            value = value[step]
    except (*_UNREADABLE, LookupError, TypeError):
        return None
    return value if isinstance(value, str) else None


def _first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def _extra(tree: _Tree, text: str | None) -> str | None:
    """The object's members that the tree doesn't know, as JSON of the same nesting; None where it can't be read."""
    try:
        return None if text is None else _unknown(tree, _MEMBERS.decode(_shallow(text)))
    except _UNREADABLE:
        return None


def _elements(child: ChildTable, body: str, number: int) -> list[str] | None:
    """The elements of a lead's list, each as received; None where that many can't be cut out.

    All at once: to read the lead again for each of thousands took minutes.
    """
    try:
        elements = [str(element, "utf-8") for element in _ELEMENTS.decode(_list_in(child, body))]
    except _UNREADABLE:
        return None
    return elements if len(elements) == number else None


def _extras(child: ChildTable, body: str, number: int) -> list[str | None] | None:
    """What _extra says of each element of a lead's list. One call a list: one an element took twice as long."""
    tree = _tree(child.fields)
    try:
        text = _list_in(child, body)
        try:
            extras = [_unknown(tree, members) for members in _OBJECTS.decode(text)]
        except msgspec.ValidationError:  # not all of them are objects
            extras = [_extra(tree, str(element, "utf-8")) for element in _ELEMENTS.decode(text)]
    except _UNREADABLE:
        return None
    return extras if len(extras) == number else None


def _list_in(child: ChildTable, body: str) -> bytes:
    raw = _shallow(body)
    for step in child.path.split("."):
        raw = bytes(_MEMBERS.decode(raw)[step])
    return raw


_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NOT_NESTING: Final = bytes(set(range(256)) - set(b"[{]}"))
_NOT_NESTING_OR_TEXT: Final = bytes(set(_NOT_NESTING) - set(b'"\\'))
# An opening bracket as 1, a closing one as the byte of -1.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")


def _shallow(text: str) -> bytes:
    """The text as bytes. Raises RecursionError where it is nested so deep that a fuller stack couldn't read it.

    What is in `_extra` is the same whichever thread reads it: where Python's stack ends differs.
    """
    raw = text.encode()
    if raw.count(b"[") + raw.count(b"{") > _MAX_NESTING:
        # Strings without a bracket are two quotes then. What is left of others is looked for, which takes longer.
        brackets = raw.translate(None, _NOT_NESTING_OR_TEXT).replace(b'""', b"")
        if b'"' in brackets or b"\\" in brackets:
            brackets = _STRING.sub(b"", raw).translate(None, _NOT_NESTING)
        steps = brackets.translate(_STEPS)
        innermost = 0
        while steps and innermost < 4:  # most are in pairs, and thousands go at once
            steps = steps.replace(b"\x01\xff", b"")
            innermost += 1
        if innermost + max(accumulate(memoryview(steps).cast("b")), default=0) > _MAX_NESTING:
            raise RecursionError
    return raw


def _unknown(tree: _Tree, members: Mapping[str, msgspec.Raw]) -> str | None:
    """The values are cut out of the text received: nothing is rounded or written anew."""
    parts = []
    for key, value in members.items():
        known = tree.get(key, _NEW)
        if known is _NEW:
            parts.append(f"{encode_basestring_ascii(key)}:{str(value, 'utf-8')}")
        elif (
            known is not None
            and bytes(value).lstrip().startswith(b"{")
            and (inner := _unknown(known, _MEMBERS.decode(value)))
        ):
            parts.append(f"{encode_basestring_ascii(key)}:{inner}")
    return f"{{{','.join(parts)}}}" if parts else None


_NEW: Final = object()


def _tree(fields: Sequence[Field], lists: Sequence[ChildTable] = ()) -> _Tree:
    """What is known of an object: its declared fields and its lists, whose elements have trees of their own."""
    tree: _Tree = {}
    for path in (*(field.path for field in fields), *(child.path for child in lists)):
        _put(tree, path, None)
    return tree


def trees_of(kind: LeadKind) -> dict[str, _Tree]:
    """What the contract knows of a lead, and of an element of each of its lists, by table."""
    return {kind.table: _tree_of_lead(kind), **{child.name: _tree(child.fields) for child in kind.children}}


def declared_part(tree: _Tree, problem: str) -> str:
    """What `_problems` says, up to a name that the contract doesn't know: a repeated key may be a person's name."""
    if problem in _ODDITIES:
        return problem
    known: _Tree | None = tree
    parts: list[str] = []
    for step in problem.split("."):
        if known is None or step not in known:
            return ".".join([*parts, HIDDEN])
        parts.append(step)
        known = known[step]
    return problem


def _tree_of_lead(kind: LeadKind) -> _Tree:
    return {"id": None} | _tree(kind.fields, kind.children)
