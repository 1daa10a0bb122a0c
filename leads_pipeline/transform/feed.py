"""The feed: which leads each publication added, changed or removed, for programs that follow leads.duckdb.

Belongs here: the table, and what counts as a change. Doesn't: the tables of leads (flatten.py), when something is
published (publish.py).
"""

# ruff: noqa: S608 - only our own names are in the statements

from collections.abc import Sequence
from datetime import date, datetime
from typing import Final

import duckdb

from leads_pipeline.domain.contract import LEAD_KINDS, LeadKind
from leads_pipeline.transform.duck import Column, literal, quoted
from leads_pipeline.transform.tables import Table, columns_of, is_of

FEED: Final = Table(
    "lead_feed",
    "One row per lead that a publication added, changed or removed; a row never changes",
    (
        Column(
            "number",
            "bigint",
            "Grows from row to row, with gaps. If the lowest one is above the last that you have read, read all leads "
            "again: the feed was begun anew",
        ),
        Column("kind", "varchar", "applicant or appraisal"),
        Column("lead_id", "varchar", "The lead's own id; its row is in applicant_leads or appraisal_leads"),
        Column(
            "change",
            "varchar",
            "added, changed or removed. Removed leads were erased, restricted or made anonymous",
        ),
        Column("at", "timestamptz", 'When the publication began, UTC. Write "at" in quotes: it is a word of SQL'),
    ),
)

# How many rows of each table were added, changed and removed.
Rows = dict[str, dict[str, int]]

# These columns say how a version came, not what it says.
_HOW_IT_CAME: Final = {"fetched_at", "sequence", "source", "window_day", "day"}


def append_changes(
    db: duckdb.DuckDBPyConnection,
    at: datetime,
    days: Sequence[date] | None,
    *,
    named_from: date,
    before_named_from: date | None,
) -> Rows:
    """Append to the feed what differs between the database `before` and this one. Return the rows by table and change.

    Only leads of these days are compared, or all. `named_from`: leads of windows before that day are anonymous, and
    count as removed; `before_named_from` is the day that counted in the file before. Without it, the feed begins anew
    with all leads.
    """
    db.execute("create temp table changes (table_name varchar, kind varchar, lead_id varchar, change varchar)")
    counts: Rows = {}
    of_days = f" and {is_of(days)}" if days is not None else ""
    for kind in LEAD_KINDS:
        for table in kind.tables:
            counts[table] = {"added": 0, "changed": 0, "removed": 0}
            was_there = _is_named(before_named_from) + of_days if before_named_from else None
            _compare(db, kind, table, was_there, _is_named(named_from) + of_days)
    is_lead = f"table_name in ({', '.join(literal(kind.table) for kind in LEAD_KINDS)})"
    change = f"coalesce(any_value(change) filter ({is_lead}), 'changed')"
    after = _append(db, f"select kind, lead_id, {change} from changes group by kind, lead_id", at)
    if before_named_from is None:
        db.execute(f"delete from lead_feed where number <= {after}")
    for table, change, rows in db.execute("select table_name, change, count(*) from changes group by all").fetchall():
        counts[table][change] = rows
    return counts


def _append(db: duckdb.DuckDBPyConnection, changes: str, at: datetime) -> int:
    """Append changes. Their numbers are above the one that is returned.

    That is the moment in microseconds, or the highest number so far. So a number of a lost file isn't given again.
    """
    [(highest,)] = db.execute("select coalesce(max(number), 0) from lead_feed").fetchall()
    after: int = max(highest, int(at.timestamp() * 1e6))
    db.execute(f"insert into lead_feed select {after} + row_number() over (), *, $at from ({changes})", {"at": at})
    return after


def _is_named(named_from: date) -> str:
    return f"window_day >= {literal(named_from.isoformat())}"


def _compare(db: duckdb.DuckDBPyConnection, kind: LeadKind, table: str, was_there: str | None, is_there: str) -> None:
    """Note which rows of the table differ. The conditions say which leads count, before and now."""
    columns = {*columns_of(db, table)} - _HOW_IT_CAME
    shared = [name for name in columns_of(db, table, database="before") if was_there and name in columns]
    now = _rows(kind, table, shared, is_there)
    before = _rows(kind, table, shared, was_there, "before.main.") if shared and was_there else f"from ({now}) limit 0"
    key = "lead_id" if table == kind.table else "lead_id, position"
    db.execute(
        f"""
        insert into changes
        select
            {literal(table)}, {literal(kind.name)}, lead_id,
            case when former.content is null then 'added' when latter.content is null then 'removed' else 'changed' end
        from ({before}) as former full join ({now}) as latter using ({key})
        where former.content is distinct from latter.content
        """
    )


def _rows(kind: LeadKind, table: str, columns: Sequence[str], is_there: str, database: str = "") -> str:
    """Return a select of the rows of a table: their keys, and as `content` a hash of these columns, 0 without any."""
    leads = f"from {database}{quoted(kind.table)} where {is_there}"
    content = (f"hash({', '.join(map(quoted, columns))})" if columns else "0") + " as content"
    if table == kind.table:
        return f"select lead_id, {content} {leads}"
    return f"select lead_id, position, {content} from {database}{quoted(table)} semi join ({leads}) using (lead_id)"
