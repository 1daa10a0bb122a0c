"""The windows that should be there, and what is known of those that failed, for the marts to read.

Belongs here: the grid and its temporary tables. Doesn't: coverage itself (sql/mart_coverage.sql).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from zoneinfo import ZoneInfo

import duckdb

from leads_pipeline.branches import Branches
from leads_pipeline.contract import LEAD_KINDS, LeadKind
from leads_pipeline.duck import quoted
from leads_pipeline.flatten.statement import define_local_time
from leads_pipeline.retry import FailedWindow
from leads_pipeline.warehouse.schema import fill
from leads_pipeline.window import RETENTION, Scope, Window, day_interval, days, offsets, today


@dataclass(frozen=True, slots=True)
class Grid:
    """The windows that should be there: every scope on every day from `first_day` to today in `zone`.

    And those of them that are still failed, and what the branches are called.
    """

    scopes: Sequence[Scope]
    first_day: date
    zone: ZoneInfo
    failed: Mapping[tuple[LeadKind, Window], FailedWindow] = field(default_factory=dict)
    branches: Branches = field(default_factory=Branches)


def set_grid(db: duckdb.DuckDBPyConnection, grid: Grid, now: datetime) -> None:
    """Make what the marts read besides tables: grid_…, branch_names, failures, local_time, the variable retention."""
    grid_days = [(day, *day_interval(day, grid.zone)) for day in days(grid.first_day, today(grid.zone, now))]
    db.execute("create temp table grid_kinds (kind varchar)")
    db.execute("create temp table grid_scopes (scope varchar)")
    db.execute(
        "create temp table grid_days (day date, window_start timestamptz, window_end timestamptz, is_over boolean, "
        "is_deleted boolean)"
    )
    db.execute(
        "create temp table failures "
        "(kind varchar, day date, scope varchar, attempts integer, last_error varchar, is_refused boolean)"
    )
    db.execute("set variable retention = $retention", {"retention": RETENTION})
    define_local_time(db, offsets(grid.zone))
    fill(db, "grid_kinds", {"kind varchar": [kind.name for kind in LEAD_KINDS]})
    fill(db, "grid_scopes", {"scope varchar": [scope.key for scope in grid.scopes]})
    _set_names(db, grid.branches)
    fill(
        db,
        "grid_days",
        {
            "day date": [day for day, _, _ in grid_days],
            "window_start timestamptz": [start for _, start, _ in grid_days],
            "window_end timestamptz": [end for _, _, end in grid_days],
            "is_over boolean": [end <= now for _, _, end in grid_days],
            "is_deleted boolean": [end <= now - RETENTION for _, _, end in grid_days],
        },
    )
    fill(
        db,
        "failures",
        {
            "kind varchar": [kind.name for kind, _ in grid.failed],
            "day date": [window.day for _, window in grid.failed],
            "scope varchar": [window.scope.key for _, window in grid.failed],
            "attempts integer": [failed.attempts for failed in grid.failed.values()],
            "last_error varchar": [failed.error for failed in grid.failed.values()],
            "is_refused boolean": [failed.is_permanent for failed in grid.failed.values()],
        },
    )


def _set_names(db: duckdb.DuckDBPyConnection, branches: Branches) -> None:
    columns = ["scope", "name", *branches.columns]
    db.execute(f"create temp table branch_names ({', '.join(f'{quoted(column)} varchar' for column in columns)})")
    rows = [(scope, name, *branches.more.get(scope, ())) for scope, name in branches.names.items()]
    fill(db, "branch_names", {f"{at} varchar": [row[at] for row in rows] for at in range(len(columns))})
