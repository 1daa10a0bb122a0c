"""What flattening a day did, and whether its rows add up."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import duckdb

from leads_pipeline.contract import UNKNOWN_MOMENT, LeadKind
from leads_pipeline.duck import glob_literal, quoted
from leads_pipeline.errors import StorageError
from leads_pipeline.flatten.columns import BODY, WITNESSES
from leads_pipeline.flatten.trees import declared_part, objects_in, pointer, trees_of


@dataclass(frozen=True, slots=True)
class StagedDay:
    """What flattening a day did.

    `rows` counts the staged rows per table; the kind's own table holds `raw_rows - duplicates` of them.
    `duplicates` are further rows of a lead id within the day:
    older versions, or held by several scopes. `lead_ids` counts the different ids in the kind's staged table, as
    written, `unexplained` the leads that lack a key field which the payload has, without `_problems` saying so: a fault
    of flattening. `problems` counts leads and child rows by what `_problems` says, without names that the contract
    doesn't know; `extra` by such names, as received.
    """

    kind: str
    day: date
    raw_rows: int
    duplicates: int
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
            f"rows {staged.duplicates} are repeats, {rows} were to be staged, "
            f"with {staged.lead_ids} different ids; {staged.unexplained} lack a key field that their payload has. That "
            "day's staged files stay as they were, raw has every lead, and the other days go on. It is a fault of "
            "leads-pipeline: please report it.",
            reason="flattening",
        )
        self.staged = staged


def count_days(
    db: duckdb.DuckDBPyConnection,
    kind: LeadKind,
    targets: Mapping[date, Mapping[str, Path]],
    unexplained: Mapping[date, int],
) -> list[StagedDay]:
    """What was done, by day: rows and ids as the files have them, the rest as the tables they were written from.

    `unexplained` is what count_unexplained has counted of all parts.
    """
    raw_rows = _by_day(db, "select day, count(*) from raw group by day")
    duplicates = _by_day(db, "select day, count(*) from dropped group by day")
    problems, extra = _problem_counts(db, kind), _extra_counts(db, kind)
    rows = _by_file(db, _ROWS, [path for paths in targets.values() for path in paths.values()])
    lead_ids = _by_file(db, _LEAD_IDS, [paths[kind.table] for paths in targets.values()])
    return [
        StagedDay(
            kind=kind.name,
            day=day,
            raw_rows=raw_rows[day],
            duplicates=duplicates[day],
            lead_ids=lead_ids[str(paths[kind.table])],
            unexplained=unexplained.get(day, 0),
            rows={table: rows[str(path)] for table, path in paths.items()},
            problems=problems[day],
            extra=extra[day],
        )
        for day, paths in targets.items()
    ]


def balanced(kind: LeadKind, staged: StagedDay) -> StagedDay:
    """The day, whose files are about to replace others. Raises UnbalancedError."""
    rows = staged.rows[kind.table]
    expected = staged.raw_rows - staged.duplicates
    if expected == rows == staged.lead_ids and not staged.unexplained:
        return staged
    raise UnbalancedError(staged, rows)


def count_unexplained(db: duckdb.DuckDBPyConnection, kind: LeadKind) -> Counter[date]:
    """The leads that lack a key field which their text has, by day. The texts are still there."""
    return _by_day(db, _unexplained(kind))


def _by_day(db: duckdb.DuckDBPyConnection, statement: str) -> Counter[date]:
    return Counter(dict(db.execute(statement).fetchall()))


_ROWS: Final = "select file_name, num_rows from parquet_file_metadata($files)"
_LEAD_IDS: Final = "select filename, count(distinct lead_id) from read_parquet($files, filename = true) group by all"


def _by_file(db: duckdb.DuckDBPyConnection, statement: str, paths: Iterable[Path]) -> Counter[str]:
    return Counter(dict(db.execute(statement, {"files": list(map(glob_literal, paths))}).fetchall()))


def _unexplained(kind: LeadKind) -> str:
    """Their texts are looked into by other means than the statement's."""
    is_missed = " or ".join(
        f"{column} is null and not starts_with(coalesce(sent[{number}], '{UNKNOWN_MOMENT}'), '{UNKNOWN_MOMENT}')"
        for number, column in enumerate(WITNESSES, start=1)
    )
    return f"""
select window_day, count(*)
from (
    select *, try(json_extract_string({BODY}, {[pointer(path) for path in WITNESSES.values()]})) as sent
    from {quoted(kind.table)}
    where len(_problems) = 0 and ({" or ".join(f"{column} is null" for column in WITNESSES)})
)
where {is_missed}
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
    """How many rows have each member that the contract doesn't know. By DuckDB, as there may be thousands a lead.

    Rows with the same keys are counted together, as text: so no row is made of each key (half of the time, measured).
    """
    trees = trees_of(kind)
    counts: defaultdict[date, Counter[str]] = defaultdict(Counter)
    for table, prefix in _prefixes(kind).items():
        objects = list(objects_in(trees[table]).items())
        rows = db.execute(
            f"""
            with shapes as (
                select window_day, to_json(json_keys(_extra, $pointers)) as keys, count(*) as rows
                from {quoted(table)}
                where _extra is not null
                group by all
            ),
            objects as (
                select window_day, rows, unnest(range(len($pointers))) as object, unnest(keys::varchar[][]) as keys
                from shapes
            )
            select window_day, object, key, sum(rows)::bigint
            from (select window_day, rows, object, unnest(keys) as key from objects)
            group by all
            """,  # noqa: S608 - the contract's own names alone
            {"pointers": [pointer(path) for path, _ in objects]},
        ).fetchall()
        for day, number, key, count in rows:
            path, declared = objects[number]
            if declared.get(key) is None:  # otherwise it is an object with something new in it
                counts[day][prefix + (path and f"{path}.") + key] += count
    return counts


def _prefixes(kind: LeadKind) -> dict[str, str]:
    """What stands before a path in the counts, by table: nothing for the lead's own, `viewingTimes[].` for a list's."""
    return {kind.table: ""} | {child.name: f"{child.path}[]." for child in kind.children}
