"""The examples that send the marts on, with a real PostgreSQL where one is installed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from leads_pipeline.branches import Branches
from leads_pipeline.contract import APPLICANT
from leads_pipeline.lake import Lake
from leads_pipeline.warehouse import Grid, Warehouse
from leads_pipeline.window import Scope
from leads_pipeline_tests.postgres import running_postgres
from leads_pipeline_tests.staging import DAY, LONDON, land, stage

pytestmark = pytest.mark.chaos

EXAMPLES = Path(__file__).parents[2] / "examples" / "sending_on"


@pytest.fixture
def postgres() -> Iterator[dict[str, str]]:
    """The variables that lead to a PostgreSQL of the test's own."""
    with running_postgres() as server:
        yield server.variables


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lake = Lake(tmp_path / "data")
    listing = {"id": "7", "url": 'https://portal.example/"7", seven', "pricing": {"price": 250000.5}}
    leads = [{"id": f"{number}", "contact": {"email": f"{number % 7}@example.org"}} for number in range(20)]
    land(lake, APPLICANT, [{**lead, "listingDetails": listing} for lead in leads])
    stage(lake, APPLICANT)
    names = Branches({"branch-101": "Saint John's, York"})
    grid = Grid((Scope.parse("branch-101"),), DAY, LONDON, branches=names)
    Warehouse(lake).publish(grid, datetime(2026, 11, 21, 12, tzinfo=UTC))
    return Warehouse(lake).path


QUESTIONS = (
    "select branch, sum(leads)::bigint, count(distinct person) from {}mart_people_daily group by branch",
    "select listing_id, url, price::varchar, address is null from {}mart_listing_demand",
    "select count(*), min(deleted_from_at) = timestamptz '2026-12-19 00:00:00+00' from {}mart_coverage",
)


def sent(postgres: dict[str, str], question: str) -> list[str]:
    command = ["psql", "--no-psqlrc", "--csv", "--tuples-only", "-c", question.format("leads.")]
    done = subprocess.run(command, env=os.environ | postgres, capture_output=True, text=True, check=True)
    return sorted(done.stdout.splitlines())


def here(file: Path, question: str) -> list[str]:
    """The same rows as psql writes them."""
    with duckdb.connect(file, read_only=True) as db:
        rows = db.sql(question.format("")).fetchall()
    cells = [[{True: "t", False: "f"}.get(v, str(v)) if isinstance(v, bool) else str(v) for v in row] for row in rows]
    return sorted(
        ",".join(f'"{c.replace(chr(34), chr(34) * 2)}"' if set(c) & {",", '"'} else c for c in r) for r in cells
    )


def test_the_marts_reach_postgresql_without_duckdbs_extension(postgres: dict[str, str], file: Path) -> None:
    script = EXAMPLES / "postgres_by_csv.py"
    for _ in range(2):  # a second time in place of the first
        subprocess.run([sys.executable, script, file], env=os.environ | postgres, check=True, capture_output=True)
        for question in QUESTIONS:
            assert sent(postgres, question) == here(file, question)


def test_the_marts_reach_postgresql_by_attach(
    postgres: dict[str, str], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parents[1])
    for name, value in postgres.items():
        monkeypatch.setenv(name, value)
    with duckdb.connect() as db:
        try:
            db.load_extension("postgres")
        except duckdb.Error:
            pytest.skip(f"DuckDB {duckdb.__version__} has no extension postgres here, and a test fetches none")
        db.execute((EXAMPLES / "postgres.sql").read_text().replace("install postgres;\n", ""))
    for question in QUESTIONS:
        assert sent(postgres, question) == here(file, question)
