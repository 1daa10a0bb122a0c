"""Made-up leads on their way through lake, flatten and warehouse, for the tests of both."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.contract import Answer, LeadKind
from leads_pipeline.domain.answer import read_leads
from leads_pipeline.duck import glob_literal
from leads_pipeline.flatten.batches import flatten_day
from leads_pipeline.flatten.counts import StagedDay
from leads_pipeline.lake import Lake
from leads_pipeline.privacy.sweeping import Swept, in_line
from leads_pipeline.warehouse import Grid, Publication, Warehouse
from leads_pipeline.window import Scope, Window

DAY = date(2026, 11, 19)
NEXT_DAY = date(2026, 11, 20)
LONDON = ZoneInfo("Europe/London")
FETCHED_AT = datetime(2026, 11, 21, 6, tzinfo=UTC)


def land(
    lake: Lake,
    kind: LeadKind,
    leads: Sequence[str | Mapping[str, Any]],
    *,
    day: date = DAY,
    scope: str = "branch-101",
    fetched_at: datetime = FETCHED_AT,
    sequence: int | None = None,
) -> None:
    """Land the leads, given as JSON texts or as what becomes one, as if an answer had held them.

    They count by `fetched_at` where no `sequence` is given.
    """
    texts = [lead if isinstance(lead, str) else json.dumps(lead) for lead in leads]
    body = f'{{"{kind.list_key}":[{",".join(texts)}]}}'.encode(errors="surrogateescape")
    answer = Answer(
        kind=kind,
        window=Window.of(day, Scope.parse(scope), LONDON),
        leads=read_leads(kind, body).leads,
        fetched_at=fetched_at,
        request="/leads",
        body_sha256="ab" * 32,
        body_bytes=len(body),
        attempts=1,
        duration_seconds=0.1,
        sequence=sequence,
    )
    lake.land(answer, "run-1")


def stage(lake: Lake, kind: LeadKind, day: date = DAY) -> StagedDay:
    """Flatten the day."""
    return flatten_day(lake, kind, day, LONDON)


def publish(lake: Lake, grid: Grid, now: datetime) -> Publication:
    """As the asset does it: in line with the suppression list."""
    publication, swept = publish_in_line(lake, grid, now)
    assert swept.failed == {}
    return publication


def publish_in_line(lake: Lake, grid: Grid, now: datetime) -> tuple[Publication, Swept]:
    """The same, and what bringing the folder in line did."""
    with in_line(lake, LONDON) as swept:
        return Warehouse(lake).publish(grid, now), swept


def staged_rows(lake: Lake, table: str, day: date = DAY) -> list[dict[str, Any]]:
    """The rows of a staged file, in its order."""
    with duckdb.connect() as db:
        db.execute("set TimeZone = 'UTC'")
        cursor = db.execute(
            "from read_parquet($path, hive_partitioning = false)", {"path": glob_literal(lake.staged_path(table, day))}
        )
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def staged_leads(lake: Lake, kind: LeadKind, day: date = DAY) -> dict[str, dict[str, Any]]:
    """The staged leads of a kind by their id."""
    return {row["lead_id"]: row for row in staged_rows(lake, kind.table, day)}


def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """An installation's data folder, with the variables that lead to it."""
    variables = {
        "LEADS_DATA_DIR": str(tmp_path / "data"),
        "LEADS_PRIVACY_DIR": str(tmp_path / "list"),
        "DAGSTER_HOME": str(tmp_path / "home"),
        "LEADS_BRANCH_IDS": "101,102",
        "LEADS_START_DATE": DAY.isoformat(),
        "LEADS_TIMEZONE": "Europe/London",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Lake(tmp_path / "data", tmp_path / "list")
