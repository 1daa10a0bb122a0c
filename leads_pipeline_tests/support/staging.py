"""Made-up leads on their way from a raw file to leads.duckdb, for the tests of both."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import duckdb
import pytest

from leads_pipeline.domain.bodies import cut_leads
from leads_pipeline.domain.contract import APPLICANT, LeadKind
from leads_pipeline.domain.window import Scope, Window
from leads_pipeline.features.publication_steps import bring_up_to_date
from leads_pipeline.raw.branches import Branches
from leads_pipeline.raw.data_folder import DataFolder
from leads_pipeline.raw.rows import Row as RawRow
from leads_pipeline.raw.rows import landed_versions
from leads_pipeline.settings import Settings
from leads_pipeline.warehouse.current_leads import WindowLeads
from leads_pipeline.warehouse.duck import set_person_key
from leads_pipeline.warehouse.flatten import flatten
from leads_pipeline.warehouse.publication import PublicationSettings
from leads_pipeline.warehouse.published import LeadsFile
from leads_pipeline.warehouse.step import Publication
from leads_pipeline.warehouse.tables import create_table, lead_tables

DAY = date(2026, 11, 19)
NEXT_DAY = date(2026, 11, 20)
LONDON = ZoneInfo("Europe/London")
FETCHED_AT = datetime(2026, 11, 21, 6, tzinfo=UTC)


def land(
    data: DataFolder,
    kind: LeadKind,
    leads: Sequence[str | Mapping[str, Any]],
    *,
    day: date = DAY,
    scope: str = "branch-101",
    fetched_at: datetime = FETCHED_AT,
) -> None:
    """Land the leads, given as JSON texts or as what becomes one, as if an answer of that moment
    had held them.
    """
    texts = [lead if isinstance(lead, str) else json.dumps(lead) for lead in leads]
    body = f'{{"{kind.list_key}":[{",".join(texts)}]}}'.encode(errors="surrogateescape")
    window = Window.of(day, Scope.parse(scope), LONDON)
    received = cut_leads(kind, body).leads
    data.raw.land(kind, window, received, fetched_at, hashlib.sha256(body).hexdigest(), "run-1")


def publish(
    data: DataFolder,
    now: datetime = FETCHED_AT,
    *,
    scopes: Sequence[str] = ("branch-101", "branch-102"),
    first_day: date = DAY,
    zone: ZoneInfo = LONDON,
    branches: Branches | None = None,
    tables: str = "parquet",
) -> Publication:
    """Publish as the asset does it."""
    installation = Settings.from_variables({"LEADS_TABLES": tables})
    wanted = PublicationSettings(
        [*map(Scope.parse, scopes)], first_day, zone, branches or Branches(), installation
    )
    publication = bring_up_to_date(data, wanted, now)
    assert publication.problems == {}
    return publication


def published(data: DataFolder, table: str) -> list[dict[str, Any]]:
    """The rows of a published table."""
    columns, rows = LeadsFile(data).query(f'from "{table}" order by all')
    return [dict(zip(columns, row, strict=True)) for row in rows]


def published_leads(data: DataFolder, kind: LeadKind) -> dict[str, dict[str, Any]]:
    """The published leads of a kind by their id."""
    return {row["lead_id"]: row for row in published(data, kind.table)}


def with_list(folder: Path, list_: Path) -> DataFolder:
    """A data folder whose suppression list is in another folder."""
    return DataFolder.at(
        folder, settings=Settings.from_variables({"LEADS_PRIVACY_DIR": str(list_)})
    )


def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataFolder:
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
    return with_list(tmp_path / "data", tmp_path / "list")


# --- without raw files ----------------------------------------------------------------------------


def empty_tables() -> duckdb.DuckDBPyConnection:
    """A database in memory with the tables of leads."""
    db = duckdb.connect()
    db.execute("set TimeZone = 'UTC'")
    set_person_key(db, b"the key of a data folder's people")
    for table in lead_tables():
        create_table(db, table)
    return db


class Batch(NamedTuple):
    """Rows of one window, corrections among them."""

    kind: LeadKind
    day: date
    scope: str
    rows: Sequence[RawRow]


def batch(
    *leads: Mapping[str, Any] | str,
    number: int = 1,
    kind: LeadKind = APPLICANT,
    day: date = DAY,
    scope: str = "branch-101",
    source: str = "pull",
) -> Batch:
    """Versions of leads that came with one number."""
    rows = []
    for lead in leads:
        text = lead if isinstance(lead, str) else json.dumps(lead)
        rows.append(RawRow(json.loads(text)["id"], number, text, source))
    return Batch(kind, day, scope, rows)


def flatten_batches(
    db: duckdb.DuckDBPyConnection, *batches: Batch, zone: ZoneInfo = LONDON
) -> None:
    """Bring these windows into the tables of leads, as a publication does."""
    windows = (
        WindowLeads(one.kind, one.day, one.scope, landed_versions(one.rows), "") for one in batches
    )
    flatten(db, windows, zone, publication=1)
