"""Which days of the tables of leads a publication notes as touched, compared with the rows that differ."""

from datetime import date
from pathlib import Path

import duckdb

from leads_pipeline.contract import LEAD_KINDS
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Warehouse

TABLES = {table: "window_day" if table == kind.table else "day" for kind in LEAD_KINDS for table in kind.tables}

# What the published files were when they were last looked at: their publication, and a hash of each day's rows.
_before: dict[Path, tuple[object, dict[tuple[str, date], object]]] = {}


def assert_touched_days_are_noted(lake: Lake) -> None:
    """Each day that differs from when this was last called is noted, unless the file was rewritten."""
    path = Warehouse(lake).path
    with duckdb.connect(path, read_only=True) as db:
        numbers = dict(db.execute("select id, number from pipeline.publications").fetchall())
        noted = dict(db.execute("select day, publication from pipeline.touched_days").fetchall())
        days: dict[tuple[str, date], object] = {}
        for table, day in TABLES.items():
            columns = ", ".join(f'"{name}"' for name, *_ in db.execute(f"describe {table}").fetchall())
            rows = (
                f"select {day}, [count(*), bit_xor(hash({columns})), sum(hash({columns}))] from {table} group by {day}"  # noqa: S608
            )
            days |= {(table, one): digest for one, digest in db.execute(rows).fetchall()}
    newest = max(numbers, key=lambda one: numbers[one])
    was, before = _before.get(path, (None, {}))
    _before[path] = newest, days
    if was in numbers:
        differing = {one for one in days.keys() | before.keys() if days.get(one) != before.get(one)}
        assert {(table, day) for table, day in differing if noted.get(day, 0) <= numbers[was]} == set()
