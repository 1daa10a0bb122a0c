"""Leads that the suppression list keeps out, by their ids alone. Whoever left raw is known by id."""

import duckdb

from leads_pipeline.contract import LeadKind
from leads_pipeline.lake import Lake
from leads_pipeline.suppression import Meant

_ROWS_AT_ONCE = 10_000


def ids_out(db: duckdb.DuckDBPyConnection, lake: Lake, kind: LeadKind, source: str) -> bool:
    """Make the table `ids_out` of the leads among these rows that are erased or restricted; whether there are any."""
    return ids_of(db, lake.suppression.read().out, kind, source, "ids_out")


def ids_of(db: duckdb.DuckDBPyConnection, meant: Meant, kind: LeadKind, source: str, table: str) -> bool:
    """The same of other entries of the list, under another name."""
    lead_ids: list[str] = []
    if meant:
        cursor = db.execute(f"select distinct lead_id from {source}")  # noqa: S608 - only our own names
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            lead_ids += [lead_id for (lead_id,) in rows if meant.is_known(kind.name, lead_id)]
    db.execute(
        f"create or replace temp table {table} as select unnest($ids::varchar[]) as lead_id",
        {"ids": lead_ids},
    )
    return bool(lead_ids)
