"""The same month gives the same tables as in 1de0322e, with drift, hostile leads, requests of
people and a restore.

The program that made the recordings is in the history of this folder.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leads_pipeline_tests.promises.month import (
    Tables,
    carry_out,
    libfaketime,
    prepare,
    recorded_month,
    recorded_tables,
    replayed,
    tables,
)
from leads_pipeline_tests.promises.portal import portal

# What 1de0322e hasn't.
NEW: set[str] = {
    "dates",
    "mart_listing_demand.currency",
    "mart_districts",
    "mart_monthly",
    "mart_opening_hours",
    "mart_searches",
    "mart_weekly",
    "outcomes",
    "mart_outcomes",
}

# How many rows of a table are shown.
SHOWN = 5


@pytest.mark.slow
def test_a_month_gives_the_same_tables_as_1de0322e(tmp_path: Path) -> None:
    if libfaketime() is None:
        pytest.skip("libfaketime is not installed: apt install faketime")
    data = tmp_path / "data"
    start, files, steps = recorded_month()
    prepare(data, files)

    for step in steps:
        with portal(replayed(step)) as address:
            exit_code, said = carry_out(data, address, step.clock, step.arguments, start)
        assert exit_code == step.exit_code, said

    if lines := list(differences(recorded_tables(), tables(data / "leads.duckdb"))):
        pytest.fail("\n".join(["The tables differ from those of 1de0322e.", *lines]), pytrace=False)


def differences(recorded: Tables, now: Tables) -> Iterator[str]:
    """Each difference in words, table by table."""
    for table in sorted(recorded.keys() | now.keys()):
        if table in NEW:
            continue
        if table not in now or table not in recorded:
            yield f"{table}: {'is gone' if table in recorded else 'is new'}"
            continue
        (columns, rows), (columns_now, rows_now) = recorded[table], now[table]
        yield from (f"{table}.{column}: is gone" for column in columns if column not in columns_now)
        yield from (
            f"{table}.{column}: is new"
            for column in columns_now
            if column not in columns and f"{table}.{column}" not in NEW
        )
        shared = [column for column in columns if column in columns_now]
        yield from _different_rows(
            table, shared, _only(rows, columns, shared), _only(rows_now, columns_now, shared)
        )


Row = tuple[str, ...]


def _only(rows: list[list[Any]], columns: list[str], shared: list[str]) -> Counter[Row]:
    places = [columns.index(column) for column in shared]
    return Counter(tuple(repr(row[place]) for place in places) for row in rows)


def _different_rows(
    table: str, columns: list[str], before: Counter[Row], now: Counter[Row]
) -> Iterator[str]:
    lost, new = list((before - now).elements()), list((now - before).elements())
    if lost or new:
        yield (
            f"{table}: {len(lost)} of {before.total()} recorded rows differ or are gone, "
            f"{len(new)} rows are new"
        )
    # Sorted, so that a row stands near the one that it has become.
    yield from (f"    gone: {_shown(columns, row)}" for row in sorted(lost)[:SHOWN])
    yield from (f"    new: {_shown(columns, row)}" for row in sorted(new)[:SHOWN])


def _shown(columns: list[str], row: Row) -> str:
    return ", ".join(
        f"{column} {cell[:60]}"
        for column, cell in zip(columns, row, strict=True)
        if cell not in ("None", "[]")
    )
