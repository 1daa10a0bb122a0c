"""The floor: the same requests and the same tables with nothing that a pipeline is for.

Each answer is a raw file, each day one json_transform, and the tables take what they don't hold
yet. No fsync, no retry, no strict type, nothing kept of fields that aren't declared.
"""

import asyncio
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import httpx

from leads_pipeline.domain.contract import APPLICANT
from leads_pipeline.warehouse.duck import DUCKDB_TYPES

FOLDER = Path(os.environ["LEADS_DATA_DIR"])
BASE_URL = os.environ["LEADS_BASE_URL"]
CONCURRENCY = int(os.environ["LEADS_MAX_CONCURRENCY"])


async def fetch(days: list[date], branches: list[str]) -> None:
    """One raw file per window."""
    form = {
        "grant_type": "client_credentials",
        "client_id": os.environ["LEADS_CLIENT_ID"],
        "client_secret": os.environ["LEADS_CLIENT_SECRET"],
        "audience": BASE_URL,
    }
    windows = iter([(day, branch) for day in days for branch in branches])

    async def work(token: str) -> None:
        async with httpx.AsyncClient(
            base_url=BASE_URL, headers={"Authorization": f"Bearer {token}"}
        ) as http:
            for day, branch in windows:
                ends = {
                    "from-time": f"{day}T00:00:00Z",
                    "to-time": f"{day + timedelta(days=1)}T00:00:00Z",
                }
                answer = await http.get(APPLICANT.path, params={**ends, "branch-id": branch})
                raw(day).joinpath(f"{branch}.json").write_bytes(answer.raise_for_status().content)

    for day in days:
        raw(day).mkdir(parents=True, exist_ok=True)
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{BASE_URL}/oauth2/token", data=form)
    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENCY):
            group.create_task(work(answer.json()["access_token"]))


def raw(day: date) -> Path:
    """Where a day's raw files lie."""
    return FOLDER / "raw" / day.isoformat()


def staged(table: str, day: date) -> Path:
    """Where a day's flattened file lies."""
    return FOLDER / "staged" / table / f"{day}.parquet"


def structure() -> str:
    """A lead's declared fields and lists as json_transform takes them."""
    tree: dict[str, Any] = {"id": "varchar"}
    for path, type_ in [
        *((field.path, DUCKDB_TYPES[field.type]) for field in APPLICANT.fields),
        *(
            (child.path, [{f.path: DUCKDB_TYPES[f.type] for f in child.fields}])
            for child in APPLICANT.children
        ),
    ]:
        node = tree
        *parents, name = path.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = type_
    return json.dumps({APPLICANT.list_key: [tree]})


def flatten(day: date) -> None:
    """A day's raw files into a Parquet file per table, each lead once."""
    columns = ", ".join(f"lead.{field.path} as {field.column}" for field in APPLICANT.fields)
    with duckdb.connect(config={"threads": 1}) as db:
        db.execute(
            f"""
            create table day as
            select lead, date '{day}' as window_day from (
                select unnest(json_transform(content, '{structure()}').{APPLICANT.list_key}) as lead
                from read_text('{raw(day)}/*.json')
            )
            qualify row_number() over (partition by lead.id) = 1
            """
        )
        statements = {APPLICANT.table: f"select lead.id as lead_id, {columns}, window_day from day"}
        for child in APPLICANT.children:
            columns = ", ".join(f"item.{field.path} as {field.column}" for field in child.fields)
            items = (
                f"(select lead.id as lead_id, unnest(lead.{child.path}) as item, window_day from "
                "day)"
            )
            statements[child.name] = f"select lead_id, {columns}, window_day from {items}"
        for table, statement in statements.items():
            staged(table, day).parent.mkdir(parents=True, exist_ok=True)
            db.execute(
                f"copy ({statement}) to '{staged(table, day)}' (format parquet, compression zstd)"
            )


def load(days: list[date]) -> None:
    """The leads that the tables don't hold yet, each from its first day."""
    files = {
        table: f"read_parquet({[str(staged(table, day)) for day in days]})"
        for table in APPLICANT.tables
    }
    leads = APPLICANT.table
    with duckdb.connect(FOLDER / "leads.duckdb") as db:
        for table, source in files.items():
            db.execute(f"create table if not exists {table} as from {source} limit 0")
        db.execute(
            f"""
            create temp table new as
            select lead_id, min(window_day) as window_day
            from {files[leads]} where lead_id not in (select lead_id from {leads}) group by lead_id
            """
        )
        for table, source in files.items():
            db.execute(
                f"insert into {table} select * from {source} semi join new using (lead_id, "
                "window_day)"
            )


def main() -> None:
    """Fetch, flatten, load."""
    first, last = (
        date.fromisoformat(os.environ[f"BENCH_{which}_DAY"]) for which in ("FIRST", "LAST")
    )
    days = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    asyncio.run(fetch(days, os.environ["LEADS_BRANCH_IDS"].split(",")))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(flatten, days))
    load(days)


if __name__ == "__main__":
    main()
